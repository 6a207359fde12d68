"""Makes downstream results: an importable helper of the tests."""

from pathlib import Path

import numpy as np

from fairseq_tn.evaluation.aggregates import aggregate
from fairseq_tn.evaluation.results import Result

METRICS = {"mean": "accuracy", "matthews": "matthews", "spearman": "spearman", "f1": "f1"}


def result(method, seed, columns, name="mean", task="RTE", **changes) -> Result:
    metric = METRICS[name]
    value = float(aggregate(name, columns).item())
    fields = {"kind": "glue", "task": task, "method": method, "seed": seed, "split": "valid"}
    columns = {key: np.asarray(values).tolist() for key, values in columns.items()}
    fields |= {"metrics": {metric: value}, "main_metric": metric, "aggregate": name, "columns": columns}
    return Result(**(fields | {"examples": "e"} | changes))


def files(*results) -> dict[Path, Result]:
    return {Path(f"{number}.json"): one for number, one in enumerate(results)}


def scores(*values):
    return {"score": list(values)}
