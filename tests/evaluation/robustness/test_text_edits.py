import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_tn.evaluation.robustness.text_edits import Edit, EditedText, merged, overlaps


@st.composite
def edited(draw):
    """A text and edits that do not overlap."""
    text = draw(st.text("ab. ", max_size=30))
    edits, position = [], 0
    for _ in range(draw(st.integers(0, 5))):
        begin = draw(st.integers(position, len(text)))
        end = draw(st.integers(begin, len(text)))
        edits.append(Edit(begin, end, draw(st.text("xyz", max_size=4))))
        position = end + 1
        if position > len(text):
            break
    return text, edits


@given(edited(), st.randoms())
def test_characters_outside_edits_are_where_they_are_said_to_be(case, rng):
    text, edits = case
    shuffled = list(edits)
    rng.shuffle(shuffled)
    result = EditedText(text, shuffled)
    replaced = {place for edit in edits for place in range(edit.begin, edit.end)}
    for place in set(range(len(text))) - replaced:
        assert result.text[result.moved(place)] == text[place]
    expected = len(text) + sum(len(edit.text) - (edit.end - edit.begin) for edit in edits)
    assert len(result.text) == expected


@given(edited())
def test_edits_from_the_last_to_the_first_give_the_same_text(case):
    text, edits = case
    by_hand = text
    for edit in sorted(edits, reverse=True):
        by_hand = by_hand[: edit.begin] + edit.text + by_hand[edit.end :]
    assert EditedText(text, edits).text == by_hand


@pytest.mark.parametrize("edits", [[Edit(0, 2, "x"), Edit(1, 3, "y")], [Edit(2, 9, "x")], [Edit(3, 2, "x")]])
def test_edits_that_overlap_or_leave_the_text_are_refused(edits):
    with pytest.raises(ValueError, match="overlaps"):
        EditedText("abcd", edits)


SPANS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 6)).map(lambda one: (one[0], sum(one))), max_size=6
)


@given(SPANS, st.integers(0, 25), st.integers(1, 6))
def test_overlaps_character_by_character(spans, begin, size):
    taken = {place for first, last in spans for place in range(first, last)}
    assert overlaps(merged(spans), begin, begin + size) == bool(taken & set(range(begin, begin + size)))
