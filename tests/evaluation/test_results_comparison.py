"""Means over seeds and the paired bootstrap, against plain loops."""

import dataclasses

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import matthews_corrcoef
from small_results import files, result, scores

from fairseq_tn.errors import UserError
from fairseq_tn.evaluation.comparison import compare


def test_mean_deviation_best_and_seeds():
    found = compare(
        files(
            result("tacl", 2, scores(1, 1, 0, 0)),
            result("mt", 1, scores(0, 0, 0, 1)),
            result("tacl", 1, scores(1, 1, 1, 0)),
        )
    )
    assert found.methods == ("tacl", "mt")
    (one,) = found.data_sets
    tacl, mt = one.rows
    assert (tacl.seeds, tacl.values) == ((1, 2), (75, 50))
    assert (tacl.mean, tacl.best) == (62.5, 75)
    assert tacl.deviation == pytest.approx(12.5 * 2**0.5)
    assert (mt.mean, mt.deviation, mt.best, mt.difference) == (25, None, 25, None)
    assert (one.task, one.metric, one.num_examples) == ("RTE", "accuracy", 4)


@pytest.mark.parametrize("name", ["mean", "matthews", "spearman"])
def test_bootstrap_is_that_of_a_plain_loop(name):
    generator = np.random.default_rng(5)
    size, resamples, runs = 30, 40, {"base": [], "new": []}
    gold = generator.integers(0, 2, size=size) if name != "spearman" else generator.normal(size=size)
    for method, noise in (("base", 0.4), ("new", 0.2)):
        for _ in range(2):
            if name == "spearman":
                prediction = gold + 3 * noise * generator.normal(size=size)
            else:
                prediction = np.where(generator.random(size) < noise, 1 - gold, gold)
            runs[method].append(prediction)

    def columns(prediction):
        return scores(*(prediction == gold)) if name == "mean" else {"prediction": prediction, "gold": gold}

    measure = {
        "mean": lambda p, g: 100 * (p == g).mean(),
        "matthews": lambda p, g: 100 * matthews_corrcoef(g, p),
        "spearman": lambda p, g: 100 * spearmanr(p, g)[0],
    }[name]
    found = compare(
        files(*(result(m, s, columns(p), name) for m, ps in runs.items() for s, p in enumerate(ps))),
        baseline="base",
        resamples=resamples,
        seed=3,
    )
    same = np.random.default_rng(3)
    drawn = []
    for _ in range(resamples):
        rows = same.integers(size, size=size)
        new, base = (np.mean([measure(p[rows], gold[rows]) for p in runs[m]]) for m in ("new", "base"))
        drawn.append(new - base)
    base, new = found.data_sets[0].rows
    assert base.difference is None
    assert new.difference.value == pytest.approx(new.mean - base.mean)
    assert (new.difference.low, new.difference.high) == pytest.approx(
        tuple(np.percentile(drawn, [2.5, 97.5]))
    )
    below, above = sum(v <= 1e-9 for v in drawn), sum(v >= -1e-9 for v in drawn)
    assert new.difference.p == pytest.approx(min(1, 2 * (min(below, above) + 1) / (resamples + 1)))


def test_bootstrap_is_repeatable_seeded_and_the_same_in_blocks(monkeypatch):
    generator = np.random.default_rng(1)
    results = files(*(result(m, 1, scores(*generator.integers(0, 2, 50))) for m in ("base", "new")))

    def difference(seed):
        return compare(results, "base", 100, seed).data_sets[0].rows[1].difference

    assert difference(1) == difference(1) != difference(2)
    whole = difference(1)
    monkeypatch.setattr("fairseq_tn.evaluation.comparison._BLOCK", 350)
    assert dataclasses.astuple(difference(1)) == pytest.approx(dataclasses.astuple(whole))


def test_what_the_bootstrap_must_say():
    same, better = scores(*[1, 0] * 50), scores(*[1] * 100)
    found = compare(
        files(result("base", 1, same), result("same", 1, same), result("better", 1, better)), "base", 500
    )
    _, equal, above = (row.difference for row in found.data_sets[0].rows)
    assert (equal.value, equal.low, equal.high, equal.p) == (0, 0, 0, 1)
    assert above.value == 50
    assert 30 < above.low < 50 < above.high < 70
    assert above.p == pytest.approx(2 / 501)


def test_pairing_counts():
    """Two methods that err on the same examples but for one differ surely, unlike two that err anywhere."""
    base = np.array([1, 0] * 100)
    paired, unpaired = base.copy(), 1 - base
    paired[1:41:2] = unpaired[:20] = 1
    found = compare(
        files(*(result(m, 1, scores(*v)) for m, v in (("base", base), ("paired", paired), ("un", unpaired)))),
        "base",
        500,
    )
    widths = [row.difference.high - row.difference.low for row in found.data_sets[0].rows[1:]]
    assert widths[0] < widths[1] / 2


def test_a_data_set_without_the_baseline_has_no_differences():
    found = compare(
        files(result("mt", 1, scores(1, 0)), result("tacl", 1, scores(1, 1), task="CoLA", examples="c")), "mt"
    )
    assert [row.difference for one in found.data_sets for row in one.rows] == [None, None]


def test_splits_and_tasks_are_apart():
    found = compare(
        files(
            result("mt", 1, scores(1, 0)),
            result("mt", 1, scores(1, 1, 0), split="test", examples="t"),
            result("mt", 1, scores(1, 1, 0), task="CoLA", examples="c"),
        )
    )
    assert [(one.task, one.split) for one in found.data_sets] == [
        ("RTE", "valid"),
        ("RTE", "test"),
        ("CoLA", "valid"),
    ]


@pytest.mark.parametrize(
    ("second", "named"),
    [
        (result("tacl", 1, scores(1, 0), examples="other"), "different examples of RTE"),
        (result("tacl", 1, scores(1, 0, 1)), "3 and 2"),
        (result("mt", 1, scores(1, 0)), "both results of mt of seed 1"),
        (
            result("tacl", 1, {"correct": [1, 0], "predicted": [1, 1], "gold": [1, 1]}, "f1"),
            "main metric f1 on RTE",
        ),
    ],
)
def test_what_cannot_be_compared(second, named):
    with pytest.raises(UserError, match=named) as caught:
        compare(files(result("mt", 1, scores(1, 0)), second))
    assert "0.json" in str(caught.value)
    assert "1.json" in str(caught.value)


def test_two_runs_without_a_seed():
    run = result("mt", None, scores(1, 0))
    with pytest.raises(UserError, match="without a seed"):
        compare(files(run, run))
    assert compare(files(run)).data_sets[0].rows[0].seeds == (None,)


def test_unknown_baseline():
    with pytest.raises(UserError, match="--baseline bert is none of the methods of --results: mt"):
        compare(files(result("mt", 1, scores(1, 0))), "bert")
