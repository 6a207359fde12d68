"""A binarised split as ``fairseq-preprocess`` leaves it, memory-mapped and read by spans of tokens."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fairseq_tn.data.mapped import open_mapped, split_parts
from fairseq_tn.data.pairs import Span
from fairseq_tn.data.word_boundaries import open_boundaries
from fairseq_tn.errors import UserError

_CHECKED_LINES = 1000
_COUNTED_AT_A_TIME = 1 << 22


class Corpus:
    """The lines of a split, by their lengths and by spans of their tokens; the text itself stays on disk.

    Attributes:
        name: the path, for messages
        sizes: N line lengths, ``</s>`` included; 1 is a blank line
    """

    def __init__(
        self,
        path: str,
        dictionary: Any,
        combine: bool = False,
        made_by: str = "fairseq-preprocess --only-source",
        word_boundaries: bool = False,
    ):
        """Open ``path.bin`` and ``path.idx``.

        Args:
            path: folder and split
            dictionary: fairseq's dictionary that the split must have been binarised with
            combine: read ``path1``, ``path2``, ... too, as fairseq does for training data
            made_by: the command that errors send to
            word_boundaries: open the side files of :mod:`fairseq_tn.data.word_boundaries` too

        Raises:
            UserError: the files are missing, empty, cut off, of another kind, or of another dictionary; or the
                side files are of other text
        """
        self.name = path
        self._num_symbols = len(dictionary)
        self._eos = dictionary.eos()
        self._remedy = f"run {made_by} again"
        parts = split_parts(path, combine)
        self._dataset = open_mapped(parts, made_by)
        self.sizes = self._read_sizes()
        self._check()
        self._boundaries = open_boundaries(parts, self.sizes) if word_boundaries else None

    def __getstate__(self) -> dict[str, Any]:
        # the sizes are a view of the mapped file: a worker maps it again instead of receiving a copy
        return {key: value for key, value in self.__dict__.items() if key != "sizes"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.sizes = self._read_sizes()

    @property
    def num_tokens(self) -> int:
        """Tokens of the corpus without the ``</s>`` of its lines."""
        return int(self.sizes.sum(dtype=np.int64)) - len(self.sizes)

    def read(self, span: Span) -> np.ndarray:
        """Return the tokens of a span (int64), reading on into the next lines and leaving out their ``</s>``."""
        return _read(self._dataset, span)

    @property
    def has_word_boundaries(self) -> bool:
        """Whether the side files are open."""
        return self._boundaries is not None

    def word_begins(self, span: Span) -> np.ndarray:
        """Return for each token of a span whether a word begins there (bool); only with ``word_boundaries``."""
        return _read(self._boundaries, span).astype(bool)

    def counts(self, progress: Callable[[int], object] = lambda tokens: None) -> np.ndarray:
        """Return how often each symbol of the dictionary occurs (int64).

        Args:
            progress: is told how many more tokens were counted, the ``</s>`` of the lines included.

        Raises:
            UserError: the corpus was binarised with another dictionary
        """
        total = np.zeros(self._num_symbols, dtype=np.int64)
        for part in getattr(self._dataset, "datasets", [self._dataset]):
            # the tokens of all lines follow each other
            tokens = np.frombuffer(part._bin_buffer, dtype=part._index.dtype)
            for start in range(0, len(tokens), _COUNTED_AT_A_TIME):
                block = tokens[start : start + _COUNTED_AT_A_TIME]
                counts = np.bincount(block, minlength=self._num_symbols)
                if len(counts) > self._num_symbols:
                    raise self.foreign()
                total += counts
                progress(len(block))
        return total

    def foreign(self) -> UserError:
        """Return the error for token ids that the dictionary does not have."""
        return UserError(
            f"{self.name}.bin holds token ids beyond the {self._num_symbols} symbols of dict.txt: it was "
            f"binarised with another dictionary; {self._remedy} with the model's dict.txt"
        )

    def _read_sizes(self) -> np.ndarray:
        return np.asarray(self._dataset.sizes)

    def _check(self) -> None:
        """Look at some lines of all parts of the split; the rest is checked as it is read."""
        if len(self.sizes) == 0 or self.sizes.max() < 2:
            raise UserError(
                f"{self.name} has no text: all its lines are blank; {self._remedy} on a text that is not"
            )
        lines = np.unique(np.linspace(0, len(self.sizes) - 1, _CHECKED_LINES, dtype=np.int64))
        for line in lines.tolist():
            try:
                tokens = self._dataset[line].numpy()
            except ValueError as error:
                raise UserError(f"{self.name}.bin is shorter than its index says; {self._remedy}") from error
            if len(tokens) == 0 or tokens[-1] != self._eos:
                raise UserError(f"line {line + 1} of {self.name} does not end in </s>; {self._remedy}")
            if tokens.max() >= self._num_symbols:
                raise self.foreign()


def _read(dataset: Any, span: Span) -> np.ndarray:
    line, skip, length = span
    parts = []
    missing = skip + length
    while missing > 0:
        part = dataset[line].numpy()[:-1]
        parts.append(part)
        missing -= len(part)
        line += 1
    return np.concatenate(parts)[skip : skip + length]
