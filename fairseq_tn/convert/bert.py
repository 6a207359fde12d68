"""BERT in Hugging Face's and in our notation: sizes, names of tensors, order of the vocabulary's rows."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_tn.errors import UserError
from fairseq_tn.models.bert import SIZES, TnBertConfig

# Hugging Face's names of what our encoder can compute -> ours; those of one line are the same function
ACTIVATIONS = {
    **dict.fromkeys(("gelu", "gelu_python"), "gelu"),
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), "gelu_new"),
    "relu": "relu",
}
ARCHITECTURES = ("BertForPreTraining", "BertForMaskedLM", "BertModel")

# our field -> field of config.json
_SIZES = {
    "encoder_layers": "num_hidden_layers",
    "encoder_embed_dim": "hidden_size",
    "encoder_ffn_embed_dim": "intermediate_size",
    "encoder_attention_heads": "num_attention_heads",
    "max_positions": "max_position_embeddings",
    "num_segments": "type_vocab_size",
}
_NUMBERS = {
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "layer_norm_eps": "layer_norm_eps",
}

_EMBEDDINGS = {
    "encoder.embed_tokens.weight": ("embeddings.word_embeddings.weight",),
    "encoder.embed_positions.weight": ("embeddings.position_embeddings.weight",),
    "encoder.embed_segments.weight": ("embeddings.token_type_embeddings.weight",),
    "encoder.embed_layer_norm.": ("embeddings.LayerNorm.",),
}
_LAYER = {
    "qkv_proj.": ("attention.self.query.", "attention.self.key.", "attention.self.value."),
    "out_proj.": ("attention.output.dense.",),
    "attention_layer_norm.": ("attention.output.LayerNorm.",),
    "fc1.": ("intermediate.dense.",),
    "fc2.": ("output.dense.",),
    "final_layer_norm.": ("output.LayerNorm.",),
}
_HEADS = {
    "lm_head.dense.": ("cls.predictions.transform.dense.",),
    "lm_head.layer_norm.": ("cls.predictions.transform.LayerNorm.",),
    "lm_head.bias": ("cls.predictions.bias",),
    "pooler.": ("pooler.dense.",),
    "nsp_head.": ("cls.seq_relationship.",),
}
# what a checkpoint may lack, by the beginning of our names
HEADS = {"lm_head.": "masked-LM head", "pooler.": "pooler", "nsp_head.": "next-sentence head"}
_VOCABULARY_ROWS = {"encoder.embed_tokens.weight", "lm_head.bias"}
_TIED_WEIGHT, _TIED_BIAS = "cls.predictions.decoder.weight", "cls.predictions.decoder.bias"
_BUFFERS = {"embeddings.position_ids", "embeddings.token_type_ids"}
# heads that transformers puts on a BERT for fine-tuning
_FINE_TUNED = ("classifier.", "qa_outputs.")


def model_config(config: dict[str, Any], source: Path) -> TnBertConfig:
    """Our configuration, all sizes written out, for Hugging Face's ``config``, read from ``source``.

    Raises UserError, naming ``source`` and the field, for what our encoder does not compute.
    """
    kind = config.get("model_type")
    architectures = [str(name) for name in config.get("architectures") or []]
    if kind is None and architectures and all(name.startswith("Bert") for name in architectures):
        kind = "bert"  # the first releases did not write it
    if kind != "bert":
        raise UserError(f"{source}: model_type is {kind!r}; only bert is supported")
    if config.get("position_embedding_type", "absolute") != "absolute":
        raise UserError(
            f"{source}: position_embedding_type is {config['position_embedding_type']!r}; only absolute "
            "positions are supported"
        )
    for flag in ("is_decoder", "add_cross_attention", "is_encoder_decoder"):
        if config.get(flag):
            raise UserError(f"{source}: {flag} is set; only BERT encoders are supported")
    if config.get("quantization_config"):
        raise UserError(f"{source}: the weights are quantised; give the original ones")
    activation = config.get("hidden_act", "gelu")
    if activation not in ACTIVATIONS:
        raise UserError(
            f"{source}: hidden_act {activation!r} is not supported; known are {', '.join(ACTIVATIONS)}"
        )
    fields: dict[str, Any] = {"activation_fn": ACTIVATIONS[activation]}
    for ours, theirs in _SIZES.items():
        value = config.get(theirs)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise UserError(f"{source}: {theirs} is {value!r}; a whole number above 0 is needed")
        fields[ours] = value
    for ours, theirs in _NUMBERS.items():
        default = getattr(TnBertConfig, ours)
        value = config.get(theirs, default)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < 1:
            raise UserError(f"{source}: {theirs} is {value!r}; a number from 0 to below 1 is needed")
        fields[ours] = float(value)
    if fields["encoder_embed_dim"] % fields["encoder_attention_heads"]:
        raise UserError(f"{source}: hidden_size cannot be divided among num_attention_heads")
    model = TnBertConfig(**fields)
    model._name = architecture_name(model)
    return model


def architecture_name(cfg: TnBertConfig) -> str:
    """The architecture with the layers and width of ``cfg``; ``tn_bert_base`` if there is none."""
    sizes = cfg.encoder_layers, cfg.encoder_embed_dim
    return next((name for name, known in SIZES.items() if known == sizes), "tn_bert_base")


def command_line(cfg: TnBertConfig) -> list[str]:
    """The ``--arch`` and the options in which ``cfg`` differs from it, for ``fairseq-train``."""
    name = architecture_name(cfg)
    width = cfg.encoder_embed_dim or 0
    usual: dict[str, Any] = {
        **{field.name: field.default for field in dataclasses.fields(TnBertConfig)},
        "encoder_layers": SIZES[name][0],
        "encoder_embed_dim": SIZES[name][1],
        "encoder_ffn_embed_dim": 4 * width,
        "encoder_attention_heads": max(1, width // 64),
    }
    options = ["--arch", name]
    for field, default in usual.items():
        value = getattr(cfg, field)
        if field != "_name" and value != default:
            options += ["--" + field.replace("_", "-"), str(value)]
    return options


def hugging_face_config(
    cfg: TnBertConfig, vocabulary_size: int, pad: int, architecture: str, dtype: str, like: dict[str, Any]
) -> dict[str, Any]:
    """``config.json`` of a model of ours; what our configuration does not know is taken from ``like``.

    Args:
        cfg: all sizes filled in.
        vocabulary_size: number of tokens.
        pad: Hugging Face's id of the padding token, used if ``like`` says nothing.
        architecture: one of ``ARCHITECTURES``.
        dtype: name of the tensors' type.
        like: the configuration that the model was made from, or an empty one.
    """
    config: dict[str, Any] = {"model_type": "bert", "pad_token_id": pad, **like}
    config["architectures"] = [architecture]
    config["vocab_size"] = vocabulary_size
    for ours, theirs in {**_SIZES, **_NUMBERS}.items():
        config[theirs] = getattr(cfg, ours)
    activation = str(cfg.activation_fn)
    if ACTIVATIONS.get(config.get("hidden_act", "gelu")) != activation or "hidden_act" not in config:
        config["hidden_act"] = activation
    for key in ("dtype", "torch_dtype"):  # the second is the name in older releases
        if key in config:
            config[key] = dtype
    return config


def tensor_names(layers: int) -> dict[str, tuple[str, ...]]:
    """Our name of each tensor -> the names, without ``bert.``, of Hugging Face's tensors that it stacks."""
    table: dict[str, tuple[str, ...]] = {**_EMBEDDINGS, **_HEADS}
    for layer in range(layers):
        for ours, theirs in _LAYER.items():
            table[f"encoder.layers.{layer}.{ours}"] = tuple(
                f"encoder.layer.{layer}.{name}" for name in theirs
            )
    names: dict[str, tuple[str, ...]] = {}
    for ours, theirs in table.items():
        for end in ("weight", "bias") if ours.endswith(".") else ("",):
            names[ours + end] = tuple(name + end for name in theirs)
    return names


def _plain_names(tensors: dict[str, Tensor], source: Path) -> dict[str, Tensor]:
    """Drop the prefix ``bert.`` and the old names of LayerNorm's parameters."""
    plain: dict[str, Tensor] = {}
    for given, value in tensors.items():
        name = given.removeprefix("bert.")
        for old, new in (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias")):
            if name.endswith(old):
                name = name.removesuffix(old) + new
        if name in plain:
            raise UserError(f"{source} holds the tensor {given} twice, under two names; remove one")
        plain[name] = value
    return plain


def to_fairseq(
    tensors: dict[str, Tensor], shapes: dict[str, torch.Size], layers: int, order: list[int], source: Path
) -> dict[str, Tensor]:
    """Hugging Face's tensors as float32 under our names, the vocabulary's rows in fairseq's order.

    Args:
        tensors: as read from a folder.
        shapes: our name -> the shape that the model has.
        layers: number of layers.
        order: for each of fairseq's ids the id of Hugging Face.
        source: the folder, for messages.

    Heads (see ``HEADS``) that are missing as a whole are missing in the result. Raises UserError, naming the
    tensor, for any other that is missing, of the wrong shape or left over.
    """
    rest = _plain_names(tensors, source)
    tied_weight, tied_bias = rest.pop(_TIED_WEIGHT, None), rest.pop(_TIED_BIAS, None)
    if tied_weight is not None and not _same(tied_weight, rest.get("embeddings.word_embeddings.weight")):
        raise UserError(
            f"{source}: the output matrix {_TIED_WEIGHT} is not the input embedding; models whose matrices "
            "are untied are not supported"
        )
    if tied_bias is not None and not _same(tied_bias, rest.setdefault("cls.predictions.bias", tied_bias)):
        raise UserError(f"{source}: {_TIED_BIAS} and cls.predictions.bias differ; they must be one tensor")
    state: dict[str, Tensor] = {}
    absent: list[str] = []
    names = tensor_names(layers)
    for ours, theirs in names.items():
        if ours.startswith(tuple(HEADS)) and not any(name in rest for name in theirs):
            absent.append(ours)
            continue
        parts = []
        for name in theirs:
            value = rest.pop(name, None)
            if value is None:
                raise UserError(f"{source} lacks the tensor {name}; is the file complete?")
            if not value.is_floating_point():
                raise UserError(f"{source}: the tensor {name} is of type {value.dtype}; numbers are needed")
            expected = [shapes[ours][0] // len(theirs), *shapes[ours][1:]]
            if list(value.shape) != expected:
                raise UserError(
                    f"{source}: the tensor {name} has shape {list(value.shape)}, but {expected} follows from "
                    "config.json"
                )
            parts.append(value.float())
        stacked = torch.cat(parts) if len(parts) > 1 else parts[0]
        state[ours] = stacked[torch.tensor(order)] if ours in _VOCABULARY_ROWS else stacked
    for head, what in HEADS.items():
        lost = [name for name in absent if name.startswith(head)]
        if lost and any(name.startswith(head) for name in state):
            raise UserError(
                f"{source} lacks the tensor {names[lost[0]][0]} of its {what}; is the file complete?"
            )
    _refuse_others(set(rest) - _BUFFERS, source)
    return state


def _same(one: Tensor, other: Tensor | None) -> bool:
    return other is not None and one.shape == other.shape and torch.equal(one, other)


def _refuse_others(names: Iterable[str], source: Path) -> None:
    left = sorted(names)
    if not left:
        return
    if left[0].startswith(_FINE_TUNED):
        raise UserError(
            f"{source} holds {left[0]}, the head of a fine-tuned model, which pre-training has no use for; "
            "save the encoder alone (`model.bert.save_pretrained(FOLDER)`) and convert that"
        )
    more = f" and {len(left) - 1} more" if len(left) > 1 else ""
    raise UserError(
        f"{source} holds the tensor {left[0]}{more}, which a BERT of this config.json does not have"
    )


def to_hugging_face(
    state: dict[str, Tensor], layers: int, order: list[int], architecture: str
) -> dict[str, Tensor]:
    """Our tensors under Hugging Face's names, the vocabulary's rows in its order; see :func:`to_fairseq`.

    ``architecture`` says which heads are wanted: all, the masked-LM head alone, or the pooler alone.
    """
    inverse = torch.empty(len(order), dtype=torch.long)
    inverse[torch.tensor(order)] = torch.arange(len(order))
    left_out = {
        "BertForPreTraining": (),
        "BertForMaskedLM": ("pooler.", "nsp_head."),
        "BertModel": ("lm_head.", "nsp_head."),
    }[architecture]
    prefix = "" if architecture == "BertModel" else "bert."
    tensors: dict[str, Tensor] = {}
    for ours, theirs in tensor_names(layers).items():
        if ours.startswith(left_out):
            continue
        value = state[ours][inverse] if ours in _VOCABULARY_ROWS else state[ours]
        for name, part in zip(theirs, value.chunk(len(theirs)), strict=True):
            # a copy: safetensors refuses tensors that share memory
            tensors[name if name.startswith("cls.") else prefix + name] = part.clone()
    return tensors
