"""Bad RoBERTa input to `fairseq-tn convert`: one line that names file and field, nothing written."""

import json

import pytest
import torch
from small_bert import rewrite
from small_roberta import write_roberta, write_tokenizer_json
from test_convert_errors import edit_checkpoint, refused, set_config, with_tensors, without

from fairseq_tn.convert.from_hf import convert_from_hf


def remove(name):
    return lambda folder: (folder / name).unlink()


def edit_vocabulary(change):
    def edit(folder):
        tokens = json.loads((folder / "vocab.json").read_text())
        change(tokens)
        (folder / "vocab.json").write_text(json.dumps(tokens))

    return edit


def append(name, text):
    def edit(folder):
        with (folder / name).open("a", encoding="utf-8") as file:
            file.write(text)

    return edit


def tokenizer_json(change):
    def edit(folder):
        write_tokenizer_json(folder)
        content = json.loads((folder / "tokenizer.json").read_text())
        change(content)
        (folder / "tokenizer.json").write_text(json.dumps(content))

    return edit


def narrow_segments(folder):
    name = "roberta.embeddings.token_type_embeddings.weight"
    rewrite(folder, lambda tensors: tensors.update({name: torch.ones(1, 23)}))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (
            set_config(model_type="camembert"),
            ["config.json", "camembert", "supported are bert", "roberta, xlm-roberta"],
        ),
        (set_config(position_embedding_type="relative_key"), ["position_embedding_type", "relative_key"]),
        (set_config(is_decoder=True), ["is_decoder"]),
        (set_config(layer_norm_eps=1e-12), ["layer_norm_eps", "1e-12", "1e-05"]),
        (set_config(pad_token_id=0), ["pad_token_id"]),
        (set_config(hidden_act="relu"), ["hidden_act", "relu"]),
        (set_config(hidden_size=25), ["hidden_size", "num_attention_heads"]),
        (set_config(max_position_embeddings=2), ["max_position_embeddings"]),
        (set_config(max_position_embeddings=36), ["position_embeddings.weight", "[34, 24]", "[36, 24]"]),
        (set_config(type_vocab_size=None), ["type_vocab_size"]),
        (set_config(vocab_size=300), ["vocab_size", "300", "298"]),
        (set_config(num_hidden_layers=3), ["lacks", "encoder.layer.2.attention.self.query.weight"]),
        (set_config(num_hidden_layers=1), ["encoder.layer.1", "15 more"]),
        (remove("vocab.json"), ["no tokenizer", "vocab.json"]),
        (remove("merges.txt"), ["merges.txt", "vocab.bpe"]),
        (append("merges.txt", "one two three\n"), ["merges.txt", "line 36"]),
        (edit_vocabulary(lambda tokens: tokens.pop("<unk>")), ["vocab.json", "id 4, not 3"]),
        (edit_vocabulary(lambda tokens: tokens.update(nowhere=298)), ["vocab.json", "nowhere", "merge"]),
        (edit_vocabulary(lambda tokens: tokens.update({"<s>": 1, "<pad>": 0})), ["padding", "at 0"]),
        (
            tokenizer_json(lambda content: content["model"].update(type="WordLevel")),
            ["tokenizer.json", "WordLevel"],
        ),
        (
            tokenizer_json(lambda content: content.update(pre_tokenizer={"type": "Metaspace"})),
            ["tokenizer.json", "BPE"],
        ),
        (tokenizer_json(lambda content: content["model"].update(merges=[["a"]])), ["cannot be understood"]),
        (
            with_tensors(**{"classifier.dense.weight": torch.ones(24, 24)}),
            ["fine-tuned", "model.roberta.save"],
        ),
        (with_tensors(**{"lm_head.decoder.weight": torch.ones(298, 24)}), ["decoder.weight", "untied"]),
        (with_tensors(**{"roberta.surplus": torch.ones(2)}), ["surplus", "does not have"]),
        (without("roberta.embeddings.token_type_embeddings.weight"), ["lacks", "token_type_embeddings"]),
        (without("lm_head.layer_norm.weight"), ["lacks", "lm_head.layer_norm.weight", "masked-LM head"]),
        (narrow_segments, ["token_type_embeddings", "[1, 23]"]),
    ],
)
def test_from_hf_refuses(tmp_path, capsys, spoil, words):
    original = tmp_path / "original"
    write_roberta(original)
    spoil(original)
    line = refused(capsys, tmp_path, "from-hf", original, "--output", tmp_path / "fairseq")
    assert all(word in line for word in words), line
    assert str(original) in line


def test_from_hf_refuses_a_damaged_sentencepiece_model(tmp_path, capsys):
    original = tmp_path / "original"
    write_roberta(original, "XLMRobertaForMaskedLM")
    (original / "sentencepiece.bpe.model").write_bytes(b"no model")
    line = refused(capsys, tmp_path, "from-hf", original, "--output", tmp_path / "fairseq")
    assert str(original / "sentencepiece.bpe.model") in line


def option(**values):
    return edit_checkpoint(lambda content: content["cfg"]["model"].update(values))


def tensor(**values):
    return edit_checkpoint(lambda content: content["model"].update(values))


def drop(name):
    return edit_checkpoint(lambda content: content["model"].pop(name))


BIAS = "encoder.sentence_encoder.layers.0.fc1.bias"


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (option(_name="roberta_prenorm", encoder_normalize_before=True), ["encoder_normalize_before"]),
        (option(encoder_normalize_before=True), ["encoder_normalize_before", "model.pt"]),
        (option(layernorm_embedding=False), ["layernorm_embedding"]),
        (option(untie_weights_roberta=True), ["untie_weights_roberta"]),
        (option(activation_fn="relu"), ["activation_fn", "relu"]),
        (option(_name="roberta_enc_dec"), ["roberta_enc_dec", "only tn_bert", "fairseq's roberta"]),
        (option(encoder_layers=3), ["lacks the tensor encoder.sentence_encoder.layers.2"]),
        (option(encoder_layers=1), ["holds the tensor encoder.sentence_encoder.layers.1"]),
        (option(encoder_ffn_embed_dim=41), ["does not fit its own configuration"]),
        (drop(BIAS), ["lacks", BIAS]),
        (drop("encoder.sentence_encoder.embed_tokens.weight"), ["lacks", "embed_tokens"]),
        (tensor(extra=torch.ones(1)), ["holds", "extra"]),
        (tensor(**{BIAS: torch.full((40,), float("nan"))}), [BIAS, "diverged"]),
        (tensor(**{"encoder.lm_head.weight": torch.ones(298, 24)}), ["encoder.lm_head.weight", "untied"]),
        (remove("dict.txt"), ["dict.txt"]),
        (append("dict.txt", "more 1\n"), ["vocabulary of", "298 and 299"]),
        (remove("hf/merges.txt"), ["merges.txt"]),
    ],
)
def test_to_hf_refuses(tmp_path, capsys, spoil, words):
    folder = tmp_path / "fairseq"
    write_roberta(tmp_path / "original")
    convert_from_hf(tmp_path / "original", folder)
    spoil(folder)
    line = refused(
        *(capsys, tmp_path, "to-hf", folder / "model.pt", "--dict", folder / "dict.txt"),
        *("--output", tmp_path / "back"),
    )
    assert all(word in line for word in words), line


def test_to_hf_refuses_an_architecture_of_another_kind(tmp_path, capsys):
    write_roberta(tmp_path / "original")
    convert_from_hf(tmp_path / "original", tmp_path / "fairseq")
    command = ["to-hf", tmp_path / "fairseq/model.pt", "--dict", tmp_path / "fairseq/dict.txt"]
    command += ["--output", tmp_path / "back", "--architecture"]
    assert "RobertaForMaskedLM" in refused(capsys, tmp_path, *command, "BertModel")
    assert "unknown architecture" in refused(capsys, tmp_path, *command, "RobertaForCausalLM")
