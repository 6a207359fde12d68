import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_tn.evaluation.robustness import names
from fairseq_tn.evaluation.robustness.language import article_for, inflect_like, is_english
from fairseq_tn.evaluation.robustness.numbers_and_dates import other_number


@pytest.mark.parametrize(
    ("lemma", "tag", "original", "expected"),
    [
        ("automobile", "NNS", "cars", "automobiles"),
        ("city", "NNS", "Towns", "Cities"),
        ("phenomenon", "NNS", "things", "phenomena"),
        ("take", "VBD", "seized", "took"),
        ("take", "VBN", "seized", "taken"),
        ("stop", "VBG", "halting", "stopping"),
        ("employ", "VBZ", "uses", "employs"),
        ("big", "JJR", "larger", "bigger"),
        ("happy", "JJS", "gladdest", "happiest"),
        ("important", "JJR", "bigger", "more important"),
        ("famous", "JJS", "Greatest", "Most famous"),
        ("quickly", "RBR", "faster", "more quickly"),
        ("use", "NN", "USAGE", "USE"),
        ("main", "JJ", "Principal", "Main"),
    ],
)
def test_words_take_the_form_and_the_capitals_of_the_original(lemma, tag, original, expected):
    assert inflect_like(lemma, tag, original) == expected


@pytest.mark.parametrize(
    ("lemma", "tag"),
    [("reserves", "NNS"), ("bacteria", "NNS"), ("authorities", "NN"), ("", "VBZ")],
)
def test_what_has_no_such_form(lemma, tag):
    assert inflect_like(lemma, tag, "word") is None


@pytest.mark.parametrize(
    ("word", "article"),
    [
        ("hour", "an"),
        ("university", "a"),
        ("one", "a"),
        ("island", "an"),
        ("honest", "an"),
        ("European", "a"),
        ("-", "a"),
    ],
)
def test_articles_follow_the_sound(word, article):
    assert article_for(word) == article


@pytest.mark.parametrize(
    ("text", "english"),
    [
        ("The city of Warsaw lies on the river and has many bridges.", True),
        ("Members included John Adams, Helen Keller, and the poet T. S. Eliot of Boston.", True),
        ("Die Stadt Warschau liegt an der Weichsel und hat viele Brücken in allen Teilen.", False),
        ("De stad ligt aan de rivier en was in het verleden over het water te bereiken.", False),
        ("华沙是波兰的首都，位于维斯瓦河畔。", False),
        ("Варшава — столица Польши.", False),
        ("1939 – 1945", False),
    ],
)
def test_languages(parsed, text, english):
    assert is_english(parsed(text)) is english


NUMBERS = st.one_of(
    st.integers(0, 10**7).map(str),
    st.integers(1000, 10**9).map(lambda number: f"{number:,}"),
    st.integers(1200, 2020).map(lambda year: f"in {year}"),
    st.tuples(st.integers(1, 28), st.sampled_from(names.MONTHS), st.integers(1500, 1990)).map(
        lambda date: f"{date[0]} {date[1]} {date[2]}"
    ),
    st.floats(0.1, 99, allow_nan=False).map(lambda number: f"{number:.2f}%"),
    st.sampled_from(["Twelve", "the third", "on Monday", "the 1970s", "the 21st", "five million"]),
)


@given(NUMBERS, st.integers(0, 999))
def test_other_numbers_have_the_form_of_the_number(text, seed):
    other = other_number(text, random.Random(seed))
    assert other is not None
    assert other != text
    assert [c for c in other if not c.isalnum()] == [c for c in text if not c.isalnum()]
    assert other == other_number(text, random.Random(seed))
    if text.startswith("in "):
        assert abs(int(other[3:]) - int(text[3:])) <= 60


def test_ordinal_endings_fit_their_numbers():
    found = {other_number("the 21st", random.Random(seed)) for seed in range(60)}
    assert {"the 22nd", "the 23rd", "the 12th", "the 24th"} <= found
    assert all(one.removeprefix("the ")[:-2].isdigit() for one in found)


@pytest.mark.parametrize("text", ["", "a river", "may", "the city of London"])
def test_texts_without_numbers_have_no_other(text):
    assert other_number(text, random.Random(1)) is None
