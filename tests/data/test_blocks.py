import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_tn.data import blocks
from fairseq_tn.data.blocks import BREAK_MODES, make_blocks
from fairseq_tn.errors import UserError

# lengths of lines without </s>: blank ones, usual ones, long ones
lines = st.lists(st.integers(0, 9) | st.integers(15, 70), min_size=1, max_size=40).filter(any)


def cover(sizes, made):
    """The (line, position) of every token, block by block."""
    flat = [(line, position) for line, size in enumerate(sizes) for position in range(size - 1)]
    starts = {token: number for number, token in enumerate(flat)}
    result = []
    for index in range(len(made)):
        ((line, skip, length),) = made.spans(index)
        start = starts[line, skip]
        result.append(flat[start : start + length])
    return flat, result


@settings(deadline=None)
@given(lines, st.integers(3, 40), st.sampled_from(BREAK_MODES), st.sampled_from([1 << 18, 3]))
def test_no_token_is_lost_or_doubled(lengths, tokens_per_sample, mode, chunk):
    sizes = np.array(lengths, dtype=np.int32) + 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "_CHUNK", chunk)
        made = make_blocks(sizes, tokens_per_sample, mode)
    flat, covered = cover(sizes.tolist(), made)
    assert [token for block in covered for token in block] == flat
    assert [len(block) + 2 for block in covered] == made.lengths.tolist()
    assert made.lengths.min() > 2
    assert made.lengths.max() <= tokens_per_sample


def units(lengths, limit):
    """Sentences, the long ones in pieces, with the number of the document."""
    result, document = [], 0
    for length in lengths:
        if length == 0:
            document += 1
        while length > 0:
            result.append((min(length, limit), document))
            length -= limit
    return result


def greedy(lengths, limit, within_document):
    """Plain definition of 'complete' and 'complete_doc'."""
    result, last = [], None
    for length, document in units(lengths, limit):
        if result and result[-1] + length <= limit and (document == last or not within_document):
            result[-1] += length
        else:
            result.append(length)
        last = document
    return result


@settings(deadline=None)
@given(lines, st.integers(3, 40))
def test_modes_follow_their_definitions(lengths, tokens_per_sample):
    sizes = np.array(lengths, dtype=np.int32) + 1
    limit = tokens_per_sample - 2

    def found(mode):
        return make_blocks(sizes, tokens_per_sample, mode).length.tolist()

    total = sum(lengths)
    assert found("none") == [limit] * (total // limit) + [total % limit] * (total % limit > 0)
    assert found("eos") == [length for length, _ in units(lengths, limit)]
    assert found("complete") == greedy(lengths, limit, within_document=False)
    assert found("complete_doc") == greedy(lengths, limit, within_document=True)


def test_empty_corpus_and_bad_options():
    with pytest.raises(UserError, match="data/train has no text"):
        make_blocks(np.array([1, 1]), 32, name="data/train")
    with pytest.raises(UserError, match="--tokens-per-sample is 2"):
        make_blocks(np.array([3]), 2)
    with pytest.raises(UserError, match="--sample-break-mode is 'lines'"):
        make_blocks(np.array([3]), 32, "lines")
