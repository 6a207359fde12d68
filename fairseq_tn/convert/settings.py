"""Reading and writing what the ``config.json`` of all encoders has in common."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fairseq_tn.errors import UserError

# our field -> field of config.json
LAYER_SIZES = {
    "encoder_layers": "num_hidden_layers",
    "encoder_embed_dim": "hidden_size",
    "encoder_ffn_embed_dim": "intermediate_size",
    "encoder_attention_heads": "num_attention_heads",
}
DROPOUTS = {"dropout": "hidden_dropout_prob", "attention_dropout": "attention_probs_dropout_prob"}


def check_encoder(config: Mapping[str, Any], source: Path) -> None:
    """Raise UserError, naming ``source`` and the field, for what none of our encoders computes."""
    if config.get("position_embedding_type", "absolute") != "absolute":
        raise UserError(
            f"{source}: position_embedding_type is {config['position_embedding_type']!r}; only absolute "
            "positions are supported"
        )
    for flag in ("is_decoder", "add_cross_attention", "is_encoder_decoder"):
        if config.get(flag):
            raise UserError(f"{source}: {flag} is set; only encoders are supported")
    if config.get("quantization_config"):
        raise UserError(f"{source}: the weights are quantised; give the original ones")


def check_activation(config: Mapping[str, Any], known: Mapping[str, str], source: Path) -> str:
    """Our name of ``hidden_act``; ``known`` maps Hugging Face's names to ours."""
    activation = config.get("hidden_act", "gelu")
    if activation not in known:
        raise UserError(f"{source}: hidden_act {activation!r} is not supported; known are {', '.join(known)}")
    return known[activation]


def whole_numbers(config: Mapping[str, Any], names: Mapping[str, str], source: Path) -> dict[str, int]:
    """Our field -> value, for ``names`` (our field -> field of config.json); each must be above 0."""
    fields: dict[str, int] = {}
    for ours, theirs in names.items():
        value = config.get(theirs)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise UserError(f"{source}: {theirs} is {value!r}; a whole number above 0 is needed")
        fields[ours] = value
    return fields


def fractions(
    config: Mapping[str, Any], names: Mapping[str, str], defaults: Mapping[str, float], source: Path
) -> dict[str, float]:
    """As :func:`whole_numbers`, for numbers from 0 to below 1; what ``config`` lacks is taken from ``defaults``."""
    fields: dict[str, float] = {}
    for ours, theirs in names.items():
        value = config.get(theirs, defaults[ours])
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < 1:
            raise UserError(f"{source}: {theirs} is {value!r}; a number from 0 to below 1 is needed")
        fields[ours] = float(value)
    return fields


def check_heads(sizes: Mapping[str, int], source: Path) -> None:
    """Raise UserError unless the width of ``sizes`` (see ``LAYER_SIZES``) can be divided among the heads."""
    if sizes["encoder_embed_dim"] % sizes["encoder_attention_heads"]:
        raise UserError(f"{source}: hidden_size cannot be divided among num_attention_heads")


def written_config(
    like: Mapping[str, Any],
    cfg: Any,
    names: Mapping[str, str],
    architecture: str,
    vocabulary_size: int,
    dtype: str,
) -> dict[str, Any]:
    """``config.json`` of a model of ours; what our configuration does not know is taken from ``like``.

    Args:
        like: the configuration that the model was made from, or what is known of it.
        cfg: ours, all sizes filled in.
        names: the fields of ``cfg`` -> those of config.json.
        architecture: the class of transformers that the weights are for.
        vocabulary_size: number of tokens.
        dtype: name of the tensors' type.
    """
    config = dict(like)
    config["architectures"] = [architecture]
    config["vocab_size"] = vocabulary_size
    for ours, theirs in names.items():
        config[theirs] = getattr(cfg, ours)
    for key in ("dtype", "torch_dtype"):  # the second is the name in older releases
        if key in config:
            config[key] = dtype
    return config


def write_activation(config: dict[str, Any], activation: str, known: Mapping[str, str]) -> None:
    """Set ``hidden_act`` unless ``config`` holds another name of the same function."""
    if known.get(config.get("hidden_act", "")) != activation:
        config["hidden_act"] = activation


def options_that_differ(cfg: Any, usual: Mapping[str, Any]) -> list[str]:
    """fairseq-train's options for the fields of ``cfg`` that are not as ``usual`` (all fields) has them."""
    options: list[str] = []
    for field, value in usual.items():
        if field != "_name" and getattr(cfg, field) != value:
            options += ["--" + field.replace("_", "-"), str(getattr(cfg, field))]
    return options


def trained_config(
    kind: Any, resolve_sizes: Callable[[Any], None], options: Mapping[str, Any], state: Mapping[str, Any]
) -> Any:
    """The configuration of a model of ours that was trained, all sizes written out.

    Args:
        kind: class of the configuration
        resolve_sizes: writes out the sizes that follow from the architecture's name
        options: of the model, perhaps more than ``kind`` has; ``_name`` is always there
        state: the model's tensors
    """
    known = {field.name for field in dataclasses.fields(kind)} - {"_name"}
    cfg = kind(**{key: value for key, value in options.items() if key in known})
    cfg._name = options["_name"]
    resolve_sizes(cfg)
    if "encoder.embed_positions.weight" in state:
        # fine-tuning tasks overwrite the option
        cfg.max_positions = len(state["encoder.embed_positions.weight"])
    return cfg
