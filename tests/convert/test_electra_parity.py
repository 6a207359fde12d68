"""Our ELECTRA gives what transformers' two models give, with and without projections, and comes back bit-equal."""

import json
import shutil
import tempfile
import warnings
from pathlib import Path

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from small_bert import rewrite
from small_electra import SHARED, write_electra, write_half
from test_bert_parity import pairs, to_fairseq_ids

from fairseq_tn.convert.from_hf import convert_from_hf, load_hugging_face
from fairseq_tn.convert.to_hf import convert_to_hf
from fairseq_tn.errors import UserError


@st.composite
def halves(draw):
    """Sizes of both halves; each is as wide as the embeddings, wider or narrower."""
    embedding_size = draw(st.integers(4, 30))
    both = {
        "embedding_size": embedding_size,
        "max_position_embeddings": draw(st.integers(9, 40)),
        "layer_norm_eps": draw(st.sampled_from([1e-12, 1e-5])),
        "vocab_size": draw(st.integers(9, 90)),
    }
    sizes = []
    for _ in range(2):
        heads = draw(st.integers(1, 3))
        # a LayerNorm over fewer values with epsilon 1e-12 magnifies rounding a thousandfold
        width = heads * draw(st.integers(4, 9))
        if draw(st.booleans()):
            width, heads = embedding_size, 1
        sizes.append(
            {
                "hidden_size": width,
                "num_attention_heads": heads,
                "num_hidden_layers": draw(st.integers(1, 3)),
                "intermediate_size": draw(st.integers(1, 50)),
            }
        )
    return both, *sizes


@torch.no_grad()
def assert_equal_outputs(loaded, discriminator, generator, longest=24):
    ids, segments, real = pairs(loaded, longest)
    tokens, order = to_fairseq_ids(loaded, ids)
    arguments = {"attention_mask": real.long(), "token_type_ids": segments, "output_hidden_states": True}
    theirs = discriminator(ids, **arguments)
    features, extra = loaded.model(tokens, features_only=True, return_all_hiddens=True)
    # transformers' first state comes before the projection, ours after it
    for ours, expected in zip(extra["inner_states"][1:], theirs.hidden_states[1:], strict=True):
        torch.testing.assert_close(ours[real], expected[real], rtol=0, atol=1e-5)
    logits = loaded.model.discriminator_head(features)
    torch.testing.assert_close(logits[real], theirs.logits[real], rtol=0, atol=1e-5)

    theirs = generator(ids, **arguments)
    logits, extra = loaded.model(tokens, return_all_hiddens=True)
    for ours, expected in zip(extra["inner_states"][1:], theirs.hidden_states[1:], strict=True):
        torch.testing.assert_close(ours[real], expected[real], rtol=0, atol=1e-5)
    tolerance = 1e-6 * theirs.logits.abs().max().item() + 1e-5
    torch.testing.assert_close(logits[real], theirs.logits[..., order][real], rtol=0, atol=tolerance)


@given(halves())
@settings(max_examples=15, deadline=None)
def test_any_electra_gives_the_outputs_of_transformers(sizes):
    both, discriminator, generator = sizes
    with tempfile.TemporaryDirectory() as name:
        models = write_electra(Path(name), discriminator, generator, **both)
        loaded = load_hugging_face(f"{name}/discriminator", generator=f"{name}/generator")
        assert_equal_outputs(loaded, *models, longest=min(24, both["max_position_embeddings"]))
        assert loaded.missing == []
        for stack, half in ((loaded.model.encoder, discriminator), (loaded.model.generator, generator)):
            assert (stack.embed_proj is None) == (half["hidden_size"] == both["embedding_size"])


@pytest.mark.parametrize("activation", ["gelu_new", "relu"])
def test_other_activations_of_a_discriminator(tmp_path, activation):
    theirs = write_half(tmp_path, "ElectraForPreTraining", hidden_act=activation)
    loaded = load_hugging_face(tmp_path)
    ids, segments, real = pairs(loaded, 24)
    with torch.no_grad():
        expected = theirs(ids, attention_mask=real.long(), token_type_ids=segments).logits
        features, _ = loaded.model(to_fairseq_ids(loaded, ids)[0], features_only=True)
        found = loaded.model.discriminator_head(features)
    torch.testing.assert_close(found[real], expected[real], rtol=0, atol=1e-5)


def there_and_back(folder, output="back", **arguments):
    convert_from_hf(folder / "discriminator", folder / "fairseq", generator=folder / "generator")
    return convert_to_hf(
        folder / "fairseq/model.pt", folder / "fairseq/dict.txt", folder / output, **arguments
    )


def assert_same_folder(original, back):
    before, after = (load_file(folder / "model.safetensors") for folder in (original, back))
    assert before.keys() == after.keys()
    for name, value in before.items():
        assert torch.equal(value, after[name]), name
    assert (original / "vocab.txt").read_bytes() == (back / "vocab.txt").read_bytes()
    old, new = (json.loads((folder / "config.json").read_text()) for folder in (original, back))
    assert old == new


# what only fine-tuning uses is kept as well
SUMMARY = {"summary_type": "cls_index", "summary_use_proj": False, "classifier_dropout": 0.3}


@pytest.mark.parametrize("embedding_size", [16, 24, 12])
def test_both_folders_come_back_bit_equal(tmp_path, embedding_size):
    write_electra(tmp_path, SUMMARY, {"summary_activation": "tanh"}, embedding_size=embedding_size)
    done = there_and_back(tmp_path)
    assert_same_folder(tmp_path / "discriminator", tmp_path / "back")
    assert_same_folder(tmp_path / "generator", tmp_path / "back/generator")
    assert [(one.path.name, one.architecture) for one in done.written] == [
        ("back", "ElectraForPreTraining"),
        ("generator", "ElectraForMaskedLM"),
    ]
    # what was written is read as one model
    convert_from_hf(tmp_path / "back", tmp_path / "again")
    first, second = (
        torch.load(tmp_path / name / "model.pt", weights_only=True)["model"] for name in ("fairseq", "again")
    )
    assert first.keys() == second.keys()
    assert all(torch.equal(value, second[name]) for name, value in first.items())


@pytest.mark.parametrize(
    ("loader", "folder"),
    [
        ("AutoModelForPreTraining", ""),
        ("ElectraForPreTraining", ""),
        ("ElectraForMaskedLM", "generator"),
        ("AutoModelForMaskedLM", "generator"),
    ],
)
def test_transformers_loads_what_is_written_without_a_message(
    tmp_path, loader, folder, transformers_messages
):
    write_electra(tmp_path)
    there_and_back(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, loading = getattr(transformers, loader).from_pretrained(
            tmp_path / "back" / folder, output_loading_info=True
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "back" / folder)
    assert not transformers_messages
    assert not any(loading.values())
    assert len(tokenizer) == SHARED["vocab_size"]


def test_fine_tuning_loads_the_discriminator(tmp_path):
    models = write_electra(tmp_path)
    there_and_back(tmp_path)
    model, loading = transformers.AutoModel.from_pretrained(tmp_path / "back", output_loading_info=True)
    assert not loading["missing_keys"]
    assert not loading["mismatched_keys"]
    assert all(name.startswith("discriminator_predictions.") for name in loading["unexpected_keys"])
    expected = models[0].electra.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("architecture", "original"),
    [("ElectraForPreTraining", "discriminator"), ("ElectraForMaskedLM", "generator"), ("ElectraModel", "")],
)
def test_one_part_alone(tmp_path, architecture, original, transformers_messages):
    write_electra(tmp_path)
    there_and_back(tmp_path, architecture=architecture)
    assert not (tmp_path / "back/generator").exists()
    if original:
        assert_same_folder(tmp_path / original, tmp_path / "back")
    _, loading = getattr(transformers, architecture).from_pretrained(
        tmp_path / "back", output_loading_info=True
    )
    assert not transformers_messages
    assert not any(loading.values())


def of_2020(tensors):
    """The names and copies in the first files on the hub, converted from TensorFlow."""
    for name in [name for name in tensors if "LayerNorm" in name]:
        new = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        tensors[new] = tensors.pop(name)
    tensors["electra.embeddings.position_ids"] = torch.arange(32)[None]
    if "generator_lm_head.bias" in tensors:
        tensors["generator_lm_head.weight"] = tensors["electra.embeddings.word_embeddings.weight"].clone()


def test_old_files_are_the_same_model(tmp_path):
    write_electra(tmp_path)
    shutil.copytree(tmp_path / "discriminator", tmp_path / "expected/discriminator")
    shutil.copytree(tmp_path / "generator", tmp_path / "expected/generator")
    for half in ("discriminator", "generator"):
        rewrite(tmp_path / half, of_2020)
    there_and_back(tmp_path)
    assert_same_folder(tmp_path / "expected/discriminator", tmp_path / "back")
    assert_same_folder(tmp_path / "expected/generator", tmp_path / "back/generator")


def test_an_encoder_without_heads(tmp_path):
    write_half(tmp_path / "discriminator", "ElectraModel")
    done = convert_from_hf(tmp_path / "discriminator", tmp_path / "fairseq", seed=4)
    lacking = (
        "generator (--generator names one)",
        "head of the discriminator",
        "masked-LM head of the generator",
    )
    for what in lacking:
        assert f"{tmp_path / 'discriminator'} has no {what}: initialised at random (seed 4)" in done.notes
    assert len(done.notes) == len(lacking)
    convert_to_hf(
        tmp_path / "fairseq/model.pt",
        tmp_path / "fairseq/dict.txt",
        tmp_path / "back",
        architecture="ElectraModel",
    )
    assert_same_folder(tmp_path / "discriminator", tmp_path / "back")


def test_a_discriminator_alone_gets_a_generator_on_its_embeddings(tmp_path):
    theirs = write_half(tmp_path / "discriminator", "ElectraForPreTraining")
    done = convert_from_hf(tmp_path / "discriminator", tmp_path / "fairseq", generator_size=0.5)
    assert len(done.notes) == 2
    assert done.options[-3:] == ["--tokens-per-sample", "32", "--no-nsp"]
    assert done.options[-5:-3] == ["--generator-size", "0.5"]
    convert_to_hf(tmp_path / "fairseq/model.pt", tmp_path / "fairseq/dict.txt", tmp_path / "back")
    assert_same_folder(tmp_path / "discriminator", tmp_path / "back")
    generator = transformers.ElectraForMaskedLM.from_pretrained(tmp_path / "back/generator")
    assert generator.config.hidden_size == 12
    words = theirs.electra.embeddings.word_embeddings.weight
    assert torch.equal(generator.electra.embeddings.word_embeddings.weight, words)


def test_a_generator_alone_gets_a_discriminator_on_its_embeddings(tmp_path):
    write_half(tmp_path / "original", "ElectraForMaskedLM")
    done = convert_from_hf(tmp_path / "original", tmp_path / "fairseq")
    assert any("has no discriminator: initialised at random" in note for note in done.notes)
    convert_to_hf(tmp_path / "fairseq/model.pt", tmp_path / "fairseq/dict.txt", tmp_path / "back")
    assert_same_folder(tmp_path / "original", tmp_path / "back/generator")
    config = transformers.AutoConfig.from_pretrained(tmp_path / "back")
    assert (config.hidden_size, config.num_hidden_layers) == (12, 3)


@pytest.mark.parametrize("kept", ["discriminator", "generator"])
def test_different_embeddings(tmp_path, kept):
    write_electra(tmp_path, generator={"embeddings": None})
    folders = tmp_path / "discriminator", tmp_path / "generator"
    with pytest.raises(UserError, match=r"different embeddings\.word_embeddings\.weight.*--embeddings"):
        convert_from_hf(folders[0], tmp_path / "fairseq", generator=folders[1])
    done = convert_from_hf(folders[0], tmp_path / "fairseq", generator=folders[1], embeddings=kept)
    (note,) = done.notes
    lost = "generator" if kept == "discriminator" else "discriminator"
    assert f"the embeddings of {tmp_path / lost} are left out" in note
    assert f"the {lost}'s outputs change by" in note
    loaded = torch.load(tmp_path / "fairseq/model.pt", weights_only=True)["model"]
    expected = load_file(tmp_path / kept / "model.safetensors")
    name = "electra.embeddings.position_embeddings.weight"
    assert torch.equal(loaded["encoder.embed_positions.weight"], expected[name])
    # the rest of the other half is kept
    rest = load_file(tmp_path / "generator/model.safetensors")["generator_predictions.dense.weight"]
    assert torch.equal(loaded["lm_head.dense.weight"], rest)


def test_a_half_precision_pair(tmp_path):
    write_electra(tmp_path)
    for half in ("discriminator", "generator"):
        rewrite(tmp_path / half, lambda tensors: tensors.update({k: v.half() for k, v in tensors.items()}))
    there_and_back(tmp_path, dtype="float16")
    for original, back in (("discriminator", "back"), ("generator", "back/generator")):
        before, after = (load_file(tmp_path / name / "model.safetensors") for name in (original, back))
        assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_a_head_that_is_said_to_be_untied_but_is_equal(tmp_path):
    write_electra(tmp_path, generator={"tie_word_embeddings": False})

    def tie(tensors):
        tensors["generator_lm_head.weight"] = tensors["electra.embeddings.word_embeddings.weight"].clone()

    rewrite(tmp_path / "generator", tie)
    there_and_back(tmp_path)
    _, loading = transformers.ElectraForMaskedLM.from_pretrained(
        tmp_path / "back/generator", output_loading_info=True
    )
    assert not any(loading.values())


def test_like_a_bert_of_the_same_vocabulary(tmp_path):
    """A model that was trained here from nothing on BERT's vocabulary has no ELECTRA folder to be like."""
    from small_bert import write_bert

    write_electra(tmp_path)
    write_bert(tmp_path / "bert", shuffle=3, summary_type="mean")
    there_and_back(tmp_path, like=tmp_path / "bert")
    config = json.loads((tmp_path / "back/generator/config.json").read_text())
    assert (config["model_type"], config["summary_type"]) == ("electra", "mean")
    _, loading = transformers.AutoModelForMaskedLM.from_pretrained(
        tmp_path / "back/generator", output_loading_info=True
    )
    assert not any(loading.values())


def test_a_generator_that_transformers_cannot_compute(tmp_path):
    write_half(tmp_path / "discriminator", "ElectraForPreTraining", hidden_act="relu")
    convert_from_hf(tmp_path / "discriminator", tmp_path / "fairseq")
    checkpoint, dictionary = tmp_path / "fairseq/model.pt", tmp_path / "fairseq/dict.txt"
    with pytest.raises(UserError, match="--architecture ElectraForPreTraining"):
        convert_to_hf(checkpoint, dictionary, tmp_path / "back")
    assert not (tmp_path / "back").exists()
    convert_to_hf(checkpoint, dictionary, tmp_path / "back", architecture="ElectraForPreTraining")
    assert_same_folder(tmp_path / "discriminator", tmp_path / "back")


@pytest.mark.parametrize("part", ["", "generator"])
def test_a_faulty_export_is_refused(tmp_path, monkeypatch, part):
    from fairseq_tn.convert import to_hf

    write_electra(tmp_path)
    write = to_hf.write_tensors

    def disturb(path, tensors):
        if (path.parent.name == "generator") == bool(part):
            tensors["electra.encoder.layer.1.output.dense.weight"][0, 0] += 1e-3
        write(path, tensors)

    monkeypatch.setattr(to_hf, "write_tensors", disturb)
    stack = part or "encoder"
    with pytest.raises(UserError, match=rf"{stack}\.layers\.1\.fc2\.weight differs"):
        there_and_back(tmp_path)
    assert not (tmp_path / "back").exists()
