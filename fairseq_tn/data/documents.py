"""Documents and token positions of a corpus, from the lengths of its lines alone.

A corpus is what ``fairseq-preprocess`` makes of a text with one sentence a line and blank lines between
documents: an item a line, ending in ``</s>``; a blank line is an item that is only ``</s>``.
"""

import numpy as np


def document_bounds(sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find the documents: the longest runs of lines that are not blank.

    Args:
        sizes: N item lengths, ``</s>`` included

    Returns:
        first item and one past the last item of every document
    """
    filled = sizes > 1
    edges = np.flatnonzero(np.diff(filled, prepend=False, append=False))
    return edges[::2], edges[1::2]


def token_offsets(sizes: np.ndarray, headroom: int = 0) -> np.ndarray:
    """Number the tokens of a corpus without the ``</s>`` of its lines.

    Args:
        sizes: N item lengths, ``</s>`` included
        headroom: how much a caller will add to an offset without changing its type

    Returns:
        N + 1 offsets: item i holds the tokens from offsets[i] to offsets[i + 1]; as small a type as will do
    """
    total = int(sizes.sum(dtype=np.int64)) - len(sizes)
    offsets = np.zeros(len(sizes) + 1, dtype=np.uint32 if total + headroom < 1 << 32 else np.int64)
    np.subtract(sizes, 1, out=offsets[1:], casting="unsafe")
    np.cumsum(offsets[1:], dtype=offsets.dtype, out=offsets[1:])
    return offsets


def line_at(offsets: np.ndarray, token: int) -> int:
    """The line that holds a token, by its number.

    Args:
        offsets: see :func:`token_offsets`
        token: from 0, less than the number of tokens
    """
    # numpy would copy all offsets for a token of another type. Blank lines share the offset of the line after them;
    # `right` finds that line
    return int(np.searchsorted(offsets, offsets.dtype.type(token), side="right")) - 1
