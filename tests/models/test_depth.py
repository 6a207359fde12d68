"""How far below the heads parameters lie, by the names of each model."""

import pytest
import torch
from fairseq.data import Dictionary
from torch import nn

import fairseq_tn
from fairseq_tn.models.bert import TnBertConfig, TnBertModel
from fairseq_tn.models.depth import mark_depth, steps_below_heads
from fairseq_tn.models.electra import TnElectraConfig, TnElectraModel

fairseq_tn.register()


class Named(nn.Module):
    """A module with a parameter of each of the given dotted names."""

    def __init__(self, *names: str):
        super().__init__()
        for name in names:
            module: nn.Module = self
            *path, last = name.split(".")
            for part in path:
                if not hasattr(module, part):
                    module.add_module(part, nn.Module())
                module = getattr(module, part)
            module.register_parameter(last, nn.Parameter(torch.zeros(2)))


def steps(model: nn.Module) -> dict[str, int | None]:
    return {name: steps_below_heads(parameter) for name, parameter in model.named_parameters()}


# 3 layers: ELECTRA's depths are 0, 1, 2, 3 and 5, counted from 5
TN_BERT = {
    "encoder.embed_tokens.weight": 5,
    "encoder.embed_positions.weight": 5,
    "encoder.embed_segments.weight": 5,
    "encoder.embed_layer_norm.bias": 5,
    "encoder.layers.0.fc1.weight": 4,
    "encoder.layers.1.self_attn.qkv.bias": 3,
    "encoder.layers.2.fc1.weight": 2,
    "lm_head.dense.weight": 0,
    "lm_head.bias": 0,
    "pooler.weight": 0,
    "nsp_head.bias": 0,
    "classification_heads.mnli.out_proj.weight": 0,
}
# the generator is a stack of its own, here of 2 layers
TN_ELECTRA = {
    **{name: value for name, value in TN_BERT.items() if name.startswith(("encoder.", "lm_head."))},
    "encoder.embed_proj.weight": 5,
    "generator.embed_proj.weight": 4,
    "generator.layers.0.fc1.weight": 3,
    "generator.layers.1.fc1.weight": 2,
    "discriminator_head.dense.weight": 0,
}
ROBERTA = {
    "encoder.sentence_encoder.embed_tokens.weight": 4,
    "encoder.sentence_encoder.layernorm_embedding.weight": 4,
    "encoder.sentence_encoder.layers.0.self_attn.k_proj.weight": 3,
    "encoder.sentence_encoder.layers.1.final_layer_norm.bias": 2,
    "encoder.lm_head.dense.weight": 0,
    "classification_heads.sst.dense.weight": 0,
}
TWELVE = {f"encoder.layers.{n}.w": 13 - n for n in range(12)}


@pytest.mark.parametrize(
    "names", [TN_BERT, TN_ELECTRA, ROBERTA, TWELVE], ids=["bert", "electra", "roberta", "12"]
)
def test_names(names):
    model = Named(*names)
    mark_depth(model)
    assert steps(model) == names


SIZES = {"encoder_layers": 3, "encoder_embed_dim": 16, "encoder_attention_heads": 2, "max_positions": 8}


def test_tn_bert():
    model = TnBertModel(TnBertConfig(**SIZES), Dictionary())
    mark_depth(model)
    found = steps(model)
    assert set(found.values()) == {0, 2, 3, 4, 5}
    assert {name.split(".")[1] for name, value in found.items() if value == 5} == {
        "embed_tokens",
        "embed_positions",
        "embed_segments",
        "embed_layer_norm",
    }
    assert {name.split(".")[0] for name, value in found.items() if value == 0} == {
        "lm_head",
        "pooler",
        "nsp_head",
    }


def test_tn_electra():
    """Embeddings narrower than both stacks, which both share."""
    options = {
        "embedding_dim": 4,
        "generator_layers": 2,
        "generator_embed_dim": 8,
        "generator_attention_heads": 2,
    }
    model = TnElectraModel(TnElectraConfig(**SIZES, **options), Dictionary())
    mark_depth(model)
    for name, value in steps(model).items():
        part = name.split(".")
        if part[1].startswith("embed"):
            assert value == (5 if part[0] == "encoder" else 4), name
        elif part[1] == "layers":
            assert value == (4 if part[0] == "encoder" else 3) - int(part[2]), name
        else:
            assert value == 0, name
    assert {name for name in steps(model) if "embed_proj" in name} == {
        f"{stack}.embed_proj.{kind}" for stack in ("encoder", "generator") for kind in ("weight", "bias")
    }


@pytest.mark.parametrize("head", ["a_head", "lm_head"], ids=["first", "last"])
def test_a_tied_head_counts_as_the_embeddings(head):
    """Whichever of its two names comes first."""
    names = [f"{head}.weight", "encoder.layers.0.w"]
    model = Named(*(names if head == "a_head" else reversed(names)))
    tied = getattr(model, head).weight
    model.encoder.embed_tokens = nn.Module()
    model.encoder.embed_tokens.weight = tied
    mark_depth(model)
    assert steps_below_heads(tied) == 3


def test_a_later_head_needs_another_call():
    model = Named("encoder.layers.0.w")
    mark_depth(model)
    model.add_module("late", Named("w"))
    assert steps(model) == {"encoder.layers.0.w": 2, "late.w": None}
    mark_depth(model)
    assert steps(model) == {"encoder.layers.0.w": 2, "late.w": 0}


def test_nothing_is_marked_without_layers_and_foreign_marks_are_none_of_ours():
    model = Named("encoder.embed_tokens.weight", "head.weight")
    mark_depth(model)
    assert set(steps(model).values()) == {None}
    model.head.weight.param_group = "decoder"
    assert steps_below_heads(model.head.weight) is None


def test_marks_survive_half_precision():
    model = Named("encoder.embed_tokens.weight", "encoder.layers.0.w", "head.w")
    mark_depth(model)
    before = steps(model)
    assert steps(model.half().to("cpu").bfloat16()) == before
