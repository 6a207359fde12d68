"""What is measured of a pre-trained encoder: names, units, directions and plain explanations.

Used by the evaluation, its table and the report; imports nothing heavy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Measure:
    """One column of the table.

    Attributes:
        key: name in the log and in the evaluation's JSON.
        title: head of the column, with the unit.
        better: which direction is good; None where neither is.
        digits: digits after the point.
        explanation: one plain sentence.
    """

    key: str
    title: str
    better: Literal["high", "low"] | None
    digits: int
    explanation: str


MEASURES = (
    Measure(
        "mlm_loss",
        "MLM loss (bits)",
        "low",
        3,
        "Masked language modelling: how surprised the model is by the right token, averaged over all selected "
        "positions, corrected ones included. Of ELECTRA it is the generator's.",
    ),
    Measure(
        "mlm_acc",
        "MLM acc. (%)",
        "high",
        2,
        "How often the model's first choice at a selected position is the right token.",
    ),
    Measure(
        "nsp_loss",
        "NSP loss (bits)",
        "low",
        3,
        "Next-sentence prediction: surprise at whether the second segment follows the first; guessing gives 1 bit.",
    ),
    Measure(
        "nsp_acc",
        "NSP acc. (%)",
        "high",
        2,
        "How often the model tells a following segment from one of another document; guessing gives 50 %.",
    ),
    Measure(
        "disc_loss",
        "Disc. loss (bits)",
        "low",
        3,
        "ELECTRA's discriminator: surprise at whether a token of the sequence is one that the generator drew; it "
        "depends on how well the generator imitates.",
    ),
    Measure(
        "disc_acc",
        "Disc. acc. (%)",
        "high",
        2,
        'How often the discriminator is right; always answering "original" gives the share of unchanged tokens, '
        "some 90 %.",
    ),
    Measure(
        "disc_bacc",
        "Disc. balanced acc. (%)",
        "high",
        2,
        "Mean of the discriminator's accuracies on replaced and on original tokens; guessing gives 50 %.",
    ),
    Measure(
        "tacl_loss",
        "TaCL loss (bits)",
        "low",
        3,
        "Token-aware contrastive loss: surprise at which of the teacher's token states belongs to a selected "
        "position, judged by the student's state there.",
    ),
    Measure(
        "tacl_acc",
        "TaCL acc. (%)",
        "high",
        2,
        "How often the student's state at a selected position is closest to the teacher's state of the same "
        "position, among all tokens of the sequence.",
    ),
    Measure(
        "hc_pred",
        "HC predictions (%)",
        None,
        2,
        "Hard correction: of the wrong predictions, the share that the synonym table lists as a synonym of the "
        "right token. It tells how much there is to correct; neither direction is good or bad.",
    ),
    Measure(
        "hc_seq",
        "HC sequences (%)",
        None,
        2,
        "Share of sequences with at least one such prediction; it grows with the length of the sequences.",
    ),
    Measure(
        "self_similarity",
        "Self-similarity",
        "low",
        4,
        "Mean cosine between the last-layer states of two different tokens of a sequence (unmasked text, special "
        "tokens included): low where tokens keep states of their own, which is TaCL's aim.",
    ),
)


def value_of(scores: Mapping, measure: Measure) -> float | None:
    """The value of ``measure`` for one model of the evaluation's JSON; None if it was not measured."""
    value = scores.get(measure.key)
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = value[-1] if value else None  # self-similarity: one value a layer
    return value if isinstance(value, (int, float)) and value == value else None


def present(models: Mapping[str, Mapping]) -> list[Measure]:
    """The measures that at least one model has."""
    return [m for m in MEASURES if any(value_of(scores, m) is not None for scores in models.values())]


def best(models: Mapping[str, Mapping], measure: Measure) -> set[str]:
    """Names of the models with the best value as printed; empty where no direction is good or all are equal."""
    values = {
        name: round(value, measure.digits)
        for name, scores in models.items()
        if (value := value_of(scores, measure)) is not None
    }
    if measure.better is None or len(set(values.values())) < 2:
        return set()
    target = (max if measure.better == "high" else min)(values.values())
    return {name for name, value in values.items() if value == target}
