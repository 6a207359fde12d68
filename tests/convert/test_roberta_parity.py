"""fairseq's roberta gives what transformers gives, and comes back, for any RoBERTa or XLM-R."""

import json
import tempfile

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from small_bert import rewrite
from small_roberta import COPY, write_byte_level, write_roberta, write_tokenizer_json

from fairseq_tn.convert.from_hf import convert_from_hf, load_hugging_face
from fairseq_tn.convert.roberta import outputs
from fairseq_tn.convert.roberta_vocabulary import gpt2_ids
from fairseq_tn.convert.to_hf import convert_to_hf

CLASSES = ["RobertaForMaskedLM", "RobertaModel", "XLMRobertaForMaskedLM", "XLMRobertaModel"]

configurations = st.integers(1, 3).flatmap(
    lambda heads: st.fixed_dictionaries(
        {
            "num_attention_heads": st.just(heads),
            "hidden_size": st.integers(4, 9).map(lambda width: width * heads),
            "num_hidden_layers": st.integers(1, 3),
            "intermediate_size": st.integers(1, 50),
            "max_position_embeddings": st.integers(12, 40),
            "architecture": st.sampled_from(CLASSES),
            "segments": st.booleans(),
            "type_vocab_size": st.integers(1, 2),
            "mask_last": st.booleans(),
        }
    )
)


def padded(vocabulary_size, longest, mask):
    """Random ids with padding on the right: ids, real (B x T)."""
    ids = torch.randint(4, vocabulary_size, (4, longest))
    ids[:, 3] = mask
    real = torch.ones_like(ids, dtype=torch.bool)
    for row in range(4):
        length = longest - row * longest // 8
        ids[row, 0], ids[row, length - 1] = 0, 2
        ids[row, length:], real[row, length:] = 1, False
    return ids, real


@torch.no_grad()
def assert_equal_outputs(loaded, theirs, longest):
    order = torch.tensor(loaded.vocabulary.fairseq_to_hf())
    mask = loaded.vocabulary.tokens.index("<mask>")
    ids, real = padded(len(order), longest, mask)
    tokens = torch.argsort(order)[ids]
    assert (tokens[ids == mask] == len(order) - 1).all()
    found = outputs(loaded.model, tokens)
    _, extra = loaded.model(tokens, features_only=True, return_all_hiddens=True)
    out = theirs(ids, attention_mask=real.long(), output_hidden_states=True)
    assert len(extra["inner_states"]) == len(out.hidden_states)
    for ours, expected in zip(extra["inner_states"], out.hidden_states, strict=True):
        torch.testing.assert_close(ours.transpose(0, 1)[real], expected[real], rtol=0, atol=1e-5)
    torch.testing.assert_close(found[""][real], out.hidden_states[-1][real], rtol=0, atol=1e-5)
    if hasattr(out, "logits"):
        expected = out.logits[..., order][real]
        torch.testing.assert_close(found["encoder.lm_head."][real], expected, rtol=1e-6, atol=1e-5)


@given(configurations)
@settings(max_examples=15, deadline=None)
def test_any_roberta_gives_the_outputs_of_transformers(configuration):
    with tempfile.TemporaryDirectory() as name:
        theirs = write_roberta(name, **configuration)
        loaded = load_hugging_face(name)
        assert_equal_outputs(loaded, theirs, configuration["max_position_embeddings"] - 2)
        assert loaded.missing == (
            [] if configuration["architecture"].endswith("LM") else ["encoder.lm_head."]
        )
        assert any("segment" in note for note in loaded.notes) is (
            configuration["segments"] or configuration["type_vocab_size"] > 1
        )


def there_and_back(folder, tmp_path, **arguments):
    convert_from_hf(folder, tmp_path / "fairseq")
    return convert_to_hf(
        tmp_path / "fairseq/model.pt", tmp_path / "fairseq/dict.txt", tmp_path / "back", **arguments
    )


@pytest.mark.parametrize("tokenizer_json", [False, True])
@pytest.mark.parametrize("architecture", CLASSES)
def test_models_come_back_bit_equal(tmp_path, architecture, tokenizer_json):
    original, back = tmp_path / "original", tmp_path / "back"
    write_roberta(original, architecture, mask_last=not tokenizer_json)
    if tokenizer_json:
        write_tokenizer_json(original)
    there_and_back(original, tmp_path, architecture=architecture.removeprefix("XLM"))
    before, after = (load_file(folder / "model.safetensors") for folder in (original, back))
    has_head = "lm_head.bias" in before
    assert after.keys() == before.keys() | ({COPY} if has_head else set())
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    if has_head:
        # transformers 4.49 reads the bias under this name alone
        assert torch.equal(after[COPY], before["lm_head.bias"])
    assert json.loads((original / "config.json").read_text()) == json.loads(
        (back / "config.json").read_text()
    )
    names = sorted(path.name for path in original.iterdir())
    assert names == sorted(path.name for path in back.iterdir())
    for name in set(names) - {"config.json", "model.safetensors"}:
        assert (original / name).read_bytes() == (back / name).read_bytes()


def test_the_old_names_and_copies_of_the_same_model(tmp_path):
    write_roberta(tmp_path / "original")
    expected = load_file(tmp_path / "original/model.safetensors")

    def old(tensors):
        tensors["lm_head.decoder.weight"] = tensors["roberta.embeddings.word_embeddings.weight"].clone()
        tensors["lm_head.decoder.bias"] = tensors.pop("lm_head.bias")
        tensors["roberta.embeddings.position_ids"] = torch.arange(34)[None]
        tensors["roberta.pooler.dense.weight"] = torch.ones(24, 24)
        tensors["roberta.pooler.dense.bias"] = torch.ones(24)

    rewrite(tmp_path / "original", old)
    notes = convert_from_hf(tmp_path / "original", tmp_path / "fairseq").notes
    assert len(notes) == 1
    assert "pooler" in notes[0]
    there_and_back(tmp_path / "original", tmp_path)
    written = load_file(tmp_path / "back/model.safetensors")
    assert written.keys() == expected.keys() | {COPY}
    assert all(torch.equal(value, written[name]) for name, value in expected.items())


def test_byte_level_symbols_are_the_ids_of_gpt2(tmp_path):
    tokens = write_byte_level(tmp_path / "original")
    merges = [
        tuple(line.split()) for line in (tmp_path / "original/merges.txt").read_text().split("\n")[1:-1]
    ]
    write_roberta(tmp_path / "model")
    loaded = load_hugging_face(tmp_path / "model")
    number = dict(zip(tokens, loaded.vocabulary.symbols(), strict=True))
    # GPT-2 counts the printable bytes from "!", then the others, then its merges
    assert (number["!"], number["~"], number["Ā"]) == ("0", "93", "188")
    assert number["".join(merges[0])] == "256"
    assert number["".join(merges[-1])] == str(255 + len(merges))
    assert number["<|endoftext|>"] == str(256 + len(merges))
    assert [number[token] for token in ("<s>", "<mask>", "madeupword0001")] == [
        "<s>",
        "<mask>",
        "madeupword0001",
    ]


def test_two_merges_that_make_one_token_count_once():
    ids = gpt2_ids([("a", "b"), ("ab", "c"), ("b", "c"), ("a", "bc"), ("d", "e")])
    assert [ids[token] for token in ("ab", "abc", "bc", "de")] == [256, 257, 258, 259]
