"""What all data sets here share: sequences in batches of similar lengths."""

from typing import Any

import numpy as np
from fairseq.data import FairseqDataset

from fairseq_tn.data.random_streams import Stream, generator


class ByLengthDataset(FairseqDataset):
    """A data set of sequences that come by length, so that batches hold little padding.

    Subclasses set ``sizes``, the length of each sequence.

    Args:
        seed: of the order of equal lengths
        epoch: the epoch to begin with
        train: whether the order changes with the epoch; that of validation data stays the one of epoch 1
    """

    sizes: np.ndarray

    def __init__(self, seed: int, epoch: int = 1, train: bool = True):
        super().__init__()
        self.seed, self.train = seed, train
        self.epoch = epoch if train else 1

    def __len__(self) -> int:
        return len(self.sizes)

    def set_epoch(self, epoch: int) -> None:
        """Training data come in another order in each epoch."""
        super().set_epoch(epoch)
        if self.train:
            self.epoch = epoch

    @property
    def can_reuse_epoch_itr_across_epochs(self) -> bool:
        """Never for training data: batches change, and workers hold the epoch that they were started in."""
        return not self.train

    def num_tokens(self, index: int) -> int:
        """Return the length of a sequence."""
        return int(self.sizes[index])

    def num_tokens_vec(self, indices: np.ndarray) -> np.ndarray:
        """Return the lengths of sequences."""
        return self.sizes[indices]

    def size(self, index: int) -> int:
        """Return the length of a sequence."""
        return int(self.sizes[index])

    def batch_by_size(self, indices: np.ndarray, *args: Any, **kwargs: Any) -> list[np.ndarray]:
        """Make batches of all ``indices``.

        Newer fairseq drops the last batch if it is no multiple of --required-batch-size-multiple (8 by default):
        up to seven of the longest sequences, or all of a small split.
        """
        batches = super().batch_by_size(indices, *args, **kwargs)
        rest = indices[sum(map(len, batches)) :]
        return batches if len(rest) == 0 else [*batches, rest]

    def ordered_indices(self) -> np.ndarray:
        """Return the indices by length, equal lengths in an order that (seed, epoch) shuffles."""
        shuffled = generator(self.seed, self.epoch, Stream.ORDER).permutation(len(self))
        return shuffled[np.argsort(self.sizes[shuffled], kind="stable")]
