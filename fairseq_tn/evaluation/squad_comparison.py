"""One model on two versions of the same SQuAD questions: scores, their differences, and how sure these are."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fairseq_tn.errors import UserError
from fairseq_tn.evaluation.comparison import resampled
from fairseq_tn.evaluation.squad import SquadScores
from fairseq_tn.evaluation.squad_metrics import normalize_answer
from fairseq_tn.evaluation.tables import aligned


@dataclass(frozen=True)
class Estimate:
    """A figure in points, and the middle 95 % of its values over the resamples."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


@dataclass(frozen=True)
class PairRow:
    """A metric on some of the questions.

    Attributes:
        metric: ``EM`` or ``F1``
        questions: ``all``, ``answerable`` or ``unanswerable``
        number: of questions
        original, transformed, drop: drop is original less transformed, question by question
    """

    metric: str
    questions: str
    number: int
    original: Estimate
    transformed: Estimate
    drop: Estimate


def compare_pairs(
    original: SquadScores, transformed: SquadScores, resamples: int = 1000, seed: int = 1
) -> list[PairRow]:
    """Compare the scores of the original questions and of the same questions over transformed contexts.

    The bootstrap is paired: the questions are drawn with replacement, the same ones for both. Questions that one of
    them does not count (SQuAD 2.0's script leaves out those without a prediction) are left out of both.

    Raises:
        UserError: the questions or their right answers are not the same
    """
    _check_same(original.golds, transformed.golds)
    identities = [identity for identity in original.by_question if identity in transformed.by_question]
    if not identities:
        raise UserError(
            "no question has predictions for both files of --pairs; give predictions of these files"
        )
    scores = np.array([[one.by_question[i] for i in identities] for one in (original, transformed)])
    answerable = np.array([bool(original.golds[identity]) for identity in identities])
    groups = {"all": np.ones(len(identities), bool)}
    if not answerable.all():
        groups.update({"answerable": answerable, "unanswerable": ~answerable})
    # columns: EM and F1 of the original, EM and F1 of the transformed
    columns = 100 * np.concatenate([scores[0], scores[1]], axis=1)
    rows = []
    for name, chosen in groups.items():
        if not chosen.any():
            continue
        values = columns[chosen]
        means = [weights @ values / len(values) for weights in resampled(len(values), resamples, seed)]
        drawn = np.concatenate(means)
        centre = values.mean(axis=0)
        for place, metric in enumerate(("EM", "F1")):
            first, second = place, place + 2
            drop = _estimate(centre[first] - centre[second], drawn[:, first] - drawn[:, second])
            rows.append(
                PairRow(
                    metric,
                    name,
                    len(values),
                    _estimate(centre[first], drawn[:, first]),
                    _estimate(centre[second], drawn[:, second]),
                    drop,
                )
            )
    return rows


def pairs_text(rows: list[PairRow]) -> str:
    """The table for a terminal."""
    cells = [["questions", "metric", "number", "original", "transformed", "drop"]]
    for row in rows:
        figures = [str(value) for value in (row.original, row.transformed, row.drop)]
        cells.append([row.questions, row.metric, f"{row.number:,}", *figures])
    return aligned(cells, left=2)


def _estimate(value: float, drawn: np.ndarray) -> Estimate:
    low, high = np.percentile(drawn, [2.5, 97.5])
    return Estimate(float(value), float(low), float(high))


def _check_same(original: Mapping[str, object], transformed: Mapping[str, object]) -> None:
    for first, second, name in ((original, transformed, "TRANSFORMED"), (transformed, original, "ORIGINAL")):
        if missing := [identity for identity in first if identity not in second]:
            raise UserError(
                f"--pairs: {len(missing):,} questions, such as {missing[0]!r}, are not in {name}; give the two files "
                "that one `fairseq-tn robustness` wrote"
            )
    for identity, answers in original.items():
        if _words(answers) != _words(transformed[identity]):
            raise UserError(
                f"--pairs: question {identity!r} has other right answers in TRANSFORMED; give the two files that one "
                "`fairseq-tn robustness` wrote"
            )


def _words(answers: object) -> list[str]:
    return sorted(map(normalize_answer, answers))  # type: ignore[call-overload]
