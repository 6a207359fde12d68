"""The scores of SQuAD, against their definitions computed in another way."""

import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_tn.evaluation.squad_metrics import evaluate_1, evaluate_2, f1, normalize_answer, question_scores

TEXTS = st.lists(
    st.sampled_from(
        ["The", "a", "an", "the", "cat", "Cat", "cats", "dog", "...", "don't", "U.S.", "–", "\u00a0", "3"]
    ),
    max_size=6,
).map(" ".join)


def words_of(text):
    """Words after the rules of SQuAD, letter by letter."""
    kept = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return [word for word in kept.split() if word not in ("a", "an", "the")]


@given(prediction=TEXTS, gold=TEXTS)
def test_f1_from_matched_words(prediction, gold):
    ours, theirs = words_of(prediction), words_of(gold)
    left = list(theirs)
    common = 0
    for word in ours:
        if word in left:
            left.remove(word)
            common += 1
    expected = 2 * common / (len(ours) + len(theirs)) if common else 0.0
    assert f1(prediction, gold, version_2=False) == pytest.approx(expected, abs=1e-12)
    both_empty = not ours and not theirs
    assert f1(prediction, gold, version_2=True) == pytest.approx(1.0 if both_empty else expected, abs=1e-12)


def test_articles_are_removed_at_word_boundaries():
    # boundaries are those of the regular expression: a dash or an accent ends a word
    assert normalize_answer("The  Cat, a–b (another) an") == "cat –b another"
    assert normalize_answer("theatre") == "theatre"


def test_versions_differ_where_nothing_is_left_of_an_answer():
    assert question_scores("the", ["a"], version_2=False) == (1.0, 0.0)
    # the answer does not count then, and the question has the empty one
    assert question_scores("the", ["a"], version_2=True) == (1.0, 1.0)
    assert question_scores("cat", ["a"], version_2=True) == (0.0, 0.0)
    assert question_scores("cat", ["a", "the cat"], version_2=True) == (1.0, 1.0)
    assert question_scores("the", ["a", "the cat"], version_2=True) == (0.0, 0.0)
    assert question_scores("", [], version_2=True) == (1.0, 1.0)
    assert question_scores("", [], version_2=False) == (0.0, 0.0)


def test_version_1_counts_missing_predictions():
    golds = {"p": ("cat",), "q": ("a dog", "big dog"), "r": ("fish",)}
    scores = evaluate_1(golds, {"p": "the cat", "q": "big dog here", "x": "?"})
    assert scores == {"exact_match": pytest.approx(100 / 3), "f1": pytest.approx(100 * (1 + 0.8) / 3)}


def brute_force(golds, predictions, odds, place):
    """The best mean score over all thresholds, and the lowest one that reaches it."""
    means = {}
    for threshold in [*odds.values()]:
        scores = [
            question_scores("" if odds[q] > threshold else predictions[q], golds[q], version_2=True)[place]
            for q in golds
        ]
        means[threshold] = 100 * sum(scores) / len(scores)
    nothing = 100 * sum(not answers for answers in golds.values()) / len(golds)
    best = max(nothing, *means.values())
    reached = [threshold for threshold, mean in means.items() if mean == pytest.approx(best)]
    return best, 0.0 if nothing == pytest.approx(best) else min(reached)


@pytest.mark.parametrize("seed", range(4))
def test_version_2_against_every_threshold(seed):
    rng = random.Random(seed)
    golds, predictions, odds = {}, {}, {}
    for number in range(60):
        identity = f"q{number}"
        golds[identity] = () if rng.random() < 0.5 else ("cat dog", "dog")
        predictions[identity] = rng.choice(["cat dog", "dog", "fish", "the cat"])
        odds[identity] = rng.gauss(1.0 if not golds[identity] else 0.0, 2)
    threshold = rng.choice([*odds.values()])
    scores = evaluate_2(golds, predictions, odds, threshold)
    applied = {q: "" if odds[q] > threshold else text for q, text in predictions.items()}
    plain = evaluate_2(golds, applied)
    assert plain == {name: scores[name] for name in plain}
    assert "best_f1" not in plain
    for place, name in enumerate(("exact", "f1")):
        best, best_threshold = brute_force(golds, predictions, odds, place)
        assert scores[f"best_{name}"] == pytest.approx(best)
        assert scores[f"best_{name}_thresh"] == pytest.approx(best_threshold)
    has, no = ([q for q in golds if bool(golds[q]) == kind] for kind in (True, False))
    assert (scores["HasAns_total"], scores["NoAns_total"], scores["total"]) == (len(has), len(no), 60)
    assert scores["f1"] * 60 == pytest.approx(scores["HasAns_f1"] * len(has) + scores["NoAns_f1"] * len(no))
    right = [question_scores(applied[q], golds[q], version_2=True)[0] for q in no]
    assert scores["NoAns_exact"] == pytest.approx(100 * sum(right) / len(no))


def test_version_2_leaves_missing_predictions_out():
    scores = evaluate_2({"p": ("cat",), "q": ()}, {"p": "cat"})
    assert scores == {
        "exact": 100,
        "f1": 100,
        "total": 1,
        "HasAns_exact": 100,
        "HasAns_f1": 100,
        "HasAns_total": 1,
    }


def test_an_answer_for_nothing_costs():
    """Two unanswerable questions, one of them with a prediction: letting it in loses what "no answer" had."""
    golds, odds = {"p": (), "q": (), "r": ("cat",)}, {"p": -1.0, "q": 0.0, "r": 1.0}
    scores = evaluate_2(golds, {"p": "x", "q": "", "r": "cat"}, odds, threshold=-2.0)
    assert scores["exact"] == pytest.approx(100 * 2 / 3)
    assert (scores["best_exact"], scores["best_exact_thresh"]) == (pytest.approx(100 * 2 / 3), 0.0)
