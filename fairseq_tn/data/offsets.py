"""Which characters of a text each symbol of a tokenizer stands for."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class AlignedSymbols:
    """The symbols of a text and the characters that they stand for.

    symbols: N symbols, exactly those that the tokenizer's ``encode`` gives.
    begin, end: N offsets (characters of the text, ``text[begin:end]``), neither ever falling. Blanks at the edges
        belong to no symbol. Characters that a tokenizer drops inside of a word, such as accents and control
        characters, belong to the symbol before them, else to the one after. A symbol that stands for blanks only,
        or for a part of a character whose other part bears its offsets, has ``begin >= end``.
    """

    symbols: list[str]
    begin: NDArray[np.int32]
    end: NDArray[np.int32]

    def cover(self, begin: int, end: int) -> tuple[int, int] | None:
        """The first and the last symbol of the fewest that hold ``text[begin:end]``; None if none holds a part."""
        first = int(np.searchsorted(self.end, begin, side="right"))
        last = int(np.searchsorted(self.begin, end, side="left")) - 1
        if first > last or self.begin[first] >= end or self.end[last] <= begin:
            return None
        return first, last


def align(text: str, symbols: list[str], begin: Iterable[int], end: Iterable[int]) -> AlignedSymbols:
    """What a tokenizer's offsets say, brought into the form of :class:`AlignedSymbols`.

    Args:
        text: what was encoded
        symbols: N symbols
        begin, end: N offsets into ``text``, which do not fall
    """
    first = np.fromiter(begin, np.int32, len(symbols))
    last = np.fromiter(end, np.int32, len(symbols))
    length = len(text)
    blank = np.fromiter(map(str.isspace, text), bool, length)
    places = np.arange(length, dtype=np.int32)
    # the nearest character that is no blank, from each place onwards and up to it
    onwards = np.append(np.where(blank, length, places), length)
    onwards = np.minimum.accumulate(onwards[::-1])[::-1]
    backwards = np.maximum.accumulate(np.append(0, np.where(blank, 0, places + 1)))
    inked = onwards[np.minimum(first, length)] < backwards[last]
    first, last = onwards[first].astype(np.int32), backwards[last].astype(np.int32)
    steps = np.zeros(length + 1, np.int32)
    np.add.at(steps, first[inked], 1)
    np.add.at(steps, last[inked], -1)
    dropped = (np.cumsum(steps[:length]) == 0) & ~blank
    if dropped.any():
        edges = np.flatnonzero(np.diff(np.concatenate(([0], dropped.astype(np.int8), [0]))))
        for left, right in zip(edges[::2], edges[1::2], strict=True):
            before, after = inked & (last == left), inked & (first == right)
            if before.any():
                last[before] = right
            else:
                first[after] = left
    # what has no letter stands between its neighbours
    first[~inked], last[~inked] = length, 0
    first = np.minimum.accumulate(first[::-1])[::-1]
    return AlignedSymbols(symbols, first, np.maximum.accumulate(last))


def find_words(text: str, words: Iterable[str]) -> list[Sequence[int]]:
    """Where the letters of words stand in the text that the words were split from.

    Between and inside of the words the text may have more: blanks, and characters that the splitter dropped.

    Returns:
        for each word the places of its letters; none for a word that the text does not have
    """
    found: list[Sequence[int]] = []
    cursor = 0
    for word in words:
        begin = text.find(word, cursor)
        places: Sequence[int] | None = range(begin, begin + len(word)) if begin >= 0 else None
        if places is None or text[cursor:begin].strip():
            # it is not the next thing; perhaps it is, with something dropped inside of it
            places = _with_gaps(text, word, cursor) or places or ()
        found.append(places)
        cursor = places[-1] + 1 if places else cursor
    return found


def _with_gaps(text: str, word: str, cursor: int) -> list[int] | None:
    """The places of the letters of ``word`` from ``cursor`` on, if only unprintable characters part them."""
    places: list[int] = []
    for letter in word:
        # blanks may stand before a word, not in it
        while cursor < len(text) and text[cursor] != letter and _can_be_dropped(text[cursor], bool(places)):
            cursor += 1
        if cursor == len(text) or text[cursor] != letter:
            return None
        places.append(cursor)
        cursor += 1
    return places


def _can_be_dropped(letter: str, in_word: bool) -> bool:
    return not in_word if letter.isspace() else not letter.isprintable()


def align_words(text: str, symbols: list[str], places: Iterable[Sequence[int]]) -> AlignedSymbols:
    """Align symbols, given the places of the letters that each stands for (see :func:`find_words`)."""
    begins: list[int] = []
    ends: list[int] = []
    for letters in places:
        cursor = ends[-1] if ends else 0
        begins.append(letters[0] if letters else cursor)
        ends.append(letters[-1] + 1 if letters else cursor)
    return align(text, symbols, begins, ends)


def piece_letters(
    letters: Sequence[int], cased: str, word: str, lengths: Iterable[int]
) -> Iterator[Sequence[int]]:
    """The places of the letters of each piece of a word.

    Args:
        letters: the places of the letters of ``cased``; none if they are unknown
        cased: the word in the text
        word: the same, perhaps lower-cased, which can lengthen it
        lengths: how many letters of ``word`` each piece has
    """
    if len(word) == len(cased):
        owners: Sequence[int] = range(len(word))
    else:
        owners = [number for number, letter in enumerate(cased) for _ in letter.lower()]
    begin = 0
    for length in lengths:
        mine = owners[begin : begin + length]
        yield letters[mine[0] : mine[-1] + 1] if letters and mine else ()
        begin += length
