"""Plots: training curves, self-similarity by layer, cosines of tokens, rates with intervals, singular values.

The colours are those of Okabe and Ito, which colour-blind readers tell apart; line styles and markers carry the
same information in grey. Needs matplotlib (extra ``analysis``).
"""

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fairseq_tn.analysis.lettering import Lettering, lettering
from fairseq_tn.errors import UserError
from fairseq_tn.files import atomic_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fairseq_tn.analysis.layer_similarity import CosineMatrix

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("solid", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)), (0, (9, 3)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

_LONGEST_NAME = 40  # letters of a model's name

# stands for "the colour of the text around" until the SVG is written
_INK = "#123456"

Curve = Mapping[int, float]
# a value and the ends of its interval
Interval = tuple[float, float, float]


def require_matplotlib() -> None:
    """Say in one line what is missing, before any other work is done.

    Raises:
        UserError: matplotlib is not installed.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UserError("plots need matplotlib: pip install 'fairseq_tn[analysis]'") from None


def training_curves(
    curves: Mapping[str, tuple[Curve, Curve]],
    label: str,
    order: Sequence[str],
) -> "Figure":
    """One measure of several runs over the updates.

    Args:
        curves: name of a run -> (values in training, values in validation), each {update: value}.
        label: name and unit of the measure.
        order: all runs of the report, so that a run looks the same in every plot.
    """
    figure, axes = _figure()
    for name, (train, valid) in curves.items():
        style = _style(order, name)
        if train:
            axes.plot(
                list(train),
                list(train.values()),
                **{**style, "marker": "" if len(train) > 1 else "."},
                lw=0.9,
                alpha=0.65,
            )
        if valid:
            axes.plot(list(valid), list(valid.values()), **style, lw=1.7, ms=5, label=name)
        else:
            axes.plot([], [], **style, lw=1.7, ms=5, label=name)
    axes.set_xlabel("updates")
    axes.set_ylabel(label)
    _finish(figure, axes)
    return figure


def similarity_by_layer(values: Mapping[str, Sequence[float]], order: Sequence[str]) -> "Figure":
    """Self-similarity by layer; entry 0 of each sequence belongs to the embeddings."""
    from matplotlib.ticker import MaxNLocator

    figure, axes = _figure()
    for name, layers in values.items():
        axes.plot(range(len(layers)), list(layers), **_style(order, name), lw=1.7, ms=5, label=name)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("layer (0: embeddings)")
    axes.set_ylabel("self-similarity (mean cosine)")
    _finish(figure, axes)
    return figure


def measures_by_layer(
    measures: Mapping[str, Mapping[str, tuple[Sequence[float], Sequence[float]]]],
) -> "Figure":
    """Several measures of several models by layer, side by side; entry 0 of each sequence belongs to the embeddings.

    Args:
        measures: name and unit of a measure -> name of a model -> (values, half widths of their intervals).
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    require_matplotlib()
    order = list(dict.fromkeys(name for models in measures.values() for name in models))
    letters = lettering(order)
    figure = Figure(figsize=(3.5 * len(measures), 3.5), layout="constrained")
    for axes, (label, models) in zip(
        figure.subplots(1, len(measures), squeeze=False)[0], measures.items(), strict=True
    ):
        for name, (values, widths) in models.items():
            axes.errorbar(
                range(len(values)),
                values,
                yerr=widths,
                **_style(order, name),
                lw=1.7,
                ms=5,
                capsize=3,
                label=letters.label(name, order.index(name) + 1, _LONGEST_NAME),
            )
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("layer (0: embeddings)")
        axes.set_ylabel(label)
        _finish_axes(axes)
    _finish_figure(figure, figure.axes[0], columns=4)
    for text in figure.legends[0].get_texts():
        text.set(fontfamily=letters.families, parse_math=False)
    return figure


def cosine_matrices(matrices: "Mapping[str, CosineMatrix]", letters: Lettering) -> "Figure":
    """The cosines of the tokens of one sentence in several models, side by side with one scale of colours.

    The scale spans the cosines off the diagonals. The diagonal itself, always 1, is left white.

    Args:
        matrices: name of a model -> its matrix.
        letters: for the names and the labels of all.
    """
    require_matplotlib()
    import numpy as np
    from matplotlib.figure import Figure

    tokens = max(len(matrix.labels) for matrix in matrices.values())
    panel = min(max(0.17 * tokens, 2.8), 6.8)
    columns = min(len(matrices), 3 if panel < 3.5 else 2)
    rows = -(-len(matrices) // columns)
    figure = Figure(figsize=(panel * columns + 1.9, (panel + 0.8) * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    cosines = {
        name: np.where(np.eye(len(matrix.cosines), dtype=bool), np.nan, matrix.cosines)
        for name, matrix in matrices.items()
    }
    lowest = min(np.nanmin(values) for values in cosines.values())
    highest = max(np.nanmax(values) for values in cosines.values())
    for axes in grid.flat[len(matrices) :]:
        axes.set_axis_off()
    for place, (axes, (name, matrix)) in enumerate(zip(grid.flat, matrices.items(), strict=False), start=1):
        mesh = axes.pcolormesh(
            np.ma.masked_invalid(cosines[name]),
            cmap="cividis",  # evenly spaced in lightness, the same for colour-blind readers
            vmin=lowest,
            vmax=highest if highest > lowest else lowest + 1e-6,
            edgecolors="face",  # no seams between the cells of an SVG
            linewidth=0.1,
        )
        axes.set_aspect("equal")
        axes.invert_yaxis()
        size = min(8.0, 0.8 * 72 * panel / tokens)
        labels = [letters.label(token, number) for number, token in enumerate(matrix.labels, start=1)]
        ticks = [token + 0.5 for token in range(len(labels))]
        text = {"fontsize": size, "fontfamily": letters.families, "parse_math": False, "color": _INK}
        axes.set_xticks(ticks, labels, rotation=90, **text)
        axes.set_yticks(ticks, labels, **text)
        axes.tick_params(length=0, pad=2)
        for spine in axes.spines.values():
            spine.set_color(_INK)
            spine.set_linewidth(0.5)
        axes.set_title(
            f"{letters.label(name, place, _LONGEST_NAME)}, layer {matrix.layer}: mean {matrix.mean:.2f}",
            **{**text, "fontsize": 10},
        )
    bar = figure.colorbar(mesh, ax=list(grid.flat), shrink=0.8, aspect=28)
    bar.set_label("cosine of two tokens' states", color=_INK)
    bar.ax.tick_params(colors=_INK, labelsize=9)
    bar.outline.set_visible(False)
    return figure


def measures_over_training(
    measures: Mapping[str, Mapping[str, Mapping[int, Interval]]],
    references: Mapping[str, tuple[float, str]] | None = None,
    from_zero: bool = True,
) -> "Figure":
    """Several measures of several runs over the updates, side by side, with their intervals.

    Args:
        measures: name and unit of a measure -> name of a run -> updates -> value and interval.
        references: name and unit of a measure -> a value to compare with, drawn as a level line, and what it is.
        from_zero: let the vertical axes begin at 0.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    require_matplotlib()
    order = list(dict.fromkeys(name for runs in measures.values() for name in runs))
    figure = Figure(figsize=(4.2 * len(measures), 3.8), layout="constrained")
    for axes, (label, runs) in zip(
        figure.subplots(1, len(measures), squeeze=False)[0], measures.items(), strict=True
    ):
        for name, curve in runs.items():
            axes.errorbar(
                list(curve),
                [value for value, _, _ in curve.values()],
                yerr=_reaches(curve.values()),
                **_style(order, name),
                lw=1.7,
                ms=5,
                elinewidth=0.9,
                capsize=2,
                label=name,
            )
        if references and label in references:
            value, text = references[label]
            axes.axhline(value, color=_INK, lw=1, ls=(0, (1, 2)), label=text)
        if from_zero:
            _show_zero(axes)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.set_xlabel("updates")
        axes.set_ylabel(label)
        _finish_axes(axes)
    _finish_figure(figure, figure.axes[0], columns=3)
    return figure


def rates_by_group(
    groupings: Mapping[str, Mapping[str, Mapping[str, Interval]]], label: str, reference: tuple[float, str]
) -> "Figure":
    """One rate of several models in groups of tokens, one panel a grouping, with intervals.

    Args:
        groupings: what the tokens are grouped by -> name of a model -> label of a group -> value and interval.
        label: name and unit of the rate.
        reference: a value to compare with, drawn as a level line, and what it is.
    """
    from matplotlib.figure import Figure

    require_matplotlib()
    order = list(dict.fromkeys(name for models in groupings.values() for name in models))
    figure = Figure(figsize=(4.4 * len(groupings), 4.2), layout="constrained")
    panels = figure.subplots(1, len(groupings), squeeze=False, sharey=True)[0]
    for axes, (title, models) in zip(panels, groupings.items(), strict=True):
        groups = list(dict.fromkeys(group for values in models.values() for group in values))
        for number, (name, values) in enumerate(models.items()):
            shift = 0.6 * ((number + 0.5) / len(models) - 0.5)
            axes.errorbar(
                [groups.index(group) + shift for group in values],
                [value for value, _, _ in values.values()],
                yerr=_reaches(values.values()),
                **{**_style(order, name), "linestyle": "none"},
                ms=6,
                elinewidth=1.2,
                capsize=3,
                label=name,
            )
        value, text = reference
        axes.axhline(value, color=_INK, lw=1, ls=(0, (1, 2)), label=text)
        axes.set_xticks(range(len(groups)), groups, rotation=30, ha="right")
        axes.set_xlim(-0.6, len(groups) - 0.4)
        axes.set_xlabel(title)
        _finish_axes(axes)
        axes.grid(False, axis="x")
    _show_zero(panels[0])
    panels[0].set_ylabel(label)
    _finish_figure(figure, panels[0], columns=3)
    return figure


def spectra(values: Mapping[str, Sequence[float]]) -> "Figure":
    """The singular values of several matrices, the largest first, as shares of their sums.

    Args:
        values: name of a model -> singular values in descending order.
    """
    from matplotlib.ticker import NullFormatter

    figure, axes = _figure()
    order = list(values)
    for name, spectrum in values.items():
        total = sum(spectrum)
        shares = [100 * value / total for value in spectrum if value > 0]
        # a few markers: they tell the curves apart in grey
        marks = sorted({round(len(shares) ** (place / 6)) - 1 for place in range(7)})
        style = _style(order, name)
        axes.plot(range(1, len(shares) + 1), shares, **style, markevery=marks, lw=1.7, ms=5, label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("singular value, the largest first")
    axes.set_ylabel("share of their sum (%)")
    _finish(figure, axes)
    return figure


def as_svg(figure: "Figure", title: str) -> str:
    """The figure as an ``<svg>`` element for a web page: no background, text and axes in the page's colour.

    Args:
        figure: one of this module's figures.
        title: what screen readers say; plain text.
    """
    import html

    import matplotlib as mpl

    buffer = io.StringIO()
    # text stays text; a fixed salt keeps the file the same from run to run
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": title}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :].replace(_INK, "currentColor")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # the page gives the width; ids must not collide with those of the other plots in it
    svg = re.sub(r'(<svg\b[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg\b[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    salt = re.sub(r"\W+", "-", title)
    svg = re.sub(r'\bid="', f'id="{salt}-', svg)
    svg = re.sub(r"url\(#", f"url(#{salt}-", svg)
    svg = re.sub(r'href="#', f'href="#{salt}-', svg)
    return svg.replace(">", f' role="img" aria-label="{html.escape(title, quote=True)}">', 1)


def as_png(figure: "Figure") -> bytes:
    """The figure as a PNG image, dark on white."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150, facecolor="white")
    return buffer.getvalue()


def save_figure(figure: "Figure", folder: Path, name: str) -> list[Path]:
    """Write ``name``.png and ``name``.svg into ``folder``, dark on white; returns their paths.

    The letters of the SVG are drawn as paths: it looks the same where our fonts are missing. The same figure gives
    the same file.
    """
    import matplotlib as mpl

    files = []
    for ending in ("png", "svg"):
        file = folder / f"{name}.{ending}"
        with atomic_path(file) as path:
            if ending == "png":
                path.write_bytes(as_png(figure))
            else:
                with mpl.rc_context({"svg.fonttype": "path", "svg.hashsalt": name}):
                    figure.savefig(path, format="svg", facecolor="white", metadata={"Date": None})
        files.append(file)
    return files


def _figure():
    require_matplotlib()
    # no pyplot: it would pick a window system and keep every figure alive
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 3.7), layout="constrained")
    return figure, figure.add_subplot()


def _reaches(intervals: Iterable[Interval]) -> list[list[float]]:
    """How far intervals reach below and above their values."""
    return [
        list(reach)
        for reach in zip(*((value - low, high - value) for value, low, high in intervals), strict=True)
    ]


def _show_zero(axes) -> None:
    """Begin the vertical axis a little below 0, so that points at 0 are whole."""
    top = axes.get_ylim()[1]
    axes.set_ylim(-0.04 * top, top)


def _style(order: Sequence[str], name: str) -> dict:
    index = order.index(name)
    colour = COLOURS[index % len(COLOURS)]
    return {
        "color": colour,
        "linestyle": DASHES[index % len(DASHES)],
        "marker": MARKERS[index % len(MARKERS)],
        "markerfacecolor": colour,
        "markeredgecolor": colour,
    }


def _finish(figure, axes) -> None:
    _finish_axes(axes)
    # three names of ours would not fit in a browser with wide letters
    _finish_figure(figure, axes, columns=2)


def _finish_axes(axes) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(_INK)
    axes.tick_params(colors=_INK, labelsize=9)
    axes.xaxis.label.set_color(_INK)
    axes.yaxis.label.set_color(_INK)
    axes.grid(True, color=_INK, alpha=0.15, lw=0.6)


def _finish_figure(figure, axes, columns: int) -> None:
    figure.legend(
        *axes.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=columns,
        fontsize=9,
        frameon=False,
        labelcolor=_INK,
        handlelength=3.2,
    )
