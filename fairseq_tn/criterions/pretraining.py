"""What the pre-training criterions of BERT share: masked LM and NSP, hard correction, soft regularisation."""

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_tn.criterions.true_negatives import (
    BITS,
    TrueNegativesConfig,
    TrueNegativesCriterion,
)
from fairseq_tn.errors import UserError
from fairseq_tn.losses import masked_lm_loss, most_likely
from fairseq_tn.models.access import freeze_lm_head, pretraining_outputs
from fairseq_tn.models.bert import TnBertModel
from fairseq_tn.models.electra import TnElectraModel

NSP_WEIGHT_HELP = "weight of the next-sentence loss; 0 leaves it out; no effect where the task has no pairs"


@dataclass
class PretrainingCriterionConfig(TrueNegativesConfig):
    """Options of every criterion of BERT's pre-training."""

    mlm_weight: float = field(default=1.0, metadata={"help": "weight of the masked-LM loss; 0 leaves it out"})
    nsp_weight: float = field(default=1.0, metadata={"help": NSP_WEIGHT_HELP})


class PretrainingCriterion(TrueNegativesCriterion):
    """Weighted sum of masked LM, next-sentence prediction, soft regularisation and a criterion's own term.

    It reads the batch of the tasks ``bert_pretraining`` and ``teacher_student`` and that of fairseq's
    ``masked_lm``, and drives ``tn_bert`` models and fairseq's ``roberta``.
    """

    weights = (*TrueNegativesCriterion.weights, "mlm_weight", "nsp_weight")
    # whether `contrast` adds a term to the loss, and whether it reads the states of the masked sequence
    contrasts = False
    needs_states = False

    def __init__(self, cfg: PretrainingCriterionConfig, task: Any):
        if cfg.synonyms and not cfg.mlm_weight:
            raise UserError(
                "--synonyms corrects the masked-LM loss, which --mlm-weight 0 leaves out; drop one"
            )
        super().__init__(cfg, task)
        self.uses_nsp = bool(cfg.nsp_weight) and getattr(task, "uses_nsp", False)
        if not (self.uses_nsp or any(getattr(cfg, name) for name in self.weights if name != "nsp_weight")):
            raise UserError("this run has no loss: give a weight above 0, such as --mlm-weight 1")

    def freeze_unused(self, model: nn.Module) -> None:
        """Freeze the heads of ``model`` that this criterion does not train; refuse a model that lacks one.

        torch's DistributedDataParallel aborts on trainable parameters without a gradient.
        """
        lm_unused = not self.cfg.mlm_weight
        if isinstance(model, TnBertModel):
            model.freeze_heads(lm=lm_unused, nsp=not self.uses_nsp)
            return
        if isinstance(model, TnElectraModel):
            raise UserError("the tn_electra_* architectures are trained by --criterion electra")
        if self.uses_nsp:
            raise UserError(
                "this --arch has no next-sentence head; give --no-nsp, or one of the tn_bert_* architectures"
            )
        if lm_unused:
            freeze_lm_head(model)

    def forward(
        self, model: nn.Module, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, Any, dict]:
        """Return the loss (a sum), its denominator, and sums for the log; see the module's docstring."""
        cfg = self.cfg
        target = sample["target"]
        masked = target.ne(self.padding_idx)
        selected = sample.get("selected")
        if selected is None:  # a batch of fairseq's own tasks
            selected = masked.reshape(-1).nonzero().squeeze(1)
        positions = len(selected)
        needs_lm = bool(cfg.mlm_weight or cfg.soft_reg_weight)
        logits: Any = None
        states: Any = None
        nsp_logits: Any = None
        if needs_lm or self.uses_nsp or self.needs_states:
            logits, states, nsp_logits = pretraining_outputs(
                model, sample["net_input"], selected, masked, lm=needs_lm, states=self.needs_states
            )

        log: dict[str, Any] = {
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
            "selected": positions,
        }
        denominator: Any = positions
        loss: Any = 0.0
        others: Any = 0.0  # sums over the selected positions, besides masked LM
        if needs_lm:
            gold = target.reshape(-1).index_select(0, selected)
            predicted = most_likely(logits.detach())
            mlm = masked_lm_loss(logits, gold)
            log.update(mlm_loss=mlm.detach().sum(), mlm_correct=predicted.eq(gold).sum())
            mlm_sum, denominator, _, hc_log = self.hard_corrected(
                mlm, gold, predicted, selected, target.shape
            )
            log.update(hc_log)
            loss = cfg.mlm_weight * mlm_sum
            if cfg.soft_reg_weight:
                source = torch.where(masked, target, sample["net_input"]["src_tokens"])
                sr, sr_log = self.soft_regularized(model, source, selected, gold, predicted)
                log.update(sr_log)
                others = others + sr
        if self.contrasts:
            contrast, contrast_log = self.contrast(model, states, sample, masked, selected)
            log.update(contrast_log)
            others = others + contrast
        loss = loss + (others if denominator is positions else others * (denominator / max(positions, 1)))
        if self.uses_nsp:
            labels = sample["sentence_target"]
            nsp = F.cross_entropy(nsp_logits.float(), labels, reduction="sum")
            log.update(nsp_loss=nsp.detach(), nsp_correct=nsp_logits.argmax(-1).eq(labels).sum())
            loss = loss + cfg.nsp_weight * nsp * (denominator / len(labels))
        log.update(loss=loss.detach(), sample_size=denominator)
        return loss, denominator, log

    def contrast(
        self, model: nn.Module, states: Any, sample: dict[str, Any], masked: Tensor, selected: Tensor
    ) -> tuple[Tensor, dict[str, Any]]:
        """A criterion's own term, if it sets ``contrasts``.

        Args:
            model: perhaps inside the wrappers of distributed training.
            states: last hidden states (B x T x D) of the masked sequences; None without ``needs_states``.
            sample: the batch.
            masked, selected: the selected positions, as a B x T mask and as K flat indices.

        Returns:
            Its weighted sum in units of the selected positions, and sums for the log.
        """
        raise NotImplementedError

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Add the means of masked LM, next-sentence prediction and the contrastive term."""
        super().reduce_metrics(logging_outputs)
        for name, correct, units in (
            ("mlm", "mlm_correct", "selected"),
            ("nsp", "nsp_correct", "nsentences"),
            ("tacl", "tacl_correct", "selected"),
        ):
            cls.log_mean(logging_outputs, f"{name}_loss", f"{name}_loss", units, BITS)
            cls.log_mean(logging_outputs, f"{name}_acc", correct, units, 100)
