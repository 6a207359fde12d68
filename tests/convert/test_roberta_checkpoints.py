"""Checkpoints of fairseq's roberta: trained from converted weights, and written by old releases."""

import argparse
from collections import OrderedDict

import pytest
import torch
import transformers
from fairseq import checkpoint_utils, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import meters
from fairseq_cli import preprocess, train
from safetensors.torch import load_file
from small_roberta import COPY, TEXT, write_roberta, write_tokenizer_json
from training import PACKAGE, flags

from fairseq_tn.cli import main
from fairseq_tn.convert.from_hf import convert_from_hf, task_dictionary
from fairseq_tn.convert.roberta import outputs
from fairseq_tn.convert.to_hf import convert_to_hf
from fairseq_tn.synonyms.model_embeddings import read_embedding


@pytest.fixture
def folder(tmp_path):
    """A RoBERTa in ``original`` and what it was converted to in ``fairseq``."""
    write_roberta(tmp_path / "original")
    convert_from_hf(tmp_path / "original", tmp_path / "fairseq")
    return tmp_path


def back(folder, checkpoint=None, **arguments):
    return convert_to_hf(
        checkpoint or folder / "fairseq/model.pt", folder / "fairseq/dict.txt", folder / "back", **arguments
    )


def encode(tokenizer, text, output):
    assert main(["encode", "--tokenizer", str(tokenizer), str(text), "--output", str(output)]) == 0


@pytest.mark.parametrize("architecture", ["RobertaForMaskedLM", "XLMRobertaForMaskedLM"])
def test_text_is_encoded_as_transformers_encodes_it(tmp_path, architecture):
    write_roberta(tmp_path / "original", architecture)
    convert_from_hf(tmp_path / "original", tmp_path / "fairseq")
    dictionary = (tmp_path / "fairseq/dict.txt").read_text(encoding="utf-8")
    lines = [*TEXT, "Ein großes Haus, unknown to 中国", "12 <mask> king's"]
    (tmp_path / "text.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    encode(tmp_path / "fairseq", tmp_path / "text.txt", tmp_path / "encoded/train")
    assert (tmp_path / "encoded/dict.txt").read_text(encoding="utf-8") == dictionary
    write_tokenizer_json(tmp_path / "original")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "original")
    known = task_dictionary(tmp_path / "fairseq/dict.txt")
    for line, ours in zip(lines[:-1], (tmp_path / "encoded/train").read_text().split("\n"), strict=False):
        expected = tokenizer(line, add_special_tokens=False)["input_ids"]
        assert [known.index(symbol) for symbol in ours.split()] == expected


@pytest.mark.parametrize("task", ["masked_lm", "bert_pretraining"])
def test_a_trained_model_predicts_in_transformers_what_it_predicts_here(folder, task):
    (folder / "text.txt").write_text("\n".join(TEXT * 4) + "\n")
    encode(folder / "fairseq", folder / "text.txt", folder / "encoded/train")
    arguments = {"only_source": True, "srcdict": folder / "fairseq/dict.txt", "destdir": folder / "data"}
    arguments |= {"trainpref": folder / "encoded/train", "validpref": folder / "encoded/train"}
    preprocess.main(options.get_preprocessing_parser().parse_args(flags(arguments)))
    settings = {
        "user_dir": PACKAGE,
        "save_dir": folder / "run",
        "task": task,
        "criterion": "masked_lm" if task == "masked_lm" else "mlm_soft_reg",
        "no_nsp": task == "bert_pretraining",
        "finetune_from_model": folder / "fairseq/model.pt",
        "batch_size": 4,
        "optimizer": "adam",
        "lr": 1e-3,
        "max_update": 20,
        "num_workers": 0,
        "cpu": True,
        "no_epoch_checkpoints": True,
        "disable_validation": True,
    }
    done = convert_from_hf(folder / "original", folder / "again")
    parser = options.get_training_parser(default_task=task)
    args = options.parse_args_and_arch(parser, [str(folder / "data"), *done.options, *flags(settings)])
    train.main(convert_namespace_to_omegaconf(args))

    checkpoint = folder / "run/checkpoint_last.pt"
    back(folder, checkpoint)
    before, after = (load_file(folder / name / "model.safetensors") for name in ("original", "back"))
    assert after.keys() - before.keys() == {COPY}
    assert before.keys() <= after.keys()
    moved = [name for name in before if not torch.equal(before[name], after[name])]
    assert set(before) - set(moved) <= {"roberta.embeddings.token_type_embeddings.weight"}

    theirs, loading = transformers.AutoModelForMaskedLM.from_pretrained(
        folder / "back", output_loading_info=True
    )
    assert not any(loading.values())
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "back")
    (ours,), _, _ = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)])
    ours.eval()
    batch = tokenizer(
        ["the <mask> of France", "a<mask> near the river was<mask>"], padding=True, return_tensors="pt"
    )
    assert (batch["input_ids"] == tokenizer.mask_token_id).sum() == 3
    with torch.no_grad():
        expected = theirs.eval()(**batch).logits
        found = outputs(ours, batch["input_ids"])["encoder.lm_head."]
    real = batch["attention_mask"].bool()
    torch.testing.assert_close(found[real], expected[real], rtol=0, atol=1e-5)
    masked = batch["input_ids"] == tokenizer.mask_token_id
    assert torch.equal(found[masked].argmax(-1), expected[masked].argmax(-1))


def test_fairseq_opens_the_checkpoint_without_binarised_data(folder):
    (model,), cfg, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(folder / "fairseq/model.pt")], arg_overrides={"data": str(folder / "fairseq")}
    )
    assert type(task).__name__ == "MaskedLMTask"
    assert cfg.model._name == "roberta_base"
    assert len(task.source_dictionary) == len(model.encoder.sentence_encoder.embed_tokens.weight)


def change(folder, edit):
    content = torch.load(folder / "fairseq/model.pt", weights_only=True)
    edit(content)
    torch.save(content, folder / "fairseq/model.pt")


def of_2019(content):
    """The names of the first RoBERTa checkpoints, whose configuration was a Namespace."""
    old = {}
    for name, value in content["model"].items():
        name = name.replace("encoder.", "decoder.", 1).replace(".layernorm_embedding.", ".emb_layer_norm.")
        if name.endswith("version"):
            continue
        if "q_proj" in name:
            parts = [
                content["model"][name.replace("decoder", "encoder", 1).replace("q_proj", f"{x}_proj")]
                for x in "qkv"
            ]
            old[name.replace("q_proj.", "in_proj_")] = torch.cat(parts)
        elif "k_proj" not in name and "v_proj" not in name:
            old[name] = value
    model = content["cfg"]["model"]
    kept = ("encoder_layers", "encoder_embed_dim", "encoder_ffn_embed_dim", "encoder_attention_heads")
    kept += ("dropout", "attention_dropout", "max_positions", "activation_fn", "pooler_activation_fn")
    options = {name: model[name] for name in kept}
    content.update(
        model=old, cfg=None, args=argparse.Namespace(arch="roberta_base", task="masked_lm", **options)
    )
    content["args"].max_positions = None


def of_0_12_2(content):
    """Copies of the parameters in every layer, and a Namespace in the configuration."""
    for layer in range(2):
        for name in ("in_proj", "out_proj", "fc1", "fc2"):
            for end in ("weight", "bias"):
                key = f"encoder.sentence_encoder.layers.{layer}.{name}_{end}"
                content["model"][key] = torch.full((3,), float("nan"))
    content["cfg"]["model"] = argparse.Namespace(**content["cfg"]["model"])


def with_head(content):
    content["model"]["classification_heads.mnli.dense.weight"] = torch.ones(24, 24)
    content["model"]["classification_heads.mnli.out_proj.weight"] = torch.ones(3, 24)


def with_512_positions(content):
    content["cfg"]["model"]["max_positions"] = 512


@pytest.mark.parametrize("writing", [of_2019, of_0_12_2, with_head, with_512_positions])
def test_other_writings_of_the_same_checkpoint(folder, writing):
    change(folder, writing)
    done = back(folder)
    assert [note for note in done.notes if "mnli" in note] == done.notes
    assert len(done.notes) == (writing is with_head)
    expected, written = (load_file(folder / name / "model.safetensors") for name in ("original", "back"))
    assert written.keys() == expected.keys() | {COPY}
    assert all(torch.equal(value, written[name]) for name, value in expected.items())


def test_the_meters_that_old_runs_saved_do_no_harm(folder, monkeypatch):
    """Until 0.9 fairseq pickled its meters into checkpoints, by the name that their module had then."""

    def with_meters(content):
        of_2019(content)
        kinds = [meters.AverageMeter(), meters.TimeMeter(), meters.StopwatchMeter()]
        content["extra_state"]["train_meters"] = OrderedDict((type(one).__name__, one) for one in kinds)

    with monkeypatch.context() as then:
        for name in ("AverageMeter", "TimeMeter", "StopwatchMeter"):
            then.setattr(getattr(meters, name), "__module__", "fairseq.meters")
        change(folder, with_meters)
    path = folder / "fairseq/model.pt"
    assert back(folder).notes == []
    symbols = task_dictionary(folder / "fairseq/dict.txt").symbols
    assert len(read_embedding(path, symbols)) == len(symbols)
    assert checkpoint_utils.load_checkpoint_to_cpu(str(path))["model"]


def test_the_checkpoint_of_2019_is_one(folder):
    """fairseq itself reads what the test above takes for an old checkpoint."""
    change(folder, of_2019)
    state = torch.load(folder / "fairseq/model.pt", weights_only=True)
    assert not any("q_proj" in name or name.startswith("encoder.") for name in state["model"])
    (model,), _, _ = checkpoint_utils.load_model_ensemble_and_task(
        [str(folder / "fairseq/model.pt")],
        arg_overrides={"data": str(folder / "fairseq"), "max_positions": 32},
    )
    expected = load_file(folder / "original/model.safetensors")
    assert torch.equal(
        model.encoder.sentence_encoder.layers[1].self_attn.k_proj.weight,
        expected["roberta.encoder.layer.1.attention.self.key.weight"],
    )


def test_half_precision_goes_there_and_back(folder):
    def halve(content):
        content["model"] = {name: value.half() for name, value in content["model"].items()}

    change(folder, halve)
    back(folder, dtype="float16")
    expected, written = (load_file(folder / name / "model.safetensors") for name in ("original", "back"))
    assert all(torch.equal(value.half(), written[name]) for name, value in expected.items())


def test_a_model_that_was_trained_from_nothing_gets_the_tokenizer_of_its_encoder_files(folder):
    """fairseq's users have encoder.json and vocab.bpe, and no Hugging Face folder."""
    (folder / "gpt2").mkdir()
    for name in ("encoder.json", "vocab.bpe"):
        (folder / "fairseq" / name).rename(folder / "gpt2" / name)
    (folder / "fairseq/hf").rename(folder / "elsewhere")
    lines = (folder / "fairseq/dict.txt").read_text().split("\n")[:-1]
    moved = [
        lines[-1],
        *lines[:-1],
    ]  # a dictionary of its own, in another order than any Hugging Face folder's
    (folder / "fairseq/dict.txt").write_text("".join(f"{line}\n" for line in moved))
    command = ["convert", "to-hf", folder / "fairseq/model.pt", "--dict", folder / "fairseq/dict.txt"]
    command += ["--like", folder / "gpt2", "--output", folder / "back"]
    assert main([*map(str, command)]) == 0
    model, loading = transformers.AutoModelForMaskedLM.from_pretrained(
        folder / "back", output_loading_info=True
    )
    assert not any(loading.values())
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "back")
    known = task_dictionary(folder / "fairseq/dict.txt")
    (folder / "text.txt").write_text(TEXT[0] + "\n")
    encode(folder / "gpt2", folder / "text.txt", folder / "encoded/train")
    symbols = (folder / "encoded/train").read_text().split()
    ids = tokenizer(TEXT[0])["input_ids"]
    assert ids == [0, *(known.index(symbol) for symbol in symbols), 2]
    (ours,), _, _ = checkpoint_utils.load_model_ensemble_and_task([str(folder / "fairseq/model.pt")])
    with torch.no_grad():
        expected = model.eval()(torch.tensor([ids])).logits
        found = outputs(ours.eval(), torch.tensor([ids]))["encoder.lm_head."]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_a_sentencepiece_model_alone_makes_an_xlm_r(tmp_path):
    write_roberta(tmp_path / "original", "XLMRobertaForMaskedLM")
    convert_from_hf(tmp_path / "original", tmp_path / "fairseq")
    (tmp_path / "alone").mkdir()
    model = tmp_path / "fairseq/sentencepiece.bpe.model"
    model.rename(tmp_path / "alone" / model.name)
    back(tmp_path, like=tmp_path / "alone")
    loaded, loading = transformers.AutoModelForMaskedLM.from_pretrained(
        tmp_path / "back", output_loading_info=True
    )
    assert type(loaded).__name__ == "XLMRobertaForMaskedLM"
    assert not any(loading.values())
    expected, found = (transformers.AutoTokenizer.from_pretrained(tmp_path / x) for x in ("original", "back"))
    assert found(TEXT)["input_ids"] == expected(TEXT)["input_ids"]


def test_a_dictionary_without_some_tokens_of_the_encoder_files_cannot_be_exported(folder, capsys):
    (folder / "gpt2").mkdir()
    for name in ("encoder.json", "vocab.bpe"):
        (folder / "fairseq" / name).rename(folder / "gpt2" / name)
    command = ["convert", "to-hf", folder / "fairseq/model.pt", "--dict", folder / "fairseq/dict.txt"]
    command += ["--like", folder / "gpt2", "--output", folder / "back"]
    text = (folder / "fairseq/dict.txt").read_text()
    (folder / "fairseq/dict.txt").write_text(text.replace("\n17 1\n", "\n"))
    assert main([*map(str, command)]) == 1
    assert "lacks 1 of the 291 tokens" in capsys.readouterr().err
    (folder / "fairseq/dict.txt").write_text(text + "banana 1\n")
    assert main([*map(str, command)]) == 1
    assert "banana" in capsys.readouterr().err


def test_positions_are_named_apart_from_the_length_of_samples(tmp_path):
    """fairseq would give the model as many positions as samples have tokens, and refuse the checkpoint."""
    write_roberta(tmp_path / "original", max_position_embeddings=600, hidden_dropout_prob=0.2)
    options = convert_from_hf(tmp_path / "original", tmp_path / "fairseq").options
    assert options[-6:] == ["--dropout", "0.2", "--max-positions", "598", "--tokens-per-sample", "512"]
