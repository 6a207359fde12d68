"""What is on the figures: the numbers, one scale of colours, labels that can be read."""

import numpy as np
import pytest

from fairseq_tn.analysis.layer_similarity import CosineMatrix
from fairseq_tn.analysis.lettering import lettering
from fairseq_tn.analysis.plots import cosine_matrices, measures_by_layer, save_figure


def matrix(labels, lowest, highest):
    values = np.linspace(lowest, highest, len(labels) ** 2).reshape(len(labels), -1)
    np.fill_diagonal(values, 1)
    return CosineMatrix(labels, values, layer=2, length=len(labels), mean=0.25)


def panels(figure):
    return [axes for axes in figure.axes if axes.get_title()]


def test_models_share_one_scale_which_the_diagonal_does_not_stretch():
    matrices = {"MT": matrix(["the", "$x_1$"], 0.1, 0.4), "TaCL": matrix(["the", "old", "##s"], -0.2, 0.3)}
    letters = lettering(["the", "$x_1$", "old", "##s"])
    figure = cosine_matrices(matrices, letters)
    drawn = panels(figure)
    assert [axes.get_title() for axes in drawn] == ["MT, layer 2: mean 0.25", "TaCL, layer 2: mean 0.25"]
    for axes, (_, given) in zip(drawn, matrices.items(), strict=True):
        (mesh,) = axes.collections
        shown = mesh.get_array().reshape(given.cosines.shape)
        off = ~np.eye(len(given.labels), dtype=bool)
        np.testing.assert_array_equal(np.ma.getmaskarray(shown), ~off)
        np.testing.assert_array_equal(shown[off].data, given.cosines[off])
        assert mesh.get_clim() == pytest.approx((-0.1375, 0.3))
        assert [label.get_text() for label in axes.get_yticklabels()] == given.labels
        assert [label.get_text() for label in axes.get_xticklabels()] == given.labels
        assert axes.yaxis_inverted()
    # the dollar signs are no formula, and drawing succeeds
    figure.draw_without_rendering()
    assert figure.axes[-1].get_ylabel() == "cosine of two tokens' states"


@pytest.fixture
def only_fonts(monkeypatch):
    """Lets matplotlib know, of its own fonts, those of some names only, whatever is installed."""
    from matplotlib.font_manager import fontManager

    def keep(*names):
        kept = [font for font in fontManager.ttflist if font.name in names and "mpl-data" in font.fname]
        monkeypatch.setattr(fontManager, "ttflist", kept)
        return kept

    return keep


def test_letters_that_no_font_has_become_numbers(only_fonts):
    only_fonts("DejaVu Sans", "Last Resort High-Efficiency")
    tokens = ["word", "a数", "é"]
    letters = lettering([*tokens, "学"])
    assert letters.missing == "学数"
    assert letters.families == ["DejaVu Sans"]
    assert [letters.label(token, number) for number, token in enumerate(tokens, 1)] == ["word", "(2)", "é"]
    assert letters.label("internationalisation", 1) == "international…"
    assert letters.label("a\u2028b", 1) == "a\\u2028b"
    figure = cosine_matrices({"m": matrix(tokens[:2], 0, 0.5)}, letters)
    assert [label.get_text() for label in panels(figure)[0].get_xticklabels()] == ["word", "(2)"]


def test_a_font_is_found_for_letters_that_the_usual_one_lacks(only_fonts):
    from matplotlib.ft2font import FT2Font

    plain, *others = only_fonts("STIXGeneral", "DejaVu Sans")
    fonts = {font.name: FT2Font(font.fname).get_charmap() for font in (plain, *others)}
    lacking = sorted(set(fonts["STIXGeneral"]) - set(fonts["DejaVu Sans"]))
    letter = next(chr(code) for code in lacking if chr(code).isalpha())
    letters = lettering(["a", letter])
    assert letters.families == ["DejaVu Sans", "STIXGeneral"]
    assert (letters.missing, letters.label(letter, 1)) == ("", letter)


def test_curves_hold_values_and_intervals():
    measures = {
        "self-similarity": {"MT": ([0.1, 0.2], [0.01, 0.02]), "TaCL": ([0.1, 0.3, 0.4], [0.0, 0.0, 0.05])},
        "adjusted": {"MT": ([0.0, 0.1], [0.0, 0.0]), "TaCL": ([float("nan")] * 3, [0.0] * 3)},
    }
    figure = measures_by_layer(measures)
    assert [axes.get_ylabel() for axes in figure.axes] == list(measures)
    for axes, models in zip(figure.axes, measures.values(), strict=True):
        assert axes.get_xlabel() == "layer (0: embeddings)"
        for bars, (name, (values, widths)) in zip(axes.containers, models.items(), strict=True):
            line, _, (segments,) = bars.lines
            assert bars.get_label() == name
            np.testing.assert_array_equal(np.asarray(line.get_ydata(), dtype=float), values)
            half = [(high - low) / 2 for (_, low), (_, high) in filter(len, segments.get_segments())]
            np.testing.assert_allclose(
                half, [w for w, v in zip(widths, values, strict=True) if v == v], atol=1e-12
            )
    lines = [container.lines[0] for container in figure.axes[0].containers]
    # told apart without colours
    assert lines[0].get_marker() != lines[1].get_marker()
    assert lines[0].get_linestyle() != lines[1].get_linestyle()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["MT", "TaCL"]


def test_saved_figures_repeat_byte_for_byte(tmp_path):
    contents = []
    for folder in ("one", "two"):
        figure = measures_by_layer({"adjusted": {"m": ([0.1, 0.2], [0.0, 0.0])}})
        written = save_figure(figure, tmp_path / folder, "curve")
        assert [path.name for path in written] == ["curve.png", "curve.svg"]
        contents.append([path.read_bytes() for path in written])
        assert sorted(path.name for path in (tmp_path / folder).iterdir()) == ["curve.png", "curve.svg"]
    assert contents[0] == contents[1]
    assert contents[0][0].startswith(b"\x89PNG")
    assert b"</svg>" in contents[0][1]
