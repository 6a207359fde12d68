"""BERT in Hugging Face's and in our notation: sizes, names of tensors, outputs."""

import copy
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from fairseq_tn.convert.settings import (
    DROPOUTS,
    LAYER_SIZES,
    check_activation,
    check_encoder,
    check_heads,
    fractions,
    options_that_differ,
    trained_config,
    whole_numbers,
    write_activation,
    written_config,
)
from fairseq_tn.convert.tensors import TensorTable, layer_names, with_parameters, without_prefix
from fairseq_tn.data.vocabulary import HuggingFaceVocabulary
from fairseq_tn.models.bert import SIZES, TnBertConfig, TnBertModel, resolve_sizes
from fairseq_tn.tasks.bert_pretraining import BertPretrainingConfig

MODELS = "tn_bert"
# architecture -> the heads that it lacks
ARCHITECTURES: dict[str, tuple[str, ...]] = {
    "BertForPreTraining": (),
    "BertForMaskedLM": ("pooler.", "nsp_head."),
    "BertModel": ("lm_head.", "nsp_head."),
}
# Hugging Face's names of what our encoder can compute -> ours; those of one line are the same function
ACTIVATIONS = {
    **dict.fromkeys(("gelu", "gelu_python"), "gelu"),
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), "gelu_new"),
    "relu": "relu",
}

_SIZES = {
    **LAYER_SIZES,
    "max_positions": "max_position_embeddings",
    "num_segments": "type_vocab_size",
}
_NUMBERS = {**DROPOUTS, "layer_norm_eps": "layer_norm_eps"}

EMBEDDINGS = {
    "encoder.embed_tokens.weight": ("embeddings.word_embeddings.weight",),
    "encoder.embed_positions.weight": ("embeddings.position_embeddings.weight",),
    "encoder.embed_segments.weight": ("embeddings.token_type_embeddings.weight",),
    "encoder.embed_layer_norm.": ("embeddings.LayerNorm.",),
}
_HEADS = {
    "lm_head.dense.": ("cls.predictions.transform.dense.",),
    "lm_head.layer_norm.": ("cls.predictions.transform.LayerNorm.",),
    "lm_head.bias": ("cls.predictions.bias",),
    "pooler.": ("pooler.dense.",),
    "nsp_head.": ("cls.seq_relationship.",),
}


def model_config(config: Mapping[str, Any], source: Path) -> TnBertConfig:
    """Our configuration, all sizes written out, for Hugging Face's ``config``, read from ``source``.

    Raises UserError, naming ``source`` and the field, for what our encoder does not compute.
    """
    check_encoder(config, source)
    defaults = {ours: getattr(TnBertConfig, ours) for ours in _NUMBERS}
    sizes = whole_numbers(config, _SIZES, source)
    check_heads(sizes, source)
    fields: dict[str, Any] = {**sizes, **fractions(config, _NUMBERS, defaults, source)}
    model = TnBertConfig(**fields, activation_fn=check_activation(config, ACTIVATIONS, source))
    model._name = architecture_name(model)
    return model


def architecture_name(cfg: TnBertConfig) -> str:
    """The architecture with the layers and width of ``cfg``; ``tn_bert_base`` if there is none."""
    sizes = cfg.encoder_layers, cfg.encoder_embed_dim
    return next((name for name, known in SIZES.items() if known == sizes), "tn_bert_base")


def load_vocabulary(folder: Path) -> HuggingFaceVocabulary:
    """The vocabulary of the tokenizer in a Hugging Face folder."""
    return HuggingFaceVocabulary.load(folder)


def write_encoder_files(folder: Path, output: Path) -> list[str]:
    """Nothing: ``fairseq-tn encode`` reads the tokenizer of the Hugging Face folder itself."""
    return []


def new_model(cfg: TnBertConfig, dictionary: Any) -> TnBertModel:
    """A model with initial weights; ``cfg`` is not changed."""
    return TnBertModel(copy.copy(cfg), dictionary)


def tensor_table(cfg: TnBertConfig) -> TensorTable:
    """The tensors of a model of these sizes."""
    layers = layer_names(cfg.encoder_layers or 0, "encoder.layers.", "encoder.layer.")
    return TensorTable(
        names=with_parameters({**EMBEDDINGS, **layers, **_HEADS}),
        embedding="encoder.embed_tokens.weight",
        vocabulary_rows=frozenset({"encoder.embed_tokens.weight", "lm_head.bias"}),
        heads={"lm_head.": "masked-LM head", "pooler.": "pooler", "nsp_head.": "next-sentence head"},
        encoder="bert",
        copies={
            "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
            "cls.predictions.decoder.bias": "cls.predictions.bias",
        },
    )


def plain_tensors(
    tensors: Mapping[str, Tensor], cfg: TnBertConfig, source: Path
) -> tuple[dict[str, Tensor], list[str]]:
    """A folder's tensors under the names of :func:`tensor_table`; notes on what was changed."""
    return without_prefix(tensors, "bert.", source), []


def full_tensors(tensors: Mapping[str, Tensor], architecture: str) -> dict[str, Tensor]:
    """The inverse of :func:`plain_tensors`: under the names in the files of ``architecture``."""
    prefix = "" if architecture == "BertModel" else "bert."
    return {name if name.startswith("cls.") else prefix + name: value for name, value in tensors.items()}


def command_line(cfg: TnBertConfig) -> list[str]:
    """``--arch`` and the options in which ``cfg`` differs from what ``fairseq-train`` would do by itself."""
    name = architecture_name(cfg)
    width = cfg.encoder_embed_dim or 0
    usual: dict[str, Any] = {
        **{field.name: field.default for field in dataclasses.fields(TnBertConfig)},
        "encoder_layers": SIZES[name][0],
        "encoder_embed_dim": SIZES[name][1],
        "encoder_ffn_embed_dim": 4 * width,
        "encoder_attention_heads": max(1, width // 64),
    }
    return ["--arch", name, *options_that_differ(cfg, usual), *length_options(cfg.max_positions)]


def length_options(max_positions: int) -> list[str]:
    """``--tokens-per-sample`` where a model's positions are fewer than the tasks' usual length."""
    length = tokens_per_sample(max_positions)
    return [] if length == BertPretrainingConfig.tokens_per_sample else ["--tokens-per-sample", str(length)]


def tokens_per_sample(max_positions: int) -> int:
    """The length of sequences to train with: the tasks' usual one, or less for a model of fewer positions."""
    return min(BertPretrainingConfig.tokens_per_sample, max_positions)


def checkpoint_settings(cfg: TnBertConfig) -> dict[str, dict[str, Any]]:
    """``model``, ``task`` (without data) and ``criterion`` of the configuration in a fairseq checkpoint."""
    return {
        "model": {field.name: getattr(cfg, field.name) for field in dataclasses.fields(cfg)},
        "task": {"_name": "bert_pretraining", "tokens_per_sample": tokens_per_sample(cfg.max_positions)},
        "criterion": {"_name": "bert_pretraining"},
    }


def is_model(name: str) -> bool:
    """Whether a checkpoint of the model or architecture ``name`` is of this kind."""
    return name == "tn_bert" or name in SIZES


def checkpoint_config(options: Mapping[str, Any], state: dict[str, Tensor], source: Path) -> TnBertConfig:
    """The configuration, all sizes written out, of a checkpoint with these model options and this state."""
    return trained_config(TnBertConfig, resolve_sizes, options, state)


def hugging_face_config(
    cfg: TnBertConfig,
    vocabulary: HuggingFaceVocabulary,
    architecture: str,
    dtype: str,
    like: Mapping[str, Any],
) -> dict[str, Any]:
    """``config.json`` of a model of ours, see :func:`fairseq_tn.convert.settings.written_config`."""
    known = {
        "model_type": "bert",
        "pad_token_id": vocabulary.tokens.index(vocabulary.specials["pad"]),
        **like,
    }
    config = written_config(known, cfg, {**_SIZES, **_NUMBERS}, architecture, len(vocabulary), dtype)
    write_activation(config, str(cfg.activation_fn), ACTIVATIONS)
    return config


def outputs(model: TnBertModel, tokens: Tensor) -> dict[str, Tensor]:
    """What the encoder ("") and the heads (keys of ``TensorTable.heads``) compute of ``tokens`` (B x T)."""
    logits, extra = model(tokens)
    return {"": extra["features"], "lm_head.": logits, "nsp_head.": extra["nsp_logits"]}
