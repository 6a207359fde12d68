import dataclasses

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairseq_tn.evaluation.robustness.squad_pairs import Paragraph, SquadFile
from fairseq_tn.evaluation.robustness.synonym_swaps import DEMANDS, SynonymSwapper
from fairseq_tn.evaluation.robustness.text_edits import EditedText


@pytest.fixture(scope="module")
def swapper(relations):
    return SynonymSwapper(relations)


def swapped(swapper, parsed, text, asked="", answers=(), demands=DEMANDS[0]) -> str:
    """The text with every possible swap."""
    spans = [(text.index(answer), text.index(answer) + len(answer)) for answer in answers]
    swaps = swapper.swaps(parsed(text), parsed(asked or "?"), spans, demands)
    return EditedText(text, [edit for edits in swaps for edit in edits]).text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The cars were sold.", "The automobiles were sold."),
        ("She provides the huge books.", "She supplies the vast books."),
        ("The physicians reacted quickly.", "The doctors responded rapidly."),
        ("Usually the car is here.", "Normally the automobile is here."),
        ("It was a car.", "It was an automobile."),
        ("An automobile was sold.", "A car was sold."),
    ],
)
def test_swaps_keep_form_capitals_and_articles(swapper, parsed, text, expected):
    assert swapped(swapper, parsed, text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "The Car Company of Paris.",  # names
        "The car-like thing was it.",  # parts of words
        "A sports car was it.",  # compounds
        "He ran.",
        "",
    ],
)
def test_some_words_stay(swapper, parsed, text):
    assert swapped(swapper, parsed, text) == text


def test_answers_and_their_words_and_names_in_questions_stay(swapper, parsed):
    text = "The car was huge. The cars and the physician met a car."
    assert swapped(swapper, parsed, text, answers=["The car was"]) == (
        "The car was vast. The automobiles and the doctor met a car."
    )
    # the article of an answer cannot change
    assert swapped(swapper, parsed, "It was a car.", answers=["was a"]) == "It was a car."
    # Huge is a name in the question
    assert swapped(swapper, parsed, "The huge thing.", asked="Where does Mr Huge live?") == "The huge thing."


def file_of(context: str, identity: str = "q") -> SquadFile:
    answer = {"text": "1950", "answer_start": context.index("1950")}
    return SquadFile(
        {}, (Paragraph(0, context, ({"id": identity, "question": "When?", "answers": [answer]},)),), 0
    )


CONTEXT = (
    "In 1950, the physicians of the huge town usually bought cars. The students quickly sold the automobile to a "
    "lawyer, and the residents of the country normally provided the main idea of the revolt."
)


def test_share_maximum_and_seed(swapper):
    def run(**options):
        pairs, counts = dataclasses.replace(swapper, **options).transform(file_of(CONTEXT))
        assert len(pairs) == 1
        return pairs[0].transformed["context"], counts.swapped

    assert run(share=0.001)[1] == 1
    most = run(share=1.0)[1]
    assert most > 6
    assert run(share=1.0, most=3)[1] == 3
    assert run(share=0.1)[1] == 3
    assert run(share=0.1) == run(share=0.1)
    assert len({run(share=0.1, seed=seed)[0] for seed in range(8)}) > 3


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.permutations(CONTEXT.split(" ")), share=st.floats(0.01, 1), seed=st.integers(0, 99))
def test_answers_of_any_word_salad_stay_in_place(swapper, order, share, seed):
    context = " ".join(order)
    pairs, _ = dataclasses.replace(swapper, share=share, seed=seed).transform(file_of(context))
    for pair in pairs:
        changed = pair.transformed["context"]
        begin = pair.transformed["qas"][0]["answers"][0]["answer_start"]
        assert changed[begin : begin + 4] == "1950"
        assert changed != context
        assert pair.original["context"] == context
