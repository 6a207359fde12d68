"""The sentence splitter: one rule, one example; no text is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_tn.data.sentences import split_sentences


@pytest.mark.parametrize(
    "marked",
    [
        "It rained. | We stayed in! | Did you? | Yes.",
        "Dr. Weber met Mrs. Lund and Gen. Ito. | They spoke.",
        "J. S. Bach and J.R.R. Tolkien never met. | Of course not.",
        "It costs 3.5 dollars. | The rest is 0.2 %.",
        "See No. 5, Fig. 3 and pp. 10 ff. of the book. | It is old.",
        "He lives in the U.S. and works for the U.S. Army. | He left the U.S. | The rest stayed.",
        "Apples, pears etc. were sold. | They bought apples, pears etc. | Then they left.",
        "Acme Inc. Chairman Lee spoke. | He left at 5 p.m. | The doors closed.",
        "He fought in World War I. | Germany lost it.",
        "He paused... and went on. | Then silence... | Nobody spoke.",
        '"Is it?" he asked. | "It is." | She nodded.',
        "(It was late.) | We left [as planned.] | Nobody cared.",
        "e.g. this and i.e. that are short. | Cf. those.",
        "Roe v. Wade was decided on Jan. 22. | It rained.",
        "We use vitamin C. | The dose is low.",
        "Что это? | Это книга. | Хорошо!",
        "यह एक किताब है। | वह पढ़ता है।",
        "هل هذا كتاب؟ | نعم.",
    ],
)
def test_boundaries(marked):
    sentences = marked.split(" | ")
    assert split_sentences(" ".join(sentences)) == sentences


@pytest.mark.parametrize(
    "marked",
    [
        "今天下雨。|我们在家！|为什么？|因为冷。",
        "他说：“好吧。”|然后走了。",
        "（完。）|「はい。」|そうです。",
        "圆周率是3.14。|很好。",
    ],
)
def test_boundaries_without_blanks(marked):
    assert split_sentences(marked.replace("|", "")) == marked.split("|")


@given(
    st.text(st.sampled_from('aB1 .!?…。？”")(A.IU.S') | st.characters(exclude_categories=["Cs"]), max_size=60)
)
def test_nothing_is_lost(text):
    sentences = split_sentences(text)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence and sentence == sentence.strip() for sentence in sentences)


def test_nothing_in_nothing_out():
    assert split_sentences("") == []
    assert split_sentences(" \n ") == []
