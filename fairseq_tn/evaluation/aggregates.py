"""From what is known of each example to one figure, with weights, so that a resampled test set costs a product.

An aggregate takes the columns of a test set (each of N examples) and weights R x N, how often each of R resamples
holds each example, and returns R values. Weights of one give the metric itself. All are in points: 100 is perfect.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

Columns = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Aggregate:
    """``columns``: the names of what it reads; ``compute``: the function; ``meaning``: for people."""

    columns: tuple[str, ...]
    compute: Callable[[Columns, np.ndarray], np.ndarray]
    meaning: str


def aggregate(name: str, columns: Columns, weights: np.ndarray | None = None) -> np.ndarray:
    """Values of the aggregate ``name``, one for each row of ``weights`` (R x N; default: one row of ones)."""
    columns = {key: np.asarray(columns[key], dtype=np.float64) for key in AGGREGATES[name].columns}
    if weights is None:
        weights = np.ones((1, len(next(iter(columns.values())))))
    return 100 * AGGREGATES[name].compute(columns, np.asarray(weights, dtype=np.float64))


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """``above / below``, and 0 where there is nothing to divide by."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


def _mean(columns: Columns, weights: np.ndarray) -> np.ndarray:
    return _ratio(weights @ columns["score"], weights.sum(axis=1))


def _f1(columns: Columns, weights: np.ndarray) -> np.ndarray:
    return _ratio(2 * (weights @ columns["correct"]), weights @ (columns["predicted"] + columns["gold"]))


def _matthews(columns: Columns, weights: np.ndarray) -> np.ndarray:
    # of two classes it is Pearson's correlation of 0 and 1 (Matthews, 1975)
    return _pearson(columns, weights)


def _pearson(columns: Columns, weights: np.ndarray) -> np.ndarray:
    shape = weights.shape
    return _correlation(
        np.broadcast_to(columns["prediction"], shape), np.broadcast_to(columns["gold"], shape), weights
    )


def _spearman(columns: Columns, weights: np.ndarray) -> np.ndarray:
    return _correlation(_ranks(columns["prediction"], weights), _ranks(columns["gold"], weights), weights)


def _correlation(first: np.ndarray, second: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weighted correlation of the rows, all R x N; 0 where one of them is constant, which leaves it undefined."""
    total = weights.sum(axis=1, keepdims=True)
    first = first - (weights * first).sum(axis=1, keepdims=True) / total
    second = second - (weights * second).sum(axis=1, keepdims=True) / total
    variances = [(weights * values**2).sum(axis=1) for values in (first, second)]
    # what is left of equal numbers after their mean is taken off
    noise = 1e-24 * total[:, 0] * np.maximum(1, np.abs(first).max() ** 2)
    below = np.sqrt(np.prod([np.where(v > noise, v, 0) for v in variances], axis=0))
    return _ratio((weights * first * second).sum(axis=1), below)


def _ranks(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """R x N ranks within each resample, the middle one where values are equal."""
    order = np.argsort(values, kind="stable")
    _, starts, groups = np.unique(values[order], return_index=True, return_inverse=True)
    counts = np.add.reduceat(weights[:, order], starts, axis=1)  # R x different values
    middle = np.cumsum(counts, axis=1) - counts + (counts + 1) / 2
    ranks = np.empty_like(weights)
    ranks[:, order] = middle[:, groups]
    return ranks


AGGREGATES = {
    "mean": Aggregate(("score",), _mean, "mean of the examples' scores"),
    "f1": Aggregate(("correct", "predicted", "gold"), _f1, "F1 of all examples' counts taken together"),
    "matthews": Aggregate(("prediction", "gold"), _matthews, "Matthews' correlation of 0 and 1"),
    "pearson": Aggregate(("prediction", "gold"), _pearson, "Pearson's correlation"),
    "spearman": Aggregate(("prediction", "gold"), _spearman, "Spearman's rank correlation"),
}
