"""Criterion ``electra``: replaced-token detection with a jointly trained generator (Clark et al., 2020)."""

from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.criterions import register_criterion
from fairseq.logging import metrics
from torch import Tensor, nn

from fairseq_tn.criterions.true_negatives import BITS, TrueNegativesConfig, TrueNegativesCriterion
from fairseq_tn.errors import UserError
from fairseq_tn.losses import masked_lm_loss, most_likely, replaced_token_loss
from fairseq_tn.models.access import unwrap
from fairseq_tn.models.electra import TnElectraModel


@dataclass
class ElectraCriterionConfig(TrueNegativesConfig):
    """Options of ELECTRA, of hard correction and of soft regularisation."""

    generator_weight: float = field(
        default=1.0, metadata={"help": "weight of the generator's masked-LM loss; 0 leaves it out"}
    )
    discriminator_weight: float = field(
        default=50.0, metadata={"help": "weight of the discriminator's loss; 0 leaves it out"}
    )


@register_criterion("electra", dataclass=ElectraCriterionConfig)
class ElectraCriterion(TrueNegativesCriterion):
    """Masked LM of the generator and replaced-token detection of the discriminator, each a mean over its own units.

    What the generator is said to predict is the token that was drawn from it. Hard correction: where it is a
    synonym of the gold token, the generator's loss leaves the position out and the discriminator's label is
    "original"; the input stays. Soft regularisation compares the drawn with the gold token in the shared embedding,
    or the discriminator's states of the two sequences.
    """

    weights = (*TrueNegativesCriterion.weights, "generator_weight", "discriminator_weight")

    def __init__(self, cfg: ElectraCriterionConfig, task: Any):
        super().__init__(cfg, task)
        if getattr(task, "uses_nsp", False):
            raise UserError("electra has no next-sentence prediction; give --no-nsp")
        if not any(getattr(cfg, name) for name in self.weights):
            raise UserError("this run has no loss: give a weight above 0, such as --discriminator-weight 50")

    def freeze_unused(self, model: nn.Module) -> None:
        """Freeze the half of ``model`` that no loss of this run trains; refuse a model that is not ELECTRA."""
        model, cfg = _electra(model), self.cfg
        by_sentences = bool(cfg.soft_reg_weight) and str(cfg.soft_reg_level) == "sentence"
        model.freeze_halves(
            generator=not cfg.generator_weight, discriminator=not (cfg.discriminator_weight or by_sentences)
        )
        model.discriminator_head.requires_grad_(bool(cfg.discriminator_weight))

    def forward(
        self, model: nn.Module, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, Any, dict]:
        """Return the loss (a sum), its denominator, and sums for the log."""
        cfg, target = self.cfg, sample["target"]
        _electra(model)  # fairseq's own tasks do not call `freeze_unused`
        masked = target.ne(self.padding_idx)
        selected = sample.get("selected")
        if selected is None:  # a batch of fairseq's own tasks
            selected = masked.reshape(-1).nonzero().squeeze(1)
        source = torch.where(masked, target, sample["net_input"]["src_tokens"])
        logits, extra = model(**sample["net_input"], masked_tokens=selected, source=source)
        gold, sampled = target.reshape(-1).index_select(0, selected), extra["sampled"]

        generator = masked_lm_loss(logits, gold)
        generator_sum, denominator, corrected, log = self.hard_corrected(
            generator, gold, sampled, selected, target.shape
        )
        wrong = sampled.ne(gold)
        if corrected is not None:
            wrong = wrong & ~corrected
        replaced = masked.new_zeros(masked.numel()).index_copy(0, selected, wrong).view_as(masked)
        real = source.ne(self.padding_idx)
        discriminator = replaced_token_loss(extra["discriminator_logits"], replaced, real)
        found = extra["discriminator_logits"].detach() > 0
        loss = cfg.generator_weight * generator_sum
        others: Any = cfg.discriminator_weight * discriminator * (len(selected) / max(sample["ntokens"], 1))
        if cfg.soft_reg_weight:
            sr, sr_log = self.soft_regularized(model, source, selected, gold, sampled, extra["features"])
            log.update(sr_log)
            others = others + sr
        loss = loss + (others if self.table is None else others * (denominator / max(len(selected), 1)))
        log.update(
            loss=loss.detach(),
            sample_size=denominator,
            ntokens=sample["ntokens"],
            nsentences=sample["nsentences"],
            selected=len(selected),
            gen_loss=generator.detach().sum(),
            gen_correct=most_likely(logits.detach()).eq(gold).sum(),
            disc_loss=discriminator.detach(),
            disc_correct=(found.eq(replaced) & real).sum(),
            disc_replaced=replaced.sum(),
            disc_found=(found & replaced).sum(),
        )
        return loss, denominator, log

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Add the means of both halves; ``disc_bacc`` is the mean of the accuracies on either kind of token."""
        super().reduce_metrics(logging_outputs)
        cls.log_mean(logging_outputs, "gen_loss", "gen_loss", "selected", BITS)
        cls.log_mean(logging_outputs, "gen_acc", "gen_correct", "selected", 100)
        cls.log_mean(logging_outputs, "disc_loss", "disc_loss", "ntokens", BITS)
        cls.log_mean(logging_outputs, "disc_acc", "disc_correct", "ntokens", 100)
        cls.log_mean(logging_outputs, "disc_recall", "disc_found", "disc_replaced", 100)
        kept = [
            {
                "kept": log["ntokens"] - log["disc_replaced"],
                "right": log["disc_correct"] - log["disc_found"],
            }
            for log in logging_outputs
        ]
        cls.log_mean(kept, "disc_specificity", "right", "kept", 100)
        if logging_outputs:
            metrics.log_derived("disc_bacc", _balanced_accuracy)


def _electra(model: nn.Module) -> TnElectraModel:
    model = unwrap(model)
    if not isinstance(model, TnElectraModel):
        raise UserError("--criterion electra trains the tn_electra_* architectures; give one as --arch")
    return model


def _balanced_accuracy(meters: Any) -> float:
    return round((float(meters["disc_recall"].avg) + float(meters["disc_specificity"].avg)) / 2, 3)
