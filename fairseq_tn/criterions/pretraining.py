"""What the pre-training criterions share: masked LM with hard correction, soft regularisation and NSP.

fairseq divides gradients by the summed ``sample_size``, so every term is a sum in units of one denominator: the
positions that the masked-LM loss averages over (the survivors under hard correction, all selected ones
otherwise). A term that averages over other units is scaled by the ratio of the two within the batch.
"""

import math
from dataclasses import dataclass, field
from typing import Any, Optional

import torch
import torch.nn.functional as F
from fairseq.criterions import FairseqCriterion
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.logging import metrics
from torch import Tensor, nn

from fairseq_tn.errors import UserError
from fairseq_tn.losses import (
    hard_correction,
    masked_lm_loss,
    soft_regularization,
)
from fairseq_tn.models.access import freeze_lm_head, input_embedding, pretraining_outputs
from fairseq_tn.models.bert import TnBertModel
from fairseq_tn.synonyms.table import SynonymTable

NSP_WEIGHT_HELP = "weight of the next-sentence loss; 0 leaves it out; no effect where the task has no pairs"
SOFT_REG_WEIGHT_HELP = (
    "weight of the soft regularisation, which pulls the embeddings of gold and predicted tokens together; "
    "0 leaves it out"
)


@dataclass
class PretrainingCriterionConfig(FairseqDataclass):
    """Options of every criterion that is based on masked LM."""

    mlm_weight: float = field(default=1.0, metadata={"help": "weight of the masked-LM loss; 0 leaves it out"})
    nsp_weight: float = field(default=1.0, metadata={"help": NSP_WEIGHT_HELP})
    synonyms: Optional[str] = field(
        default=None,
        metadata={
            "help": "synonym table (`fairseq-tn synonyms build`): positions where the model predicts a synonym "
            "of the gold token are left out of the masked-LM loss (hard correction)"
        },
    )
    allow_vocabulary_mismatch: bool = field(
        default=False,
        metadata={
            "help": "accept a --synonyms table of another vocabulary; tokens that are unknown here are dropped"
        },
    )
    soft_reg_weight: float = field(default=0.0, metadata={"help": SOFT_REG_WEIGHT_HELP})
    soft_reg_level: ChoiceEnum(["word"]) = field(  # type: ignore[valid-type]
        default="word", metadata={"help": "what soft regularisation compares: word embeddings"}
    )


def most_likely(logits: Tensor) -> Tensor:
    """The first of the largest of each row: K x V -> K."""
    if logits.device.type == "cpu" and logits.dtype in (torch.float32, torch.float64):
        # 12 times as fast as torch's, which takes longer than a softmax on CPUs
        return torch.from_numpy(logits.numpy().argmax(-1))
    return logits.argmax(-1)


class PretrainingCriterion(FairseqCriterion):
    """Weighted sum of masked LM, next-sentence prediction, soft regularisation and a criterion's own term.

    It reads the batch of the tasks ``bert_pretraining`` and ``teacher_student`` and that of fairseq's
    ``masked_lm``, and drives ``tn_bert`` models and fairseq's ``roberta``.
    """

    # whether `contrast` adds a term to the loss
    needs_states = False

    def __init__(self, cfg: PretrainingCriterionConfig, task: Any):
        super().__init__(task)
        self.cfg = cfg
        for option in ("mlm_weight", "nsp_weight", "soft_reg_weight", "tacl_weight"):
            value = getattr(cfg, option, 0.0)
            if not (math.isfinite(value) and value >= 0):
                raise UserError(f"--{option.replace('_', '-')} must be 0 or more, not {value}")
        if cfg.synonyms and not cfg.mlm_weight:
            raise UserError(
                "--synonyms corrects the masked-LM loss, which --mlm-weight 0 leaves out; drop one"
            )
        self.uses_nsp = bool(cfg.nsp_weight) and getattr(task, "uses_nsp", False)
        if not (cfg.mlm_weight or cfg.soft_reg_weight or getattr(cfg, "tacl_weight", 0.0) or self.uses_nsp):
            raise UserError("this run has no loss: give a weight above 0, such as --mlm-weight 1")
        self.table = None
        if cfg.synonyms:
            self.table = SynonymTable.load(
                cfg.synonyms, task.source_dictionary, allow_mismatch=cfg.allow_vocabulary_mismatch
            )

    def freeze_unused(self, model: nn.Module) -> None:
        """Freeze the heads of ``model`` that this criterion does not train; refuse a model that lacks one.

        torch's DistributedDataParallel aborts on trainable parameters without a gradient.
        """
        lm_unused = not self.cfg.mlm_weight
        if isinstance(model, TnBertModel):
            model.freeze_heads(lm=lm_unused, nsp=not self.uses_nsp)
            return
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
            mlm_sum = mlm.sum()
            if self.table is not None:
                corrected = self.table.contains(gold, predicted)
                mlm_sum, denominator = hard_correction(mlm, corrected)
                touched = corrected.new_zeros(len(target)).index_put(
                    (selected // target.size(1),), corrected, True
                )
                log.update(
                    hc_corrected=corrected.sum(),
                    hc_wrong=predicted.ne(gold).sum(),
                    hc_sequences=touched.sum(),
                )
            loss = cfg.mlm_weight * mlm_sum
            if cfg.soft_reg_weight:
                # the encoder reads the same embeddings, so that their gradient stays dense
                sr = soft_regularization(input_embedding(model), predicted, gold, sparse_gradient=True).sum()
                log["sr_loss"] = sr.detach()
                others = others + cfg.soft_reg_weight * sr
        if self.needs_states:
            contrast, contrast_log = self.contrast(states, sample, masked, selected)
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
        self, states: Tensor, sample: dict[str, Any], masked: Tensor, selected: Tensor
    ) -> tuple[Tensor, dict[str, Any]]:
        """A criterion's own term on the last hidden states (B x T x D), if it sets ``needs_states``.

        Returns its weighted sum in units of the selected positions, and sums for the log.
        """
        return states.new_zeros(()), {}

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Log means over all workers: losses in bits (``sr_loss`` as 1 - cos), accuracies in per cent."""

        def total(key: str) -> Any:
            return sum(log.get(key, 0) for log in logging_outputs)

        def mean(name: str, key: str, units: Any, scale: float, digits: int = 3) -> None:
            if any(key in log for log in logging_outputs):
                # units + (units == 0) is max(units, 1) for tensors and numbers, without waiting for the device
                metrics.log_scalar(name, scale * total(key) / (units + (units == 0)), units, round=digits)

        bits = 1 / math.log(2)
        selected, sentences = total("selected"), total("nsentences")
        mean("loss", "loss", total("sample_size"), bits)
        mean("mlm_loss", "mlm_loss", selected, bits)
        mean("mlm_acc", "mlm_correct", selected, 100)
        mean("nsp_loss", "nsp_loss", sentences, bits)
        mean("nsp_acc", "nsp_correct", sentences, 100)
        mean("tacl_loss", "tacl_loss", selected, bits)
        mean("tacl_acc", "tacl_correct", selected, 100)
        mean("sr_loss", "sr_loss", selected, 1, 4)
        mean("hc_pred", "hc_corrected", total("hc_wrong"), 100)
        mean("hc_seq", "hc_sequences", sentences, 100)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """All values are sums."""
        return True
