"""What the fine-tuning tasks share: a criterion with a head, which is built for a model."""

from dataclasses import dataclass
from typing import Any, Optional

from fairseq.data import Dictionary
from fairseq.dataclass import FairseqDataclass
from omegaconf import II

from fairseq_tn.errors import UserError
from fairseq_tn.tasks import encoder
from fairseq_tn.tasks.encoder import EncoderTask


def load_dictionary(folder: str) -> Dictionary:
    """:func:`fairseq_tn.tasks.encoder.load_dictionary` of a folder for fine-tuning."""
    return encoder.load_dictionary(folder, "`fairseq-tn prepare`")


@dataclass
class FineTuningConfig(FairseqDataclass):
    """Mirrors of fairseq's own options, for :meth:`FineTuningTask.mirrored`.

    They have no help text: with one, fairseq-train would set them to None.
    """

    seed: int = II("common.seed")
    train_subset: str = II("dataset.train_subset")
    save_dir: str = II("checkpoint.save_dir")
    finetune_from_model: Optional[str] = II("checkpoint.finetune_from_model")


class FineTuningTask(EncoderTask):
    """A task whose criterion has a head (see :class:`fairseq_tn.criterions.fine_tuning.FineTuningCriterion`)."""

    def check_positions(self, model: Any, longest: int, remedy: str) -> None:
        """Raise UserError, with ``remedy``, if sequences of ``longest`` tokens are too long for a model."""
        limit = model.max_positions()
        if isinstance(limit, int) and limit < longest:
            raise UserError(
                f"{self.cfg.data} has sequences of {longest} tokens, and the model has {limit} positions; {remedy}"
            )
