"""`mxsame.plot_padding`: what is on the picture is read back from it, and compared with the rule."""

import itertools
import sys

import pytest

import mxsame
from mxsame import drawing, padding

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install '.[cli]'")

from matplotlib.colors import same_color
from matplotlib.figure import Figure


def drawn(*args, **named):
    """The picture, on a figure that pyplot does not know."""
    return mxsame.plot_padding(*args, ax=Figure((9, 6)).subplots(), **named)


def kernel_elements(ax):
    """[(position, whether it is full)] of each line of windows, from the top."""
    rows = {}
    for patch in ax.patches:
        if patch.get_height() == drawing.HEIGHT:
            full = not same_color(patch.get_facecolor(), "white")
            rows.setdefault(round(patch.get_y(), 6), []).append((round(patch.get_x()), full))
    return [sorted(row) for _, row in sorted(rows.items())]


def titles(ax):
    return [text.get_text() for text in ax.texts if text.get_weight() == "bold"]


def labels(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_kernel_elements_are_where_the_rule_puts_them():
    seen = 0
    for size, kernel_size, stride, dilation in itertools.product((1, 5, 10), (1, 3, 4), (1, 3), (1, 2)):
        low, high = padding.same_pads(size, kernel_size, stride, dilation)
        ax = drawn(size, kernel_size, stride, dilation)
        rows = kernel_elements(ax)
        assert len(rows) == padding.output_size(size, kernel_size, stride, dilation)
        for window, row in enumerate(rows):
            positions = [window * stride - low + number * dilation for number in range(kernel_size)]
            assert row == [(position, 0 <= position < size) for position in positions]
            seen += 1
        written = [text.get_text() for text in ax.texts]
        assert written.count("pad") == low + high
        assert [text for text in written if text.isdigit()] == [str(number) for number in range(size)]
        assert ("skipped by dilation" in labels(ax)) == (dilation > 1)
    assert seen > 100


def test_a_second_padding_is_drawn_below_with_its_shift():
    ax = drawn(8, 3, 2, compare_with="symmetric")
    first = [row[0][0] for row in kernel_elements(ax)]
    assert first == [0, 2, 4, 6, -1, 1, 3, 5]
    frames = [patch for patch in ax.patches if patch.get_width() == 3 and patch.get_linestyle() != "solid"]
    assert sorted(frame.get_x() for frame in frames) == [0, 2, 4, 6], "the windows of SAME"
    assert titles(ax) == ["same: pads (0, 1), 4 outputs", "symmetric: pads (1, 1), 4 outputs, each 1 element too early"]
    assert labels(ax)[-1] == 'the windows of "same"'


SYMMETRIC, UP, SHORT = {"compare_with": "Symmetric"}, (4, 3, 2), (4, 2, 3)  # the last two of transposed convolutions


@pytest.mark.parametrize(
    ("window", "more", "title"),
    [
        ((6, 4), SYMMETRIC, "symmetric: pads (2, 2), 7 outputs instead of 6, each 1 element too early"),
        ((6, 3), {"compare_with": (0, 2)}, "explicit: pads (0, 2), 6 outputs, each 1 element too late"),
        ((5, 3), {"padding": "causal"}, "causal: pads (2, 0), 5 outputs"),
        ((1, 1), {"padding": 0}, "explicit: pads (0, 0), 1 output"),
        (UP, SYMMETRIC, "symmetric: crops (1, 1), 7 outputs instead of 8, each 1 element too early"),
        (UP, {"output_padding": 0}, "same: crops (1, 1), 7 outputs"),
        (SHORT, {}, "same: crops (0, 0), 12 outputs, the last 1 without input"),
    ],
)
def test_titles_name_what_is_drawn(window, more, title):
    assert titles(drawn(*window, **more, transposed=window in (UP, SHORT)))[-1] == title


def test_a_transposed_convolution_shows_where_inputs_are_written():
    ax = drawn(4, 3, 2, transposed=True)
    assert kernel_elements(ax)[-1] == [(6, True), (7, True), (8, False)]
    assert [text.get_text() for text in ax.texts].count("crop") == 1
    assert kernel_elements(drawn(4, 2, 3, transposed=True))[-1] == [(9, True), (10, True)]  # 11 is the bias


def test_of_many_windows_both_ends_are_drawn():
    ax = drawn(224, 7, 2, compare_with="symmetric")
    written = [text.get_text() for text in ax.texts]
    drawn_outputs = [text for text in written if text.startswith("output")][:6]
    assert drawn_outputs == [f"output {number}" for number in (0, 1, 2, 109, 110, 111)]
    assert "223" in written and "100" not in written and written.count("...") == 4
    assert max(patch.get_x() for patch in ax.patches) < 40


def test_without_axes_there_is_a_new_figure():
    from matplotlib import pyplot

    before = pyplot.get_fignums()
    ax = mxsame.plot_padding(8, 3)
    assert ax.figure.number not in before
    pyplot.close(ax.figure)
    ax = drawn(8, 3)
    assert pyplot.get_fignums() == before


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0, 3), ValueError, "size must be an integer >= 1; received size=0"),
        ((8, 3, 1, 1, "symmetrical"), ValueError, "received padding='symmetrical'"),
        ((900, 3, 1, 60), ValueError, "at most 120 elements wide; received kernel_size=3, stride=1, dilation=60"),
    ],
)
def test_refusals(arguments, error, message):
    with pytest.raises(error, match=message):
        mxsame.plot_padding(*arguments)


def test_a_missing_matplotlib_is_named_with_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"needs matplotlib, .*fix it with: .* -m pip install matplotlib"):
        mxsame.plot_padding(8, 3)
