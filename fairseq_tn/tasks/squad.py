"""Task ``squad``: question answering by spans, on data of ``fairseq-tn prepare squad``."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from fairseq.data import Dictionary
from fairseq.logging import metrics
from fairseq.logging.meters import Meter
from fairseq.tasks import register_task
from omegaconf import MISSING
from torch import nn

from fairseq_tn.criterions.span_extraction import SpanExtractionCriterion, span_loss
from fairseq_tn.data.answers import AnswerSearch
from fairseq_tn.data.squad_split import SquadDataset, SquadSplit, read_metadata
from fairseq_tn.evaluation.squad_metrics import evaluate_1, evaluate_2
from fairseq_tn.models.access import unwrap
from fairseq_tn.tasks.fine_tuning import FineTuningConfig, FineTuningTask, load_dictionary

logger = logging.getLogger(__name__)

MAX_ANSWER_LENGTH = 30
_FOUND = "answers"


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
        """fairseq's step; with ``eval_f1`` the log holds the best answer of each window too."""
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
        return loss, number, {**log, _FOUND: (split, found)}

    @staticmethod
    def logging_outputs_can_be_summed(criterion: Any) -> bool:
        """Numbers can be summed; the answers of ``eval_f1`` are gathered from all workers instead."""
        return criterion.training or not getattr(criterion, "gathers_answers", False)

    def build_criterion(self, cfg: Any, *args: Any, **kwargs: Any) -> Any:
        """Build the criterion, and tell it whether answers are gathered."""
        criterion = super().build_criterion(cfg, *args, **kwargs)
        criterion.gathers_answers = self.cfg.eval_f1
        return criterion

    def reduce_metrics(self, logging_outputs: Sequence[Mapping[str, Any]], criterion: Any) -> None:
        """Log the criterion's means and, with ``eval_f1``, the exact match and F1 of all questions so far."""
        super().reduce_metrics(logging_outputs, criterion)
        for log in logging_outputs:
            if _FOUND in log:
                name, found = log[_FOUND]
                split = self.datasets[name].split
                for measure in ("em", "f1"):
                    metrics.log_custom(lambda m=measure, s=split: _AnswerMeter(s, m), measure, found)


class _AnswerMeter(Meter):
    """Exact match or F1 of the questions whose windows it has been told of."""

    def __init__(self, split: SquadSplit, measure: str):
        self._split, self._measure = split, measure
        self._found: list[Mapping[str, np.ndarray]] = []

    def update(self, found: Mapping[str, np.ndarray]) -> None:
        """Add the best answers of windows, as :meth:`AnswerSearch.add` gives them."""
        self._found.append(found)

    @property
    def smoothed_value(self) -> float:
        """In per cent; of SQuAD 2.0 the highest that a threshold for "no answer" reaches."""
        answers = AnswerSearch(self._split, MAX_ANSWER_LENGTH, 1).join(self._found)
        golds = {answer.id: self._split.golds[answer.id] for answer in answers}
        best = {answer.id: answer.text(np.inf) for answer in answers}
        if not self._split.version_2:
            return round(evaluate_1(golds, best)["exact_match" if self._measure == "em" else "f1"], 2)
        scores = evaluate_2(golds, best, {answer.id: answer.null_odds for answer in answers})
        return round(scores["best_exact" if self._measure == "em" else "best_f1"], 2)
