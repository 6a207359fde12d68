"""Tags and entities: against seqeval, which reads strictly and leniently, and against what schemes promise."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import BILOU, IOB1, IOB2, IOBES, Entities

from fairseq_tn.data.tags import (
    SCHEMES,
    SEGMENTATION,
    TagError,
    TagSet,
    detect_scheme,
    is_iob1,
    lenient_spans,
    repair,
    sequence_starts,
    split_tag,
    strict_spans,
)

SEQEVAL = {"iob1": IOB1, "iob2": IOB2, "bioes": IOBES, "bilou": BILOU}
# how seqeval writes the letters of the schemes that it does not know
LETTERS = {"bmes": {"M": "I"}, "bmewo": {"M": "I", "W": "S"}}


def names_of(scheme):
    return ["O", *(f"{letter}-{kind}" for letter in SCHEMES[scheme] for kind in ("X", "Y"))]


def texts(scheme):
    """Texts of 40 short sentences of any tags, valid and invalid."""

    def draw(seed):
        choose = random.Random(seed)
        return [choose.choices(names_of(scheme), k=choose.randint(1, 7)) for _ in range(40)]

    return st.integers(0, 2**32).map(draw)


def flat(sentences, names):
    tags = np.array([names.index(tag) for sentence in sentences for tag in sentence])
    return tags, sequence_starts(np.array([len(sentence) for sentence in sentences]))


def as_tuples(spans, tag_set):
    return [
        (int(begin), int(end), tag_set.types[kind])
        for begin, end, kind in zip(spans.begin, spans.end, spans.kind, strict=True)
    ]


def in_seqeval_letters(sentences, scheme):
    letters = LETTERS.get(scheme, {})
    return [[letters.get(tag[0], tag[0]) + tag[1:] for tag in sentence] for sentence in sentences]


@pytest.mark.parametrize("scheme", [*SCHEMES])
@settings(max_examples=12, deadline=None, derandomize=True)
@given(data=st.data())
def test_strict_spans_are_seqevals(scheme, data):
    sentences = data.draw(texts(scheme))
    names = names_of(scheme)
    tag_set = TagSet.of(names, scheme)
    offsets = np.cumsum([0, *map(len, sentences)])
    reference = Entities(in_seqeval_letters(sentences, scheme), SEQEVAL.get(scheme, IOBES)).entities
    expected = sorted(
        (entity.start + offsets[entity.sent_id], entity.end + offsets[entity.sent_id], entity.tag)
        for sentence in reference
        for entity in sentence
    )
    assert as_tuples(strict_spans(*flat(sentences, names), tag_set), tag_set) == expected


@pytest.mark.parametrize("scheme", ["iob1", "iob2", "bioes", "bmes", "bmewo"])
@settings(max_examples=12, deadline=None, derandomize=True)
@given(data=st.data())
def test_lenient_spans_are_those_of_seqevals_default_mode(scheme, data):
    sentences = data.draw(texts(scheme))
    names = names_of(scheme)
    tag_set = TagSet.of(names, scheme)
    expected, offset = [], 0
    for sentence in in_seqeval_letters(sentences, scheme):
        expected += sorted(
            (begin + offset, end + 1 + offset, kind) for kind, begin, end in get_entities(sentence)
        )
        offset += len(sentence)
    assert as_tuples(lenient_spans(*flat(sentences, names), tag_set), tag_set) == expected


@pytest.mark.parametrize("scheme", [*SCHEMES])
@settings(max_examples=12, deadline=None, derandomize=True)
@given(data=st.data())
def test_repaired_tags_are_valid_and_keep_the_entities(scheme, data):
    sentences = data.draw(texts(scheme))
    names = names_of(scheme)
    tag_set = TagSet.of(names, scheme)
    tags, starts = flat(sentences, names)
    repaired = repair(tags, starts, tag_set)
    written = TagSet.of(names, "iob2" if scheme == "iob1" else scheme)
    lenient = as_tuples(lenient_spans(tags, starts, tag_set), tag_set)
    assert as_tuples(strict_spans(repaired, starts, written), written) == lenient
    # and nothing changes a second time
    assert np.array_equal(repair(repaired, starts, written), repaired)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=5), min_size=1, max_size=3))
def test_words_of_segmentation(sentences):
    """Sentences given as lengths of words; then a mistaken tagger, whose tags always stand for words."""
    spell = {1: "S", 2: "BE", 3: "BME", 4: "BMME"}
    tagged = ["".join(spell[length] for length in words) for words in sentences]
    names = ["B", "E", "M", "S"]
    tag_set = TagSet.of(names, SEGMENTATION)
    spans = lenient_spans(*flat(tagged, names), tag_set)
    assert (spans.end - spans.begin).tolist() == [length for words in sentences for length in words]
    wrong = [sentence[::-1] for sentence in tagged]
    spans = strict_spans(*flat(wrong, names), tag_set)
    text = "".join(wrong)
    starts = sequence_starts(np.array([len(sentence) for sentence in wrong]))
    expected = [n for n in range(len(text)) if starts[n] or text[n] in "BS" or text[n - 1] in "ES"]
    assert spans.begin.tolist() == expected
    assert spans.end.tolist() == [*expected[1:], len(text)]


@settings(max_examples=12, deadline=None, derandomize=True)
@given(texts("bioes"), texts("bioes"))
def test_found_in_is_membership(first, second):
    names = names_of("bioes")
    tag_set = TagSet.of(names, "bioes")
    one = lenient_spans(*flat(first, names), tag_set)
    other = lenient_spans(*flat(second, names), tag_set)
    expected = [span in set(as_tuples(other, tag_set)) for span in as_tuples(one, tag_set)]
    assert one.found_in(other).tolist() == expected


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        (["O"], "iob2"),
        (["O", "B-X", "I-X"], "iob2"),
        (["I-X"], "iob2"),
        (["B-X", "I-X", "E-X", "S-X"], "bioes"),
        (["B-X", "E-Y"], "bioes"),
        (["B-X", "M-X", "S-X"], "bmes"),
        (["B-X", "W-X", "O"], "bmewo"),
        (["B-X", "L-X", "U-X"], "bilou"),
        (["B", "M", "E", "S"], SEGMENTATION),
        (["S"], SEGMENTATION),
        (["B-X", "M-X", "I-X"], None),
        (["L-X", "E-X"], None),
        (["S-X", "W-X"], None),
    ],
)
def test_detect_scheme(tags, scheme):
    assert detect_scheme(tags) == scheme


@pytest.mark.parametrize(
    ("sentences", "expected"),
    [
        ([["I-X", "I-X", "O"], ["I-Y"]], True),
        ([["I-X", "B-X", "I-X"]], True),
        ([["I-X"], ["B-X", "I-X"]], False),  # a B that begins a sentence: IOB2 with a mistake
        ([["I-Y", "B-X", "I-X"]], False),
        ([["B-X", "I-X", "B-X"]], False),
        ([["O"]], False),
    ],
)
def test_is_iob1(sentences, expected):
    names = names_of("iob2")
    assert is_iob1(*flat(sentences, names), TagSet.of(names, "iob2")) is expected


@pytest.mark.parametrize(
    ("tag", "scheme", "reason"),
    [
        ("PER", "iob2", "has no prefix"),
        ("B", "iob2", "has no prefix"),
        ("BPER-X", "iob2", "has no prefix"),
        ("B-", "iob2", "has no type"),
        ("E-X", "iob2", "none of the scheme iob2"),
        ("M-X", "bioes", "none of the scheme bioes"),
        ("B-X", SEGMENTATION, "none of word segmentation"),
    ],
)
def test_no_tag_of_the_scheme(tag, scheme, reason):
    with pytest.raises(TagError, match=reason):
        split_tag(tag, scheme)


def test_types_may_hold_dots_and_hyphens():
    tag_set = TagSet.of(["O", "B-PER.NOM", "I-x-y"], "iob2")
    assert tag_set.types == ("PER.NOM", "x-y")
    assert tag_set.kinds.tolist() == [-1, 0, 1]
