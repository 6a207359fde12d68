"""Bad input to `fairseq-tn convert`: one line, exit status 1, nothing written."""

import json
import sys

import pytest
import torch
from small_bert import rewrite, write_bert, write_tokenizer

from fairseq_tn.cli import main
from fairseq_tn.convert.from_hf import convert_from_hf


def refused(capsys, tmp_path, *arguments):
    """The line that the command prints; it must fail and leave no file behind."""
    before = set(tmp_path.rglob("*"))
    assert main(["convert", *map(str, arguments)]) == 1
    assert set(tmp_path.rglob("*")) == before
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    return line


def set_config(**changes):
    def change(folder):
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **changes}))

    return change


def truncate(name):
    def change(folder):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: len(content) // 2])

    return change


def to_pickle(folder, content=None):
    from safetensors.torch import load_file

    torch.save(content or load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def truncated_pickle(folder):
    to_pickle(folder)
    truncate("pytorch_model.bin")(folder)


class Code:
    """What a malicious pickle consists of."""

    def __reduce__(self):
        return (print, ("this code ran",))


def with_tensors(**tensors):
    return lambda folder: rewrite(folder, lambda found: found.update(tensors))


def without(*names):
    return lambda folder: rewrite(folder, lambda found: [found.pop(name) for name in names])


def pointer(folder):
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\nsize 3\n")


def missing_shard(folder):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "model-1.safetensors"}}')


WORDS = "bert.embeddings.word_embeddings.weight"
DENSE = "cls.predictions.transform.dense.weight"


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: (folder / "config.json").unlink(), ["no config.json"]),
        (
            lambda folder: (folder / "config.json").write_text('{"model_type": '),
            ["config.json", "broken JSON"],
        ),
        (lambda folder: (folder / "config.json").write_text("[1]"), ["config.json", "JSON object"]),
        (lambda folder: (folder / "config.json").write_bytes(b"\xff{}"), ["config.json", "UTF-8"]),
        (
            set_config(model_type="distilbert"),
            ["config.json", "model_type", "distilbert", "supported are bert"],
        ),
        (set_config(position_embedding_type="relative_key"), ["position_embedding_type", "relative_key"]),
        (set_config(is_decoder=True), ["is_decoder"]),
        (set_config(add_cross_attention=True), ["add_cross_attention"]),
        (set_config(hidden_act="silu"), ["hidden_act", "silu"]),
        (set_config(quantization_config={"bits": 4}), ["quantised"]),
        (set_config(hidden_size=None), ["hidden_size"]),
        (set_config(layer_norm_eps="small"), ["layer_norm_eps", "small"]),
        (set_config(num_attention_heads=5), ["num_attention_heads"]),
        (
            set_config(intermediate_size=44),
            ["encoder.layer.0.intermediate.dense.weight", "[40, 24]", "[44, 24]"],
        ),
        (set_config(num_hidden_layers=3), ["lacks", "encoder.layer.2.attention.self.query.weight"]),
        (set_config(num_hidden_layers=1), ["encoder.layer.1", "15 more"]),
        (set_config(vocab_size=64), ["vocab_size", "64", "60"]),
        (lambda folder: (folder / "vocab.txt").unlink(), ["tokenizer.json", "vocab.txt"]),
        (lambda folder: (folder / "model.safetensors").unlink(), ["no weights"]),
        (truncate("model.safetensors"), ["model.safetensors", "truncated"]),
        (truncated_pickle, ["pytorch_model.bin", "damaged"]),
        (lambda folder: to_pickle(folder, {"a": Code()}), ["pytorch_model.bin", "run code"]),
        (
            lambda folder: to_pickle(folder, {"epoch": 3}),
            ["pytorch_model.bin", "more than a model's tensors"],
        ),
        (pointer, ["model.safetensors", "Git LFS"]),
        (missing_shard, ["model-1.safetensors", "missing"]),
        (with_tensors(**{"classifier.weight": torch.ones(2, 24)}), ["classifier.weight", "fine-tuned"]),
        (with_tensors(**{"bert.surplus": torch.ones(2)}), ["surplus", "does not have"]),
        (
            with_tensors(**{"embeddings.word_embeddings.weight": torch.ones(60, 24)}),
            ["word_embeddings", "twice"],
        ),
        (with_tensors(**{"cls.predictions.decoder.weight": torch.ones(60, 24)}), ["untied"]),
        (with_tensors(**{"cls.predictions.decoder.bias": torch.ones(60)}), ["decoder.bias", "differ"]),
        (with_tensors(**{WORDS: torch.ones(60, 24, dtype=torch.int8)}), ["word_embeddings", "int8"]),
        (without("bert.embeddings.LayerNorm.bias"), ["lacks", "embeddings.LayerNorm.bias"]),
        (without(DENSE), ["lacks", DENSE, "masked-LM head"]),
    ],
)
def test_from_hf_refuses(hf_folder, tmp_path, capsys, spoil, words):
    spoil(hf_folder)
    line = refused(capsys, tmp_path, "from-hf", hf_folder, "--output", tmp_path / "fairseq")
    assert all(word in line for word in words), line
    assert str(hf_folder) in line


def test_from_hf_refuses_a_folder_that_is_not_there(tmp_path, capsys):
    line = refused(capsys, tmp_path, "from-hf", tmp_path / "nowhere", "--output", tmp_path / "fairseq")
    assert str(tmp_path / "nowhere") in line


def test_from_hf_needs_safetensors(hf_folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    line = refused(capsys, tmp_path, "from-hf", hf_folder, "--output", tmp_path / "fairseq")
    assert "pip install safetensors" in line


def test_output_must_not_be_the_folder_itself(hf_folder, capsys):
    before = sorted(path.name for path in hf_folder.iterdir())
    assert main(["convert", "from-hf", str(hf_folder), "--output", str(hf_folder / "." / "")]) == 1
    assert "is the folder that is converted" in capsys.readouterr().err
    assert sorted(path.name for path in hf_folder.iterdir()) == before


def test_output_must_not_be_a_file(hf_folder, tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    assert "is a file" in refused(capsys, tmp_path, "from-hf", hf_folder, "--output", tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
    line = refused(capsys, tmp_path, "from-hf", hf_folder, "--output", tmp_path / "file" / "below")
    assert str(tmp_path / "file") in line


def edit_checkpoint(change):
    def edit(folder):
        content = torch.load(folder / "model.pt", weights_only=True)
        change(content)
        torch.save(content, folder / "model.pt")

    return edit


def set_model_name(content):
    content["cfg"]["model"]["_name"] = "transformer_lm"


def diverge(content):
    content["model"]["encoder.layers.0.fc1.bias"][3] = float("nan")


def other_vocabulary(folder):
    write_bert(folder / "other", shuffle=8)
    convert_from_hf(folder / "other", folder / "converted")
    (folder / "converted/dict.txt").rename(folder / "dict.txt")
    (folder / "converted/hf").rename(folder / "hf2")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: (folder / "model.pt").unlink(), ["model.pt", "does not exist"]),
        (truncate("model.pt"), ["model.pt", "damaged"]),
        (lambda folder: torch.save({"a": torch.ones(1)}, folder / "model.pt"), ["no fairseq checkpoint"]),
        (lambda folder: torch.save({"model": {}, "x": Code()}, folder / "model.pt"), ["model.pt", "damaged"]),
        (edit_checkpoint(set_model_name), ["transformer_lm", "tn_bert"]),
        (edit_checkpoint(lambda content: content["model"].pop("pooler.bias")), ["lacks", "pooler.bias"]),
        (edit_checkpoint(lambda content: content["model"].update(extra=torch.ones(1))), ["holds", "extra"]),
        (edit_checkpoint(diverge), ["encoder.layers.0.fc1.bias", "diverged"]),
        (lambda folder: (folder / "dict.txt").unlink(), ["dict.txt"]),
        (lambda folder: (folder / "dict.txt").write_text("a 1\nb 1\n"), ["vocabulary of", "dict.txt"]),
        (lambda folder: write_tokenizer(folder / "hf", seed=9), ["tokenizer in", "--like"]),
        (lambda folder: write_tokenizer(folder / "hf", 50), ["tokenizer in", "50", "60"]),
        (lambda folder: (folder / "hf/vocab.txt").unlink(), ["tokenizer.json", "vocab.txt"]),
        (lambda folder: (folder / "hf/config.json").write_text("{"), ["config.json", "broken JSON"]),
    ],
)
def test_to_hf_refuses(hf_folder, tmp_path, capsys, spoil, words):
    folder = tmp_path / "fairseq"
    convert_from_hf(hf_folder, folder)
    spoil(folder)
    line = refused(
        *(capsys, tmp_path, "to-hf", folder / "model.pt", "--dict", folder / "dict.txt"),
        *("--output", tmp_path / "back"),
    )
    assert all(word in line for word in words), line


def test_to_hf_refuses_the_vocabulary_of_another_model(hf_folder, tmp_path, capsys):
    """As many symbols, and a tokenizer that has them: only the checkpoint itself can tell."""
    folder = tmp_path / "fairseq"
    convert_from_hf(hf_folder, folder)
    other_vocabulary(folder)
    line = refused(
        *(capsys, tmp_path, "to-hf", folder / "model.pt", "--dict", folder / "dict.txt"),
        *("--like", folder / "hf2", "--output", tmp_path / "back"),
    )
    assert "is not the vocabulary of" in line


def test_to_hf_does_not_overwrite_its_source(hf_folder, tmp_path, capsys):
    folder = tmp_path / "fairseq"
    convert_from_hf(hf_folder, folder)
    line = refused(
        *(capsys, tmp_path, "to-hf", folder / "model.pt", "--dict", folder / "dict.txt"),
        *("--like", hf_folder, "--output", hf_folder),
    )
    assert "name another" in line


def test_the_command_says_what_it_added_and_what_fairseq_train_needs(tmp_path, capsys):
    write_bert(tmp_path / "original", "BertModel")
    folder = tmp_path / "fairseq"
    assert (
        main(["convert", "from-hf", str(tmp_path / "original"), "--output", str(folder), "--seed", "7"]) == 0
    )
    out = capsys.readouterr().out.splitlines()
    assert sum("initialised at random (seed 7)" in line for line in out) == 2
    assert out[-1] == (
        "options for fairseq-train: --arch tn_bert_base --encoder-layers 2 --encoder-embed-dim 24 "
        "--encoder-ffn-embed-dim 40 --encoder-attention-heads 3 --max-positions 32 --tokens-per-sample 32"
    )
    command = [
        "convert",
        "to-hf",
        folder / "model.pt",
        "--dict",
        folder / "dict.txt",
        "--output",
        tmp_path / "back",
    ]
    assert main([str(word) for word in command]) == 0
    assert str(tmp_path / "back") in capsys.readouterr().out
