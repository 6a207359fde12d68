import random

import pytest

from fairseq_tn.evaluation.robustness.distractors import insertion_places
from fairseq_tn.evaluation.robustness.fake_answers import FakeAnswers, KnownAnswer, known_answer
from fairseq_tn.evaluation.robustness.near_words import NearWords, co_hyponyms
from fairseq_tn.evaluation.robustness.question_changes import QuestionChanger
from fairseq_tn.evaluation.robustness.statements import asked_phrase


@pytest.fixture(scope="module")
def changer(relations):
    return QuestionChanger(relations)


def changed(changer, question, seed=1) -> str:
    """A question with its changes, its words parted by blanks."""
    changes = changer.change(question, asked_phrase(question), random.Random(seed))
    return " ".join(changes.get(token.i, token.text) for token in question)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What is the largest river?", "What is the smallest river ?"),
        ("What is the last name?", "What is the first name ?"),
        ("What is the most important river?", "What is the least important river ?"),
        ("What is easy?", "What is difficult ?"),
    ],
)
def test_opposites(parsed, changer, question, expected):
    assert changed(changer, parsed(question)) == expected


def test_names_and_numbers(parsed, changer):
    question = parsed("What did John Smith sell to France in 1950?")
    words = changed(changer, question).split()
    assert words[:2] == ["What", "did"]
    assert "John" not in words
    assert "Smith" not in words
    assert "France" not in words
    assert "1950" not in words
    assert 1890 <= int(words[-2]) <= 2000
    assert changed(changer, question) == changed(changer, question)
    assert len({changed(changer, question, seed) for seed in range(6)}) > 2


def test_the_asked_phrase_stays_and_near_nouns_come_last(parsed, changer, relations):
    question = parsed("Which large dog ate the apple?")
    words = changed(changer, question).split()
    assert words[:3] == ["Which", "large", "dog"]
    near = {word.lower() for word in co_hyponyms(relations, "apple", "noun", name=False)}
    assert words[5] != "apple"
    assert words[5] in near


def test_near_words_of_vectors(relations):
    import numpy as np

    vectors = NearWords(
        relations,
        ["dog", "cat", "run", "wolf", "paris", "vienna"],
        np.array([[1, 0.0], [1, 0.1], [1, 0.05], [1, 0.4], [-1, 0], [-1, 0.2]], np.float32),
    )
    assert vectors.near("dog", "noun", name=False) == ["run", "cat", "wolf"]
    assert vectors.near("dog", "verb", name=False) == ["run", "cat", "wolf"]
    assert vectors.near("paris", "noun", name=True) == ["vienna"]
    assert vectors.near("unknown", "noun", name=False) == []


def test_co_hyponyms_share_a_more_general_concept_and_no_meaning(relations):
    places = set(co_hyponyms(relations, "France", "noun", name=True))
    assert {"Spain", "Italy"} <= places
    assert "France" not in places


def fake(parsed, question, answers, context="Nothing.", known=(), seed=1):
    parsed_question = parsed(question)
    right = [KnownAnswer(text, form, label, "", 0) for text, form, label in answers]
    pool = FakeAnswers([*known, *right])
    return pool.make(parsed_question, asked_phrase(parsed_question), right, context, random.Random(seed))


@pytest.mark.parametrize(
    ("question", "answer", "kind"),
    [
        ("How many dogs live there?", ("12 dogs", "other", "CARDINAL"), "number"),
        ("When did it happen?", ("1950", "other", "DATE"), "date"),
        ("Who did it?", ("Ann Miller", "name", "PERSON"), "person"),
        ("Where is it?", ("Berlin", "name", "GPE"), "place"),
        ("Which country is large?", ("France", "name", "GPE"), "place"),
        ("Who did it?", ("IBM", "name", "ORG"), "organisation"),
    ],
)
def test_fake_answers_are_of_the_kind_of_the_right_one(parsed, question, answer, kind):
    made = {fake(parsed, question, [answer], seed=seed) for seed in range(5)}
    assert {one.kind for one in made} == {kind}
    assert answer[0] not in {one.text for one in made}
    assert len(made) > 1


def test_fake_answers_never_stand_in_the_context_or_share_words(parsed):
    known = [
        KnownAnswer("an old engine", "singular", "", "machine", 7),
        KnownAnswer("a new mill", "singular", "", "machine", 8),
        KnownAnswer("a river", "singular", "", "", 9),
    ]
    right = [("an old mill", "singular", "")]
    for seed in range(20):
        made = fake(parsed, "Which machine did he build?", right, "It had a river.", known, seed)
        assert made is None
    made = fake(parsed, "Which machine did he build?", [("a pump", "singular", "")], "x", known)
    # answers to questions for the same noun come first
    assert made.text in ("an old engine", "a new mill")


def test_answers_get_their_article(parsed):
    context = parsed("He built a large engine near the river.")
    answer = known_answer(context, 11, "large engine", "", 0)
    assert (answer.text, answer.form) == ("a large engine", "singular")
    assert known_answer(context, 0, "He built a large", "", 0).form == "other"


def test_sentences_stand_between_sentences_and_never_within_answers(parsed):
    context = parsed("One is here. Two is there. Three follows at once.")
    begins = [0, 13, 27, len(context.text)]
    assert insertion_places(context, []) == begins
    assert insertion_places(context, [(4, 20)]) == [0, 27, len(context.text)]
    assert insertion_places(context, [(13, 26)]) == begins
    assert insertion_places(context, [(0, len(context.text))]) == [0, len(context.text)]
