"""The data set of BERT pre-training: sentence pairs or token blocks, masked anew in every epoch."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fairseq_tn.data.blocks import TokenBlocks, make_blocks
from fairseq_tn.data.by_length import ByLengthDataset
from fairseq_tn.data.corpus import Corpus
from fairseq_tn.data.masking import Masker
from fairseq_tn.data.pairs import SentencePairs, draw_pairs
from fairseq_tn.data.random_streams import Stream, generator


class PretrainingDataset(ByLengthDataset):
    """Masked sequences, each a pure function of (seed, epoch, index) and the corpus.

    Args:
        corpus: the binarised text
        masker: selects and replaces tokens
        tokens_per_sample: most tokens of a sequence, special tokens included
        nsp: sentence pairs, ``<s> A </s> B </s>``, drawn anew each epoch; otherwise blocks, ``<s> tokens </s>``
        break_mode: how blocks are cut (see :func:`fairseq_tn.data.blocks.make_blocks`)
        short_seq_prob: see :func:`fairseq_tn.data.pairs.draw_pairs`
        seed: of all that is random
        epoch: the epoch to begin with
        train: whether pairs, masks and order change with the epoch. Validation data stay those of epoch 1, so
            that the values of a curve compare.
        bos, eos, pad: ids of ``<s>``, ``</s>`` and ``<pad>``

    Raises:
        UserError: the corpus cannot give such sequences
    """

    def __init__(
        self,
        corpus: Corpus,
        masker: Masker,
        tokens_per_sample: int,
        nsp: bool = True,
        break_mode: str = "none",
        short_seq_prob: float = 0.1,
        seed: int = 1,
        epoch: int = 1,
        train: bool = True,
        bos: int = 0,
        eos: int = 2,
        pad: int = 1,
    ):
        super().__init__(seed, epoch, train)
        self.corpus = corpus
        self.masker = masker
        self.tokens_per_sample = tokens_per_sample
        self.nsp = nsp
        self.short_seq_prob = short_seq_prob
        self.bos, self.eos, self.pad = bos, eos, pad
        self.sequences: SentencePairs | TokenBlocks
        if nsp:
            self.sequences = self._draw_pairs()
        else:
            self.sequences = make_blocks(corpus.sizes, tokens_per_sample, break_mode, corpus.name)
        self.sizes = self.sequences.lengths

    def _draw_pairs(self) -> SentencePairs:
        return draw_pairs(
            self.corpus.sizes,
            self.tokens_per_sample,
            self.seed,
            self.epoch,
            self.short_seq_prob,
            self.corpus.name,
        )

    def set_epoch(self, epoch: int) -> None:
        """Draw the pairs of an epoch; masks and order follow by themselves."""
        drawn = self.epoch
        super().set_epoch(epoch)
        if self.nsp and self.epoch != drawn:
            self.sequences = self._draw_pairs()
            self.sizes = self.sequences.lengths

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return one sequence of T tokens as numpy arrays.

        ``source`` (T, original), ``masked`` (T), ``selected`` (ascending positions), with NSP ``label``.
        """
        spans = self.sequences.spans(index)
        parts: list[Any] = [[self.bos]]
        for span in spans:
            parts += [self.corpus.read(span), [self.eos]]
        source = np.concatenate(parts)
        begins = None
        if self.corpus.has_word_boundaries:
            parts = [[True]]
            for span in spans:
                parts += [self.corpus.word_begins(span), [True]]
            begins = np.concatenate(parts)
        rng = generator(self.seed, self.epoch, Stream.MASKING, index)
        try:
            masked, selected = self.masker(source, rng, begins)
        except IndexError:
            raise self.corpus.foreign() from None
        item = {"id": index, "source": source, "masked": masked, "selected": selected}
        if isinstance(self.sequences, SentencePairs):
            item["label"] = self.sequences.label(index)
        return item

    def collater(self, samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Make a batch of B sequences, padded on the right to the longest, T.

        Returns:
            ``id`` (B); ``net_input``: ``src_tokens`` (B x T, masked) and ``src_lengths`` (B); ``source`` (B x T,
            original); ``target`` (B x T, original tokens at selected positions, pad elsewhere); ``selected`` (K
            flat indices of the selected positions, ascending); ``max_selected`` (most of one sequence);
            ``sentence_target`` (B, with NSP: 1 = B is from another document); ``ntokens`` (without padding);
            ``nsentences``. An empty dictionary for no samples.
        """
        if len(samples) == 0:
            return {}
        lengths = np.array([len(sample["source"]) for sample in samples])
        width = int(lengths.max())
        real = np.arange(width) < lengths[:, None]
        source = np.full(real.shape, self.pad, dtype=np.int64)
        source[real] = np.concatenate([sample["source"] for sample in samples])
        masked = np.full_like(source, self.pad)
        masked[real] = np.concatenate([sample["masked"] for sample in samples])
        selected = np.concatenate([sample["selected"] + row * width for row, sample in enumerate(samples)])
        target = np.full_like(source, self.pad)
        target.flat[selected] = source.flat[selected]
        batch = {
            "id": torch.tensor([sample["id"] for sample in samples], dtype=torch.int64),
            "net_input": {"src_tokens": torch.from_numpy(masked), "src_lengths": torch.from_numpy(lengths)},
            "source": torch.from_numpy(source),
            "target": torch.from_numpy(target),
            "selected": torch.from_numpy(selected),
            "max_selected": max(len(sample["selected"]) for sample in samples),
            "ntokens": int(lengths.sum()),
            "nsentences": len(samples),
        }
        if self.nsp:
            labels = [sample["label"] for sample in samples]
            batch["sentence_target"] = torch.tensor(labels, dtype=torch.int64)
        return batch
