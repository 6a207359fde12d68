"""Task ``squad``: question answering by spans, on data of ``fairseq-tn prepare squad``."""

import functools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from fairseq.data import Dictionary
from fairseq.distributed import utils as distributed_utils
from fairseq.logging import metrics
from fairseq.logging.meters import MetersDict
from fairseq.tasks import register_task
from omegaconf import MISSING
from torch import nn

from fairseq_tn.criterions.span_extraction import SpanExtractionCriterion, span_loss
from fairseq_tn.data.answers import AnswerSearch, newest
from fairseq_tn.data.squad_split import SquadDataset, SquadSplit, read_metadata
from fairseq_tn.evaluation.squad_metrics import evaluate_1, evaluate_2
from fairseq_tn.models.access import unwrap
from fairseq_tn.tasks.fine_tuning import FineTuningConfig, FineTuningTask, load_dictionary

logger = logging.getLogger(__name__)

MAX_ANSWER_LENGTH = 30
# the best answers of windows, as AnswerSearch.add gives them
Found = Mapping[str, np.ndarray]


@dataclass
class SquadConfig(FineTuningConfig):
    """Options of the task."""

    data: str = field(default=MISSING, metadata={"help": "data folder made by `fairseq-tn prepare squad`"})
    eval_f1: bool = field(
        default=False,
        metadata={
            "help": "also compute the exact match and F1 of the questions in validation (em, f1), for "
            "--best-checkpoint-metric f1 --maximize-best-checkpoint-metric; of SQuAD 2.0 at the best threshold"
        },
    )


@register_task("squad", dataclass=SquadConfig)
class SquadTask(FineTuningTask):
    """Gives batches of windows (see :meth:`SquadDataset.collater`) to the criterion ``span_extraction``."""

    cfg: SquadConfig

    def __init__(self, cfg: SquadConfig, dictionary: Dictionary):
        super().__init__(cfg, dictionary)
        self._searches: dict[str, AnswerSearch] = {}
        # what validation has found in which split, and has not logged
        self._found: list[tuple[str, Found]] = []

    @classmethod
    def setup_task(cls, cfg: SquadConfig, **kwargs: Any) -> "SquadTask":
        """Load the dictionary of the data folder and make the task.

        Raises:
            UserError: the folder has no usable ``dict.txt``
        """
        return cls(cfg, load_dictionary(cfg.data))

    def load_dataset(self, split: str, combine: bool = False, **kwargs: Any) -> None:
        """Load a split.

        Raises:
            UserError: the split is missing, damaged or of another dictionary
        """
        windows = SquadSplit(self.cfg.data, split, self.dictionary)
        self.datasets[split] = SquadDataset(
            windows,
            self.mirrored("seed", 1),
            self.dictionary.bos(),
            self.dictionary.pad(),
            self.dictionary.eos(),
            split,
            train=split == self.mirrored("train_subset", "train"),
        )
        logger.info("%s: %s windows from %s", split, f"{len(self.datasets[split]):,}", self.cfg.data)

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build the model.

        Raises:
            UserError: in a run that trains or validates, the model has too few positions for the windows
        """
        model = super().build_model(cfg, from_checkpoint)
        if not from_checkpoint:
            splits = read_metadata(self.cfg.data)["splits"].values()
            remedy = "give `fairseq-tn prepare squad` a smaller --max-length, or take a model with more"
            self.check_positions(model, max(split["longest"] for split in splits), remedy)
        return model

    def max_positions(self) -> None:
        """Windows fit the model, or the run has ended before."""
        return

    def valid_step(
        self, sample: dict[str, Any], model: nn.Module, criterion: nn.Module
    ) -> tuple[Any, Any, dict]:
        """fairseq's step; with ``eval_f1`` the best answer of each window is kept for :meth:`reduce_metrics`."""
        inner = unwrap(criterion)
        if not self.cfg.eval_f1 or not isinstance(inner, SpanExtractionCriterion):
            return super().valid_step(sample, model, criterion)
        model.eval()
        with torch.no_grad():
            start, end = inner.logits(model, sample["net_input"])
            loss, number, log = span_loss(start, end, sample)
        split = sample["split"]
        if split not in self._searches:
            self._searches[split] = AnswerSearch(self.datasets[split].split, MAX_ANSWER_LENGTH, 1)
        found = self._searches[split].add(sample["id"].cpu().numpy(), start, end)
        self._found += [(split, part) for part in _gathered(found)]
        return loss, number, log

    def reduce_metrics(self, logging_outputs: Sequence[Mapping[str, Any]], criterion: Any) -> None:
        """Log the criterion's means and, with ``eval_f1``, the exact match and F1 of all questions so far."""
        super().reduce_metrics(logging_outputs, criterion)
        for name, found in self._found:
            split = self.datasets[name].split
            for measure in ("em", "f1"):
                metrics.log_custom(functools.partial(_AnswerMeter, split, measure), measure, found)
        self._found.clear()


def _gathered(found: Found) -> list[Found]:
    """What all workers have found; each calls this for each batch."""
    workers = distributed_utils.get_data_parallel_world_size()
    if workers == 1:
        return [found]
    parts: list[Any] = [None] * workers
    # fairseq's own all_gather_list works on GPUs only
    torch.distributed.all_gather_object(parts, found, distributed_utils.get_data_parallel_group())
    return parts


class _AnswerMeter(MetersDict._DerivedMeter):
    """Exact match or F1 of the questions whose windows it has been told of.

    It is a derived meter, because fairseq saves all others in its checkpoints and loads only what it knows.
    """

    def __init__(self, split: SquadSplit, measure: str):
        super().__init__(self._score)
        self._search = AnswerSearch(split, MAX_ANSWER_LENGTH, 1)
        self._split, self._measure = split, measure
        self._found: list[Found] = []
        self._windows = 0

    def update(self, found: Found) -> None:
        """Add the best answers of windows; they replace earlier ones of the same windows."""
        self._found.append(found)
        self._windows += len(found["id"])
        # fairseq keeps one meter for all validations of a run
        if self._windows > 2 * len(self._split.windows):
            self._found = [newest(self._found)]
            self._windows = len(self._found[0]["id"])

    def _score(self, meters: MetersDict) -> float:
        """In per cent; of SQuAD 2.0 the highest that a threshold for "no answer" reaches."""
        answers = self._search.join(self._found)
        golds = {answer.id: self._split.golds[answer.id] for answer in answers}
        best = {answer.id: answer.text(np.inf) for answer in answers}
        if not self._split.version_2:
            return round(evaluate_1(golds, best)["exact_match" if self._measure == "em" else "f1"], 2)
        scores = evaluate_2(golds, best, {answer.id: answer.null_odds for answer in answers})
        return round(scores["best_exact" if self._measure == "em" else "best_f1"], 2)
