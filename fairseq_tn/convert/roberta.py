"""RoBERTa and XLM-R: Hugging Face's notation and that of fairseq's own ``roberta``, old checkpoints included."""

import argparse
import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.models.roberta import RobertaModel
from torch import Tensor

from fairseq_tn.compat import unify_transformer_layers
from fairseq_tn.convert.roberta_vocabulary import read_tokenizer
from fairseq_tn.convert.roberta_vocabulary import write_encoder_files as write_encoder_files
from fairseq_tn.convert.settings import (
    DROPOUTS,
    LAYER_SIZES,
    check_activation,
    check_encoder,
    check_heads,
    fractions,
    whole_numbers,
    write_activation,
    written_config,
)
from fairseq_tn.convert.tensors import TensorTable, layer_names, with_parameters, without_prefix
from fairseq_tn.data.vocabulary import HuggingFaceVocabulary
from fairseq_tn.errors import UserError
from fairseq_tn.synonyms.vocabularies import detect_style

MODELS = "fairseq's roberta"
# architecture -> the heads that it lacks
ARCHITECTURES: dict[str, tuple[str, ...]] = {
    "RobertaForMaskedLM": (),
    "RobertaModel": ("encoder.lm_head.",),
}
# transformers' masked-LM head computes gelu whatever `hidden_act` says, fairseq's what the layers compute
ACTIVATIONS = dict.fromkeys(("gelu", "gelu_python"), "gelu")
EPSILON = 1e-5  # fixed in fairseq

_PAD = 1  # of both; the first position has the next number
_ENCODER, _HEAD = "encoder.sentence_encoder.", "encoder.lm_head."
_TOKENS, _POSITIONS = f"{_ENCODER}embed_tokens.weight", f"{_ENCODER}embed_positions.weight"
_VERSION = f"{_ENCODER}version"
_EMBEDDINGS = {
    _TOKENS: ("embeddings.word_embeddings.weight",),
    _POSITIONS: ("embeddings.position_embeddings.weight",),
    f"{_ENCODER}layernorm_embedding.": ("embeddings.LayerNorm.",),
}
_SEGMENTS = "embeddings.token_type_embeddings.weight"
_LAYER = {
    "self_attn.q_proj.": ("attention.self.query.",),
    "self_attn.k_proj.": ("attention.self.key.",),
    "self_attn.v_proj.": ("attention.self.value.",),
    "self_attn.out_proj.": ("attention.output.dense.",),
    "self_attn_layer_norm.": ("attention.output.LayerNorm.",),
    "fc1.": ("intermediate.dense.",),
    "fc2.": ("output.dense.",),
    "final_layer_norm.": ("output.LayerNorm.",),
}
_LM_HEAD = {
    f"{_HEAD}dense.": ("lm_head.dense.",),
    f"{_HEAD}layer_norm.": ("lm_head.layer_norm.",),
    f"{_HEAD}bias": ("lm_head.bias",),
}
# options of fairseq's roberta whose other values Hugging Face's RoBERTa does not compute
_FIXED = {
    "encoder_normalize_before": False,
    "layernorm_embedding": True,
    "untie_weights_roberta": False,
    "no_scale_embedding": True,
    "encoder_learned_pos": True,
    "no_token_positional_embeddings": False,
    "activation_fn": "gelu",
}


def model_config(config: Mapping[str, Any], source: Path) -> argparse.Namespace:
    """Options of fairseq's ``roberta`` for Hugging Face's ``config``, read from ``source``.

    Raises UserError, naming ``source`` and the field, for what fairseq's model does not compute.
    """
    check_encoder(config, source)
    check_activation(config, ACTIVATIONS, source)
    epsilon = config.get("layer_norm_eps", EPSILON)
    if epsilon != EPSILON:
        raise UserError(
            f"{source}: layer_norm_eps is {epsilon}; fairseq's roberta computes with {EPSILON} alone (if the "
            "difference does not matter to you, write that into the file)"
        )
    if config.get("pad_token_id", _PAD) != _PAD:
        raise UserError(f"{source}: pad_token_id is {config['pad_token_id']}; in fairseq it is {_PAD}")
    sizes = whole_numbers(config, {**LAYER_SIZES, "max_positions": "max_position_embeddings"}, source)
    check_heads(sizes, source)
    whole_numbers(config, {"segments": "type_vocab_size"}, source)
    sizes["max_positions"] -= _PAD + 1
    if sizes["max_positions"] < 1:
        raise UserError(
            f"{source}: max_position_embeddings leaves no position; the first {_PAD + 1} stay unused"
        )
    numbers = fractions(config, DROPOUTS, dict.fromkeys(DROPOUTS, 0.1), source)
    return _with_defaults(_architecture_name(sizes), {**sizes, **numbers})


def _architecture_name(sizes: Mapping[str, Any]) -> str:
    """fairseq's architecture with the layers and width of ``sizes``; ``roberta_base`` if there is none."""
    large = _preset("roberta_large")
    if (sizes["encoder_layers"], sizes["encoder_embed_dim"]) == (
        large.encoder_layers,
        large.encoder_embed_dim,
    ):
        return "roberta_large"
    return "roberta_base"


def _preset(name: str) -> argparse.Namespace:
    preset = argparse.Namespace()
    ARCH_CONFIG_REGISTRY[name](preset)
    return preset


def _with_defaults(name: str, options: Mapping[str, Any]) -> argparse.Namespace:
    """All options of the architecture ``name``, of which ``options`` gives some."""
    parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS)
    RobertaModel.add_args(parser)
    defaults = vars(parser.parse_args([]))
    cfg = argparse.Namespace(**{**defaults, **options, "_name": name})
    ARCH_CONFIG_REGISTRY[name](cfg)
    return cfg


def load_vocabulary(folder: Path) -> HuggingFaceVocabulary:
    """The vocabulary of the tokenizer in a Hugging Face folder, in fairseq's symbols."""
    vocabulary = read_tokenizer(folder).vocabulary
    pad = vocabulary.tokens.index(vocabulary.specials["pad"])
    if pad != _PAD:
        raise UserError(f"the tokenizer in {folder} has the padding token at {pad}; RoBERTa has it at {_PAD}")
    return vocabulary


def new_model(cfg: argparse.Namespace, dictionary: Any) -> RobertaModel:
    """A model with initial weights; ``cfg`` is not changed."""
    task = SimpleNamespace(source_dictionary=dictionary)
    model = RobertaModel.build_model(argparse.Namespace(**vars(cfg)), task)
    unify_transformer_layers(model)
    return model


def tensor_table(cfg: argparse.Namespace) -> TensorTable:
    """The tensors of a model of these sizes."""
    layers = layer_names(cfg.encoder_layers, f"{_ENCODER}layers.", "encoder.layer.", _LAYER)
    return TensorTable(
        names=with_parameters({**_EMBEDDINGS, **layers, **_LM_HEAD}),
        embedding=_TOKENS,
        vocabulary_rows=frozenset({_TOKENS, f"{_HEAD}bias"}),
        heads={_HEAD: "masked-LM head"},
        encoder="roberta",
        copies={
            "lm_head.decoder.weight": "embeddings.word_embeddings.weight",
            "lm_head.decoder.bias": "lm_head.bias",
        },
        # transformers 4.49 reads the bias there, and without it as 0, even from a file of its own
        written_copies=("lm_head.decoder.bias",),
        tied={f"{_HEAD}weight": _TOKENS},
    )


def plain_tensors(
    tensors: Mapping[str, Tensor], cfg: argparse.Namespace, source: Path
) -> tuple[dict[str, Tensor], list[str]]:
    """A folder's tensors under the names of :func:`tensor_table`; notes on what was changed.

    Every input has segment 0, whose embedding fairseq's model lacks: it is added to every position.
    """
    plain = without_prefix(tensors, "roberta.", source)
    notes = []
    if [name for name in ("pooler.dense.weight", "pooler.dense.bias") if plain.pop(name, None) is not None]:
        notes.append(f"the pooler of {source} is left out: fairseq's roberta has none")
    segments = plain.pop(_SEGMENTS, None)
    if segments is None:
        raise UserError(f"{source} lacks the tensor {_SEGMENTS}; is the file complete?")
    if segments.dim() != 2 or segments.size(1) != cfg.encoder_embed_dim:
        raise UserError(f"{source}: the tensor {_SEGMENTS} has shape {list(segments.shape)}")
    if len(segments) > 1:
        notes.append(
            f"{len(segments) - 1} of the {len(segments)} rows of {_SEGMENTS} in {source} are left out: fairseq's "
            "roberta has no segments, and RoBERTa's tokenizers use the first alone"
        )
    (position_name,) = _EMBEDDINGS[_POSITIONS]
    positions = plain.get(position_name)
    if segments[0].any() and positions is not None and positions.shape[1:] == segments.shape[1:]:
        moved = positions.float().clone()
        moved[_PAD + 1 :] += segments[0].float()
        plain[position_name] = moved
        notes.append(
            f"the segment embedding of {source} is added to the positions: fairseq's roberta has no segments"
        )
    return plain, notes


def full_tensors(tensors: Mapping[str, Tensor], architecture: str) -> dict[str, Tensor]:
    """The inverse of :func:`plain_tensors`: under the names in the files of ``architecture``."""
    (position_name,) = _EMBEDDINGS[_POSITIONS]
    segments = torch.zeros_like(tensors[position_name][:1])
    prefix = "" if architecture == "RobertaModel" else "roberta."
    return {
        name if name.startswith("lm_head.") else prefix + name: value
        for name, value in {**tensors, _SEGMENTS: segments}.items()
    }


def command_line(cfg: argparse.Namespace) -> list[str]:
    """``--arch`` and the options in which ``cfg`` differs from what ``fairseq-train`` would do by itself."""
    name = _architecture_name(vars(cfg))
    preset = _preset(name)
    options = ["--arch", name]
    for field in (*LAYER_SIZES, *DROPOUTS):
        if getattr(cfg, field) != getattr(preset, field):
            options += ["--" + field.replace("_", "-"), str(getattr(cfg, field))]
    # fairseq would take the number of positions from --tokens-per-sample, whose default depends on the task
    options += ["--max-positions", str(cfg.max_positions)]
    return [*options, "--tokens-per-sample", str(min(512, cfg.max_positions))]


def checkpoint_settings(cfg: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """``model``, ``task`` (without data) and ``criterion`` of the configuration in a fairseq checkpoint."""
    return {
        "model": dict(vars(cfg)),
        "task": {"_name": "masked_lm", "tokens_per_sample": min(512, cfg.max_positions)},
        "criterion": {"_name": "masked_lm"},
    }


def is_model(name: str) -> bool:
    """Whether a checkpoint of the model or architecture ``name`` is of this kind."""
    return ARCH_MODEL_REGISTRY.get(name) is RobertaModel


def checkpoint_config(
    options: Mapping[str, Any], state: dict[str, Tensor], source: Path
) -> argparse.Namespace:
    """All options of a checkpoint with these model options; ``state`` gets the names of today.

    Raises UserError for options whose model Hugging Face's RoBERTa does not compute.
    """
    known = {key: value for key, value in options.items() if value is not None}
    cfg = _with_defaults(options["_name"], known)
    for field, wanted in _FIXED.items():
        if getattr(cfg, field, wanted) != wanted:
            raise UserError(
                f"{source} was trained with {field} = {getattr(cfg, field)}; Hugging Face's RoBERTa has {wanted}, "
                "and nothing else can be written"
            )
    _rename(state)
    if _POSITIONS in state:
        # older releases did not save the option, fine-tuning tasks overwrite it
        cfg.max_positions = len(state[_POSITIONS]) - _PAD - 1
    return cfg


def _rename(state: dict[str, Tensor]) -> None:
    """Bring the names of older fairseqs up to date: ``decoder.``, ``emb_layer_norm``, ``in_proj_weight``."""
    for old in list(state):
        new = re.sub(r"^decoder\.", "encoder.", old).replace(".emb_layer_norm.", ".layernorm_embedding.")
        value = state.pop(old)
        stacked = re.fullmatch(r"(.*\.self_attn\.)in_proj_(weight|bias)", new)
        if stacked:
            for name, part in zip("qkv", value.chunk(3), strict=True):
                state[f"{stacked[1]}{name}_proj.{stacked[2]}"] = part
        else:
            state[new] = value
    state.setdefault(_VERSION, torch.tensor([3.0]))


def hugging_face_config(
    cfg: argparse.Namespace,
    vocabulary: HuggingFaceVocabulary,
    architecture: str,
    dtype: str,
    like: Mapping[str, Any],
) -> dict[str, Any]:
    """``config.json``, see :func:`fairseq_tn.convert.settings.written_config`.

    It is XLM-R's if ``like`` is, or if ``like`` is empty and the vocabulary is SentencePiece's.
    """
    pieces = detect_style(vocabulary.tokens) == "sentencepiece"
    model_type = like.get("model_type", "xlm-roberta" if pieces else "roberta")
    ids = {role: vocabulary.tokens.index(token) for role, token in vocabulary.specials.items()}
    known = {
        "model_type": model_type,
        "bos_token_id": ids["cls"],
        "pad_token_id": ids["pad"],
        "eos_token_id": ids["sep"],
        **like,
        "type_vocab_size": 1,
        "layer_norm_eps": EPSILON,
        "max_position_embeddings": cfg.max_positions + _PAD + 1,
    }
    architecture = f"XLM{architecture}" if model_type == "xlm-roberta" else architecture
    config = written_config(known, cfg, {**LAYER_SIZES, **DROPOUTS}, architecture, len(vocabulary), dtype)
    write_activation(config, "gelu", ACTIVATIONS)
    return config


def outputs(model: RobertaModel, tokens: Tensor) -> dict[str, Tensor]:
    """What the encoder ("") and the heads (keys of ``TensorTable.heads``) compute of ``tokens`` (B x T)."""
    features, _ = model(tokens, features_only=True)
    return {"": features, _HEAD: model.encoder.output_layer(features)}
