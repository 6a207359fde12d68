"""The views of a sequence that sentence-level contrast compares, beside its masked form."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from fairseq.data import BaseWrapperDataset

from fairseq_tn.data.corpus import Corpus
from fairseq_tn.data.document_spans import SpanSampler
from fairseq_tn.data.documents import document_bounds, line_at, token_offsets
from fairseq_tn.data.masking import Masker
from fairseq_tn.data.pretraining import PretrainingDataset
from fairseq_tn.data.random_streams import Stream, generator

# sequences of fewer spans' lengths stay whole, as texts of fewer than 30 characters do in Mirror-BERT's script, whose
# spans have 5
_SPANS_IN_SHORTEST = 6


class Views(Protocol):
    """Makes the views of one sequence: ``anchors``, ``positives`` or ``negatives`` -> token arrays.

    A role that is not there is the original sequence's.
    """

    def __call__(
        self, dataset: PretrainingDataset, item: Mapping[str, Any], rng: np.random.Generator
    ) -> dict[str, list[np.ndarray]]: ...


class ViewsDataset(BaseWrapperDataset):
    """Adds ``views`` to the batches of :class:`PretrainingDataset`, each a pure function of (seed, epoch, index)."""

    def __init__(self, dataset: PretrainingDataset, views: Views):
        super().__init__(dataset)
        self.views = views

    @property
    def corpus(self) -> Corpus:
        """The binarised text."""
        return self.dataset.corpus

    @property
    def train(self) -> bool:
        """Whether pairs, masks, views and order change with the epoch."""
        return self.dataset.train

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return the sequence's item with its ``views``."""
        item = self.dataset[index]
        rng = generator(self.dataset.seed, self.dataset.epoch, Stream.VIEWS, index)
        return {**item, "views": self.views(self.dataset, item, rng)}

    def collater(self, samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The batch of :meth:`PretrainingDataset.collater` and ``views``: role -> rows x T tokens, right-padded.

        Rows follow the sequences of the batch, several of one sequence together.
        """
        batch = self.dataset.collater(samples)
        if batch:
            batch["views"] = {
                role: _padded([row for sample in samples for row in sample["views"][role]], self.dataset.pad)
                for role in samples[0]["views"]
            }
        return batch

    def num_tokens_vec(self, indices: np.ndarray) -> np.ndarray:
        """Return the lengths of sequences."""
        return self.dataset.num_tokens_vec(indices)


def _padded(rows: Sequence[np.ndarray], pad: int) -> torch.Tensor:
    lengths = np.array([len(row) for row in rows])
    real = np.arange(lengths.max()) < lengths[:, None]
    tokens = np.full(real.shape, pad, dtype=np.int64)
    tokens[real] = np.concatenate(rows)
    return torch.from_numpy(tokens)


class SpanMaskedViews:
    """Mirror-BERT (Liu et al., 2021): the positive is the sequence with one span replaced by a single ``<mask>``.

    The paper replaces k consecutive characters of the text before it is tokenised; here it is k consecutive
    ordinary tokens, anywhere in a sequence and never across a special one.
    """

    def __init__(self, masker: Masker, length: int):
        self.maskable = masker.maskable
        self.mask_index = masker.mask_index
        self.length = length

    def __call__(
        self, dataset: PretrainingDataset, item: Mapping[str, Any], rng: np.random.Generator
    ) -> dict[str, list[np.ndarray]]:
        source = item["source"]
        return {"positives": [self.masked(source, rng)]}

    def masked(self, tokens: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """``tokens`` (T) with a span masked; unchanged if it has too few ordinary ones."""
        ordinary = self.maskable[tokens]
        if ordinary.sum() < _SPANS_IN_SHORTEST * self.length:
            return tokens
        runs = np.convolve(ordinary, np.ones(self.length, dtype=np.int64), mode="valid")
        starts = np.flatnonzero(runs == self.length)
        if len(starts) == 0:
            return tokens
        start = int(starts[rng.integers(len(starts))])
        return np.concatenate([tokens[:start], [self.mask_index], tokens[start + self.length :]])


class DocumentViews:
    """DeCLUTR: anchor and positive spans, ``<s> tokens </s>``, of the document in which a sequence begins."""

    def __init__(self, corpus: Corpus, sampler: SpanSampler):
        self.sampler = sampler
        self.begins, self.ends = document_bounds(corpus.sizes)
        self.offsets = token_offsets(corpus.sizes)

    def __call__(
        self, dataset: PretrainingDataset, item: Mapping[str, Any], rng: np.random.Generator
    ) -> dict[str, list[np.ndarray]]:
        line = dataset.sequences.spans(item["id"])[0][0]
        document = int(np.searchsorted(self.begins, line, side="right")) - 1
        begin = int(self.offsets[self.begins[document]])
        tokens = int(self.offsets[self.ends[document]]) - begin
        anchors, positives = self.sampler.draw(tokens, rng)

        def read(span: tuple[int, int]) -> np.ndarray:
            start = begin + span[0]
            first = line_at(self.offsets, start)
            text = dataset.corpus.read((first, start - int(self.offsets[first]), span[1]))
            return np.concatenate([[dataset.bos], text, [dataset.eos]])

        return {
            "anchors": [read(span) for span in anchors],
            "positives": [read(span) for spans in positives for span in spans],
        }


class TripleViews:
    """Supervised SimCSE: of each premise, a line of the corpus, its entailed and its contradicting hypothesis."""

    def __init__(self, entailed: Corpus, contradicting: Corpus, tokens_per_sample: int):
        self.hypotheses = {"positives": entailed, "negatives": contradicting}
        self.room = tokens_per_sample - 2

    def __call__(
        self, dataset: PretrainingDataset, item: Mapping[str, Any], rng: np.random.Generator
    ) -> dict[str, list[np.ndarray]]:
        line = dataset.sequences.spans(item["id"])[0][0]
        views = {}
        for role, corpus in self.hypotheses.items():
            length = min(int(corpus.sizes[line]) - 1, self.room)
            views[role] = [np.concatenate([[dataset.bos], corpus.read((line, 0, length)), [dataset.eos]])]
        return views
