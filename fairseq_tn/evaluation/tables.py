"""Results of an evaluation as aligned text for a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairseq_tn.evaluation.measures import Measure, best, present, value_of


def number(scores: Mapping[str, Any], measure: Measure) -> str:
    """The value of ``measure`` as it is printed everywhere; a dash where it was not measured."""
    value = value_of(scores, measure)
    return "–" if value is None else f"{value:.{measure.digits}f}"


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
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)


def examples_text(examples: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Corrected predictions in context, by model."""
    lines = []
    for name, corrections in examples.items():
        lines.append(f"{name}:" if corrections else f"{name}: none")
        for c in corrections:
            change = f"[{c['gold']} -> {c['predicted']}, {c['probability']:.2f}]"
            lines.append(f"  {c['before']} {change} {c['after']}")
    return "\n".join(lines)
