"""Criterion ``sentence_contrastive``: SimCSE, Mirror-BERT and DeCLUTR, alone or added to masked LM and NSP."""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from fairseq.criterions import register_criterion
from fairseq.dataclass import ChoiceEnum
from torch import Tensor, nn

from fairseq_tn.criterions.fine_tuning import CriterionHead
from fairseq_tn.criterions.pretraining import PretrainingCriterion, PretrainingCriterionConfig
from fairseq_tn.criterions.true_negatives import BITS
from fairseq_tn.errors import UserError
from fairseq_tn.gathering import counts_of_workers, gather_rows, num_workers
from fairseq_tn.losses import nt_xent
from fairseq_tn.models.access import encode
from fairseq_tn.models.pooling import POOLINGS, pool

logger = logging.getLogger(__name__)

# An epoch ends in one batch of a single sequence at most, so that a run can begin with two of them.
_ALONE_AT_FIRST = 3


class Recipe(NamedTuple):
    """How a paper compares its views; ``symmetric``: see :func:`fairseq_tn.losses.nt_xent`."""

    temperature: float
    pooling: str
    projection: str
    symmetric: bool


RECIPES = {
    "simcse": Recipe(0.05, "cls", "drop", symmetric=False),
    "nli": Recipe(0.05, "cls", "keep", symmetric=False),
    "mirror-bert": Recipe(0.04, "mean", "none", symmetric=True),
    "declutr": Recipe(0.05, "mean", "none", symmetric=True),
}


@dataclass
class SentenceContrastiveConfig(PretrainingCriterionConfig):
    """The shared options and those of the sentence embeddings."""

    contrastive_weight: float = field(default=1.0, metadata={"help": "weight of the contrastive loss"})
    # no None: fairseq's option of this name for generation, which shares the command line, must be a number
    temperature: float = field(
        default=0.0,
        metadata={
            "help": "temperature of the contrastive softmax; 0: as the paper of the views, 0.05, for mirror-bert 0.04"
        },
    )
    pooling: ChoiceEnum(["auto", *POOLINGS]) = field(  # type: ignore[valid-type]
        default="auto",
        metadata={
            "help": "what embeds a sequence: the state of <s> (cls), or the mean over its tokens; auto: as the paper "
            "of the views, cls for simcse and nli, mean for mirror-bert and declutr"
        },
    )
    projection: ChoiceEnum(["auto", "keep", "drop", "none"]) = field(  # type: ignore[valid-type]
        default="auto",
        metadata={
            "help": "a layer with tanh between embedding and loss: for training only (drop), for evaluation too "
            "(keep), or none; auto: as the paper of the views, drop for simcse, keep for nli, none otherwise"
        },
    )


def recipe_of(cfg: Any, views: str) -> Recipe:
    """What the options of a run (or of its checkpoint) mean together with its views."""
    recipe = RECIPES[views]
    return recipe._replace(
        temperature=cfg.temperature or recipe.temperature,
        pooling=recipe.pooling if str(cfg.pooling) == "auto" else str(cfg.pooling),
        projection=recipe.projection if str(cfg.projection) == "auto" else str(cfg.projection),
    )


class Projection(nn.Module):
    """SimCSE's MLP: a layer as wide as the model, and tanh."""

    def __init__(self, embed_dim: int):
        super().__init__()
        self.dense = nn.Linear(embed_dim, embed_dim)
        nn.init.normal_(self.dense.weight, std=0.02)
        nn.init.zeros_(self.dense.bias)

    def forward(self, embeddings: Tensor) -> Tensor:
        """``embeddings``: ... x D. Returns the same shape."""
        return torch.tanh(self.dense(embeddings))


@register_criterion("sentence_contrastive", dataclass=SentenceContrastiveConfig)
class SentenceContrastiveCriterion(CriterionHead, PretrainingCriterion):
    """Embeddings of two views of a sequence against those of all others in the batch, over all workers.

    The task ``sentence_contrastive`` makes the views; with the batches of ``bert_pretraining`` they are SimCSE's, the
    original sequence twice under two draws of dropout. In validation each worker keeps to its own batch, so that
    the value depends on --batch-size-valid and not on the number of workers.
    """

    weights = (*PretrainingCriterion.weights, "contrastive_weight")

    def __init__(self, cfg: SentenceContrastiveConfig, task: Any):
        super().__init__(cfg, task)
        self.recipe = recipe_of(cfg, getattr(task, "views", "simcse"))
        temperature = self.recipe.temperature
        if not (math.isfinite(temperature) and temperature > 0):
            raise UserError(f"--temperature must be above 0 (or 0: the paper's), not {temperature}")
        self.contrasts = bool(cfg.contrastive_weight)
        self.projection = None
        if self.contrasts and self.recipe.projection != "none":
            if not hasattr(task, "model_width"):
                raise UserError(
                    "sentence_contrastive needs --task sentence_contrastive or bert_pretraining; with another task "
                    "give --projection none"
                )
            self.projection = Projection(task.model_width)
            self.mark_parameters()
        # training batches of one sequence, and whether there was any other
        self._alone, self._had_company = 0, False

    def embed(self, model: nn.Module, tokens: Tensor, through_wrapper: bool = False) -> Tensor:
        """Embeddings (B x D, float32) of ``tokens`` (B x T), with the projection if there is one."""
        states = model(tokens, features_only=True)[0] if through_wrapper else encode(model, tokens)
        embeddings = pool(states, tokens.ne(self.padding_idx), self.recipe.pooling)
        if self.projection is not None:
            embeddings = self.projection(embeddings)
        return embeddings.float() if embeddings.dtype != torch.float64 else embeddings

    def contrast(
        self, model: nn.Module, states: Any, sample: dict[str, Any], masked: Tensor, selected: Tensor
    ) -> tuple[Tensor, dict[str, Any]]:
        """The contrastive term and its log, see the base class."""
        views: Mapping[str, Tensor] = sample.get("views") or {}
        source = sample.get("source")
        if source is None:  # a batch of fairseq's own tasks
            source = torch.where(masked, sample["target"], sample["net_input"]["src_tokens"])
        # DistributedDataParallel has to see one forward pass
        first = not (self.uses_nsp or self.cfg.mlm_weight or self.cfg.soft_reg_weight)
        anchors = self.embed(model, views.get("anchors", source), through_wrapper=first)
        positives = self.embed(model, views.get("positives", source))
        # several positives of an anchor count as their mean (DeCLUTR)
        rows = [anchors, positives.view(len(anchors), -1, positives.size(1)).mean(1)]
        if "negatives" in views:
            rows.append(self.embed(model, views["negatives"]))

        number, positions = len(anchors), len(selected)
        if sample.get("is_dummy"):  # nobody's data: neither anchors nor candidates
            rows, number, positions = [row[:0] for row in rows], 0, 0
        begin, counts = 0, [[number, positions]]
        if self.training and num_workers() > 1:
            counts = counts_of_workers((number, positions), anchors.device)
            numbers = [worker[0] for worker in counts]
            begin = sum(numbers[: torch.distributed.get_rank()])
            rows = list(gather_rows(torch.cat(rows, 1), numbers).chunk(len(rows), 1))
        loss, matched = nt_xent(
            rows[0],
            rows[1],
            self.recipe.temperature,
            rows[2] if len(rows) > 2 else None,
            self.recipe.symmetric,
            begin,
            begin + number,
        )
        all_anchors, all_positions = map(sum, zip(*counts, strict=True))
        log = {
            "contrastive_loss": loss.detach(),
            "contrastive_correct": matched,
            "contrastive_anchors": number,
        }
        if all_anchors < 2 and len(rows) < 3:  # nothing to tell it from: the loss is 0, and no merit
            log.update(contrastive_correct=matched * 0, contrastive_anchors=0)
            if self.training:
                self._note_alone()
        elif self.training:
            self._had_company = True
        weight = self.cfg.contrastive_weight * all_positions / max(all_anchors, 1)
        return weight * loss, log

    def _note_alone(self) -> None:
        """Count the batches of a single sequence; refuse a run that begins with nothing else."""
        self._alone += 1
        if not self._had_company and self._alone >= _ALONE_AT_FIRST:
            raise UserError(
                "all batches so far hold a single sequence, over all workers: the contrastive loss has no other "
                "sentences to tell it from; raise --batch-size or --max-tokens (--update-freq does not help: each of "
                "its batches stands for itself)"
            )
        if math.log10(self._alone).is_integer():
            logger.warning("a batch of a single sequence has no contrastive loss (%d so far)", self._alone)

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Add the means over the anchors that have negatives."""
        super().reduce_metrics(logging_outputs)
        cls.log_mean(logging_outputs, "contrastive_loss", "contrastive_loss", "contrastive_anchors", BITS)
        cls.log_mean(logging_outputs, "contrastive_acc", "contrastive_correct", "contrastive_anchors", 100)
