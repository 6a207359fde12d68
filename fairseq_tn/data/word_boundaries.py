"""Where words begin in a binarised split: side files that whole-word masking reads, and the model never does.

``SPLIT.words.bin`` and ``SPLIT.words.idx`` lie beside ``SPLIT.bin`` and ``SPLIT.idx``, in the same format: a byte for
each token of the split, 1 where a word begins. The ``</s>`` of each line has one too, so that the sizes are the same.
"""

import contextlib
import glob
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fairseq.data import indexed_dataset

from fairseq_tn.data.mapped import open_mapped
from fairseq_tn.data.segmented_text import WORDS
from fairseq_tn.data.streams import InputStream
from fairseq_tn.errors import UserError
from fairseq_tn.files import atomic_path

COMMAND = "fairseq-tn prepare words"
_TYPE = np.uint8


def has_boundaries(folder: str) -> bool:
    """Whether any split of a data folder has the side files."""
    return bool(glob.glob(os.path.join(glob.escape(folder), f"*{WORDS}.idx")))


def open_boundaries(parts: Sequence[str], sizes: np.ndarray) -> Any:
    """Open the side files of a split as one fairseq data set.

    Args:
        parts: the paths of the split, without the endings
        sizes: N line lengths of the split, ``</s>`` included

    Raises:
        UserError: they are missing or damaged, or belong to other text
    """
    paths = [part + WORDS for part in parts]
    for path in paths:
        index = indexed_dataset.index_file_path(path)
        if not os.path.isfile(index):
            raise UserError(
                f"{index}, which tells where words begin, is missing: make it with {COMMAND}, or give "
                "--word-boundaries vocabulary"
            )
    boundaries = open_mapped(paths, COMMAND)
    found = np.asarray(boundaries.sizes)
    if not np.array_equal(found, sizes):
        raise UserError(
            f"{paths[0]}.bin belongs to other text than {parts[0]}.bin: {_difference(found, sizes)}; "
            f"run {COMMAND} again"
        )
    # the last lines of a file that is cut off would be missed in the middle of a run
    if sum(os.path.getsize(indexed_dataset.data_file_path(path)) for path in paths) != int(
        sizes.sum(dtype=np.int64)
    ):
        raise UserError(f"{paths[0]}.bin is shorter or longer than its index says; run {COMMAND} again")
    return boundaries


def write_boundaries(
    words: str | Path, split: str | Path, progress: Callable[[int], Any] = lambda position: None
) -> tuple[int, int]:
    """Write the side files of a split.

    Args:
        words: how many tokens each word has, as ``fairseq-tn encode --word-boundaries`` writes it (see
            :mod:`fairseq_tn.data.segmented_text`)
        split: the path of the binarised split, without the ending
        progress: is told how many bytes of ``words`` are read

    Returns:
        how many words and how many tokens the split has

    Raises:
        UserError: a file is missing, ``words`` is not of this form, or belongs to other text. Nothing is written
            then.
    """
    dataset = open_mapped([str(split)], "fairseq-preprocess --only-source")
    sizes = np.array(dataset.sizes)  # a copy: fairseq unmaps the file with the data set
    number_of_words, number_of_tokens, line = 0, 0, 0
    with contextlib.ExitStack() as written:
        data = written.enter_context(atomic_path(f"{split}{WORDS}.bin"))
        index = written.enter_context(atomic_path(f"{split}{WORDS}.idx"))
        with open(data, "wb") as file:
            for lengths, counts in _blocks(words, progress):
                tokens = _line_sums(lengths, counts)
                wanted = sizes[line : line + len(counts)] - 1
                if len(wanted) < len(counts) or (tokens != wanted).any():
                    raise _other_text(words, split, line, tokens, wanted, len(sizes))
                file.write(_begins(lengths, counts, tokens).tobytes())
                number_of_words += len(lengths)
                number_of_tokens += int(tokens.sum())
                line += len(counts)
        if line < len(sizes):
            raise UserError(
                f"{words} belongs to other text than {split}.bin: it has {line:,} lines and {split}.idx {len(sizes):,}"
            )
        with indexed_dataset.MMapIndexedDataset.Index.writer(str(index), _TYPE) as writer:
            writer.write(sizes.tolist())
    return number_of_words, number_of_tokens


def _blocks(path: str | Path, progress: Callable[[int], Any]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield for some whole lines the tokens of all their words, one line after the other, and the words a line."""
    with InputStream(path) as stream:
        for first, block in stream.blocks():
            lines = block.removesuffix(b"\n").split(b"\n")
            try:
                lengths = np.array(block.split(), dtype=np.int64)
            except (ValueError, OverflowError):
                lengths = np.zeros(1, dtype=np.int64)
            if (lengths < 1).any():
                number = next(n for n, line in enumerate(lines) if not all(map(_is_length, line.split())))
                raise UserError(
                    f"{path}, line {first + number}: not the numbers that fairseq-tn encode --word-boundaries writes"
                )
            yield lengths, np.array([len(line.split()) for line in lines], dtype=np.int64)
            progress(stream.position())


def _is_length(text: bytes) -> bool:
    return text.isdigit() and 0 < int(text) < 1 << 31


def _line_sums(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    totals = np.append(0, np.cumsum(values))
    ends = np.cumsum(counts)
    return totals[ends] - totals[ends - counts]


def _begins(lengths: np.ndarray, counts: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """Return a byte for each token and each ``</s>`` of some lines: 1 where a word, or nothing, begins.

    Args:
        lengths: tokens of each word
        counts: words of each line
        tokens: tokens of each line
    """
    begins = np.zeros(int(tokens.sum()) + len(tokens), dtype=_TYPE)
    begins[np.cumsum(tokens + 1) - 1] = 1
    # before a word there are the words before it, and the `</s>` of the lines before its own
    line = np.repeat(np.arange(len(counts)), counts)
    begins[np.cumsum(lengths) - lengths + line] = 1
    return begins


def _other_text(
    words: str | Path, split: str | Path, line: int, found: np.ndarray, wanted: np.ndarray, total: int
) -> UserError:
    common = min(len(found), len(wanted))
    differing = np.flatnonzero(found[:common] != wanted[:common])
    if len(differing):
        first = int(differing[0])
        difference = (
            f"line {line + first + 1} has {found[first]:,} tokens there and {wanted[first]:,} in {split}.bin"
        )
    else:
        difference = f"it has more lines than the {total:,} of {split}.idx"
    return UserError(
        f"{words} belongs to other text than {split}.bin: {difference}; give the text of one fairseq-tn encode to both"
    )


def _difference(found: np.ndarray, wanted: np.ndarray) -> str:
    if len(found) != len(wanted):
        return f"it has {len(found):,} lines instead of {len(wanted):,}"
    line = int(np.flatnonzero(found != wanted)[0])
    return f"line {line + 1} has {found[line] - 1:,} tokens instead of {wanted[line] - 1:,}"
