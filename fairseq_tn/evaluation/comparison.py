"""Means over seeds, and a paired bootstrap against a baseline, of the results of fine-tuned models."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fairseq_tn.errors import UserError
from fairseq_tn.evaluation.aggregates import aggregate
from fairseq_tn.evaluation.results import Result, read_result

# numbers of a block of resamples: some 30 MB
_BLOCK = 4_000_000


@dataclass(frozen=True)
class Difference:
    """A method against the baseline: paired bootstrap over the examples.

    Attributes:
        value: mean over the method's seeds minus mean over the baseline's, in points.
        low, high: the middle 95 % of that difference over the resamples.
        p: two-sided: twice the share of resamples in which the difference has the other sign, or is 0.
    """

    value: float
    low: float
    high: float
    p: float


@dataclass(frozen=True)
class Row:
    """A method on one data set.

    Attributes:
        method: its name.
        seeds: of its runs, ascending; None for one that is not known.
        values: main metric of each run, in the order of ``seeds``.
        metrics: mean of each metric over the runs.
        difference: against the baseline; None for the baseline itself, or without one.
    """

    method: str
    seeds: tuple[int | None, ...]
    values: tuple[float, ...]
    metrics: Mapping[str, float]
    difference: Difference | None

    @property
    def mean(self) -> float:
        """Mean over the seeds."""
        return float(np.mean(self.values))

    @property
    def deviation(self) -> float | None:
        """Standard deviation over the seeds (of the sample: N - 1); None for one seed."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else None

    @property
    def best(self) -> float:
        """The best run."""
        return max(self.values)


@dataclass(frozen=True)
class DataSet:
    """All methods on one split of one data set, in the order in which they were given."""

    kind: str
    task: str
    split: str
    metric: str
    num_examples: int
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Comparison:
    """All data sets.

    Attributes:
        data_sets: in the order in which they were given.
        methods: names, in the order in which they were given.
        baseline: one of ``methods``, or None.
        resamples, seed: of the bootstrap.
    """

    data_sets: tuple[DataSet, ...]
    methods: tuple[str, ...]
    baseline: str | None
    resamples: int
    seed: int


def read_results(paths: Sequence[str | Path]) -> dict[Path, Result]:
    """Read the files of ``fairseq-tn evaluate ... --json``; see :func:`read_result` for errors."""
    return {Path(path): read_result(path) for path in paths}


def compare(
    results: Mapping[Path, Result], baseline: str | None = None, resamples: int = 1000, seed: int = 1
) -> Comparison:
    """Group results by data set and method.

    Args:
        results: by the file that each came from, which errors name.
        baseline: the method that the others are compared with.
        resamples: of the bootstrap.
        seed: of the bootstrap.

    Raises:
        UserError: two results are of the same run, results of one data set are of different examples or have
            different main metrics, or there is no such baseline
    """
    methods = tuple(dict.fromkeys(result.method for result in results.values()))
    if baseline is not None and baseline not in methods:
        raise UserError(f"--baseline {baseline} is none of the methods of --results: {', '.join(methods)}")
    groups: dict[tuple[str, str, str], dict[Path, Result]] = {}
    for path, result in results.items():
        groups.setdefault((result.kind, result.task, result.split), {})[path] = result
    data_sets = tuple(_data_set(group, methods, baseline, resamples, seed) for group in groups.values())
    return Comparison(data_sets, methods, baseline, resamples, seed)


def _data_set(
    group: Mapping[Path, Result], methods: Sequence[str], baseline: str | None, resamples: int, seed: int
) -> DataSet:
    _check_comparable(group)
    runs: dict[str, list[Result]] = {}
    for method in methods:
        found = [result for result in group.values() if result.method == method]
        if found:
            runs[method] = sorted(found, key=lambda result: -1 if result.seed is None else result.seed)
    first = next(iter(group.values()))
    differences = {} if baseline not in runs else _bootstrap(runs, baseline, resamples, seed)
    rows = []
    for method, found in runs.items():
        names = [name for name in found[0].metrics if all(name in run.metrics for run in found)]
        means = {name: float(np.mean([run.metrics[name] for run in found])) for name in names}
        seeds, values = tuple(run.seed for run in found), tuple(run.value for run in found)
        rows.append(Row(method, seeds, values, means, differences.get(method)))
    return DataSet(first.kind, first.task, first.split, first.main_metric, first.num_examples, tuple(rows))


def _check_comparable(group: Mapping[Path, Result]) -> None:
    paths: dict[tuple[str, int | None], Path] = {}
    first_path, first = next(iter(group.items()))
    for path, result in group.items():
        where = f"{result.task} ({result.split})"
        if result.examples != first.examples or result.num_examples != first.num_examples:
            raise UserError(
                f"{path} and {first_path} are results of different examples of {where} ({result.num_examples:,} and "
                f"{first.num_examples:,}) and cannot be compared; evaluate both on the same data"
            )
        if (result.main_metric, result.aggregate) != (first.main_metric, first.aggregate):
            raise UserError(
                f"{path} has the main metric {result.main_metric} on {where}, {first_path} {first.main_metric}; "
                "evaluate both with one version"
            )
        run = result.method, result.seed
        if run in paths:
            seed = "without a seed" if result.seed is None else f"of seed {result.seed}"
            raise UserError(
                f"{path} and {paths[run]} are both results of {result.method} {seed} on {where}; leave one out, or "
                "tell them apart by --name or --seed when evaluating"
            )
        paths[run] = path


def _bootstrap(
    runs: Mapping[str, Sequence[Result]], baseline: str, resamples: int, seed: int
) -> dict[str, Difference]:
    """Draw the examples with replacement, the same for all methods and seeds, and average over the seeds."""
    means: dict[str, list[np.ndarray]] = {method: [] for method in runs}
    for weights in resampled(runs[baseline][0].num_examples, resamples, seed):
        for method, found in runs.items():
            values = [aggregate(run.aggregate, _arrays(run), weights) for run in found]
            means[method].append(np.mean(values, axis=0))
    drawn = {method: np.concatenate(parts) for method, parts in means.items()}
    centre = {method: float(np.mean([run.value for run in found])) for method, found in runs.items()}
    differences = {}
    for method in runs:
        if method == baseline:
            continue
        values = drawn[method] - drawn[baseline]
        low, high = np.percentile(values, [2.5, 97.5])
        # rounding must not make a difference of nothing
        other = min((values <= 1e-9).sum(), (values >= -1e-9).sum())
        p = min(1.0, 2 * (other + 1) / (len(values) + 1))
        differences[method] = Difference(centre[method] - centre[baseline], float(low), float(high), float(p))
    return differences


def _arrays(run: Result) -> dict[str, np.ndarray]:
    return {name: np.asarray(values, dtype=np.float64) for name, values in run.columns.items()}


def resampled(examples: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Blocks of weights, R x N: how often each of N examples is in each of R samples of N examples."""
    generator = np.random.default_rng(seed)
    rows = max(1, min(resamples, _BLOCK // examples))
    for begin in range(0, resamples, rows):
        count = min(rows, resamples - begin)
        yield np.stack(
            [
                np.bincount(generator.integers(examples, size=examples), minlength=examples)
                for _ in range(count)
            ]
        ).astype(np.float64)
