"""Hard correction and soft regularisation, the options of every criterion that is based on masked LM.

fairseq divides gradients by the summed ``sample_size``, so every term of a loss is a sum in units of one
denominator: the positions that the masked-LM loss averages over (the survivors under hard correction, all selected
ones otherwise). A term that averages over other units is scaled by the ratio of the two within the batch.
"""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Optional

import torch
from fairseq.criterions import FairseqCriterion
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.logging import metrics
from torch import Tensor, nn

from fairseq_tn.errors import UserError
from fairseq_tn.losses import hard_correction, mean_pairwise_cosine, sentence_kl, soft_regularization
from fairseq_tn.models.access import encode, input_embedding
from fairseq_tn.synonyms.table import SynonymTable
from fairseq_tn.synonyms.vocabularies import is_special

SOFT_REG_WEIGHT_HELP = (
    "weight of the soft regularisation, which pulls gold and predicted tokens together; 0 leaves it out"
)
BITS = 1 / math.log(2)
# rows of the embedding that emb_cos looks at: of 30,522, enough for its third digit
_WATCHED_ROWS = 1024


@dataclass
class TrueNegativesConfig(FairseqDataclass):
    """Options of hard correction and soft regularisation."""

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
    soft_reg_level: ChoiceEnum(["word", "sentence"]) = field(  # type: ignore[valid-type]
        default="word",
        metadata={
            "help": "what soft regularisation compares: the embeddings of gold and predicted tokens (word), or the "
            "last hidden states of the sequences that hold them (sentence; two more passes of the encoder)"
        },
    )


class TrueNegativesCriterion(FairseqCriterion):
    """Loads the synonym table and computes the two methods' parts of a loss."""

    # the options that must be 0 or more
    weights: ClassVar[tuple[str, ...]] = ("soft_reg_weight",)

    def __init__(self, cfg: TrueNegativesConfig, task: Any):
        super().__init__(task)
        self.cfg: Any = cfg
        for option in self.weights:
            value = getattr(cfg, option)
            if not (math.isfinite(value) and value >= 0):
                raise UserError(f"--{option.replace('_', '-')} must be 0 or more, not {value}")
        if cfg.soft_reg_weight:
            self.register_buffer("watched_rows", _watched_rows(task.source_dictionary), persistent=False)
        self.table = None
        if cfg.synonyms:
            self.table = SynonymTable.load(
                cfg.synonyms, task.source_dictionary, allow_mismatch=cfg.allow_vocabulary_mismatch
            )

    def hard_corrected(
        self, loss: Tensor, gold: Tensor, predicted: Tensor, selected: Tensor, shape: torch.Size
    ) -> tuple[Tensor, Any, Tensor | None, dict[str, Any]]:
        """The masked-LM loss under hard correction, if there is a table.

        Args:
            loss: K values, the cross-entropy of each selected position.
            gold, predicted: K token ids.
            selected: K flat indices into the batch.
            shape: of the batch, B x T.

        Returns:
            The sum over the positions that count, their number, which are corrected (K bool; None without a
            table), and sums for the log.
        """
        if self.table is None:
            return loss.sum(), len(selected), None, {}
        corrected = self.table.contains(gold, predicted)
        touched = corrected.new_zeros(shape[0]).index_put((selected // shape[1],), corrected, True)
        log = {
            "hc_corrected": corrected.sum(),
            "hc_wrong": predicted.ne(gold).sum(),
            "hc_sequences": touched.sum(),
        }
        return *hard_correction(loss, corrected), corrected, log

    def soft_regularized(
        self,
        model: nn.Module,
        source: Tensor,
        selected: Tensor,
        gold: Tensor,
        predicted: Tensor,
        predicted_states: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        """The weighted soft regularisation in units of the selected positions, and sums for the log.

        Args:
            model: perhaps inside the wrappers of distributed training.
            source: B x T original tokens.
            selected: K flat indices into them.
            gold, predicted: K token ids.
            predicted_states: B x T x D states of the sequence that holds the predictions, if known.
        """
        weight = self.cfg.soft_reg_weight
        embedding = input_embedding(model)
        rows = embedding.detach().index_select(0, self.watched_rows.to(embedding.device))
        log: dict[str, Any] = {"emb_cos": mean_pairwise_cosine(rows), "emb_cos_units": 1}
        if str(self.cfg.soft_reg_level) == "word":
            # the encoder reads the same embeddings, so that their gradient stays dense
            sr = soft_regularization(embedding, predicted, gold, sparse_gradient=True).sum()
            return weight * sr, {**log, "sr_loss": sr.detach(), "sr_units": len(selected)}
        if predicted_states is None:
            filled = source.reshape(-1).index_copy(0, selected, predicted).view_as(source)
            predicted_states = encode(model, filled, source)
        # a pass of its own: in one batch with the other it would need a backward pass too
        with torch.no_grad():
            gold_states = encode(model, source)
        valid = source.ne(self.padding_idx)
        divergence, tokens = sentence_kl(predicted_states, gold_states, valid), valid.sum()
        log.update(sr_loss=BITS * divergence.detach(), sr_units=tokens)
        return weight * divergence * (len(selected) / tokens.clamp(min=1)), log

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Log means over all workers: losses in bits (word-level ``sr_loss`` as 1 - cos), the rest in per cent.

        ``emb_cos``, the mean cosine between rows of the embedding, is a number between -1 and 1.
        """
        cls.log_mean(logging_outputs, "loss", "loss", "sample_size", BITS)
        cls.log_mean(logging_outputs, "sr_loss", "sr_loss", "sr_units", 1, 4)
        cls.log_mean(logging_outputs, "emb_cos", "emb_cos", "emb_cos_units", 1, 4)
        cls.log_mean(logging_outputs, "hc_pred", "hc_corrected", "hc_wrong", 100)
        cls.log_mean(logging_outputs, "hc_seq", "hc_sequences", "nsentences", 100)

    @staticmethod
    def log_mean(
        logging_outputs: list[dict[str, Any]], name: str, key: str, units: str, scale: float, digits: int = 3
    ) -> None:
        """Log, if any worker has it, the summed ``key`` over the summed ``units``, times ``scale``."""
        if any(key in log for log in logging_outputs):
            total: Any = sum(log.get(key, 0) for log in logging_outputs)
            number: Any = sum(log.get(units, 0) for log in logging_outputs)
            # number + (number == 0) is max(number, 1) for tensors and numbers, without waiting for the device
            metrics.log_scalar(name, scale * total / (number + (number == 0)), number, round=digits)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """All values are sums."""
        return True


def _watched_rows(dictionary: Any) -> Tensor:
    """Ids of ordinary symbols, evenly spaced over the vocabulary: the same ones in every run, worker and update."""
    ordinary = [index for index, symbol in enumerate(dictionary.symbols) if not is_special(symbol)]
    number = min(_WATCHED_ROWS, len(ordinary))
    return torch.tensor(
        [ordinary[place * len(ordinary) // number] for place in range(number)], dtype=torch.int64
    )
