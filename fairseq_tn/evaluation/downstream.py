"""Downstream results as blocks of a report, as LaTeX tables and as JSON."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from fairseq_tn.evaluation.comparison import Comparison, DataSet, Row
from fairseq_tn.evaluation.document import Block, Heading, Strong, Table, Terms, Text
from fairseq_tn.evaluation.glue_averages import AVERAGES, Average
from fairseq_tn.evaluation.published import PUBLISHED

DASH = "–"

CAUTION = (
    "One fine-tuning run on GLUE differs from the next, of the same model with another seed, by about half a point, "
    "and on small tasks (RTE, MRPC, CoLA, STS-B) by more: compare means of several seeds, and differences with their "
    "intervals. The best run says how lucky a method was."
)
HOW = (
    "Points: 100 is perfect. Deviation: standard deviation over the seeds (N - 1). The difference to the baseline is "
    "that of the means over seeds; its 95 % interval and its two-sided p come from {resamples:,} samples of the "
    "examples with replacement, the same for both methods and all their seeds, over which the metric is averaged "
    "(seed {seed}). They tell of chance in the choice of examples, not of chance in training, which the deviation "
    "shows; with many methods or data sets some p is small by chance."
)


def downstream_blocks(comparison: Comparison) -> list[Block]:
    """The section of the report."""
    blocks: list[Block] = [
        Heading("Results on downstream tasks"),
        Text(CAUTION),
        Table(*_overview(comparison)),
    ]
    notes = [(average.name, average.definition) for average in _averages(comparison)]
    for row in PUBLISHED:
        # the columns of the table may not have it
        average = row.value("GLUE", "average")
        note = row.source + ("" if average is None else f"; average of GLUE: {average:.1f}")
        notes.append((f"{row.method} (published)", note))
    blocks += [
        Text(
            "Each cell: mean ± deviation over the seeds. Published rows are other people's runs, on test or "
            "development sets as their sources say; a dash: not measured, or not in the source."
        ),
        Terms(notes),
    ]
    for data_set in comparison.data_sets:
        blocks += [
            Heading(_title(data_set), 3),
            Text(f"{data_set.num_examples:,} examples; main metric: {_words(data_set.metric)}."),
            Table(*_details(data_set, comparison)),
        ]
    if comparison.baseline is not None:
        blocks.append(Text(HOW.format(resamples=comparison.resamples, seed=comparison.seed)))
    return blocks


def _title(data_set: DataSet) -> str:
    return f"{data_set.task}, {data_set.split}"


def _words(metric: str) -> str:
    return metric.replace("_", " ")


def _number(value: float | None, digits: int = 2) -> str:
    return DASH if value is None else f"{value:.{digits}f}"


def _summary(row: Row) -> str:
    return _number(row.mean) + ("" if row.deviation is None else f" ± {_number(row.deviation)}")


def _row(data_set: DataSet, method: str) -> Row | None:
    return next((row for row in data_set.rows if row.method == method), None)


def _best(values: Sequence[float]) -> float | None:
    """The highest value as printed, if there are different ones."""
    printed = {round(value, 2) for value in values}
    return max(printed) if len(printed) > 1 else None


def _marked(text: str, value: float, best: float | None) -> str | Strong:
    return Strong(text) if best is not None and round(value, 2) == best else text


def _scores(comparison: Comparison, method: str) -> dict[str, Any]:
    """Task -> metrics of a method on the development sets of GLUE."""
    return {
        data_set.task: row.metrics
        for data_set in comparison.data_sets
        if data_set.kind == "glue" and data_set.split == "valid" and (row := _row(data_set, method))
    }


def _averages(comparison: Comparison) -> list[Average]:
    """Those that at least one method has all tasks for."""
    return [
        average
        for average in AVERAGES
        if any(average.of(_scores(comparison, method)) is not None for method in comparison.methods)
    ]


def _overview(comparison: Comparison) -> tuple[list[str], list[list[str | Strong]]]:
    """Methods by data sets."""
    averages = _averages(comparison)
    head = ["method", *(f"{_title(one)} ({_words(one.metric)})" for one in comparison.data_sets)]
    head += [f"average ({average.name})" for average in averages]
    bests = [_best([row.mean for row in one.rows]) for one in comparison.data_sets]
    means = {m: [a.of(_scores(comparison, m)) for a in averages] for m in comparison.methods}
    best_means = [_best([v for v in column if v is not None]) for column in zip(*means.values(), strict=True)]
    rows = []
    for method in comparison.methods:
        cells: list[str | Strong] = [method + (" (baseline)" if method == comparison.baseline else "")]
        for one, best in zip(comparison.data_sets, bests, strict=True):
            row = _row(one, method)
            cells.append(DASH if row is None else _marked(_summary(row), row.mean, best))
        for value, best in zip(means[method], best_means, strict=True):
            cells.append(DASH if value is None else _marked(_number(value), value, best))
        rows.append(cells)
    for published in PUBLISHED:
        values = [published.value(one.task, one.metric) for one in comparison.data_sets]
        # its average is of one definition only
        values += [published.value("GLUE", "average") if "TaCL" in a.name else None for a in averages]
        rows.append([f"{published.method} (published)", *map(_number, values)])
    return head, rows


def _details(data_set: DataSet, comparison: Comparison) -> tuple[list[str], list[list[str | Strong]]]:
    """All that is known of one data set."""
    others = list(
        dict.fromkeys(name for row in data_set.rows for name in row.metrics if name != data_set.metric)
    )
    head = ["method", "seeds", f"mean {_words(data_set.metric)}", "deviation", "best"]
    head += [f"mean {_words(name)}" for name in others]
    if comparison.baseline is not None:
        head += [f"difference to {comparison.baseline}", "95 % interval", "p"]
    best = _best([row.mean for row in data_set.rows])
    rows = []
    for row in data_set.rows:
        cells: list[str | Strong] = [row.method, str(len(row.seeds))]
        cells += [_marked(_number(row.mean), row.mean, best), _number(row.deviation), _number(row.best)]
        cells += [_number(row.metrics.get(name)) for name in others]
        if comparison.baseline is not None:
            found = row.difference
            cells += (
                [DASH] * 3
                if found is None
                else [f"{found.value:+.2f}", f"{found.low:+.2f} to {found.high:+.2f}", _number(found.p, 3)]
            )
        rows.append(cells)
    for published in PUBLISHED:
        known = [published.value(data_set.task, name) for name in (data_set.metric, *others)]
        if any(value is not None for value in known):
            values = [_number(known[0]), DASH, DASH, *map(_number, known[1:])]
            cells = [f"{published.method} (published)", DASH, *values]
            rows.append(cells + [DASH] * (len(head) - len(cells)))
    return head, rows


def downstream_latex(comparison: Comparison) -> str:
    """All tables for a paper."""
    tables = [("Means over seeds and their standard deviations.", *_overview(comparison))]
    tables += [(f"{_title(one)}.", *_details(one, comparison)) for one in comparison.data_sets]
    parts = [r"% needs \usepackage{booktabs}"]
    parts += [_latex_table(f"{caption} {CAUTION}", head, rows) for caption, head, rows in tables]
    return "\n\n".join(parts) + "\n"


def _latex_table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str | Strong]]) -> str:
    lines = [" & ".join(map(_latex, head)) + r" \\", r"\midrule"]
    for row in rows:
        cells = [
            rf"\textbf{{{_latex(cell.text)}}}" if isinstance(cell, Strong) else _latex(cell) for cell in row
        ]
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}",
            r"\toprule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            rf"\caption{{{_latex(caption)}}}",
            r"\end{table}",
        ]
    )


_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "–": "--",
    **{character: "\\" + character for character in "&%$#_{}"},
}


def _latex(text: str) -> str:
    return re.sub("|".join(map(re.escape, _LATEX)), lambda match: _LATEX[match[0]], text)


def downstream_json(comparison: Comparison) -> dict[str, Any]:
    """Everything, unrounded."""
    content = dataclasses.asdict(comparison)
    for data_set, one in zip(content["data_sets"], comparison.data_sets, strict=True):
        for row, found in zip(data_set["rows"], one.rows, strict=True):
            row |= {"mean": found.mean, "deviation": found.deviation, "best": found.best}
    content["averages"] = {
        average.name: {method: average.of(_scores(comparison, method)) for method in comparison.methods}
        for average in _averages(comparison)
    }
    content["published"] = [
        {
            "method": row.method,
            "source": row.source,
            "values": [
                {"task": task, "metric": metric, "value": value}
                for (task, metric), value in row.values.items()
            ],
        }
        for row in PUBLISHED
    ]
    content["caution"] = CAUTION
    return content
