"""Statements of questions, one sentence a rule."""

import pytest

from fairseq_tn.evaluation.robustness.statements import asked_phrase, render, statements, wants_plural


def sentences(question, answer="ANSWER", preposition="in", changes=None) -> dict[str, str]:
    phrase = asked_phrase(question)
    if phrase is None:
        return {}
    return {
        one.pattern: render(question, one, answer, changes or {}, preposition)
        for one in statements(question, phrase)
    }


@pytest.mark.parametrize(
    ("question", "pattern", "expected"),
    [
        ("Who founded the city?", "subject", "ANSWER founded the city."),
        ("Who founded the city?", "cleft", "It was ANSWER that founded the city."),
        ("Which company developed the engine?", "subject", "ANSWER developed the engine."),
        ("How many people live in Warsaw?", "subject", "ANSWER people live in Warsaw."),
        ("How many of the students speak Polish?", "subject", "ANSWER of the students speak Polish."),
        ("What did the company build?", "plain", "The company built ANSWER."),
        ("What does the king want in the north?", "plain", "The king wants ANSWER in the north."),
        ("What is the capital of Peru?", "copula", "The capital of Peru is ANSWER."),
        ("What is the capital of Peru?", "answer first", "ANSWER is the capital of Peru."),
        ("What was the river known for?", "plain", "The river was known for ANSWER."),
        (
            "What language did the settlers speak?",
            "relative",
            "The language that the settlers spoke was ANSWER.",
        ),
        ("When was the bridge built?", "plain", "The bridge was built in ANSWER."),
        ("When was the bridge built?", "front", "In ANSWER, the bridge was built."),
        ("When was the bridge built?", "cleft", "It was in ANSWER that the bridge was built."),
        ("When did the war end?", "plain", "The war ended in ANSWER."),
        ("Where didn't the farmers live?", "plain", "The farmers didn't live in ANSWER."),
        ("In what year did Ann visit Rome?", "plain", "Ann visited Rome in ANSWER."),
        ("In what year did Ann visit Rome?", "front", "In ANSWER, Ann visited Rome."),
        ("The empire was destroyed by whom?", "in place", "The empire was destroyed by ANSWER."),
        ("Along with Ann, who wrote the book?", "subject", "Along with Ann, ANSWER wrote the book."),
        ("How long did the war last?", "plain", "The war lasted for ANSWER."),
        (" What is the capital of Peru ?", "copula", "The capital of Peru is ANSWER."),
    ],
)
def test_rules(parsed, question, pattern, expected):
    assert sentences(parsed(question)).get(pattern) == expected


@pytest.mark.parametrize(
    "question",
    [
        "",
        "?",
        "Name one river.",
        "Did the king leave?",
        "What did the king do?",
        "Which is older, Rome or Athens?",
    ],
)
def test_questions_without_a_rule_have_no_statement(parsed, question):
    assert sentences(parsed(question)) == {}


def test_changed_and_dropped_words_and_articles(parsed):
    question = parsed("What was a large town of the Old Kingdom called?")
    places = {token.text: token.i for token in question}
    changes = {places["large"]: "important", places["Old"]: "", places["Kingdom"]: "Egypt"}
    found = sentences(question, "an answer", changes=changes)
    assert found["plain"] == "An important town of the Egypt was called an answer."


def test_answers_agree_with_the_verb_or_the_noun(parsed):
    for text, plural in [
        ("What are the main rivers?", True),
        ("What is the main river?", False),
        ("Which rivers did he cross?", True),
        ("Which river did he cross?", False),
        ("What did he cross?", None),
    ]:
        question = parsed(text)
        phrase = asked_phrase(question)
        assert wants_plural(question, phrase) is plural, text
