"""What the fine-tuning tasks share: the dictionary, and a criterion that is built for a model."""

import os
from typing import Any

from fairseq.data import Dictionary
from fairseq.tasks import FairseqTask
from torch import nn

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
        """Build the criterion and let it freeze the heads of the model that it does not use."""
        criterion = super().build_criterion(cfg, *args, **kwargs)
        if self._model is not None and hasattr(criterion, "freeze_unused"):
            criterion.freeze_unused(self._model)
        return criterion
