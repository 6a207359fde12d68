"""Held-out text as masked sequences, the same ones for every model that is compared."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import fairseq_tn
from fairseq_tn.errors import UserError

# tokens of a sequence where no checkpoint says with how many it was trained
DEFAULT_TOKENS = 256
_PAIR_TASKS = ("bert_pretraining", "teacher_student")


@dataclass(frozen=True)
class CheckpointFacts:
    """What can be known of a checkpoint before its model is built; None where it does not say."""

    path: Path
    uses_nsp: bool
    tokens_per_sample: int | None
    max_positions: int | None
    updates: int | None


def checkpoint_facts(path: Path) -> CheckpointFacts:
    """Read what a checkpoint tells of its training.

    Raises:
        UserError: it is no checkpoint
    """
    from fairseq_tn.models.loading import read_checkpoint

    state = read_checkpoint(path)
    options, model = state["cfg"].get("task") or {}, state["cfg"].get("model") or {}
    history = state.get("optimizer_history") or [{}]
    return CheckpointFacts(
        path=path,
        # the task that the checkpoint was trained with tells whether its NSP head was
        uses_nsp="nsp_head.weight" in state["model"]
        and _get(options, "_name") in _PAIR_TASKS
        and not _get(options, "no_nsp"),
        tokens_per_sample=_get(options, "tokens_per_sample"),
        max_positions=_get(model, "max_positions"),
        updates=history[-1].get("num_updates"),
    )


def _get(options: Any, name: str) -> Any:
    """``options`` is a dictionary or a namespace, as the checkpoint was written."""
    return options.get(name) if hasattr(options, "get") else getattr(options, name, None)


def sequence_length(facts: Iterable[CheckpointFacts], wanted: int | None) -> int:
    """Tokens of a sequence: as wanted, or the shortest that a checkpoint was trained with.

    Raises:
        UserError: a model is not made for so many
    """
    facts = list(facts)
    known = [one.tokens_per_sample or one.max_positions for one in facts]
    length = wanted or min((n for n in known if n), default=DEFAULT_TOKENS)
    for one in facts:
        if one.max_positions and length > one.max_positions:
            raise UserError(
                f"--tokens-per-sample {length} is more than the {one.max_positions} positions of {one.path}"
            )
    return length


def held_out_task(data: str | Path, split: str, tokens_per_sample: int, nsp: bool, seed: int = 1) -> Any:
    """One task for all models, whatever task each was trained with: no teacher, BERT's masking.

    Args:
        data: folder of ``fairseq-preprocess``.
        split: its masks do not depend on the epoch; it is loaded.
        nsp: sentence pairs instead of token blocks.
        seed: of pairs and masks.

    Raises:
        UserError: the split is ``train`` or cannot be read
    """
    if split == "train":
        raise UserError("--split train: its masks change from epoch to epoch; evaluate on held-out text")
    fairseq_tn.register()
    from omegaconf import OmegaConf

    from fairseq_tn.tasks.bert_pretraining import BertPretrainingConfig, BertPretrainingTask

    options = BertPretrainingConfig(
        data=str(data), tokens_per_sample=tokens_per_sample, no_nsp=not nsp, seed=seed
    )
    task = BertPretrainingTask.setup_task(OmegaConf.structured(options))
    task.load_dataset(split)
    return task


def by_length(dataset: Any, limit: int | None = None) -> list[int]:
    """The first ``limit`` sequences, the longest first: less padding, and memory runs out at once or never."""
    number = len(dataset) if limit is None else min(limit, len(dataset))
    return sorted(range(number), key=lambda index: (-dataset.num_tokens(index), index))


def batches(dataset: Any, order: list[int], size: int, device: torch.device) -> Iterator[dict[str, Any]]:
    """Batches of ``size`` sequences in the given order, on the device."""
    from fairseq.utils import apply_to_sample

    for start in range(0, len(order), size):
        batch = dataset.collater([dataset[index] for index in order[start : start + size]])
        yield apply_to_sample(lambda tensor: tensor.to(device), batch)
