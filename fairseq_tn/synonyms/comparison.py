"""What two synonym tables have in common."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Overlap:
    """How many elements two sets have, and how many of them in common."""

    first: int
    second: int
    both: int

    @property
    def jaccard(self) -> float:
        """The size of the intersection over that of the union; 1 for two empty sets."""
        union = self.first + self.second - self.both
        return self.both / union if union else 1.0


@dataclass(frozen=True)
class Comparison:
    """tokens, pairs: overlaps; only_first, only_second: token -> synonyms that the other table lacks."""

    tokens: Overlap
    pairs: Overlap
    only_first: dict[str, list[str]]
    only_second: dict[str, list[str]]


def compare_tables(first: Mapping[str, Sequence[str]], second: Mapping[str, Sequence[str]]) -> Comparison:
    """Compare two tables, token -> synonyms each, by tokens and by (token, synonym) pairs."""
    only_first, only_second = _without(first, second), _without(second, first)
    pairs = _pairs(first)
    return Comparison(
        Overlap(len(first), len(second), len(first.keys() & second.keys())),
        Overlap(pairs, _pairs(second), pairs - _pairs(only_first)),
        only_first,
        only_second,
    )


def _pairs(table: Mapping[str, Sequence[str]]) -> int:
    return sum(map(len, table.values()))


def _without(table: Mapping[str, Sequence[str]], other: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    kept = {}
    for token, synonyms in table.items():
        known = set(other.get(token, ()))
        if lacking := [synonym for synonym in synonyms if synonym not in known]:
            kept[token] = lacking
    return kept
