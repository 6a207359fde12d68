"""Tags of tokens (``B-PER``, ``I-PER``, ``O``) and the entities, or words, that sequences of them stand for.

Everything is computed on flat arrays, the tags of many sequences one after the other.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# what a tag says of its token: outside, first, inner or last of several, the only one
OUTSIDE, BEGIN, INSIDE, END, SINGLE = range(5)

_PLAIN = {"B": BEGIN, "I": INSIDE}
# scheme -> letter -> role; O is in each
SCHEMES: dict[str, dict[str, int]] = {
    "iob1": _PLAIN,
    "iob2": _PLAIN,
    "bioes": {**_PLAIN, "E": END, "S": SINGLE},
    "bmes": {"B": BEGIN, "M": INSIDE, "E": END, "S": SINGLE},
    "bmewo": {"B": BEGIN, "M": INSIDE, "E": END, "W": SINGLE},
    "bilou": {**_PLAIN, "L": END, "U": SINGLE},
}
# other names for the same
ALIASES = {
    "iob": "iob1",
    "bio": "iob2",
    "iobes": "bioes",
    "bieos": "bioes",
    "bmeso": "bmes",
    "bmeow": "bmewo",
}
# of word segmentation: bare tags, and every character belongs to a word
SEGMENTATION = "segmentation"
SEGMENTATION_TAGS = ("B", "E", "M", "S")


class TagError(ValueError):
    """A tag that is none of the scheme; the message says why."""


def split_tag(tag: str, scheme: str) -> tuple[int, str]:
    """The role of a tag and its type, ``""`` for ``O``.

    Raises:
        TagError: it is no tag of the scheme
    """
    if scheme == SEGMENTATION:
        if tag not in SEGMENTATION_TAGS:
            raise TagError(f"the tag {tag!r} is none of word segmentation (B, M, E, S)")
        return SCHEMES["bmes"][tag], ""
    letters = SCHEMES[scheme]
    if tag == "O":
        return OUTSIDE, ""
    prefix, hyphen, kind = tag.partition("-")
    if not hyphen or len(prefix) != 1:
        raise TagError(
            f"the tag {tag!r} has no prefix; tags are O or a letter, a hyphen and a type, such as B-PER"
        )
    if not kind:
        raise TagError(f"the tag {tag!r} has no type; tags are such as B-PER")
    if prefix not in letters:
        raise TagError(f"the tag {tag!r} is none of the scheme {scheme} ({', '.join([*letters, 'O'])})")
    return letters[prefix], kind


def detect_scheme(tags: Iterable[str]) -> str | None:
    """The scheme that the set of tags is written in; None if it mixes several or is none.

    ``iob2`` stands for ``iob1`` too, which only the sequences can tell from it (see :func:`is_iob1`).
    """
    tags = set(tags)
    if tags and tags <= set(SEGMENTATION_TAGS):
        return SEGMENTATION
    letters = {tag[0] for tag in tags if tag != "O" and tag[1:2] == "-"}
    for scheme in ("iob2", "bioes", "bmes", "bmewo", "bilou"):
        if letters <= SCHEMES[scheme].keys():
            return scheme
    return None


@dataclass(frozen=True)
class TagSet:
    """Tags by number.

    names: of the L tags.
    scheme: a key of :data:`SCHEMES`, or :data:`SEGMENTATION`.
    types: the names of the types, ascending.
    roles, kinds: L numbers, the role of each tag and its type (-1 of ``O``).
    """

    names: tuple[str, ...]
    scheme: str
    types: tuple[str, ...]
    roles: NDArray[np.int64]
    kinds: NDArray[np.int64]

    @classmethod
    def of(cls, names: Sequence[str], scheme: str) -> "TagSet":
        """Raises TagError if a name is no tag of the scheme."""
        parts = [split_tag(name, scheme) for name in names]
        types = sorted({kind for role, kind in parts if role != OUTSIDE})
        return cls(
            tuple(names),
            scheme,
            tuple(types),
            np.array([role for role, _ in parts], np.int64),
            np.array([-1 if role == OUTSIDE else types.index(kind) for role, kind in parts], np.int64),
        )

    def with_all_roles(self) -> "TagSet":
        """The same tags, then those of the scheme that are missing for the types."""
        if self.scheme == SEGMENTATION:
            complete = list(SEGMENTATION_TAGS)
        else:
            complete = ["O", *(f"{letter}-{kind}" for kind in self.types for letter in SCHEMES[self.scheme])]
        known = set(self.names)
        return TagSet.of([*self.names, *(name for name in complete if name not in known)], self.scheme)


@dataclass(frozen=True)
class Spans:
    """N entities in ascending order: ``begin`` and ``end`` (exclusive) on the flat tags, and the type's number."""

    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    kind: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.begin)

    def select(self, which: NDArray) -> "Spans":
        """Those that a mask or indices name."""
        return Spans(self.begin[which], self.end[which], self.kind[which])

    def found_in(self, other: "Spans") -> NDArray[np.bool_]:
        """N bool: whether ``other`` has the same entity, in place and type."""
        if not len(other):
            return np.zeros(len(self), bool)
        places = np.searchsorted(other.begin, self.begin)
        places[places == len(other)] = 0
        return (
            (other.begin[places] == self.begin)
            & (other.end[places] == self.end)
            & (other.kind[places] == self.kind)
        )


def sequence_starts(lengths: NDArray) -> NDArray[np.bool_]:
    """For each tag of sequences of these lengths (none is 0), whether it is the first of its sequence."""
    starts = np.zeros(int(np.sum(lengths)), bool)
    starts[np.cumsum(lengths) - lengths] = True
    return starts


def lenient_spans(tags: NDArray, starts: NDArray[np.bool_], tag_set: TagSet) -> Spans:
    """The entities as the script ``conlleval`` of CoNLL-2000 to 2003 reads them: any sequence stands for some.

    A new entity begins with B and S, after O, E and S, and where the type changes. For word segmentation these are
    the words.

    Args:
        tags: N numbers of tags
        starts: N bool, see :func:`sequence_starts`
        tag_set: what the numbers stand for
    """
    roles, kinds = tag_set.roles[tags], tag_set.kinds[tags]
    inside = roles != OUTSIDE
    begins = inside & ~_goes_on(roles, kinds, starts)
    begin = np.flatnonzero(begins)
    # an entity ends where the next one begins or nothing is inside any more
    edges = np.append(np.flatnonzero(begins | ~inside), len(tags))
    end = edges[np.searchsorted(edges, begin, side="right")]
    return Spans(begin, end, kinds[begin])


def strict_spans(tags: NDArray, starts: NDArray[np.bool_], tag_set: TagSet) -> Spans:
    """The entities of well-formed parts of the sequences; what does not follow the scheme is none.

    Entities are those of seqeval's strict mode, in IOB1 with its oddities: there a B that no entity of the same
    type goes before begins nothing, and what follows it does. For the arguments see :func:`lenient_spans`. Of word
    segmentation every sequence is well-formed.
    """
    spans = lenient_spans(tags, starts, tag_set)
    if tag_set.scheme == SEGMENTATION or not len(spans):
        return spans
    roles, kinds = tag_set.roles[tags], tag_set.kinds[tags]
    first, last = roles[spans.begin], roles[spans.end - 1]
    if tag_set.scheme == "iob1":
        before = np.concatenate(([OUTSIDE], roles[:-1]))[spans.begin]
        same = np.concatenate(([-1], kinds[:-1]))[spans.begin] == spans.kind
        strange = (first == BEGIN) & ((before == OUTSIDE) | ~same | starts[spans.begin])
        after = np.minimum(spans.end, len(tags) - 1)
        # a lone B goes before a B of another type, in the same sequence
        lost = (spans.end - spans.begin == 1) & (first == BEGIN) & (spans.end < len(tags))
        lost &= ~starts[after] & (roles[after] == BEGIN) & (kinds[after] != spans.kind)
        moved = Spans(spans.begin + strange, spans.end, spans.kind)
        return moved.select((moved.end > moved.begin) & ~lost)
    if tag_set.scheme == "iob2":
        return spans.select(first == BEGIN)
    long = spans.end - spans.begin > 1
    return spans.select(np.where(long, (first == BEGIN) & (last == END), first == SINGLE))


def _goes_on(roles: NDArray, kinds: NDArray, starts: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """For each tag, whether it continues the entity of the tag before it."""
    goes_on = np.zeros(len(roles), bool)
    goes_on[1:] = (
        ((roles[:-1] == BEGIN) | (roles[:-1] == INSIDE))
        & ((roles[1:] == INSIDE) | (roles[1:] == END))
        & (kinds[:-1] == kinds[1:])
        & ~starts[1:]
    )
    return goes_on


def is_iob1(tags: NDArray, starts: NDArray[np.bool_], tag_set: TagSet) -> bool:
    """Whether sequences of B, I and O are written in IOB1: B only between entities of one type.

    If there is an I that begins an entity and there is no B where IOB1 has none, it is; otherwise it is IOB2,
    perhaps with invalid sequences.
    """
    spans = lenient_spans(tags, starts, tag_set)
    first = tag_set.roles[tags][spans.begin] == BEGIN
    follows = np.zeros(len(spans), bool)
    follows[1:] = (spans.begin[1:] == spans.end[:-1]) & (spans.kind[1:] == spans.kind[:-1])
    follows &= ~starts[spans.begin]
    return bool((~first).any() and not (first & ~follows).any())


def write_tags(spans: Spans, length: int, tag_set: TagSet) -> NDArray[np.int64]:
    """The ``length`` tags that spell entities, in the scheme of ``tag_set``, which must have all roles.

    IOB1 is written as IOB2, which a model can learn without knowing what stands before.
    """
    number = {
        (role, kind): index
        for index, (role, kind) in enumerate(zip(tag_set.roles.tolist(), tag_set.kinds.tolist(), strict=True))
    }
    table = np.full((5, max(len(tag_set.types), 1)), -1)
    for (role, kind), index in number.items():
        if role != OUTSIDE:
            table[role, kind] = index
    # of two kinds of roles only those that the scheme has
    short = tag_set.scheme in ("iob1", "iob2")
    tags = np.full(length, number.get((OUTSIDE, -1), -1), np.int64)
    lengths = spans.end - spans.begin
    inner = np.repeat(spans.begin - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
    tags[inner] = table[INSIDE][np.repeat(spans.kind, lengths)]
    if not short:
        tags[spans.end - 1] = table[END][spans.kind]
    tags[spans.begin] = table[BEGIN][spans.kind]
    if not short:
        single = lengths == 1
        tags[spans.begin[single]] = table[SINGLE][spans.kind[single]]
    return tags


def repair(tags: NDArray, starts: NDArray[np.bool_], tag_set: TagSet) -> NDArray[np.int64]:
    """The tags that spell the entities of :func:`lenient_spans`; valid sequences stay (IOB1 becomes IOB2)."""
    return write_tags(lenient_spans(tags, starts, tag_set), len(tags), tag_set)
