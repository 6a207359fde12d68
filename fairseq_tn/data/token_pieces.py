"""The pieces of single tokens: how each token of a text that is tokenised already is written in a vocabulary."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from fairseq_tn.data.dictionary import UNKNOWN
from fairseq_tn.data.encode import Encoder
from fairseq_tn.data.gpt2 import Gpt2Encoder
from fairseq_tn.data.offsets import AlignedSymbols

_AT_A_TIME = 4096
# stands before each token, so that it is written as within a sentence ("Ġhouse" of GPT-2)
_BEFORE = "a"
_WORD_STARTS = ("▁", "Ġ")


def pieces_of_tokens(encoder: Encoder, tokens: Iterable[str]) -> list[list[str]]:
    """The symbols of each token, one or more, as if it stood between blanks inside of a sentence.

    A token that the tokenizer drops, such as a control character, is ``<unk>``. The mark of SentencePiece and GPT-2
    that a word starts is left out where it is a piece of its own: no letter is lost, and in Chinese text, which has
    no blanks, the model has not seen it before every character.
    """
    tokens = list(tokens)
    spoken = encoder.token if isinstance(encoder, Gpt2Encoder) else str
    found: list[list[str]] = []
    for start in range(0, len(tokens), _AT_A_TIME):
        block = tokens[start : start + _AT_A_TIME]
        for token, line in zip(
            block, encoder.encode_with_offsets([f"{_BEFORE} {token}" for token in block]), strict=True
        ):
            symbols = _after(line)
            if symbols is None:
                (symbols,) = encoder.encode([token])
            if len(symbols) > 1 and spoken(symbols[0]) in _WORD_STARTS:
                symbols = symbols[1:]
            found.append(symbols or [UNKNOWN])
    return found


def _after(line: AlignedSymbols) -> list[str] | None:
    """The symbols that follow the letter at the beginning; None if it shares a piece with what follows."""
    place = line.cover(0, len(_BEFORE))
    if place is None or line.end[place[1]] > len(_BEFORE):
        return None
    return line.symbols[place[1] + 1 :]


class PieceTable:
    """Pieces of many tokens by the tokens' numbers, so that a text is a matter of array operations.

    counts: how many pieces each token has.
    """

    def __init__(self, pieces: Sequence[Sequence[int]]):
        self.counts = np.fromiter(map(len, pieces), np.int64, len(pieces))
        self._begin = np.cumsum(self.counts) - self.counts
        self._pieces = np.fromiter((piece for token in pieces for piece in token), np.int64)

    def spell(self, tokens: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The pieces of tokens one after the other (P), and the place of each token's first one among them (N)."""
        counts = self.counts[tokens]
        first = np.cumsum(counts) - counts
        places = np.arange(counts.sum()) + np.repeat(self._begin[tokens] - first, counts)
        return self._pieces[places], first
