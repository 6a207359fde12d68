"""Weighted metrics against scikit-learn and scipy on resamples that are written out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import f1_score, matthews_corrcoef

from fairseq_tn.evaluation.aggregates import AGGREGATES, aggregate

SEEDS = st.integers(0, 2**32 - 1)


def drawn(generator: np.random.Generator, size: int, rows: int = 3) -> np.ndarray:
    return generator.multinomial(size, np.full(size, 1 / size), size=rows)


def written_out(weights: np.ndarray, *columns: np.ndarray):
    return ([np.repeat(column, row) for column in columns] for row in weights)


@given(SEEDS, st.integers(2, 40))
@settings(max_examples=30, deadline=None)
def test_matthews_and_f1_are_scikit_learns(seed, size):
    generator = np.random.default_rng(seed)
    prediction, gold = generator.integers(0, 2, size=(2, size))
    weights = drawn(generator, size)
    columns = {"prediction": prediction, "gold": gold}
    counts = {"correct": prediction & gold, "predicted": prediction, "gold": gold}
    for value, f1, (p, g) in zip(
        aggregate("matthews", columns, weights),
        aggregate("f1", counts, weights),
        written_out(weights, prediction, gold),
        strict=True,
    ):
        assert value == pytest.approx(100 * matthews_corrcoef(g, p), abs=1e-7)
        assert f1 == pytest.approx(100 * f1_score(g, p, zero_division=0), abs=1e-9)


@given(SEEDS, st.integers(3, 40), st.sampled_from([1, 100]))
@settings(max_examples=30, deadline=None)
def test_correlations_are_scipys(seed, size, different):
    """``different`` 1 gives many equal values, whose ranks are shared."""
    generator = np.random.default_rng(seed)
    first = generator.normal(size=size).round(1 if different == 1 else 6)
    second = (first + generator.normal(size=size)).round(different == 1)
    weights = drawn(generator, size)
    columns = {"prediction": first, "gold": second}
    pearson, spearman = (aggregate(name, columns, weights) for name in ("pearson", "spearman"))
    for row, (p, g) in enumerate(written_out(weights, first, second)):
        if len(set(p)) == 1 or len(set(g)) == 1:
            assert pearson[row] == spearman[row] == 0
        else:
            assert pearson[row] == pytest.approx(100 * pearsonr(p, g)[0], abs=1e-7)
            assert spearman[row] == pytest.approx(100 * spearmanr(p, g)[0], abs=1e-7)


def test_mean_by_hand():
    weights = np.array([[1, 1, 1, 1], [0, 3, 1, 0]])
    np.testing.assert_allclose(aggregate("mean", {"score": [1, 0, 0.5, 1]}, weights), [62.5, 12.5])


def test_what_is_undefined_is_zero():
    constant = {"prediction": np.full(7, 0.1), "gold": np.arange(7)}
    assert [aggregate(name, constant).item() for name in ("matthews", "pearson", "spearman")] == [0, 0, 0]
    nothing = np.zeros(3)
    assert aggregate("f1", {"correct": nothing, "predicted": nothing, "gold": nothing}).item() == 0


def test_perfect_is_100():
    numbers = np.array([0.0, 1, 1, 0])
    for name, one in AGGREGATES.items():
        assert aggregate(name, dict.fromkeys(one.columns, numbers + (name == "mean"))).item() >= 100 - 1e-9
