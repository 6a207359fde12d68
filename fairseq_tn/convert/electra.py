"""ELECTRA in Hugging Face's and in our notation: two folders, discriminator and generator, are one model of ours."""

import copy
import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from fairseq_tn.convert import bert
from fairseq_tn.convert.bert import ACTIVATIONS, EMBEDDINGS, length_options, tokens_per_sample
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
from fairseq_tn.errors import UserError
from fairseq_tn.models.electra import SIZES, TnElectraConfig, TnElectraModel, resolve_sizes

MODELS = "tn_electra"
GENERATOR = "generator"
_OF_GENERATOR = ("generator.", "lm_head.")
_OF_DISCRIMINATOR = ("encoder.embed_proj.", "encoder.layers.", "discriminator_head.")
# architecture -> the beginnings of our names that it lacks
ARCHITECTURES: dict[str, tuple[str, ...]] = {
    "ElectraForPreTraining": _OF_GENERATOR,
    "ElectraForMaskedLM": _OF_DISCRIMINATOR,
    "ElectraModel": (*_OF_GENERATOR, "discriminator_head."),
}
PARTS: dict[str, tuple[str, ...]] = {
    "": ("ElectraForPreTraining", "ElectraModel"),
    GENERATOR: ("ElectraForMaskedLM",),
}
ROLES = {"": "discriminator", GENERATOR: "generator"}

# layers, width and width of the embeddings
_PRESETS = {
    name: (layers, width, embedding or width) for name, (layers, width, embedding, _) in SIZES.items()
}
_SHARED = {
    "max_positions": "max_position_embeddings",
    "num_segments": "type_vocab_size",
    "embedding_dim": "embedding_size",
}
_GENERATOR_SIZES = {ours.replace("encoder_", "generator_"): theirs for ours, theirs in LAYER_SIZES.items()}
_NUMBERS = {**DROPOUTS, "layer_norm_eps": "layer_norm_eps"}
_HEADS = {
    "discriminator_head.dense.": ("discriminator_predictions.dense.",),
    "discriminator_head.out_proj.": ("discriminator_predictions.dense_prediction.",),
    "lm_head.dense.": ("generator_predictions.dense.",),
    "lm_head.layer_norm.": ("generator_predictions.LayerNorm.",),
    "lm_head.bias": ("generator_lm_head.bias",),
}

load_vocabulary, write_encoder_files = bert.load_vocabulary, bert.write_encoder_files


def model_config(config: Mapping[str, Any], source: Path) -> TnElectraConfig:
    """Our configuration for one folder's ``config``, read from ``source``; :func:`join` makes that of the model.

    The sizes of the folder's encoder are those that begin with ``encoder`` also where it is a generator's; the
    sizes that begin with ``generator`` are None. Raises UserError, naming ``source`` and the field, for what our
    encoder does not compute.
    """
    check_encoder(config, source)
    defaults = {ours: getattr(TnElectraConfig, ours) for ours in _NUMBERS}
    sizes = whole_numbers(config, {**LAYER_SIZES, **_SHARED}, source)
    check_heads(sizes, source)
    fields: dict[str, Any] = {**sizes, **fractions(config, _NUMBERS, defaults, source)}
    return TnElectraConfig(**fields, activation_fn=check_activation(config, ACTIVATIONS, source))


def part_of(tensors: Iterable[str]) -> str | None:
    """The key of ``PARTS`` that a folder with tensors of these names is; None for an encoder without a head."""
    names = list(tensors)
    if any(name.startswith("generator_") for name in names):
        return GENERATOR
    return "" if any(name.startswith("discriminator_predictions.") for name in names) else None


def join(
    cfgs: Mapping[str, TnElectraConfig], sources: Mapping[str, Path], sizes: Mapping[str, Any]
) -> tuple[TnElectraConfig, list[str]]:
    """The configuration, all sizes written out, of the model that these folders make; notes on what was changed.

    A generator that no folder holds has the sizes that ``sizes`` gives, or the architecture's. A discriminator
    that none holds has those of ``sizes``, of the architecture whose embeddings are as wide, or the generator's.

    Args:
        cfgs: key of ``PARTS`` -> what :func:`model_config` made of that folder; one or both.
        sources: the files that they were read from, for messages.
        sizes: options of the model, for a part that no folder holds.

    Raises UserError, naming a file and a field, for two folders that cannot be one model.
    """
    discriminator, generator = cfgs.get(""), cfgs.get(GENERATOR)
    notes: list[str] = []
    if generator is not None and str(generator.activation_fn) != "gelu":
        raise UserError(
            f"{sources[GENERATOR]}: hidden_act is {generator.activation_fn}; transformers computes the head of a "
            "generator with gelu all the same, so that only generators with gelu are supported"
        )
    if discriminator is not None and generator is not None:
        notes = _check_pair(discriminator, generator, sources)
    cfg = copy.copy(discriminator or generator)
    assert cfg is not None
    if generator is not None:
        for ours in LAYER_SIZES:
            setattr(cfg, ours.replace("encoder_", "generator_"), getattr(generator, ours))
    if discriminator is None:
        name = next((name for name, known in _PRESETS.items() if known[2] == cfg.embedding_dim), None)
        if "encoder_layers" in sizes:
            for ours in LAYER_SIZES:
                setattr(cfg, ours, sizes[ours])
        elif name is not None:
            cfg.encoder_layers, cfg.encoder_embed_dim, _ = _PRESETS[name]
            cfg.encoder_ffn_embed_dim = cfg.encoder_attention_heads = None
    cfg._name = architecture_name(cfg)
    if generator is None:
        for ours in ("generator_size", *_GENERATOR_SIZES):
            setattr(cfg, ours, sizes.get(ours))
        if cfg.generator_embed_dim is None:
            cfg.generator_attention_heads = _heads_of_generator(cfg)
    resolve_sizes(cfg)
    return cfg, notes


def _check_pair(
    discriminator: TnElectraConfig, generator: TnElectraConfig, sources: Mapping[str, Path]
) -> list[str]:
    for ours, theirs in {
        **_SHARED,
        "layer_norm_eps": "layer_norm_eps",
        "activation_fn": "hidden_act",
    }.items():
        values = getattr(discriminator, ours), getattr(generator, ours)
        if values[0] != values[1]:
            raise UserError(
                f"{theirs} is {values[0]} in {sources['']} and {values[1]} in {sources[GENERATOR]}; discriminator and "
                "generator of one model have the same"
            )
    return [
        f"{theirs} is {getattr(discriminator, ours)} in {sources['']} and {getattr(generator, ours)} in "
        f"{sources[GENERATOR]}; a model here has one, the former"
        for ours, theirs in DROPOUTS.items()
        if getattr(discriminator, ours) != getattr(generator, ours)
    ]


def _heads_of_generator(cfg: TnElectraConfig) -> int | None:
    """As many heads as a generator of its size usually has, or fewer if its width cannot be divided by that."""
    share = cfg.generator_size or SIZES[cfg._name or ""][3]
    width = max(1, round((cfg.encoder_embed_dim or 0) * share))
    return next(heads for heads in range(max(1, width // 64), 0, -1) if width % heads == 0)


def architecture_name(cfg: TnElectraConfig) -> str:
    """The architecture with the layers and widths of ``cfg``; ``tn_electra_base`` if there is none."""
    sizes = cfg.encoder_layers, cfg.encoder_embed_dim, cfg.embedding_dim
    return next((name for name, known in _PRESETS.items() if known == sizes), "tn_electra_base")


def new_model(cfg: TnElectraConfig, dictionary: Any) -> TnElectraModel:
    """A model with initial weights; ``cfg`` is not changed."""
    return TnElectraModel(copy.copy(cfg), dictionary)


def tensor_table(cfg: TnElectraConfig) -> TensorTable:
    """The tensors of a model of these sizes; both halves have the same names in Hugging Face's files."""
    halves: dict[str, tuple[str, ...]] = {}
    for ours, layers, width in (
        ("encoder.", cfg.encoder_layers, cfg.encoder_embed_dim),
        ("generator.", cfg.generator_layers, cfg.generator_embed_dim),
    ):
        if width != cfg.embedding_dim:
            halves[f"{ours}embed_proj."] = ("embeddings_project.",)
        halves.update(layer_names(layers or 0, f"{ours}layers.", "encoder.layer."))
    return TensorTable(
        names=with_parameters({**EMBEDDINGS, **halves, **_HEADS}),
        embedding="encoder.embed_tokens.weight",
        vocabulary_rows=frozenset({"encoder.embed_tokens.weight", "lm_head.bias"}),
        heads={
            "discriminator_head.": "head of the discriminator",
            "lm_head.": "masked-LM head of the generator",
        },
        parts={"encoder.layers.": "discriminator", "generator.": "generator (--generator names one)"},
        encoder="electra",
        copies={"generator_lm_head.weight": "embeddings.word_embeddings.weight"},
    )


def plain_tensors(
    tensors: Mapping[str, Tensor], cfg: TnElectraConfig, source: Path
) -> tuple[dict[str, Tensor], list[str]]:
    """A folder's tensors under the names of :func:`tensor_table`; notes on what was changed."""
    return without_prefix(tensors, "electra.", source), []


def full_tensors(tensors: Mapping[str, Tensor], architecture: str) -> dict[str, Tensor]:
    """The inverse of :func:`plain_tensors`: under the names in the files of ``architecture``."""
    prefix = "" if architecture == "ElectraModel" else "electra."
    heads = ("discriminator_predictions.", "generator_predictions.", "generator_lm_head.")
    return {name if name.startswith(heads) else prefix + name: value for name, value in tensors.items()}


def command_line(cfg: TnElectraConfig) -> list[str]:
    """``--arch`` and the options in which ``cfg`` differs from what ``fairseq-train`` would do by itself."""
    name = architecture_name(cfg)
    layers, width, embedding_dim, share = SIZES[name]
    usual: dict[str, Any] = {
        **{field.name: field.default for field in dataclasses.fields(TnElectraConfig)},
        "encoder_layers": layers,
        "encoder_embed_dim": width,
        "embedding_dim": embedding_dim or cfg.encoder_embed_dim,
        "generator_size": share,
        "generator_layers": cfg.encoder_layers,
        "generator_embed_dim": max(1, round((cfg.encoder_embed_dim or 0) * (cfg.generator_size or share))),
    }
    for stack in ("encoder", "generator"):
        width = getattr(cfg, f"{stack}_embed_dim")
        usual[f"{stack}_ffn_embed_dim"] = 4 * width
        usual[f"{stack}_attention_heads"] = max(1, width // 64)
    options = options_that_differ(cfg, usual)
    return ["--arch", name, *options, *length_options(cfg.max_positions), "--no-nsp"]


def checkpoint_settings(cfg: TnElectraConfig) -> dict[str, dict[str, Any]]:
    """``model``, ``task`` (without data) and ``criterion`` of the configuration in a fairseq checkpoint."""
    task = {"_name": "bert_pretraining", "no_nsp": True}
    return {
        "model": {field.name: getattr(cfg, field.name) for field in dataclasses.fields(cfg)},
        "task": {**task, "tokens_per_sample": tokens_per_sample(cfg.max_positions)},
        "criterion": {"_name": "electra"},
    }


def is_model(name: str) -> bool:
    """Whether a checkpoint of the model or architecture ``name`` is of this kind."""
    return name == "tn_electra" or name in SIZES


def checkpoint_config(options: Mapping[str, Any], state: dict[str, Tensor], source: Path) -> TnElectraConfig:
    """The configuration, all sizes written out, of a checkpoint with these model options and this state."""
    return trained_config(TnElectraConfig, resolve_sizes, options, state)


def hugging_face_config(
    cfg: TnElectraConfig,
    vocabulary: HuggingFaceVocabulary,
    architecture: str,
    dtype: str,
    like: Mapping[str, Any],
) -> dict[str, Any]:
    """``config.json`` of one half, see :func:`fairseq_tn.convert.settings.written_config`.

    Raises UserError for a generator that transformers cannot compute.
    """
    sizes = LAYER_SIZES
    known = {
        "pad_token_id": vocabulary.tokens.index(vocabulary.specials["pad"]),
        **like,
        # ``like`` may be another model's, with the same tokenizer
        "model_type": "electra",
    }
    if architecture in PARTS[GENERATOR]:
        sizes = _GENERATOR_SIZES
        if cfg.activation_fn != "gelu":
            raise UserError(
                f"the model computes {cfg.activation_fn} everywhere, but transformers computes the head of a generator "
                "with gelu, whatever hidden_act is; write the discriminator alone with "
                "`--architecture ElectraForPreTraining`"
            )
        if "tie_word_embeddings" in known:
            known["tie_word_embeddings"] = True
    names = {**sizes, **_SHARED, **_NUMBERS}
    config = written_config(known, cfg, names, architecture, len(vocabulary), dtype)
    write_activation(config, str(cfg.activation_fn), ACTIVATIONS)
    return config


def outputs(model: TnElectraModel, tokens: Tensor) -> dict[str, Tensor]:
    """What the halves and the heads (keys of ``parts`` and ``heads`` of the table) compute of ``tokens`` (B x T)."""
    features, _ = model(tokens, features_only=True)
    logits, extra = model(tokens)
    return {
        "encoder.layers.": features,
        "discriminator_head.": model.discriminator_head(features),
        "generator.": extra["features"],
        "lm_head.": logits,
    }
