"""Results of an evaluation as aligned text for a terminal."""

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from fairseq_tn.evaluation.measures import Measure, best, present, value_of


def number(scores: Mapping[str, Any], measure: Measure) -> str:
    """The value of ``measure`` as it is printed everywhere; a dash where it was not measured."""
    value = value_of(scores, measure)
    return "–" if value is None else f"{value:.{measure.digits}f}"


def aligned(rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Cells in columns two blanks apart, the first ``left`` columns flush left, the others flush right.

    Wide characters (Chinese, for example) count as the two columns that terminals give them.
    """
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        blanks = [" " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)]
        cells = [
            cell + blank if column < left else blank + cell
            for column, (cell, blank) in enumerate(zip(row, blanks, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _width(text: str) -> int:
    return sum(
        0 if unicodedata.combining(character) else 1 + (unicodedata.east_asian_width(character) in "WF")
        for character in text
    )


def scores_text(models: Mapping[str, Mapping[str, Any]]) -> str:
    """One line a model, one column a measure, the best values marked with ``*``."""
    measures = present(models)
    winners = [best(models, measure) for measure in measures]
    rows = [["model", *(measure.title for measure in measures)]]
    for name, scores in models.items():
        cells = [
            number(scores, measure) + ("*" if name in names else " ")
            for measure, names in zip(measures, winners, strict=True)
        ]
        rows.append([name, *cells])
    return aligned(rows)


def examples_text(examples: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Corrected predictions in context, by model."""
    lines = []
    for name, corrections in examples.items():
        lines.append(f"{name}:" if corrections else f"{name}: none")
        for c in corrections:
            change = f"[{c['gold']} -> {c['predicted']}, {c['probability']:.2f}]"
            lines.append(f"  {c['before']} {change} {c['after']}")
    return "\n".join(lines)
