"""DeCLUTR's spans: within their document, apart from each other, where their names say."""

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from fairseq_tn.data.document_spans import SAMPLINGS, SpanSampler
from fairseq_tn.data.documents import line_at, token_offsets
from fairseq_tn.errors import UserError


def drawn(sampler: SpanSampler, tokens: int, seed: int):
    """Pairs of an anchor and a positive of it, as [begin, end)."""
    anchors, positives = sampler.draw(tokens, np.random.default_rng(seed))
    assert len(anchors) == len(positives) == sampler.anchors
    assert {len(own) for own in positives} == {sampler.positives}
    return [
        ((begin, begin + length), (start, start + own))
        for (begin, length), spans in zip(anchors, positives, strict=True)
        for start, own in spans
    ]


@st.composite
def samplers(draw, names=SAMPLINGS):
    shortest = draw(st.integers(1, 12))
    longest = shortest + draw(st.integers(0, 30))
    return SpanSampler(
        draw(st.integers(1, 4)), draw(st.integers(1, 3)), shortest, longest, draw(st.sampled_from(names))
    )


SEEDS = st.integers(0, 10_000)


@settings(max_examples=150, deadline=None)
@given(samplers(), st.integers(1, 400), SEEDS)
@example(SpanSampler(1, 1, 11, 11, "adjacent"), 22, 0)  # the anchor leaves less than a span on both sides
def test_spans_lie_within_their_document_and_have_the_lengths_asked_for(sampler, tokens, seed):
    for anchor, positive in drawn(sampler, tokens, seed):
        for begin, end in (anchor, positive):
            assert 0 <= begin < end <= tokens
            assert end - begin <= sampler.max_length
            if tokens >= 2 * sampler.anchors * sampler.max_length:  # no shorter than the document allows
                room = max(anchor[0], tokens - anchor[1]) if sampler.sampling == "adjacent" else tokens
                assert end - begin >= min(sampler.min_length, room if (begin, end) == positive else tokens)
        assert positive[0] <= anchor[1]
        assert positive[1] >= anchor[0]


@settings(max_examples=100, deadline=None)
@given(samplers(), st.integers(1, 400), SEEDS)
def test_anchors_are_apart(sampler, tokens, seed):
    longest = min(sampler.max_length, tokens // (2 * sampler.anchors))
    assume(longest > 0)
    anchors = [anchor for anchor, _ in drawn(sampler, tokens, seed)][:: sampler.positives]
    for (_, end), (begin, _) in itertools.pairwise(anchors):
        assert begin - end >= longest


def place(anchor, positive) -> str:
    if positive[1] == anchor[0] or positive[0] == anchor[1]:
        return "adjacent"
    if anchor[0] <= positive[0] and positive[1] <= anchor[1]:
        return "contained"
    assert positive[0] < anchor[1]
    assert positive[1] > anchor[0]
    return "overlapping"


@settings(max_examples=150, deadline=None)
@given(samplers(SAMPLINGS[1:]), st.integers(4, 400), SEEDS)
def test_positives_lie_where_the_name_says(sampler, tokens, seed):
    for anchor, positive in drawn(sampler, tokens, seed):
        if sampler.sampling == "overlapping" and positive[1] - positive[0] == 1:
            continue  # a single token cannot lie in part
        assert place(anchor, positive) == sampler.sampling


def test_any_finds_every_place():
    sampler = SpanSampler(1, 1, 2, 8)
    found = [place(anchor, positive) for seed in range(400) for anchor, positive in drawn(sampler, 40, seed)]
    assert {name: found.count(name) > 20 for name in SAMPLINGS[1:]} == dict.fromkeys(SAMPLINGS[1:], True)


def test_every_place_of_the_document_is_as_likely_for_one_anchor():
    sampler = SpanSampler(1, 1, 4, 4)
    starts = np.bincount([drawn(sampler, 12, seed)[0][0][0] for seed in range(2000)], minlength=9)
    assert len(starts) == 9
    assert abs(starts - 2000 / 9).max() < 75


def test_lengths_have_the_paper_s_means():
    sampler = SpanSampler(1, 1, 32, 512)
    pairs = [drawn(sampler, 3000, seed)[0] for seed in range(2000)]
    anchors, positives = (
        np.mean([end - begin for begin, end in spans]) for spans in zip(*pairs, strict=True)
    )
    assert anchors == pytest.approx(32 + 480 * 4 / 6, abs=8)
    assert positives == pytest.approx(32 + 480 * 2 / 6, abs=8)


def test_equal_generators_draw_equal_spans():
    sampler = SpanSampler(2, 2, 4, 20)
    assert drawn(sampler, 200, 5) == drawn(sampler, 200, 5) != drawn(sampler, 200, 6)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"anchors": 0}, "--anchors-per-document"),
        ({"positives": 0}, "--positives-per-anchor"),
        ({"min_length": 0}, "--min-span-length"),
        ({"min_length": 40, "max_length": 39}, "--max-span-length"),
    ],
)
def test_bad_options_are_named(options, named):
    with pytest.raises(UserError, match=named):
        SpanSampler(**options)


def test_the_line_of_a_token_is_found_without_copying_the_corpus():
    sizes = np.array([3, 1, 2, 1, 1, 4])
    offsets = token_offsets(sizes)
    assert [line_at(offsets, token) for token in range(6)] == [0, 0, 2, 5, 5, 5]
    many = token_offsets(np.full(200_000, 2))
    tracemalloc.start()
    try:
        assert line_at(many, 150_000) == 150_000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10_000
