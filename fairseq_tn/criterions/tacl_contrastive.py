"""Criterion ``tacl_contrastive``: token-aware contrastive learning added to masked LM and NSP."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.criterions import register_criterion
from fairseq.dataclass import ChoiceEnum
from torch import Tensor, nn

from fairseq_tn.criterions.pretraining import PretrainingCriterion, PretrainingCriterionConfig
from fairseq_tn.errors import UserError
from fairseq_tn.losses import SIMILARITIES, token_contrastive_loss


@dataclass
class TaclContrastiveConfig(PretrainingCriterionConfig):
    """The shared options and TaCL's own."""

    tacl_weight: float = field(default=1.0, metadata={"help": "weight of the token-aware contrastive loss"})
    temperature: float = field(
        default=0.01,
        metadata={"help": "temperature of the contrastive softmax, above 0 (the paper's is 0.01)"},
    )
    tacl_reduction: ChoiceEnum(["mean", "sum"]) = field(  # type: ignore[valid-type]
        default="mean",
        metadata={
            "help": "mean over all masked positions of a batch, as the paper's script computes, or the sum over the "
            "masked positions of a sequence, as the paper's Eq. 1 is written, averaged over sequences"
        },
    )
    tacl_padding: bool = field(
        default=False,
        metadata={"help": "let padding take part in the contrastive softmax, as in the paper's script"},
    )
    similarity: ChoiceEnum(list(SIMILARITIES)) = field(  # type: ignore[valid-type]
        default="cosine",
        metadata={
            "help": "compare states by cosine / --temperature, or by dot: inner products without temperature"
        },
    )


@register_criterion("tacl_contrastive", dataclass=TaclContrastiveConfig)
class TaclContrastiveCriterion(PretrainingCriterion):
    """TaCL (Eq. 1 and 2): student states at masked positions against the teacher's states of the sequence."""

    weights = (*PretrainingCriterion.weights, "tacl_weight")

    def __init__(self, cfg: TaclContrastiveConfig, task: Any):
        if not (math.isfinite(cfg.temperature) and cfg.temperature > 0):
            raise UserError(f"--temperature must be above 0, not {cfg.temperature}; the paper's is 0.01")
        if not hasattr(task, "add_teacher_states"):
            raise UserError("tacl_contrastive needs a teacher: give --task teacher_student")
        super().__init__(cfg, task)
        self.contrasts = self.needs_states = bool(cfg.tacl_weight)

    def contrast(
        self, model: nn.Module, states: Any, sample: dict[str, Any], masked: Tensor, selected: Tensor
    ) -> tuple[Tensor, dict[str, Any]]:
        """TaCL's term and its log, see the base class."""
        cfg, real = self.cfg, sample["source"].ne(self.padding_idx)
        loss, matched = token_contrastive_loss(
            states,
            sample["teacher_states"],
            masked,
            torch.ones_like(real) if cfg.tacl_padding else real,
            cfg.temperature,
            selected,
            sample.get("max_selected"),
            str(cfg.similarity),
        )
        weight = cfg.tacl_weight
        if str(cfg.tacl_reduction) == "sum":
            weight *= len(selected) / len(masked)
        return weight * loss, {"tacl_loss": loss.detach(), "tacl_correct": matched}
