"""The result of one fine-tuned model on one data set, as every ``fairseq-tn evaluate`` writes it with ``--json``.

``fairseq-tn report --results`` reads many of them and makes the tables: means over seeds, and a paired bootstrap over
the examples. One file is one model, one seed, one data set.
"""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairseq_tn.errors import UserError
from fairseq_tn.evaluation.aggregates import AGGREGATES, aggregate
from fairseq_tn.files import atomic_path, read_json

FORMAT = "fairseq_tn result 1"
# how far a main metric may be from what the examples give: figures are printed with two digits
_TOLERANCE = 0.005


@dataclass(frozen=True)
class Result:
    """One evaluation.

    Attributes:
        kind: what was evaluated: ``glue``, ``squad`` or ``tagging``.
        task: the data set as tables name it: ``RTE``, ``SQuAD 2.0``, ``Weibo NER``.
        method: what the row of a table is called: ``tacl``, ``mt``, ``bert``.
        seed: of fine-tuning; None: not known.
        split: ``valid`` or ``test``.
        metrics: name -> value in points (a perfect model has 100).
        main_metric: the one of ``metrics`` that tables show and compare.
        aggregate: how the main metric follows from the examples, a key of
            :data:`~fairseq_tn.evaluation.aggregates.AGGREGATES`: ``mean`` (column ``score``, from 0 to 1), ``f1``
            (``correct``, ``predicted`` and ``gold``: counts), ``matthews``, ``pearson`` or ``spearman``
            (``prediction`` and ``gold``).
        columns: the columns that the aggregate reads, each with one number an example, in the order of the data.
        examples: digest of which examples these are, by
            :func:`~fairseq_tn.data.examples.digest_of_examples`; runs compare if it is the same.
        details: anything else worth keeping: checkpoint, data folder, options.
    """

    kind: str
    task: str
    method: str
    seed: int | None
    split: str
    metrics: Mapping[str, float]
    main_metric: str
    aggregate: str
    columns: Mapping[str, Sequence[float]]
    examples: str
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def num_examples(self) -> int:
        """How many examples were evaluated."""
        return len(next(iter(self.columns.values())))

    @property
    def value(self) -> float:
        """The main metric."""
        return self.metrics[self.main_metric]


def write_result(path: str | Path, result: Result) -> None:
    """Write the JSON file, whole or not at all.

    Raises:
        ValueError: the result contradicts itself, which is an error of the program that made it
    """
    if problem := _problem(result):
        raise ValueError(f"not a result: {problem}")
    content = {"format": FORMAT, **dataclasses.asdict(result), "num_examples": result.num_examples}
    with atomic_path(path) as temporary:
        temporary.write_text(_readable(content), encoding="utf-8")


def _readable(content: dict[str, Any]) -> str:
    """JSON with a line for each field and each column, instead of one for each example."""
    columns = content.pop("columns")
    head = json.dumps(content, indent=2, ensure_ascii=False).removesuffix("\n}")
    lines = [f"    {json.dumps(name)}: {json.dumps(list(values))}" for name, values in columns.items()]
    return head + ',\n  "columns": {\n' + ",\n".join(lines) + "\n  }\n}\n"


def read_result(path: str | Path) -> Result:
    """Read the JSON file.

    Raises:
        UserError: missing, not JSON, written by something else, or its figures contradict each other
    """
    content = read_json(Path(path))
    if content.get("format") != FORMAT:
        raise UserError(
            f"{path} is no result of `fairseq-tn evaluate glue|squad|tagging --json` of this version; evaluate again"
        )
    names = [f.name for f in dataclasses.fields(Result) if f.name != "details"]
    if missing := [name for name in names if name not in content]:
        raise UserError(f"{path} lacks {missing[0]!r}; evaluate again with --json")
    result = Result(**{name: content[name] for name in names}, details=content.get("details") or {})
    if problem := _problem(result):
        raise UserError(f"{path}: {problem}; evaluate again with --json")
    if content.get("num_examples") != result.num_examples:
        raise UserError(
            f"{path}: num_examples is {content.get('num_examples')}, but it holds {result.num_examples}; evaluate "
            "again with --json"
        )
    return result


def _problem(result: Result) -> str | None:
    """What is wrong with a result, in words; None if nothing is."""
    for name in ("kind", "task", "method", "split", "main_metric", "aggregate", "examples"):
        value = getattr(result, name)
        if not (isinstance(value, str) and value.strip()):
            return f"{name} is {value!r}, not a word"
    if result.seed is not None and (isinstance(result.seed, bool) or not isinstance(result.seed, int)):
        return f"seed is {result.seed!r}, not a whole number"
    if not (isinstance(result.metrics, Mapping) and isinstance(result.columns, Mapping)):
        return "metrics and columns must be objects"
    for name, value in result.metrics.items():
        if not _is_number(value):
            return f"the metric {name} is {value!r}, not a number"
    if result.main_metric not in result.metrics:
        return f"the main metric {result.main_metric} is not among the metrics"
    if result.aggregate not in AGGREGATES:
        return f"the aggregate {result.aggregate} is none of {', '.join(AGGREGATES)}"
    wanted = AGGREGATES[result.aggregate].columns
    if sorted(result.columns) != sorted(wanted):
        return f"{result.aggregate} reads the columns {', '.join(wanted)}, not {', '.join(result.columns)}"
    lengths = {len(values) if isinstance(values, Sequence) else -1 for values in result.columns.values()}
    if len(lengths) != 1 or lengths & {0, -1}:
        return "the columns must hold one number for each example"
    for name, values in result.columns.items():
        if not all(map(_is_number, values)):
            return f"the column {name} holds something that is not a number"
    (value,) = aggregate(result.aggregate, result.columns)  # type: ignore[arg-type]
    if abs(value - result.value) > _TOLERANCE:
        return f"{result.main_metric} is {result.value:.2f}, but the examples give {value:.2f}"
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
