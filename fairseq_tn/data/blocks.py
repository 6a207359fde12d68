"""Blocks of tokens for pre-training without sentence pairs (``--no-nsp``)."""

from dataclasses import dataclass

import numpy as np

from fairseq_tn.data.documents import document_bounds, token_offsets
from fairseq_tn.data.pairs import Span
from fairseq_tn.errors import UserError

BREAK_MODES = ("none", "complete", "complete_doc", "eos")
# `<s> tokens </s>`
NUM_SPECIAL = 2
# Sentences handled at once: bounds the memory of temporary arrays.
_CHUNK = 1 << 18


@dataclass(frozen=True)
class TokenBlocks:
    """P blocks in the order of the corpus: each is ``length`` tokens after the first ``skip`` of ``line``.

    The ``</s>`` of the lines within are not counted: a block is one segment.
    """

    line: np.ndarray
    skip: np.ndarray
    length: np.ndarray

    def __len__(self) -> int:
        return len(self.line)

    @property
    def lengths(self) -> np.ndarray:
        """P lengths of ``<s> tokens </s>``."""
        return self.length.astype(np.int32) + NUM_SPECIAL

    def spans(self, index: int) -> list[Span]:
        """Return (line, skip, length) of the block, as the only entry of a list."""
        return [(int(self.line[index]), int(self.skip[index]), int(self.length[index]))]


def make_blocks(
    sizes: np.ndarray, tokens_per_sample: int, break_mode: str = "none", name: str = "the corpus"
) -> TokenBlocks:
    """Divide a corpus into blocks; every token is in exactly one of them.

    Args:
        sizes: N item lengths, ``</s>`` included; 1 is a blank line, which ends a document
        tokens_per_sample: most tokens of a block, special tokens included
        break_mode: as fairseq's ``--sample-break-mode``. ``none`` fills every block; ``complete`` takes as many
            whole sentences as fit; ``complete_doc`` does so within a document; ``eos`` is a sentence a block. A
            sentence longer than a block is split.
        name: what to call the corpus in an error

    Raises:
        UserError: the corpus is empty, or ``tokens_per_sample`` leaves no room
    """
    limit = tokens_per_sample - NUM_SPECIAL
    if limit < 1:
        raise UserError(f"--tokens-per-sample is {tokens_per_sample}; blocks of tokens need 3 or more")
    if break_mode not in BREAK_MODES:
        raise UserError(f"--sample-break-mode is {break_mode!r}; it must be one of {', '.join(BREAK_MODES)}")
    offsets = token_offsets(sizes, headroom=2 * limit)
    total = int(offsets[-1])
    if total == 0:
        raise UserError(f"{name} has no text: all its lines are blank")
    if break_mode == "none":
        starts = np.arange(0, total, limit, dtype=offsets.dtype)
    else:
        starts = _unit_starts(sizes, offsets, limit)
        if break_mode != "eos":
            last = offsets[document_bounds(sizes)[1]] if break_mode == "complete_doc" else offsets[-1:]
            starts = _fill(starts, total, last, limit)
    # blank lines share the offset of the line after them; `right` finds that line
    line = np.searchsorted(offsets, starts, side="right") - 1
    return TokenBlocks(
        line=line.astype(np.min_scalar_type(len(sizes))),
        skip=(starts - offsets[line]).astype(np.min_scalar_type(int(sizes.max()))),
        length=np.diff(starts, append=offsets[-1:]).astype(np.min_scalar_type(tokens_per_sample)),
    )


def _unit_starts(sizes: np.ndarray, offsets: np.ndarray, limit: int) -> np.ndarray:
    """Return the token offsets where a block may begin: sentences, and every ``limit`` tokens of a long one."""
    starts = offsets[:-1][sizes > 1]
    long = np.flatnonzero(sizes > limit + 1)
    if len(long) == 0:
        return starts
    cuts = (sizes[long].astype(np.int64) - 2) // limit
    number = np.arange(cuts.sum()) - np.repeat(np.cumsum(cuts) - cuts, cuts) + 1
    inner = np.repeat(offsets[long], cuts) + (number * limit).astype(offsets.dtype)
    return np.sort(np.concatenate([starts, inner]))


def _fill(units: np.ndarray, total: int, last: np.ndarray, limit: int) -> np.ndarray:
    """Join units greedily into blocks of at most ``limit`` tokens that do not cross an offset in ``last``.

    Args:
        units: U offsets, ascending; no unit is longer than ``limit`` or empty
        total: offset of the corpus' end
        last: offsets that end a document, ascending; the final one is ``total``

    Returns:
        the offsets that begin a block
    """
    bounds = np.append(units, units.dtype.type(total))
    taken = []
    unit = 0
    for low in range(0, len(units), _CHUNK):
        here = units[low : low + _CHUNK]
        barrier = last[np.searchsorted(last, here, side="right")]
        reach = np.minimum(here + units.dtype.type(limit), barrier)
        nearby = bounds[low : low + len(here) + limit + 1]
        step = (np.searchsorted(nearby, reach, side="right") - 1 - np.arange(len(here))).tolist()
        while unit < low + len(here):
            taken.append(unit)
            unit += step[unit - low]
    return units[np.array(taken, dtype=np.int64)]
