"""Criterion ``token_tagging``: a tag for each token, by a softmax for each or by a linear-chain CRF over all.

Only the first piece of a token has a state that is read. The states of a sequence's tokens are gathered into a
row without gaps, so that a CRF's transitions lead from token to token.
"""

import copy
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from fairseq.criterions import register_criterion
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.logging import metrics
from torch import Tensor, nn

from fairseq_tn.criterions.fine_tuning import FineTuningCriterion, TokenHead
from fairseq_tn.data.tagging import NO_TAG
from fairseq_tn.data.tags import lenient_spans, sequence_starts, strict_spans
from fairseq_tn.errors import CheckpointMismatch, UserError
from fairseq_tn.synonyms.vocabularies import vocabulary_digest

_BITS = 1 / math.log(2)


@dataclass
class TokenTaggingCriterionConfig(FairseqDataclass):
    """Options of the criterion."""

    tagging_loss: ChoiceEnum(["softmax", "crf"]) = field(  # type: ignore[valid-type]
        default="softmax",
        metadata={
            "help": "softmax: the tag of each token by itself; crf: a linear-chain conditional random field, which "
            "learns which tags follow each other (pip install 'fairseq_tn[crf]')"
        },
    )
    head_dropout: float = field(default=0.1, metadata={"help": "dropout before the tagging layer"})


@register_criterion("token_tagging", dataclass=TokenTaggingCriterionConfig)
class TokenTaggingCriterion(FineTuningCriterion):
    """Cross-entropy of the tags or negative log-likelihood of their sequences, as a sum over tokens.

    ``sample_size`` is the number of tokens, so that long sentences weigh more. Log: ``loss`` (bits a token) and
    ``accuracy`` (per cent; with a CRF when validating only), and when validating ``precision``, ``recall`` and
    ``f1`` (per cent) of entities as :func:`fairseq_tn.data.tags.strict_spans` reads the predictions, or of words.
    """

    def __init__(self, cfg: TokenTaggingCriterionConfig, task: Any):
        if not hasattr(task, "facts"):
            raise UserError("--criterion token_tagging needs --task token_tagging")
        if not 0 <= cfg.head_dropout < 1:
            raise UserError(f"--head-dropout is {cfg.head_dropout}; it must be 0 or more and less than 1")
        super().__init__(task)
        self.tag_set = task.facts.tag_set
        self.num_labels = len(task.facts.labels)
        self.head = TokenHead(task.model_width, self.num_labels, cfg.head_dropout)
        self.crf: Any = _crf(self.num_labels) if str(cfg.tagging_loss) == "crf" else None
        digest = bytes.fromhex(vocabulary_digest([task.facts.scheme, *task.facts.labels]))
        # a head of as many labels fits in shape; 32 bits in each 64-bit number, as in the models
        self.register_buffer(
            "labels_digest",
            torch.tensor([int.from_bytes(digest[i : i + 4], "big") for i in range(0, 16, 4)]),
        )
        self.mark_parameters()

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        """Load the head of a checkpoint; CheckpointMismatch if it was trained with other labels."""
        theirs = (state_dict or {}).get("labels_digest")
        if theirs is not None and not torch.equal(theirs.cpu(), self.labels_digest.cpu()):
            raise CheckpointMismatch(
                "the checkpoint's head was trained with other labels than the data folder has; give the data folder "
                "that it was trained on, or fine-tune from a pre-trained checkpoint"
            )
        return super().load_state_dict(state_dict, strict, assign)

    def forward(
        self, model: nn.Module, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, Any, dict[str, Any]]:
        """Return the loss (a sum), the number of tokens, and sums for the log."""
        target, logits = sample["target"], self.logits(model, sample)
        # the tags that only other splits have cannot be learned; predictions there are wrong
        known = target.ge(0) & target.lt(self.num_labels)
        if self.crf is None:
            loss = F.cross_entropy(
                logits.transpose(1, 2),
                target.masked_fill(~known, NO_TAG),
                ignore_index=NO_TAG,
                reduction="sum",
            )
        else:
            # a sequence that holds such a tag has no likelihood
            known = known & (known.sum(1) == target.ge(0).sum(1))[:, None]
            loss = self._crf_loss(logits, target, known)
        tokens: Any = sample["ntags"] if self.training else known.sum()
        log: dict[str, Any] = {
            "loss": loss.detach(),
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
            "sample_size": tokens,
        }
        if not self.training:
            log.update(self._counts(self._decode(logits, target.ge(0)), target))
        elif self.crf is None:
            log.update(
                tag_correct=logits.detach().argmax(2).eq(target).sum(),
                tags=sample["ntags"],
            )
        return loss, tokens, log

    def logits(self, model: nn.Module, sample: dict[str, Any]) -> Tensor:
        """Scores of the labels for each token, B x W x L in float32."""
        states = self.states(model, sample["net_input"])
        index = sample["starts"].unsqueeze(2).expand(-1, -1, states.size(2))
        return self.head(states.gather(1, index)).float()

    def predict(self, model: nn.Module, sample: dict[str, Any]) -> np.ndarray:
        """The most likely labels, B x W; -1 behind a sequence's last token."""
        with torch.no_grad():
            return self._decode(self.logits(model, sample), sample["target"].ge(0))

    def _crf_loss(self, logits: Tensor, target: Tensor, known: Tensor) -> Tensor:
        usable = known[:, 0]
        # pytorch-crf wants every sequence to begin; what is not usable counts nothing below
        mask = known.clone()
        mask[:, 0] = True
        # its sums over whole sequences need float32: under fp16 the parameters are halves
        with torch.autocast(logits.device.type, enabled=False):
            likelihood = torch.func.functional_call(
                self.crf,
                {name: value.float() for name, value in self.crf.named_parameters()},
                (logits, target.masked_fill(~known, 0), mask),
                {"reduction": "none"},
            )
        return -torch.where(usable, likelihood, 0.0).sum()

    def _decode(self, logits: Tensor, mask: Tensor) -> np.ndarray:
        logits, real = logits.detach().cpu(), mask.cpu().numpy()
        labels = np.full(real.shape, NO_TAG, np.int64)
        if self.crf is None:
            labels[real] = logits.argmax(2).numpy()[real]
        else:
            # its way back goes label by label, each of which would wait for the device
            crf = copy.deepcopy(self.crf).float().cpu()
            best = crf.decode(logits, mask.cpu())
            labels[real] = np.concatenate(best)
        return labels

    def _counts(self, predicted: np.ndarray, target: Tensor) -> dict[str, int]:
        gold = target.cpu().numpy()
        real = gold != NO_TAG
        starts = sequence_starts(real.sum(1))
        # the text's own tags are valid; where a long sentence was cut, so is each part of an entity
        right = lenient_spans(gold[real], starts, self.tag_set)
        found = strict_spans(predicted[real], starts, self.tag_set)
        return {
            "tag_correct": int((predicted[real] == gold[real]).sum()),
            "tags": int(real.sum()),
            "spans_correct": int(found.found_in(right).sum()),
            "spans_predicted": len(found),
            "spans_gold": len(right),
        }

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Log over all workers: the loss in bits a token, the rest in per cent."""
        total = {
            name: sum(log.get(name, 0) for log in logging_outputs)
            for name in ("loss", "sample_size", "tag_correct", "tags", *_SPANS)
        }
        units = total["sample_size"]
        # units + (units == 0) is max(units, 1) for tensors and numbers, without waiting for the device
        metrics.log_scalar("loss", _BITS * total["loss"] / (units + (units == 0)), units, round=3)
        if any("tags" in log for log in logging_outputs):
            tags = total["tags"]
            metrics.log_scalar("accuracy", 100 * total["tag_correct"] / (tags + (tags == 0)), tags, round=2)
        if any("spans_gold" in log for log in logging_outputs):
            # names with an underscore are kept, not shown; their sums give the figures of the whole split
            for name in _SPANS:
                metrics.log_scalar(f"_{name}", total[name], 1)
            metrics.log_derived("precision", lambda meters: _share(meters, "spans_predicted"))
            metrics.log_derived("recall", lambda meters: _share(meters, "spans_gold"))
            metrics.log_derived("f1", lambda meters: _share(meters, "spans_predicted", "spans_gold"))


_SPANS = ("spans_correct", "spans_predicted", "spans_gold")


def _share(meters: Any, *names: str) -> float:
    """Per cent that are correct, of the mean of the named numbers; 0 if there are none."""
    number = sum(float(meters[f"_{name}"].sum) for name in names) / len(names)
    return round(100 * float(meters["_spans_correct"].sum) / number, 2) if number else 0.0


def _crf(num_labels: int) -> nn.Module:
    try:
        from torchcrf import CRF
    except ImportError:
        raise UserError("--tagging-loss crf needs pytorch-crf: pip install 'fairseq_tn[crf]'") from None
    return CRF(num_labels, batch_first=True)
