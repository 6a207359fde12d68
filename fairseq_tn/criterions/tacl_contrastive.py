"""Criterion ``tacl_contrastive``: token-aware contrastive learning added to masked LM and NSP."""

import math
from dataclasses import dataclass, field
from typing import Any

from fairseq.criterions import register_criterion

from fairseq_tn.criterions.pretraining import PretrainingCriterion, PretrainingCriterionConfig
from fairseq_tn.errors import UserError


@dataclass
class TaclContrastiveConfig(PretrainingCriterionConfig):
    """The shared options and TaCL's own."""

    tacl_weight: float = field(default=1.0, metadata={"help": "weight of the token-aware contrastive loss"})
    temperature: float = field(
        default=0.01,
        metadata={"help": "temperature of the contrastive softmax, above 0 (the paper's is 0.01)"},
    )


@register_criterion("tacl_contrastive", dataclass=TaclContrastiveConfig)
class TaclContrastiveCriterion(PretrainingCriterion):
    """TaCL (Eq. 1 and 2): student states at masked positions against the teacher's states of the sequence."""

    def __init__(self, cfg: TaclContrastiveConfig, task: Any):
        if not (math.isfinite(cfg.temperature) and cfg.temperature > 0):
            raise UserError(f"--temperature must be above 0, not {cfg.temperature}; the paper's is 0.01")
        if not hasattr(task, "add_teacher_states"):
            raise UserError("tacl_contrastive needs a teacher: give --task teacher_student")
        super().__init__(cfg, task)
        self.tacl_weight = cfg.tacl_weight
        self.temperature = cfg.temperature
