"""Read what a run of ``fairseq-train`` has logged: curves, settings, time and speed.

Understood are the file of ``--log-file`` and anything that caught the output of ``--log-format json``. fairseq
repeats the records of an epoch in its log file, and a resumed run is appended to it; TensorBoard's event files
stand in where there is no log.
"""

import ast
import json
import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairseq_tn.errors import UserError

LOG_NAME = "train.log"
COMMAND_NAME = "command.txt"

_RECORD = re.compile(r'\{"epoch".*\}\s*$')
_CONFIGURATION = re.compile(r"\{'_name': None, 'common'.*\}\s*$")
_PARAMETERS = re.compile(r"num\. shared model params: ([\d,]+)(?: \(num\. trained: ([\d,]+)\))?")
_DONE = re.compile(r"done training in ([\d.]+) seconds")
_WORLD = re.compile(r"training on (\d+) devices")

# in the order of the search; others, such as ``generation``, have options of the same names
_SECTIONS = (
    "criterion",
    "task",
    "optimization",
    "dataset",
    "optimizer",
    "lr_scheduler",
    "checkpoint",
    "common",
    "distributed_training",
    "model",
)

Curve = dict[int, float]


@dataclass
class TrainingRun:
    """What one run folder tells.

    Attributes:
        name: the folder's name.
        curves: ``(split, metric)`` -> {update: value}, sorted by update. The split is ``train`` (averages over a
            log interval) or the name of a validation subset.
        settings: fairseq's configuration, by section; empty if the log does not hold it.
        command: the content of ``command.txt``, if there is one.
        updates: the last update that was logged.
        seconds: time spent training and validating, over all starts, model building excluded where the log
            says so; None if unknown.
        tokens: tokens read in all, counted as the task counts ``ntokens``.
        tokens_per_second: median of fairseq's ``wps`` over the log intervals, so that pauses for validation and
            saving do not count (they do in a run shorter than its log interval).
        starts: how often ``fairseq-train`` was started for these updates.
        finished: whether the last start came to its end.
        remarks: what a reader should know about the log.
    """

    name: str
    folder: Path
    curves: dict[tuple[str, str], Curve] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    command: str | None = None
    parameters: int | None = None
    trained_parameters: int | None = None
    devices: int | None = None
    updates: int = 0
    seconds: float | None = None
    tokens: int | None = None
    tokens_per_second: float | None = None
    starts: int = 0
    finished: bool = False
    remarks: list[str] = field(default_factory=list)

    def setting(self, name: str) -> Any:
        """The value of an option (underscores, as in Python) in the sections that bear on training."""
        for key in _SECTIONS:
            section = self.settings.get(key)
            if isinstance(section, dict) and name in section:
                return section[name]
        return None


@dataclass
class _Start:
    """The records of one start of ``fairseq-train``."""

    points: dict[tuple[str, str], Curve] = field(default_factory=dict)
    done: float | None = None
    wall: float | None = None

    def steps(self) -> list[int]:
        return sorted({step for curve in self.points.values() for step in curve})


def read_run(folder: str | Path) -> TrainingRun:
    """Read one run folder; a folder without any record gives a run without curves and a remark.

    Raises:
        UserError: there is no such folder.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder}: no such run folder; give the folders that hold {LOG_NAME}")
    run = TrainingRun(name=folder.resolve().name, folder=folder)
    if (folder / COMMAND_NAME).is_file():
        run.command = (folder / COMMAND_NAME).read_text(encoding="utf-8", errors="replace").strip()
    log = folder / LOG_NAME
    starts = _read_log(log, run) if log.is_file() else []
    if not any(start.points for start in starts):
        events = _read_events(folder, run)
        if events is not None:
            starts = [events]
            run.remarks.append(f"no records in {LOG_NAME}: the curves are those of the TensorBoard files")
    _join(starts, run)
    if not run.curves:
        run.remarks.append(f"no training records found in {log}")
    return run


def _read_log(path: Path, run: TrainingRun) -> list[_Start]:
    starts: list[_Start] = []
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if found := _CONFIGURATION.search(line):
                starts.append(_Start())
                run.settings = _parse_configuration(found.group()) or run.settings
                continue
            if not starts:
                starts.append(_Start())
            if found := _RECORD.search(line):
                _add_record(found.group(), starts[-1])
            elif found := _DONE.search(line):
                starts[-1].done = float(found[1])
            elif found := _PARAMETERS.search(line):
                run.parameters = int(found[1].replace(",", ""))
                run.trained_parameters = int((found[2] or found[1]).replace(",", ""))
            elif found := _WORLD.search(line):
                run.devices = int(found[1])
    return starts


def _add_record(text: str, start: _Start) -> None:
    """Add one JSON record; a line that was cut off in the middle is passed over."""
    try:
        record = json.loads(text)
    except json.JSONDecodeError:
        return
    splits = [key.removesuffix("_num_updates") for key in record if key.endswith("_num_updates")]
    if splits:
        split, prefix = splits[0], f"{splits[0]}_"
        # averages over an epoch go their own way: the intervals' values are the training curve
        split = "epoch" if split == "train" else split
    elif "num_updates" in record:
        split, prefix = "train", ""
    else:
        return
    step = int(float(record[f"{prefix}num_updates"]))
    for key, value in record.items():
        if not key.startswith(prefix) or key in ("epoch", "update"):
            continue
        try:
            number = float(value)
        except (TypeError, ValueError):
            continue
        start.points.setdefault((split, key.removeprefix(prefix)), {})[step] = number
    if f"{prefix}wall" in record:
        start.wall = float(record[f"{prefix}wall"])


def _parse_configuration(text: str) -> dict[str, Any]:
    """fairseq prints its configuration as Python, but with ``Namespace(...)`` and bare enumeration names."""

    def value(node: ast.AST) -> Any:
        match node:
            case ast.Constant():
                return node.value
            case ast.Dict():
                return {
                    value(k): value(v) for k, v in zip(node.keys, node.values, strict=True) if k is not None
                }
            case ast.List() | ast.Tuple():
                return [value(item) for item in node.elts]
            case ast.Call():
                return {keyword.arg: value(keyword.value) for keyword in node.keywords if keyword.arg}
            case _:
                return ast.unparse(node)

    try:
        return value(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError):
        return {}


def _read_events(folder: Path, run: TrainingRun) -> _Start | None:
    """The scalars of the TensorBoard files below ``folder``; None where there are none."""
    files = sorted(folder.rglob("events.out.tfevents.*"))
    if not files:
        return None
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        run.remarks.append(
            "TensorBoard files are there, but not the package that reads them: pip install 'fairseq_tn[analysis]'"
        )
        return None
    start = _Start()
    times: list[float] = []
    splits = {"train_inner": "train", "train": "epoch"}
    for parent in sorted({file.parent for file in files}):
        accumulator = EventAccumulator(str(parent), size_guidance={"scalars": 0})
        accumulator.Reload()
        split = splits.get(parent.name, parent.name)
        for tag in accumulator.Tags()["scalars"]:
            events = accumulator.Scalars(tag)
            start.points[split, tag] = {event.step: event.value for event in events}
            times += [event.wall_time for event in events]
    if times:
        start.wall = max(times) - min(times)
    return start


def _join(starts: list[_Start], run: TrainingRun) -> None:
    """Put the starts of a run together: what a later one repeats replaces the earlier one's records."""
    points: dict[tuple[str, str], Curve] = {}
    counted: list[_Start] = []
    for start in starts:
        steps = start.steps()
        if not steps:
            continue
        for curve in points.values():
            for step in [step for step in curve if step >= steps[0]]:
                del curve[step]
        if not any(points.values()):
            counted = []  # begun anew, not resumed
        counted.append(start)
        for key, curve in start.points.items():
            points.setdefault(key, {}).update(curve)
    if not counted:
        return
    run.starts = len(counted)
    run.finished = counted[-1].done is not None
    spent = [start.wall if start.done is None else start.done for start in counted]
    if all(seconds is not None for seconds in spent):
        run.seconds = sum(seconds for seconds in spent if seconds is not None)
    for split, metric in list(points):
        # a run shorter than its log interval has the averages of its epochs only
        if split == "epoch" and not points.get(("train", metric)):
            points["train", metric] = points[split, metric]
    run.curves = {
        key: dict(sorted(curve.items())) for key, curve in points.items() if curve and key[0] != "epoch"
    }
    run.updates = max((step for curve in run.curves.values() for step in curve), default=0)
    _measure_speed(run)


def _measure_speed(run: TrainingRun) -> None:
    speeds = [value for value in run.curves.get(("train", "wps"), {}).values() if value > 0]
    if speeds:
        run.tokens_per_second = statistics.median(speeds)
    sizes = list(intervals(run.curves.get(("train", "wpb"), {})))
    if sizes:
        logged = sum(updates for updates, _ in sizes)
        mean = sum(updates * size for updates, size in sizes) / logged
        run.tokens = round(mean * run.updates)


def intervals(curve: Curve) -> Iterator[tuple[int, float]]:
    """For each value the number of updates that it stands for."""
    before = 0
    for step, value in curve.items():
        yield step - before, value
        before = step
