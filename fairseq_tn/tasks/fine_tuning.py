"""What the fine-tuning tasks share: the dictionary, and a criterion that is built for a model."""

import os
from dataclasses import dataclass
from typing import Any, Optional

from fairseq.data import Dictionary
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import FairseqTask
from omegaconf import II
from omegaconf.errors import OmegaConfBaseException
from torch import nn

from fairseq_tn.checkpoints import check_checkpoint
from fairseq_tn.compat import unify_transformer_layers
from fairseq_tn.errors import UserError
from fairseq_tn.models.access import state_width
from fairseq_tn.models.depth import mark_depth


def load_dictionary(folder: str) -> Dictionary:
    """The dictionary of a data folder, ``<mask>`` last, as in pre-training.

    Raises:
        UserError: the folder has no usable ``dict.txt``
    """
    path = os.path.join(folder, "dict.txt")
    if not os.path.isfile(path):
        raise UserError(f"{path} is missing: give a data folder that `fairseq-tn prepare` made")
    try:
        dictionary = Dictionary.load(path)
    except (ValueError, RuntimeError) as error:
        raise UserError(f"{path} is not a fairseq dictionary: {str(error).splitlines()[0]}") from error
    dictionary.add_symbol("<mask>")
    return dictionary


@dataclass
class FineTuningConfig(FairseqDataclass):
    """Mirrors of fairseq's own options, for :meth:`FineTuningTask.mirrored`.

    They have no help text: with one, fairseq-train would set them to None.
    """

    seed: int = II("common.seed")
    train_subset: str = II("dataset.train_subset")
    save_dir: str = II("checkpoint.save_dir")
    finetune_from_model: Optional[str] = II("checkpoint.finetune_from_model")


class FineTuningTask(FairseqTask):
    """A task whose criterion has a head (see :class:`fairseq_tn.criterions.fine_tuning.FineTuningCriterion`)."""

    def __init__(self, cfg: Any, dictionary: Dictionary):
        super().__init__(cfg)
        self.dictionary = dictionary
        self._model: nn.Module | None = None

    @property
    def source_dictionary(self) -> Dictionary:
        """The dictionary, ``<mask>`` included."""
        return self.dictionary

    @property
    def target_dictionary(self) -> Dictionary:
        """The same dictionary."""
        return self.dictionary

    @property
    def model_width(self) -> int:
        """The width of the states of the model that was built last; what the criterion's head reads."""
        assert self._model is not None, "the model is built before the criterion"
        return state_width(self._model)

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build the model and remember it for the criterion."""
        model = super().build_model(cfg, from_checkpoint)
        unify_transformer_layers(model)
        mark_depth(model)
        self._model = model
        return model

    def build_criterion(self, cfg: Any, *args: Any, **kwargs: Any) -> Any:
        """Build the criterion and let it freeze the heads of the model that it does not use.

        Raises:
            UserError: the run starts from a checkpoint that is missing or none; fairseq would find out later, with
                a traceback
        """
        start = self.mirrored("finetune_from_model", None)
        # a run that is resumed does not read it
        if start and not os.path.exists(os.path.join(self.mirrored("save_dir", ""), "checkpoint_last.pt")):
            check_checkpoint(start, "--finetune-from-model")
        criterion = super().build_criterion(cfg, *args, **kwargs)
        if self._model is not None and hasattr(criterion, "freeze_unused"):
            criterion.freeze_unused(self._model)
        return criterion

    def check_positions(self, model: Any, longest: int, remedy: str) -> None:
        """Raise UserError, with ``remedy``, if sequences of ``longest`` tokens are too long for a model."""
        limit = model.max_positions()
        if isinstance(limit, int) and limit < longest:
            raise UserError(
                f"{self.cfg.data} has sequences of {longest} tokens, and the model has {limit} positions; {remedy}"
            )

    def mirrored(self, name: str, default: Any) -> Any:
        """Return a mirrored option; the default where the task was made without the rest of a configuration."""
        try:
            value = getattr(self.cfg, name)
        except OmegaConfBaseException:
            return default
        return default if value is None else value
