"""Criterion ``mlm_soft_reg``: masked LM that pulls the embeddings of gold and predicted tokens together."""

from dataclasses import dataclass, field
from typing import Any

from fairseq.criterions import register_criterion

from fairseq_tn.criterions.pretraining import (
    NSP_WEIGHT_HELP,
    PretrainingCriterion,
    PretrainingCriterionConfig,
)
from fairseq_tn.criterions.true_negatives import SOFT_REG_WEIGHT_HELP
from fairseq_tn.errors import UserError


@dataclass
class MLMSoftRegConfig(PretrainingCriterionConfig):
    """The shared options; masked LM and soft regularisation unless ``nsp_weight`` is given."""

    nsp_weight: float = field(default=0.0, metadata={"help": NSP_WEIGHT_HELP})
    soft_reg_weight: float = field(default=1.0, metadata={"help": SOFT_REG_WEIGHT_HELP})


@register_criterion("mlm_soft_reg", dataclass=MLMSoftRegConfig)
class MLMSoftRegCriterion(PretrainingCriterion):
    """Soft regularisation (True Negatives, Eq. 3)."""

    def __init__(self, cfg: MLMSoftRegConfig, task: Any):
        if not cfg.soft_reg_weight:
            raise UserError(
                "mlm_soft_reg needs a --soft-reg-weight above 0; bert_pretraining is the baseline without"
            )
        super().__init__(cfg, task)
