"""A binarised split as ``fairseq-preprocess`` leaves it, memory-mapped and read by spans of tokens."""

import os
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from fairseq.data import data_utils, indexed_dataset

from fairseq_tn.data.pairs import Span
from fairseq_tn.errors import UserError

_CHECKED_LINES = 1000
_COUNTED_AT_A_TIME = 1 << 22
# fairseq's index file: magic, version, type and number of lines; then a 4-byte size and an 8-byte position of each
_MAGIC = b"MMIDIDX\0\0"
_HEADER = struct.Struct("<9sQBQ")
_BYTES_PER_LINE = 12


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
    ):
        """Open ``path.bin`` and ``path.idx``.

        Args:
            path: folder and split
            dictionary: fairseq's dictionary that the split must have been binarised with
            combine: read ``path1``, ``path2``, ... too, as fairseq does for training data
            made_by: the command that errors send to

        Raises:
            UserError: the files are missing, empty, cut off, of another kind, or of another dictionary
        """
        self.name = path
        self._num_symbols = len(dictionary)
        self._eos = dictionary.eos()
        self._remedy = f"run {made_by} again"
        self._dataset = _open(path, dictionary, combine, made_by)
        self.sizes = self._read_sizes()
        self._check()

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
        line, skip, length = span
        parts = []
        missing = skip + length
        while missing > 0:
            part = self._dataset[line].numpy()[:-1]
            parts.append(part)
            missing -= len(part)
            line += 1
        return np.concatenate(parts)[skip : skip + length]

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


def _open(path: str, dictionary: Any, combine: bool, made_by: str) -> Any:
    part, number = path, 0
    while number == 0 or (combine and os.path.isfile(indexed_dataset.index_file_path(part))):
        _check_files(part, made_by)
        number += 1
        part = f"{path}{number}"
    # The kind is named because fairseq prefers a text file of the same name. Its other kinds load the text into
    # memory, or share one file position between worker processes.
    return data_utils.load_indexed_dataset(path, dictionary, dataset_impl="mmap", combine=combine)


def _check_files(path: str, made_by: str) -> None:
    """Refuse what fairseq would open and fail on later, or with a message that does not help."""
    index, data = indexed_dataset.index_file_path(path), indexed_dataset.data_file_path(path)
    for file in (index, data):
        if not os.path.isfile(file):
            raise UserError(f"{file} is missing: make the data folder with {made_by}")
        if os.path.getsize(file) == 0:
            raise UserError(f"{file} is empty; run {made_by} again on a text that is not")
    with open(index, "rb") as stream:
        header = stream.read(_HEADER.size)
    if not header.startswith(_MAGIC):
        raise UserError(f"{index} is not of --dataset-impl mmap; run {made_by} again with it")
    if len(header) == _HEADER.size:
        *_, number = _HEADER.unpack(header)
        if os.path.getsize(index) == _HEADER.size + number * _BYTES_PER_LINE:
            return
    raise UserError(f"{index} is damaged; run {made_by} again")
