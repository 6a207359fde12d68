"""A row's YAML as the run reads it: its defaults merged, made small, with the paths and the hardware of this run."""

import copy
import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from fairseq_tn.errors import UserError
from reproduction.rows import ROOT, SMALL, Row

# what the place of the package and another number of GPUs change; the result does not, but for the order of sums (and
# for contrast between sentences: see `identity`)
_IRRELEVANT = (
    "hydra",
    "common.user_dir",
    "distributed_training",
    "dataset.num_workers",
    "dataset.batch_size",
    "optimization.update_freq",
)


@dataclass(frozen=True)
class Hardware:
    """Where training runs.

    Attributes:
        gpus: processes of all machines, one a GPU; 0: the CPU.
        precision: ``fp16``, ``bf16`` or ``fp32``; the CPU knows fp32 only.
        sequences: most sequences that fit into a GPU at once; None: as many as the row's YAML says.
    """

    gpus: int
    precision: str = "fp16"
    sequences: int | None = None


def load_config(path: Path) -> DictConfig:
    """A YAML file merged with those that its defaults name, as Hydra does it; they hold different keys."""
    config = copy.deepcopy(_loaded(path))
    for name in config.pop("defaults", []):
        if name != "_self_":
            config = OmegaConf.merge(load_config(path.with_name(f"{name}.yaml")), config)  # type: ignore[assignment]
    return config


@functools.cache
def _loaded(path: Path) -> DictConfig:
    """Many rows share a file, and reading YAML is slow."""
    config = OmegaConf.load(path)
    assert isinstance(config, DictConfig)
    return config


def pretraining_config(
    row: Row,
    *,
    data: Path,
    save_dir: Path,
    hardware: Hardware,
    start: Path | None = None,
    synonyms: Path | None = None,
    small: bool = False,
    updates: int | None = None,
    overrides: Sequence[str] = (),
) -> DictConfig:
    """All settings of a row's run, as ``fairseq-hydra-train`` reads them.

    Args:
        row: the row.
        data: folder of ``fairseq-preprocess``.
        save_dir: where the run writes.
        hardware: the update's sequences are shared out to it.
        start: checkpoint to start from.
        synonyms: table of a row with hard correction.
        small: merge the row's section of ``small.yaml``.
        updates: another length of the run; warm-up and saving are scaled.
        overrides: ``key.of.the.config=value``; they win over everything else.

    Raises:
        UserError: an override is none, or the sequences cannot be shared out
    """
    config = load_config(row.config)
    if small:
        config = _merge(config, _loaded(SMALL)[row.family])
    paths: dict[str, Any] = {
        "common": {"user_dir": str(ROOT / "fairseq_tn"), "log_file": "${checkpoint.save_dir}/train.log"},
        "task": {"data": str(data)},
        "checkpoint": {"save_dir": str(save_dir)},
    }
    if start is not None:
        paths["checkpoint"]["finetune_from_model"] = str(start)
    elif "finetune_from_model" in config.checkpoint:
        del config.checkpoint["finetune_from_model"]  # --small trains ELECTRA from scratch
    if synonyms is not None:
        paths["criterion"] = {"synonyms": str(synonyms)}
    config = _merge(config, paths)
    if updates is not None:
        _shorten(config, updates)
    for word in overrides:
        if "=" not in word:
            raise UserError(f"{word} after --: write KEY=VALUE, such as optimization.max_update=1000")
    config = _merge(config, OmegaConf.from_dotlist(list(overrides)))
    _share_out(config, hardware)
    return config


def _merge(config: DictConfig, other: Any) -> DictConfig:
    merged = OmegaConf.merge(config, other)
    assert isinstance(merged, DictConfig)
    return merged


def _shorten(config: DictConfig, updates: int) -> None:
    """Another number of updates, with the same parts of it for warm-up and between checkpoints."""
    before = config.optimization.max_update
    for section, key in (("lr_scheduler", "warmup_updates"), ("checkpoint", "save_interval_updates")):
        config[section][key] = max(1, round(config[section][key] * updates / before))
    config.optimization.max_update = config.lr_scheduler.total_num_update = updates


def _share_out(config: DictConfig, hardware: Hardware) -> None:
    """The sequences of an update on this hardware: in parallel, then what fits into a GPU, then one after the other."""
    for key in ("dataset.batch_size", "distributed_training.distributed_world_size"):
        _check_number(key, OmegaConf.select(config, key))
    _check_number("optimization.update_freq", _frequency(config))
    total = sequences_per_update(config)
    processes = max(1, hardware.gpus)
    if total % processes:
        raise UserError(
            f"--gpus {hardware.gpus}: the {total} sequences of an update cannot be shared equally; give 1, 2, 4, 8, ..."
        )
    share = total // processes
    fits = min(hardware.sequences or config.dataset.batch_size, share)
    while share % fits:
        fits -= 1
    config.dataset.batch_size = fits
    config.optimization.update_freq = [share // fits]
    config.distributed_training.distributed_world_size = processes
    config.common.fp16 = hardware.gpus > 0 and hardware.precision == "fp16"
    if hardware.gpus == 0:
        config.common.cpu = True
    elif hardware.precision == "bf16":
        config.common.bf16 = True


def _frequency(config: DictConfig) -> Any:
    """Batches of an update, one after the other."""
    frequency = OmegaConf.select(config, "optimization.update_freq")
    return frequency[0] if isinstance(frequency, ListConfig) and frequency else frequency


def _check_number(key: str, value: Any) -> None:
    """Refuse what an override has made of a number that is shared out."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UserError(f"{key} is {value!r}; it must be a whole number, 1 or more")


def sequences_per_update(config: DictConfig) -> int:
    """Sequences of an update, on whatever it runs."""
    return config.dataset.batch_size * _frequency(config) * config.distributed_training.distributed_world_size


def identity(config: DictConfig) -> dict[str, Any]:
    """What makes the run another one when it changes: everything but how the hardware shares the work."""
    content = OmegaConf.to_container(config, resolve=True)
    assert isinstance(content, dict)
    for path in _IRRELEVANT:
        *sections, key = path.split(".")
        part: Any = content
        for section in sections:
            part = part[section]
        part.pop(key, None)
    content["sequences_per_update"] = sequences_per_update(config)
    if config.criterion.get("_name") == "sentence_contrastive":
        # the others that a sentence is told from are those of all GPUs, not those of the batches before and after
        processes = config.distributed_training.distributed_world_size
        content["sequences_contrasted"] = config.dataset.batch_size * processes
    return json.loads(json.dumps(content))


def as_yaml(config: DictConfig) -> str:
    """The text of a primary configuration for ``--config-name``."""
    return "# @package _global_\n" + OmegaConf.to_yaml(config)
