"""What came out: a table for the documentation, the report of ``fairseq-tn report``, and curves over pre-training."""

import datetime
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from types import MappingProxyType

from fairseq_tn.analysis.environment import machine, versions
from fairseq_tn.analysis.training_log import read_run
from fairseq_tn.errors import UserError
from fairseq_tn.evaluation.comparison import compare
from fairseq_tn.evaluation.published import PUBLISHED
from fairseq_tn.evaluation.report import write_report
from fairseq_tn.evaluation.results import Result, read_result
from fairseq_tn.files import atomic_path
from reproduction.plan import Evaluation, Plan
from reproduction.rows import ROWS, TASKS, Row, Task, represented
from reproduction.steps import Step, Store, ordered

_DASH = "–"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
# of the last validation of pre-training, as far as the row's method has them: per cent
_HELD_OUT = ("mlm_acc", "nsp_acc", "tacl_acc", "contrastive_acc", "gen_acc", "disc_bacc")


def finished_results(plan: Plan, store: Store) -> dict[Path, Result]:
    """The results of the plan's evaluations that are done, in the order of the tables."""
    done = [evaluation for evaluation in plan.evaluations if store.finished(evaluation.step) is not None]
    return {evaluation.result: read_result(evaluation.result) for evaluation in done}


def shown_rows(asked: Sequence[Row], plan: Plan, store: Store) -> list[Row]:
    """The rows of the table: those of this call, and those that earlier calls with the same settings have finished."""
    done = {evaluation.row.name for evaluation in plan.evaluations if store.finished(evaluation.step)}
    done |= {name for name, step in plan.pretraining.items() if store.finished(step)}
    return [row for row in ROWS.values() if row in asked or row.name in done]


def table(
    asked: Sequence[Row],
    plan: Plan,
    store: Store,
    *,
    skipped: Mapping[str, str] = MappingProxyType({}),
    failed: Mapping[str, str] = MappingProxyType({}),
    small: bool = False,
    jobs: int = 1,
) -> str:
    """The table in Markdown, with date and machine, as it came out.

    Args:
        asked: the rows of this call.
        plan: of all rows and tasks, so that what earlier calls have finished is in the table.
        store: what is done.
        skipped: what this call left out, by name, and why.
        failed: what failed in this call, and why.
        small: whether a row stands for others.
        jobs: steps at a time.
    """
    results = finished_results(plan, store)
    rows = shown_rows(asked, plan, store)
    shown = [
        task
        for task in TASKS.values()
        if any(e.task is task and e.result in results for e in plan.evaluations)
    ]
    metrics = {e.task.name: results[e.result].main_metric for e in plan.evaluations if e.result in results}
    head = ["row", "what trains", "last validation"]
    head += [f"{task.name} ({metrics[task.name].replace('_', ' ')})" for task in shown]
    head += ["minutes"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * 3}{'---:|' * (len(head) - 3)}"]
    for row in rows:
        if row.name in skipped:
            continue
        names = [f"`{other.name}`" for other in (represented(row) if small else [row])]
        cells = [", ".join(names), row.method, _held_out(row, plan, store)]
        for task in shown:
            values = [
                results[e.result].value
                for e in plan.evaluations
                if e.row is row and e.task is task and e.result in results
            ]
            cells.append(
                f"{_mean(values)} / {_published(row, task, metrics[task.name])}" if values else _DASH
            )
        cells.append(f"{_seconds(row, plan, store) / 60:.1f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([_conditions(plan, store, jobs), "", *lines, *_notes(skipped, failed), ""])


def _conditions(plan: Plan, store: Store, jobs: int) -> str:
    """When and where, in a sentence."""
    here = machine()
    software = ", ".join(
        f"{name} {version}" for name, version in versions().items() if name not in ("numpy", "fairseq_tn")
    )
    done = [evaluation for evaluation in plan.evaluations if store.finished(evaluation.step)]
    seeds = len({evaluation.seed for evaluation in done})
    minutes = sum(_took(store, step) for step in ordered(plan.steps)) / 60
    today = datetime.date.today()
    return (
        f"{today.day} {today:%B %Y}, {here['processor']}, {here['cores']} cores, {here.get('memory', '?')} of "
        f"memory; {software}. {max(seeds, 1)} seed{'s' if seeds > 1 else ''} of fine-tuning. {minutes:.0f} minutes "
        f"of steps, {jobs} at a time. Each cell: measured / published (of the full-size model; {_DASH}: not in the "
        "sources that were looked up)."
    )


def _took(store: Store, step: Step) -> float:
    return (store.finished(step) or {}).get("seconds", 0.0)


def _seconds(row: Row, plan: Plan, store: Store) -> float:
    steps = [evaluation.step for evaluation in plan.evaluations if evaluation.row is row]
    if row.name in plan.pretraining:
        steps.append(plan.pretraining[row.name])
    return sum(_took(store, step) for step in steps)


def _held_out(row: Row, plan: Plan, store: Store) -> str:
    """Accuracies of the last validation of pre-training."""
    step = plan.pretraining.get(row.name)
    if step is None:
        return _DASH
    if store.finished(step) is None:
        return "failed"
    curves = read_run(step.outputs[0]).curves
    found = [
        f"{name} {list(curve.values())[-1]:.1f}"
        for name in _HELD_OUT
        if (curve := curves.get(("valid", name)))
    ]
    return ", ".join(found) or _DASH


def _mean(values: Sequence[float]) -> str:
    return f"{fmean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")


def _published(row: Row, task: Task, metric: str) -> str:
    """The paper's figure; only what has a source."""
    known = next((other for other in PUBLISHED if other.method == row.published), None)
    value = None if known is None else known.value(task.name, metric)
    return _DASH if value is None else f"{value:.1f}"


def _notes(skipped: Mapping[str, str], failed: Mapping[str, str]) -> list[str]:
    notes = [f"- skipped: **{name}**: {reason}" for name, reason in skipped.items()]
    notes += [f"- failed: **{name}**: {reason.splitlines()[0]}" for name, reason in failed.items()]
    return ["", *notes] if notes else []


def marked_text(document: Path) -> str:
    """The document that the table is to be written into.

    Raises:
        UserError: it lacks the marks
    """
    text = document.read_text(encoding="utf-8") if document.is_file() else ""
    if BEGIN not in text or END not in text.split(BEGIN, 1)[1]:
        raise UserError(f"--docs {document}: it has no line {BEGIN} with {END} after it")
    return text


def write_table(text: str, path: Path, document: Path | None) -> None:
    """Write the table to its own file, and between the marks of a document if one is given.

    Raises:
        UserError: the document lacks the marks
    """
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    if document is None:
        return
    before = marked_text(document)
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    with atomic_path(document) as temporary:
        temporary.write_text(
            pattern.sub(lambda _: f"{BEGIN}\n{text.rstrip()}\n{END}", before, count=1), encoding="utf-8"
        )


def report(plan: Plan, store: Store, baseline: str) -> list[Path]:
    """The report with all tables, means, deviations and the bootstrap; nothing without results.

    Args:
        plan, store: what was run.
        baseline: row that the others are compared with, if it is there.
    """
    results = finished_results(plan, store)
    if not results:
        return []
    known = baseline if baseline in {result.method for result in results.values()} else None
    return write_report(
        [], store.folder / "report", title="Rows of the papers", comparison=compare(results, known)
    )


def curve(plan: Plan, store: Store, task: Task, folder: Path) -> list[Path]:
    """Draw the score on a task of the kept checkpoints over the updates of pre-training, and write the figures as TSV.

    Raises:
        UserError: nothing was evaluated, or matplotlib is missing
    """
    from fairseq_tn.analysis.plots import measures_over_training, save_figure

    results = finished_results(plan, store)
    done = [e for e in plan.evaluations if e.result in results and e.update is not None]
    if not done:
        raise UserError(f"--curve {task.name}: no checkpoint was evaluated")
    metric = results[done[0].result].main_metric
    curves = {row: _over_updates(row, done, results) for row in dict.fromkeys(e.row for e in done)}
    points = {
        row.name: {update: _interval(values) for update, values in found.items()}
        for row, found in curves.items()
    }
    rows = "-".join(row.name for row in curves)
    stem = f"{rows if len(curves) < 4 else f'{len(curves)}-rows'}-{task.name.replace(' ', '_')}"
    figure = measures_over_training({f"{task.name} ({metric.replace('_', ' ')})": points}, from_zero=False)
    lines = ["row\tupdate\tseeds\tmean\tdeviation"]
    for row, found in curves.items():
        for update, values in found.items():
            deviation = f"{stdev(values):.2f}" if len(values) > 1 else ""
            lines.append(f"{row.name}\t{update}\t{len(values)}\t{fmean(values):.2f}\t{deviation}")
    figures = folder / f"{stem}.tsv"
    with atomic_path(figures) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [figures, *save_figure(figure, folder, stem)]


def _over_updates(
    row: Row, evaluations: Sequence[Evaluation], results: Mapping[Path, Result]
) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for evaluation in evaluations:
        if evaluation.row is row and evaluation.update is not None:
            found.setdefault(evaluation.update, []).append(results[evaluation.result].value)
    return dict(sorted(found.items()))


def _interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, and one standard deviation of the seeds to both sides."""
    mean, reach = fmean(values), stdev(values) if len(values) > 1 else 0.0
    return mean, mean - reach, mean + reach
