import dataclasses
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_tn.data import pairs
from fairseq_tn.data.pairs import draw_pairs, truncated_lengths
from fairseq_tn.errors import UserError

# documents of sentence lengths; 0 among them is a blank line too many
corpora = st.lists(
    st.lists(st.integers(0, 12) | st.integers(20, 60), min_size=0, max_size=12), min_size=2, max_size=8
).filter(lambda documents: sum(any(document) for document in documents) >= 2)


def sizes_of(documents, blank_at_end=False):
    sizes = []
    for document in documents:
        sizes += [length + 1 for length in document] + [1]
    return np.array(sizes if blank_at_end else sizes[:-1], dtype=np.int32)


def documents_of(sizes):
    """Plain definition: first and last-plus-one line of the runs of lines that are not blank."""
    bounds, begin = [], None
    for line, size in enumerate([*sizes.tolist(), 1]):
        if size > 1 and begin is None:
            begin = line
        elif size == 1 and begin is not None:
            bounds.append((begin, line))
            begin = None
    return bounds


def slow_truncation(first, second, limit):
    """BERT's truncate_seq_pair, counting only."""
    while first + second > limit:
        if first > second:
            first -= 1
        else:
            second -= 1
    return first, second


def slow_end(sizes, begin, end, target):
    """Take whole sentences from ``begin`` until ``target`` tokens or ``end``."""
    tokens, line = 0, begin
    while line < end:
        tokens += int(sizes[line]) - 1
        line += 1
        if tokens >= target:
            break
    return line


def tokens(sizes, begin, end):
    return int((sizes[begin:end] - 1).sum())


@given(st.integers(1, 80), st.integers(1, 80), st.integers(2, 60))
def test_truncation_equals_the_token_by_token_loop(first, second, limit):
    fast = truncated_lengths(np.array([first]), np.array([second]), limit)
    assert (int(fast[0][0]), int(fast[1][0])) == slow_truncation(first, second, limit)


@settings(deadline=None)
@given(corpora, st.integers(5, 60), st.integers(0, 1000), st.booleans(), st.sampled_from([1 << 18, 7]))
def test_pairs_follow_their_definition(documents, tokens_per_sample, seed, blank_at_end, chunk):
    sizes = sizes_of(documents, blank_at_end)
    limit = tokens_per_sample - 3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "_CHUNK", chunk)
        drawn = draw_pairs(sizes, tokens_per_sample, seed, epoch=1, short_seq_prob=0)
    bounds = documents_of(sizes)
    pair = 0
    for begin, end in bounds:
        line = begin
        while line < end:
            # the chunk that BERT would take here
            chunk_end = slow_end(sizes, line, end, limit)
            (first_line, first_skip, first_length), (second_line, second_skip, second_length) = drawn.spans(
                pair
            )
            assert first_line == line
            following = int(drawn.first_line[pair + 1]) if pair + 1 < len(drawn) else end
            following = min(following, end)
            if drawn.label(pair):
                # A alone is used up; B is of another document, filled up to what A leaves
                first_end = following
                assert line < first_end < chunk_end or (first_end == chunk_end == line + 1)
                other = [b for b in bounds if b[0] <= second_line < b[1]]
                assert len(other) == 1
                assert other[0] != (begin, end)
                second_end = slow_end(sizes, second_line, other[0][1], limit - tokens(sizes, line, first_end))
            else:
                first_end, second_end = second_line, chunk_end
                assert following == chunk_end
                assert line < first_end < chunk_end
            whole = tokens(sizes, line, first_end), tokens(sizes, second_line, second_end)
            assert (first_length, second_length) == slow_truncation(*whole, limit)
            assert 0 <= first_skip <= whole[0] - first_length
            assert 0 <= second_skip <= whole[1] - second_length
            assert drawn.lengths[pair] == first_length + second_length + 3 <= tokens_per_sample
            line = following
            pair += 1
    assert pair == len(drawn)


@settings(deadline=None)
@given(corpora, st.integers(0, 1000))
def test_short_targets_never_lengthen_a_chunk(documents, seed):
    sizes = sizes_of(documents)
    drawn = draw_pairs(sizes, 40, seed, epoch=1, short_seq_prob=1)
    ends = dict(documents_of(sizes))
    for pair in np.flatnonzero(~drawn.unrelated):
        line = int(drawn.first_line[pair])
        end = next(e for b, e in ends.items() if b <= line < e)
        following = int(drawn.first_line[pair + 1]) if pair + 1 < len(drawn) else end
        assert min(following, end) <= slow_end(sizes, line, end, 37)
    covered = sorted(set(drawn.first_line.tolist()))
    assert len(covered) == len(drawn)


@pytest.fixture(scope="module")
def large():
    """600 documents of 60 sentences of 5 tokens: the shares can be read off without edge effects."""
    return sizes_of([[5] * 60] * 600)


def test_half_of_the_second_segments_are_unrelated(large):
    drawn = draw_pairs(large, 53, seed=1, epoch=1, short_seq_prob=0)  # chunks of 10 sentences
    document = drawn.first_line // 61
    left = document * 61 + 60 - drawn.first_line
    several = left > 1
    assert drawn.unrelated[~several].all()
    assert abs(drawn.unrelated[several].mean() - 0.5) < 0.02
    # the split is uniform over 1 to 9 sentences
    full = (left >= 10) & ~drawn.unrelated
    split = ((drawn.second_line - drawn.first_line)[full]).astype(int)
    shares = np.bincount(split, minlength=10)[1:] / full.sum()
    assert abs(shares - 1 / 9).max() < 0.03
    # any other document, any sentence of it
    moved = drawn.unrelated
    assert (drawn.second_line[moved] // 61 != document[moved]).all()
    sentence = drawn.second_line[moved] % 61
    assert abs(sentence.mean() - 29.5) < 1.5
    assert abs((drawn.second_line[moved] // 61).mean() - 299.5) < 15


def test_one_in_ten_targets_is_short_and_uniform(large):
    drawn = draw_pairs(large, 53, seed=1, epoch=1, short_seq_prob=0.1)
    left = (drawn.first_line // 61) * 61 + 60 - drawn.first_line
    related = ~drawn.unrelated & (left >= 10)
    own = (drawn.first_length + drawn.second_length)[related]
    # a related pair has two sentences at least, so targets of one sentence (2 to 5 of 49) never show here, and
    # targets of ten sentences (46 to 50) are not shorter than the limit
    visible = 0.1 * 40 / 49
    expected = visible / (visible + 0.9 + 0.1 * 5 / 49)
    assert abs((own < 50).mean() - expected) < 0.015
    assert set(own.tolist()) == {10, 15, 20, 25, 30, 35, 40, 45, 50}


def test_what_is_cut_is_cut_at_both_ends():
    drawn = draw_pairs(sizes_of([[30] * 40] * 50), 43, seed=3, epoch=1, short_seq_prob=0)
    # two sentences of 30, or 30 and 30 from elsewhere: 20 stay of each
    assert set(drawn.first_length.tolist()) == {20}
    assert set(drawn.first_skip.tolist()) <= set(range(11))
    assert abs(drawn.first_skip.mean() - 5) < 0.2
    assert abs(drawn.first_skip.astype(float).std() - 10**0.5 / 2) < 0.15


def same(one, other):
    return all(
        np.array_equal(getattr(one, field.name), getattr(other, field.name))
        for field in dataclasses.fields(one)
    )


def test_a_draw_is_a_function_of_seed_and_epoch(large):
    drawn = draw_pairs(large, 53, seed=5, epoch=2)
    assert same(drawn, draw_pairs(large, 53, seed=5, epoch=2))
    assert not same(drawn, draw_pairs(large, 53, seed=5, epoch=3))
    assert not same(drawn, draw_pairs(large, 53, seed=6, epoch=2))


def test_a_very_long_line_and_a_corpus_of_blank_lines_around():
    sizes = np.array([1, 1, 100_001, 1, 1, 1, 4, 1], dtype=np.int32)
    drawn = draw_pairs(sizes, 16, seed=1, epoch=1)
    assert len(drawn) == 2
    assert drawn.unrelated.all()
    assert drawn.lengths.tolist() == [16, 16]
    (line, skip, length), _ = drawn.spans(0)
    assert (line, length) == (2, 10)
    assert abs(skip - 50_000) < 1000


@pytest.mark.parametrize("documents", [[[5, 5, 5]], [[5], [], []], [[0], [0]], []])
def test_fewer_than_two_documents(documents):
    sizes = np.array(
        [size for document in documents for size in [*(n + 1 for n in document), 1]], dtype=np.int32
    )
    with pytest.raises(
        UserError, match=r"^NSP needs at least two documents, data/train has (one|none); .*--no-nsp$"
    ):
        draw_pairs(sizes, 32, seed=1, epoch=1, name="data/train")


def test_no_room_for_two_segments():
    with pytest.raises(UserError, match="--tokens-per-sample is 4"):
        draw_pairs(sizes_of([[5], [5]]), 4, seed=1, epoch=1)


def test_memory_of_a_million_sentences():
    rng = np.random.default_rng(0)
    sizes = rng.integers(2, 60, size=1_000_000).astype(np.int32)
    sizes[rng.random(len(sizes)) < 0.05] = 1
    tracemalloc.start()
    drawn = draw_pairs(sizes, 256, seed=1, epoch=1)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 5 * len(sizes)
    assert peak < 60 * len(sizes)
    assert len(drawn) > len(sizes) / 20
