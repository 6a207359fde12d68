"""The figures of rates and of singular values: what is drawn, named and compared."""

import pytest

from fairseq_tn.analysis.plots import measures_over_training, rates_by_group, spectra


def bars(axes):
    """Label -> for each point (value, low, high)."""
    found = {}
    for container in axes.containers:
        line, _, (segments,) = container.lines
        ends = [tuple(segment[:, 1]) for segment in segments.get_segments()]
        found[container.get_label()] = [
            (float(value), float(low), float(high))
            for value, (low, high) in zip(line.get_ydata(), ends, strict=True)
        ]
    return found


def test_measures_over_training_with_intervals_and_references():
    rates = {
        "% of a": {"one": {10: (2.0, 1.0, 5.0), 20: (3.0, 3.0, 3.0)}, "two": {10: (0.0, 0.0, 0.0)}},
        "% of b": {"one": {10: (7.0, 6.0, 8.0)}},
    }
    figure = measures_over_training(rates, {"% of b": (7.5, "paper")})
    first, second = figure.axes
    assert [axes.get_ylabel() for axes in figure.axes] == ["% of a", "% of b"]
    assert {axes.get_xlabel() for axes in figure.axes} == {"updates"}
    assert bars(first) == {"one": [(2.0, 1.0, 5.0), (3.0, 3.0, 3.0)], "two": [(0.0, 0.0, 0.0)]}
    assert list(first.containers[0].lines[0].get_xdata()) == [10, 20]
    assert "paper" in [line.get_label() for line in second.lines]
    assert "paper" not in [line.get_label() for line in first.lines]
    beside = measures_over_training({"rank": {"one": {1: (113.0,) * 3, 2: (112.0,) * 3}}}, from_zero=False)
    assert beside.axes[0].get_ylim()[0] > 100
    low, high = first.get_ylim()
    assert low < 0  # a point at 0 is whole
    assert high >= 5
    figure.draw_without_rendering()


def test_rates_by_group_share_an_axis_that_holds_them_all():
    groupings = {
        "part": {"A": {"noun": (1.0, 0.5, 2.0), "verb": (3.0, 2.0, 4.0)}, "B": {"verb": (0.0, 0.0, 0.0)}},
        "frequency": {"A": {"1–5": (9.0, 1.0, 40.0)}, "B": {"1–5": (2.0, 1.0, 3.0)}},
    }
    figure = rates_by_group(groupings, "rate (%)", (1.4, "paper"))
    first, second = figure.axes
    assert [label.get_text() for label in first.get_xticklabels()] == ["noun", "verb"]
    assert [axes.get_xlabel() for axes in figure.axes] == ["part", "frequency"]
    assert bars(first)["B"] == [(0.0, 0.0, 0.0)]
    assert first.get_ylim() == second.get_ylim()
    assert first.get_ylim()[1] >= 40
    # models stand beside each other around the group's place
    places = {c.get_label(): list(c.lines[0].get_xdata()) for c in first.containers}
    assert places["A"][1] < 1 < places["B"][0]
    figure.draw_without_rendering()


def test_spectra_are_shares_of_the_sum():
    figure = spectra({"A": [6.0, 3.0, 1.0], "B": [1.0, 1.0, 0.0]})
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    assert list(lines["A"].get_ydata()) == pytest.approx([60, 30, 10])
    assert list(lines["B"].get_ydata()) == pytest.approx([50, 50])  # a logarithm has no place for 0
    assert list(lines["A"].get_xdata()) == [1, 2, 3]
    figure.draw_without_rendering()
