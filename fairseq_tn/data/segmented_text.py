"""Text that blanks part into words, for tokenizers that do not show where words begin.

Chinese, Japanese and Thai are written without blanks. Where a segmenter has put some, they tell the words, and are
taken out before the text is encoded: the model reads what it would read without a segmenter.

How many tokens each word has goes into a file beside the encoded text, named after it with ``.words``: a line a line,
numbers joined by blanks, whose sum is the number of tokens.
"""

import itertools
import re

import numpy as np

from fairseq_tn.data.offsets import AlignedSymbols

WORDS = ".words"

# letters and marks of scripts that put no blanks between words, by Unicode blocks
_WITHOUT_BLANKS = re.compile(
    "["
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\u1780-\u17ff"  # Burmese, Khmer
    "\u2e80-\u312f\u31a0-\u31ff"  # radicals, CJK punctuation, kana, bopomofo
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # Han
    "\ufe30-\ufe4f\uff00-\uffef"  # CJK forms of punctuation, full and half width
    "\U0001b000-\U0001b16f"  # kana
    "\U00020000-\U0003ffff"  # Han
    "]"
)


def join_words(line: str) -> tuple[str, list[int]]:
    """Write segmented text as people do.

    Blanks beside a character of a script without blanks between words are taken out; elsewhere one stays.

    Returns:
        the text, and the places in it where the words begin
    """
    words = line.split()
    parts: list[str] = words[:1]
    begins = [0] if words else []
    length = len(words[0]) if words else 0
    for before, word in itertools.pairwise(words):
        if not (_WITHOUT_BLANKS.match(before[-1]) or _WITHOUT_BLANKS.match(word[0])):
            parts.append(" ")
            length += 1
        begins.append(length)
        parts.append(word)
        length += len(word)
    return "".join(parts), begins


def word_lengths(aligned: AlignedSymbols, begins: list[int]) -> list[int]:
    """Return how many symbols each word has; a symbol with parts of two words joins them.

    Args:
        aligned: the symbols of a text, at least one
        begins: the places where its words begin, ascending from 0
    """
    # words by number: of the first character of each symbol, and of the last one
    first = np.searchsorted(begins, aligned.begin, side="right")
    last = np.searchsorted(begins, aligned.end - 1, side="right")
    starts = np.append(True, first[1:] > last[:-1])
    # a symbol that bears no character belongs to the one after it
    starts[1:] &= aligned.begin[1:] > aligned.begin[:-1]
    return np.diff(np.append(np.flatnonzero(starts), len(starts))).tolist()
