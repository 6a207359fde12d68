"""Task ``sentence_contrastive``: the data of ``bert_pretraining`` and views of each sequence to compare."""

from dataclasses import dataclass, field
from typing import Any, Optional

from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import register_task

from fairseq_tn.data.corpus import Corpus
from fairseq_tn.data.document_spans import SAMPLINGS, SpanSampler
from fairseq_tn.data.nli import ENDINGS
from fairseq_tn.data.views import DocumentViews, SpanMaskedViews, TripleViews, Views, ViewsDataset
from fairseq_tn.errors import UserError
from fairseq_tn.tasks.bert_pretraining import BertPretrainingConfig, BertPretrainingTask

VIEWS = ("simcse", "mirror-bert", "declutr", "nli")


@dataclass
class SentenceContrastiveTaskConfig(BertPretrainingConfig):
    """Options of ``bert_pretraining`` and the views."""

    views: ChoiceEnum(list(VIEWS)) = field(  # type: ignore[valid-type]
        default="simcse",
        metadata={
            "help": "what is compared: a sequence with itself under another dropout (simcse), with a span of it "
            "masked too (mirror-bert), spans of one document (declutr), or premises with entailed and contradicting "
            "hypotheses (nli; data of `fairseq-tn prepare nli`)"
        },
    )
    span_mask_length: int = field(
        default=2, metadata={"help": "mirror-bert: tokens of the span that one <mask> replaces"}
    )
    anchors_per_document: int = field(default=2, metadata={"help": "declutr: anchor spans for each sequence"})
    positives_per_anchor: int = field(
        default=2,
        metadata={"help": "declutr: positive spans of each anchor; the mean of their embeddings counts"},
    )
    min_span_length: int = field(default=32, metadata={"help": "declutr: fewest tokens of a span"})
    max_span_length: Optional[int] = field(
        default=None,
        metadata={
            "help": "declutr: most tokens of a span, <s> and </s> not counted (default: --tokens-per-sample - 2)"
        },
    )
    positive_sampling: ChoiceEnum(list(SAMPLINGS)) = field(  # type: ignore[valid-type]
        default="any",
        metadata={
            "help": "declutr: where positives lie: within the anchor (contained), right beside it (adjacent), partly "
            "in it (overlapping), or any of these"
        },
    )


@register_task("sentence_contrastive", dataclass=SentenceContrastiveTaskConfig)
class SentenceContrastiveTask(BertPretrainingTask):
    """Adds ``views`` to each batch, a dictionary of token tensors (see :class:`fairseq_tn.data.views.Views`).

    SimCSE's two views are the same tokens, the batch's ``source``, and need no entry.
    """

    cfg: SentenceContrastiveTaskConfig

    def __init__(self, cfg: SentenceContrastiveTaskConfig, dictionary: Any):
        super().__init__(cfg, dictionary)
        if cfg.span_mask_length < 1:
            raise UserError(f"--span-mask-length is {cfg.span_mask_length}; it must be 1 or more")
        if self.views == "nli" and not (cfg.no_nsp and str(cfg.sample_break_mode) == "eos"):
            raise UserError("--views nli reads a premise a line: give --no-nsp --sample-break-mode eos")
        room = max(1, cfg.tokens_per_sample - 2)  # with less the data set has its say
        longest = room if cfg.max_span_length is None else cfg.max_span_length
        if self.views == "declutr" and longest > room:
            raise UserError(
                f"--max-span-length is {longest}, and --tokens-per-sample {cfg.tokens_per_sample} leaves room for "
                f"{room} tokens beside <s> and </s>; lower the former"
            )
        self.sampler = SpanSampler(
            cfg.anchors_per_document,
            cfg.positives_per_anchor,
            # a default that does not fit gives way
            min(cfg.min_span_length, longest) if cfg.max_span_length is None else cfg.min_span_length,
            longest,
            str(cfg.positive_sampling),
        )

    @property
    def views(self) -> str:
        """Which views there are; it tells the criterion whose paper's settings are the defaults."""
        return str(self.cfg.views)

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> None:
        """Load a split as ``bert_pretraining`` does, and what its views need.

        Raises:
            UserError: see there; or the hypotheses of ``nli`` are missing, or not as many as premises
        """
        super().load_dataset(split, epoch, combine, **kwargs)
        if self.views == "simcse":
            return
        dataset = self.datasets[split]
        views: Views
        if self.views == "mirror-bert":
            views = SpanMaskedViews(self.masker, self.cfg.span_mask_length)
        elif self.views == "declutr":
            views = DocumentViews(dataset.corpus, self.sampler)
        else:
            views = TripleViews(*self._hypotheses(dataset.corpus), self.cfg.tokens_per_sample)
        self.datasets[split] = ViewsDataset(dataset, views)

    def _hypotheses(self, premises: Corpus) -> tuple[Corpus, Corpus]:
        found = []
        for ending in ENDINGS[1:]:
            corpus = Corpus(premises.name + ending, self.dictionary, made_by="`fairseq-tn prepare nli`")
            if len(corpus.sizes) != len(premises.sizes):
                raise UserError(
                    f"{corpus.name} has {len(corpus.sizes):,} lines and {premises.name} {len(premises.sizes):,}; run "
                    "`fairseq-tn prepare nli` again"
                )
            if corpus.sizes.min() < 2 or premises.sizes.min() < 2:
                raise UserError(
                    f"{corpus.name} or its premises have blank lines; run `fairseq-tn prepare nli` again"
                )
            found.append(corpus)
        longest = int(premises.sizes.max()) + 1  # its </s> counts already
        if longest > self.cfg.tokens_per_sample:
            raise UserError(
                f"{premises.name} has a premise of {longest} tokens with <s> and </s>, and --tokens-per-sample is "
                f"{self.cfg.tokens_per_sample}; raise it, or run `fairseq-tn prepare nli` again with less --max-length"
            )
        entailed, contradicting = found
        return entailed, contradicting
