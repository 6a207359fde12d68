"""Changes of a text, and where its characters are afterwards."""

import bisect
import itertools
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Edit:
    """The characters from ``begin`` up to ``end`` become ``text``; where both are the same, it is inserted."""

    begin: int
    end: int
    text: str


class EditedText:
    """A text with edits that do not overlap."""

    def __init__(self, text: str, edits: Iterable[Edit]):
        """Apply the edits.

        Raises:
            ValueError: edits overlap or lie outside the text
        """
        ordered = sorted(edits)
        parts, position = [], 0
        # how far characters behind each edit have moved
        self._ends: list[int] = []
        self._moves: list[int] = []
        move = 0
        for edit in ordered:
            if not position <= edit.begin <= edit.end <= len(text):
                raise ValueError(f"{edit} overlaps another edit or lies outside the text")
            parts += [text[position : edit.begin], edit.text]
            position = edit.end
            move += len(edit.text) - (edit.end - edit.begin)
            self._ends.append(edit.end)
            self._moves.append(move)
        self.text = "".join([*parts, text[position:]])
        self._edits = ordered

    def moved(self, offset: int) -> int:
        """Where a character that no edit replaces is now; an insertion right before it moves it."""
        place = bisect.bisect_right(self._ends, offset)
        return offset + (self._moves[place - 1] if place else 0)

    def touches(self, begin: int, end: int) -> bool:
        """Whether an edit changes the characters from ``begin`` up to ``end``, or inserts something between them."""
        return any(edit.begin < end and begin < edit.end for edit in self._edits)


def merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans as few as possible that cover the same characters, in order; empty ones are dropped."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(span for span in spans if span[0] < span[1]):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found


def overlaps(spans: list[tuple[int, int]], begin: int, end: int) -> bool:
    """Whether one of the :func:`merged` spans has a character of ``begin`` up to ``end``."""
    place = bisect.bisect_right(spans, (begin, end))
    nearby = itertools.islice(spans, max(place - 1, 0), place + 1)
    return any(first < end and begin < last for first, last in nearby)
