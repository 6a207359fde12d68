"""Criterion ``mlm_hard_correction``: masked LM that drops predictions which are synonyms of the gold token."""

from dataclasses import dataclass, field
from typing import Any

from fairseq.criterions import register_criterion

from fairseq_tn.criterions.pretraining import (
    NSP_WEIGHT_HELP,
    PretrainingCriterion,
    PretrainingCriterionConfig,
)
from fairseq_tn.errors import UserError


@dataclass
class MLMHardCorrectionConfig(PretrainingCriterionConfig):
    """The shared options; masked LM alone unless ``nsp_weight`` is given."""

    nsp_weight: float = field(default=0.0, metadata={"help": NSP_WEIGHT_HELP})


@register_criterion("mlm_hard_correction", dataclass=MLMHardCorrectionConfig)
class MLMHardCorrectionCriterion(PretrainingCriterion):
    """Hard correction (True Negatives, Eq. 2); needs ``--synonyms``."""

    def __init__(self, cfg: MLMHardCorrectionConfig, task: Any):
        if not cfg.synonyms:
            raise UserError(
                "mlm_hard_correction needs --synonyms FILE; make one with `fairseq-tn synonyms build`"
            )
        super().__init__(cfg, task)
