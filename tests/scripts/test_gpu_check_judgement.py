"""What scripts/gpu_check.py makes of the logs of its runs."""

import math

import pytest
from gpu_check import judge, largest_difference, read_log

STEP = '2026-01-01 10:00:00 | INFO | train_inner | {{"mlm_loss": "{}", "tacl_loss": "{}"}}\n'


def row(curves: dict, **others) -> dict:
    return {"curves": curves, "overflows": 0, "failures": [], **others}


def test_log_gives_curves_and_overflows():
    text = (
        STEP.format(9.5, 3)
        + "| fairseq.optim | NOTE: gradient overflow detected, ignoring\n"
        + STEP.format(9, 2)
    )
    assert read_log(text) == {"curves": {"mlm_loss": [9.5, 9.0], "tacl_loss": [3.0, 2.0]}, "overflows": 1}


@pytest.mark.parametrize(
    ("curve", "agree"),
    [
        ([10.0] * 20, True),
        ([10.1] * 20, True),
        ([10.0] * 10 + [10.3] * 10, False),
        ([10.3, 9.7] * 10, True),  # noise averages out
        ([10.0] * 19, False),
        ([10.0] * 19 + [math.nan], False),
    ],
)
def test_curves_agree_within_noise(curve, agree):
    assert largest_difference([10.0] * 20, curve)[1] is agree


@pytest.mark.parametrize(
    ("changes", "failure"),
    [
        ({"overflows": 2}, "2 overflows"),
        ({"waits": "losses.py:7"}, "waits for the device at losses.py:7"),
        ({"curves": {"mlm_loss": [9.0, math.inf]}}, "mlm_loss is not finite"),
        ({"curves": {"mlm_loss": [9.0, 12.0]}}, "mlm_loss differs from fp32"),
        ({"curves": {"mlm_loss": [9.0]}}, "1 of 2 updates logged mlm_loss"),
        ({"curves": {}}, "no losses in the log"),
    ],
)
def test_failures_are_named(changes, failure):
    reference = {"mlm_loss": [9.0, 8.0]}
    good, bad = row(reference), row(**{"curves": reference, **changes})
    for each in (good, bad):
        judge(each, reference, exact=False, updates=2)
    assert good["failures"] == []
    assert failure in bad["failures"]


def test_a_repeated_run_must_be_equal():
    again = row({"mlm_loss": [9.0, 8.0 + 1e-3]})
    judge(again, {"mlm_loss": [9.0, 8.0]}, exact=True, updates=2)
    assert again["failures"] == ["mlm_loss differs from fp32"]
