"""Exact match and F1 of SQuAD, as the official scripts of versions 1.1 and 2.0 define them.

This module imports nothing of the package, so that a task can use it during training.
"""

import re
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b", re.UNICODE)
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Lower case, without ASCII punctuation and English articles, one blank between words."""
    text = text.lower().translate(_WITHOUT_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def exact_match(prediction: str, gold: str) -> float:
    """1 if both are the same after :func:`normalize_answer`, else 0."""
    return float(normalize_answer(prediction) == normalize_answer(gold))


def f1(prediction: str, gold: str, version_2: bool) -> float:
    """Harmonic mean of precision and recall of the words, as bags, after :func:`normalize_answer`.

    Where either has no word, version 1.1 gives 0, version 2.0 gives 1 if neither has one.
    """
    predicted_words, gold_words = normalize_answer(prediction).split(), normalize_answer(gold).split()
    if version_2 and not (predicted_words and gold_words):
        return float(predicted_words == gold_words)
    common = sum((Counter(predicted_words) & Counter(gold_words)).values())
    if not common:
        return 0.0
    precision, recall = common / len(predicted_words), common / len(gold_words)
    return 2 * precision * recall / (precision + recall)


def question_scores(prediction: str, golds: Sequence[str], version_2: bool) -> tuple[float, float]:
    """Exact match and F1 of one question: each the best over the right answers.

    In version 2.0, right answers that are empty after :func:`normalize_answer` do not count, and a question without
    any has the empty answer.
    """
    if version_2:
        golds = [gold for gold in golds if normalize_answer(gold)] or [""]
    return (
        max((exact_match(prediction, gold) for gold in golds), default=0.0),
        max((f1(prediction, gold, version_2) for gold in golds), default=0.0),
    )


def scores_of_questions(
    golds: Mapping[str, Sequence[str]],
    predictions: Mapping[str, str],
    version_2: bool,
    null_odds: Mapping[str, float] | None = None,
    threshold: float = 1.0,
) -> dict[str, tuple[float, float]]:
    """Exact match and F1 of each question that counts, by its id; the arguments are those of :func:`evaluate_2`."""
    if not version_2:
        return {
            identity: question_scores(predictions[identity], answers, version_2=False)
            if identity in predictions
            else (0.0, 0.0)
            for identity, answers in golds.items()
        }
    scores = {
        identity: question_scores(predictions[identity], answers, version_2=True)
        for identity, answers in golds.items()
        if identity in predictions
    }
    if null_odds is None:
        return scores
    return {
        identity: (float(not golds[identity]),) * 2 if null_odds[identity] > threshold else pair
        for identity, pair in scores.items()
    }


def evaluate_1(golds: Mapping[str, Sequence[str]], predictions: Mapping[str, str]) -> dict[str, float]:
    """SQuAD 1.1: percentages over all questions; one without a prediction scores 0.

    Args:
        golds: right answers by the question's id
        predictions: answers by the question's id; others are ignored

    Returns:
        ``exact_match``, ``f1``
    """
    scores = scores_of_questions(golds, predictions, version_2=False).values()
    total = max(len(golds), 1)
    return {
        "exact_match": 100.0 * sum(exact for exact, _ in scores) / total,
        "f1": 100.0 * sum(overlap for _, overlap in scores) / total,
    }


def evaluate_2(
    golds: Mapping[str, Sequence[str]],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float] | None = None,
    threshold: float = 1.0,
) -> dict[str, float]:
    """SQuAD 2.0: percentages over the questions that have a prediction.

    Args:
        golds: right answers by the question's id; none if it is unanswerable
        predictions: answers by the question's id, "" for none
        null_odds: how much a model holds each question for unanswerable, on any scale; where it is above
            ``threshold``, the prediction counts as "no answer". Default: predictions count as they are.
        threshold: see there; 1 is the official script's default

    Returns:
        ``exact f1 total``; the same with ``HasAns_`` and ``NoAns_`` where there are such questions; with
        ``null_odds``, ``best_exact best_exact_thresh best_f1 best_f1_thresh``: the highest scores that a threshold
        reaches and the lowest threshold that does, among the ``null_odds``, and 0, which stands for "no answer"
        everywhere.
    """
    answerable = {identity: bool(answers) for identity, answers in golds.items()}
    raw = scores_of_questions(golds, predictions, version_2=True)
    scores = scores_of_questions(golds, predictions, True, null_odds, threshold)
    result = _means(scores.values(), "")
    for name, kind in (("HasAns_", True), ("NoAns_", False)):
        of_kind = [pair for identity, pair in scores.items() if answerable[identity] == kind]
        if of_kind:
            result.update(_means(of_kind, name))
    if null_odds is not None:
        for place, name in enumerate(("exact", "f1")):
            best, best_threshold = _best_threshold(
                {identity: pair[place] for identity, pair in raw.items()}, predictions, null_odds, answerable
            )
            result.update({f"best_{name}": best, f"best_{name}_thresh": best_threshold})
    return result


def _means(scores: Iterable[tuple[float, ...]], prefix: str) -> dict[str, float]:
    pairs = list(scores)
    total = max(len(pairs), 1)
    return {
        f"{prefix}exact": 100.0 * sum(pair[0] for pair in pairs) / total,
        f"{prefix}f1": 100.0 * sum(pair[1] for pair in pairs) / total,
        f"{prefix}total": len(pairs),
    }


def _best_threshold(
    scores: Mapping[str, float],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float],
    answerable: Mapping[str, bool],
) -> tuple[float, float]:
    """The highest mean score over thresholds and the lowest threshold that reaches it."""
    # with "no answer" everywhere the unanswerable questions are right; then answers are let in one by one
    current = best = float(sum(not has_answer for has_answer in answerable.values()))
    threshold = 0.0
    for identity in filter(scores.__contains__, sorted(null_odds, key=null_odds.__getitem__)):
        if answerable[identity]:
            current += scores[identity]
        elif predictions[identity]:
            current -= 1
        if current > best:
            best, threshold = current, null_odds[identity]
    return 100.0 * best / max(len(scores), 1), threshold
