"""Criterion ``span_extraction``: where the answer starts and where it ends, for SQuAD."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch.nn.functional as F
from fairseq.criterions import register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from torch import Tensor, nn

from fairseq_tn.criterions.fine_tuning import FineTuningCriterion, TokenHead
from fairseq_tn.errors import UserError

_BITS = 1 / math.log(2)
UNKNOWN_ANSWER = -1


@dataclass
class SpanExtractionConfig(FairseqDataclass):
    """Options of the criterion."""

    head_dropout: float = field(
        default=0.0, metadata={"help": "dropout of the last hidden states, before the head (BERT has none)"}
    )


@register_criterion("span_extraction", dataclass=SpanExtractionConfig)
class SpanExtractionCriterion(FineTuningCriterion):
    """Mean of the cross-entropies of the answer's first and last token (Devlin et al., 2019, section 4.2).

    Both are softmaxes over the real tokens of a window, question and special ones included, as in BERT; padding is
    left out. A window without the answer points to ``<s>``; one whose answer is not known does not count.
    """

    def __init__(self, cfg: SpanExtractionConfig, task: Any):
        super().__init__(task)
        if not 0 <= cfg.head_dropout < 1:
            raise UserError(f"--head-dropout is {cfg.head_dropout}; it must be from 0 to below 1")
        self.head = TokenHead(task.model_width, 2, cfg.head_dropout)
        self.mark_parameters()

    def logits(self, model: nn.Module, net_input: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        """Logits (B x T, float32) of the answer's first and of its last token; ``-inf`` at padding."""
        padding = net_input["src_tokens"].eq(self.padding_idx)
        logits = self.head(self.states(model, net_input)).float()
        start, end = logits.masked_fill(padding.unsqueeze(2), -math.inf).unbind(2)
        return start, end

    def forward(
        self, model: nn.Module, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, Any, dict]:
        """Return the loss (a sum over windows), their number, and sums for the log."""
        return span_loss(*self.logits(model, sample["net_input"]), sample)

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Log means over windows: the loss in bits, accuracies in per cent."""
        number: Any = sum(log.get("sample_size", 0) for log in logging_outputs)
        safe = number + (number == 0)  # max(number, 1), without waiting for the device
        for name, scale in (("loss", _BITS), ("start_acc", 100), ("end_acc", 100), ("span_acc", 100)):
            total: Any = sum(log.get(name, 0) for log in logging_outputs)
            metrics.log_scalar(name, scale * total / safe, number, round=3)


def span_loss(start: Tensor, end: Tensor, sample: Mapping[str, Any]) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """The loss of a batch.

    Args:
        start, end: B x T logits in float32.
        sample: of a batch, ``start`` and ``end`` (B places of the answer's first and last token; -1 where the answer is
            not known), ``ntokens`` and ``nsentences``.

    Returns:
        The sum over windows of the mean of both cross-entropies, the number of windows with a known answer, and sums
        for the log.
    """
    first, last = sample["start"], sample["end"]
    number = first.ne(UNKNOWN_ANSWER).sum()
    start_loss = F.cross_entropy(start, first, ignore_index=UNKNOWN_ANSWER, reduction="sum")
    end_loss = F.cross_entropy(end, last, ignore_index=UNKNOWN_ANSWER, reduction="sum")
    loss = 0.5 * (start_loss + end_loss)
    start_right, end_right = start.argmax(1).eq(first), end.argmax(1).eq(last)
    log = {
        "ntokens": sample["ntokens"],
        "nsentences": sample["nsentences"],
        "loss": loss.detach(),
        "sample_size": number,
        "start_acc": start_right.sum(),
        "end_acc": end_right.sum(),
        "span_acc": (start_right & end_right).sum(),
    }
    return loss, number, log
