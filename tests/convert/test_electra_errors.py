"""Folders that do not make one ELECTRA: one line that names file and field, nothing written."""

import json

import pytest
import torch
from small_bert import rewrite, write_bert, write_tokenizer
from small_electra import write_electra, write_half
from test_convert_errors import edit_checkpoint, refused, set_config

from fairseq_tn.convert.from_hf import convert_from_hf


def untie(folder):
    rewrite(folder, lambda tensors: tensors.update({"generator_lm_head.weight": torch.ones(60, 16)}))


def drop(name):
    return lambda folder: rewrite(folder, lambda tensors: tensors.pop(name))


def smaller_vocabulary(folder):
    write_half(folder, "ElectraForMaskedLM", vocab_size=50)


def replace_by_bert(folder):
    (folder / "model.safetensors").unlink()
    write_bert(folder)


QUERY = "electra.encoder.layer.1.attention.self.query.weight"


@pytest.mark.parametrize(
    ("half", "spoil", "words"),
    [
        ("generator", lambda folder: write_tokenizer(folder, seed=4), ["different vocabularies"]),
        ("generator", smaller_vocabulary, ["different vocabularies", "60", "50"]),
        ("generator", set_config(vocab_size=61), ["generator/config.json", "vocab_size", "61", "60"]),
        ("discriminator", set_config(vocab_size=61), ["discriminator/config.json", "vocab_size", "61"]),
        ("generator", set_config(embedding_size=8), ["embedding_size is 16 in", "8 in"]),
        ("generator", set_config(max_position_embeddings=64), ["max_position_embeddings is 32 in", "64"]),
        ("generator", set_config(type_vocab_size=3), ["type_vocab_size is 2 in", "3 in"]),
        ("generator", set_config(layer_norm_eps=1e-6), ["layer_norm_eps is 1e-12 in", "1e-06 in"]),
        ("discriminator", set_config(hidden_act="relu"), ["hidden_act is relu in", "gelu in"]),
        ("generator", set_config(hidden_act="relu"), ["hidden_act is relu", "head"]),
        ("generator", set_config(hidden_act="silu"), ["generator/config.json", "hidden_act", "silu"]),
        ("generator", set_config(embedding_size=None), ["generator/config.json", "embedding_size is None"]),
        ("discriminator", set_config(num_attention_heads=7), ["discriminator/config.json", "heads"]),
        ("discriminator", set_config(is_decoder=True), ["discriminator/config.json", "is_decoder"]),
        ("generator", set_config(hidden_size=18), ["generator:", "embeddings_project.weight", "[18, 16]"]),
        ("generator", drop(QUERY), ["generator lacks", "encoder.layer.1.attention.self.query.weight"]),
        ("discriminator", drop(QUERY), ["discriminator lacks", "encoder.layer.1.attention.self.query"]),
        ("generator", drop("generator_predictions.dense.bias"), ["generator lacks", "masked-LM head"]),
        ("discriminator", drop("discriminator_predictions.dense.bias"), ["discriminator lacks", "head"]),
        ("generator", drop("electra.embeddings_project.bias"), ["lacks", "embeddings_project.bias"]),
        ("generator", untie, ["generator_lm_head.weight", "untied"]),
        ("generator", replace_by_bert, ["is no generator", "--generator"]),
        ("generator", lambda folder: (folder / "config.json").unlink(), ["generator holds no config.json"]),
        ("generator", lambda folder: (folder / "model.safetensors").unlink(), ["generator holds no weights"]),
    ],
)
def test_from_hf_refuses(tmp_path, capsys, half, spoil, words):
    write_electra(tmp_path)
    spoil(tmp_path / half)
    line = refused(
        *(capsys, tmp_path, "from-hf", tmp_path / "discriminator", "--generator", tmp_path / "generator"),
        *("--output", tmp_path / "fairseq"),
    )
    assert all(word in line for word in words), line
    assert str(tmp_path / half) in line


@pytest.mark.parametrize(
    ("folder", "generator", "words"),
    [
        ("generator", "discriminator", ["generator is a generator itself", "--generator"]),
        ("discriminator", "discriminator", ["discriminator is no generator"]),
        ("discriminator", "nowhere", ["nowhere does not exist"]),
    ],
)
def test_exchanged_folders(tmp_path, capsys, folder, generator, words):
    write_electra(tmp_path)
    line = refused(
        *(capsys, tmp_path, "from-hf", tmp_path / folder, "--generator", tmp_path / generator),
        *("--output", tmp_path / "fairseq"),
    )
    assert all(word in line for word in words), line


def test_the_generator_of_a_bert(tmp_path, capsys):
    write_bert(tmp_path / "bert")
    write_half(tmp_path / "generator", "ElectraForMaskedLM")
    line = refused(
        *(capsys, tmp_path, "from-hf", tmp_path / "bert", "--generator", tmp_path / "generator"),
        *("--output", tmp_path / "fairseq"),
    )
    assert "--generator is for ELECTRA" in line


def test_options_of_electra_for_a_bert(tmp_path, capsys):
    write_bert(tmp_path / "bert")
    arguments = "from-hf", tmp_path / "bert", "--output", tmp_path / "fairseq"
    for option in (("--embeddings", "generator"), ("--generator-size", "0.5")):
        assert "are for ELECTRA" in refused(capsys, tmp_path, *arguments, *option)


def test_the_size_of_a_generator_that_is_there(tmp_path, capsys):
    write_electra(tmp_path)
    line = refused(
        *(capsys, tmp_path, "from-hf", tmp_path / "discriminator", "--generator", tmp_path / "generator"),
        *("--output", tmp_path / "fairseq", "--generator-size", "0.5"),
    )
    assert "leave it out" in line


def test_output_must_not_be_the_generator(tmp_path, capsys):
    write_electra(tmp_path)
    line = refused(
        *(capsys, tmp_path, "from-hf", tmp_path / "discriminator", "--generator", tmp_path / "generator"),
        *("--output", tmp_path / "generator"),
    )
    assert "is the folder that is converted" in line


def test_the_size_of_a_generator(tmp_path, capsys):
    write_half(tmp_path / "discriminator", "ElectraForPreTraining")
    line = refused(
        *(capsys, tmp_path, "from-hf", tmp_path / "discriminator", "--generator-size", "0"),
        *("--output", tmp_path / "fairseq"),
    )
    assert "--generator-size 0" in line


def test_different_dropouts_are_said(tmp_path):
    write_electra(tmp_path, generator={"hidden_dropout_prob": 0.3})
    done = convert_from_hf(tmp_path / "discriminator", tmp_path / "fairseq", generator=tmp_path / "generator")
    (note,) = done.notes
    assert "hidden_dropout_prob is 0.1 in" in note
    assert "0.3 in" in note


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (edit_checkpoint(lambda content: content["model"].pop("lm_head.bias")), ["lacks", "lm_head.bias"]),
        (
            edit_checkpoint(
                lambda content: content["model"]["generator.layers.2.fc1.bias"].fill_(float("nan"))
            ),
            ["generator.layers.2.fc1.bias", "diverged"],
        ),
        (lambda folder: write_tokenizer(folder / "hf", seed=9), ["tokenizer in", "--like"]),
        (lambda folder: write_tokenizer(folder / "hf/generator", seed=9), ["different vocabularies"]),
    ],
)
def test_to_hf_refuses(tmp_path, capsys, spoil, words):
    write_electra(tmp_path)
    folder = tmp_path / "fairseq"
    convert_from_hf(tmp_path / "discriminator", folder, generator=tmp_path / "generator")
    spoil(folder)
    line = refused(
        *(capsys, tmp_path, "to-hf", folder / "model.pt", "--dict", folder / "dict.txt"),
        *("--output", tmp_path / "back"),
    )
    assert all(word in line for word in words), line


def test_to_hf_refuses_the_classes_of_another_model(tmp_path, capsys):
    write_electra(tmp_path)
    folder = tmp_path / "fairseq"
    convert_from_hf(tmp_path / "discriminator", folder, generator=tmp_path / "generator")
    line = refused(
        *(capsys, tmp_path, "to-hf", folder / "model.pt", "--dict", folder / "dict.txt"),
        *("--output", tmp_path / "back", "--architecture", "BertForMaskedLM"),
    )
    assert "tn_electra" in line
    assert "ElectraForMaskedLM" in line


def test_a_second_conversion_forgets_the_first_generator(tmp_path):
    write_electra(tmp_path)
    convert_from_hf(tmp_path / "discriminator", tmp_path / "fairseq", generator=tmp_path / "generator")
    assert json.loads((tmp_path / "fairseq/hf/generator/config.json").read_text())["hidden_size"] == 12
    convert_from_hf(tmp_path / "discriminator", tmp_path / "fairseq")
    assert not (tmp_path / "fairseq/hf/generator").exists()
