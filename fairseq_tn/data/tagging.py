"""The data set of the task ``token_tagging``: sequences of pieces, and the tags of their tokens."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fairseq_tn.data.by_length import ByLengthDataset
from fairseq_tn.data.corpus import Corpus
from fairseq_tn.data.tagging_folder import MADE_BY, TaggingFacts, tags_prefix
from fairseq_tn.data.tags import TagSet
from fairseq_tn.errors import UserError

# what stands in a batch behind the last token of a sequence
NO_TAG = -1


class _Tags:
    """Stands in for a dictionary, of the numbers in a file of tags: what :class:`Corpus` asks of one."""

    def __init__(self, number: int):
        self._number = number

    def __len__(self) -> int:
        return self._number + 2

    def eos(self) -> int:
        """The number that ends every line."""
        return self._number + 1


class TaggingDataset(ByLengthDataset):
    """Sequences ``<s> pieces </s>`` with the tags of their tokens; a token's first piece stands for it.

    Args:
        folder: of ``fairseq-tn prepare tagging``
        split: its name
        facts: what the folder is about
        dictionary: fairseq's
        seed: of the order of the sequences
        train: whether the order changes with the epoch

    Raises:
        UserError: the split is missing, damaged or of another dictionary
    """

    def __init__(
        self, folder: str, split: str, facts: TaggingFacts, dictionary: Any, seed: int = 1, train: bool = True
    ):
        super().__init__(seed, train=train)
        if split not in facts.longest:
            raise UserError(
                f"{folder} has no split {split!r}, only {', '.join(facts.longest)}; give its file to `{MADE_BY}`"
            )
        self.tag_set: TagSet = facts.tag_set
        self.pieces = Corpus(f"{folder}/{split}", dictionary, made_by=MADE_BY)
        self.tags = Corpus(tags_prefix(folder, split), _Tags(len(self.tag_set.names)), made_by=MADE_BY)
        if not np.array_equal(self.pieces.sizes, self.tags.sizes):
            raise UserError(
                f"{folder}/{split}.bin and {split}.tags.bin do not belong together; run {MADE_BY} again"
            )
        # Corpus counts </s>; <s> is added here
        self.sizes = self.pieces.sizes + 1
        self.bos, self.eos, self.pad = dictionary.bos(), dictionary.eos(), dictionary.pad()

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return one sequence: ``tokens`` (T), ``starts`` (places of the W first pieces), ``tags`` (W)."""
        span = index, 0, int(self.sizes[index]) - 2
        marks = self.tags.read(span)
        first = np.flatnonzero(marks)
        tokens = np.concatenate(([self.bos], self.pieces.read(span), [self.eos]))
        return {"id": index, "tokens": tokens, "starts": first + 1, "tags": marks[first] - 1}

    def collater(self, samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Make a batch of B sequences, padded on the right.

        Returns:
            ``id`` (B); ``net_input``: ``src_tokens`` (B x T) and ``src_lengths`` (B); ``starts`` (B x W, the place
            of each token's first piece, 0 behind a sequence's last token); ``target`` (B x W, the token's tag,
            :data:`NO_TAG` there); ``ntags`` (tokens that have one); ``ntokens`` (pieces); ``nsentences``. W is 2 or
            more, so that a CRF has a transition. An empty dictionary for no samples.
        """
        if len(samples) == 0:
            return {}
        lengths = np.array([len(sample["tokens"]) for sample in samples])
        words = np.array([len(sample["starts"]) for sample in samples])
        real = np.arange(lengths.max()) < lengths[:, None]
        tagged = np.arange(max(2, words.max())) < words[:, None]
        tokens = np.full(real.shape, self.pad, np.int64)
        tokens[real] = np.concatenate([sample["tokens"] for sample in samples])
        starts, target = np.zeros(tagged.shape, np.int64), np.full(tagged.shape, NO_TAG, np.int64)
        starts[tagged] = np.concatenate([sample["starts"] for sample in samples])
        target[tagged] = np.concatenate([sample["tags"] for sample in samples])
        return {
            "id": torch.tensor([sample["id"] for sample in samples], dtype=torch.int64),
            "net_input": {"src_tokens": torch.from_numpy(tokens), "src_lengths": torch.from_numpy(lengths)},
            "starts": torch.from_numpy(starts),
            "target": torch.from_numpy(target),
            "ntags": int(words.sum()),
            "ntokens": int(lengths.sum()),
            "nsentences": len(samples),
        }
