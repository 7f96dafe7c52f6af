"""Shapes of plots: every place by hand on a canvas of known size."""

import re

import pytest

from tests.pages import series
from validate.report.plots import BODY, LEFT, RIGHT, ROW, TOP, WIDTH, draw
from validate.report.plots_scale import linear, logarithmic
from validate.schema.series import Series


def plot(kind="lines", **changes):
    """One drawn series."""
    return draw(Series.model_validate(series("logits.x", kind, **changes)))


def axis(scale="linear", unit=""):
    """An axis of values."""
    return {"label": "v", "unit": unit, "scale": scale}


def line(values, role="cand", **ends):
    """One line."""
    return {"name": role, "role": role, "values": values, **ends}


def x(share, inset=12.0):
    """Pixel of a share of the plotting width."""
    low, high = LEFT + inset, WIDTH - RIGHT - inset
    return low + share * (high - low)


def y(share):
    """Pixel of a share of the plotting height."""
    return TOP + BODY - share * BODY


def test_a_line_runs_through_its_values():
    """0, 5 and 10 of 10, at the middles of three places."""
    found = plot(y=axis(), lines=[line([0.0, 5.0, 10.0])])

    step = (x(1) - x(0)) / 3
    xs = [round(x(0) + (place + 0.5) * step, 1) for place in range(3)]
    expected = "".join(
        f"{pen}{at:g} {y(share):g}" for pen, at, share in zip("MLL", xs, (0, 0.5, 1), strict=True)
    )
    assert found.strokes[0].path == expected
    assert [mark.x for mark in found.marks] == xs


def test_places_that_are_numbers_lie_where_they_are():
    """0, 1 and 10: the middle one a tenth of the way."""
    found = plot(
        y=axis(),
        x={"label": "p", "places": ["0", "1", "10"], "at": [0, 1, 10]},
        lines=[line([1.0, 1.0, 1.0])],
    )

    assert [mark.x for mark in found.marks] == [x(0), round(x(0.1), 1), x(1)]


def test_a_missing_value_interrupts_the_line():
    """Nothing is drawn across it, no marker stands there, and values alone are dots."""
    found = plot(y=axis(), lines=[line([1.0, None, 2.0])])

    assert found.strokes[0].path.count("M") == 2
    assert "L" not in found.strokes[0].path
    assert found.strokes[0].path.count("h0") == 2
    assert len(found.marks) == 2


def test_a_band_lies_between_its_ends():
    """Up along the high ends, back along the low ones."""
    found = plot(
        y=axis(),
        lines=[line([5.0, 5.0, 5.0], low=[0.0, 0.0, 0.0], high=[10.0, 10.0, 10.0])],
    )

    numbers = [float(one) for one in re.findall(r" ([\d.]+)", found.areas[0].path)]
    assert numbers == [y(1)] * 3 + [y(0)] * 3


def test_steps_keep_a_level_until_the_next_place():
    """A Kaplan-Meier curve falls at once and not on a slope."""
    found = plot("steps", y=axis(), lines=[line([1.0, 1.0, 0.5])])

    assert re.fullmatch(r"M[\d.]+ [\d.]+(H[\d.]+V[\d.]+){2}", found.strokes[0].path)


def test_bars_stand_on_the_axis_and_the_expected_line_lies_across():
    """Two bars a place share its width."""
    expected = {**line([1.0, 1.0, 1.0], "expected"), "low": [0.5] * 3, "high": [2.0] * 3}
    found = plot("bars", y=axis(), lines=[line([2.0, 1.0, None]), line([1.0, 1.0, 1.0]), expected])

    bars = [mark for mark in found.marks if mark.css.startswith("bar")]
    assert len(bars) == 5
    assert all(f" {TOP + BODY:g}V" in bar.path for bar in bars)
    assert bars[0].path.split("V")[1].startswith(f"{TOP:g}h")
    assert len(found.strokes) == len(found.areas) == 1


def test_shades_of_a_heat_map_follow_the_values():
    """The largest is darkest, half of it half as dark, none stays empty."""
    found = plot(
        "heat", y=axis(unit="rel-L2"), lines=[line([0.4, 0.2, None]), line([0.0, 0.1, 0.3])]
    )

    shades = [round(cell.shade * 24) for cell in found.cells]
    assert shades == [24, 12, 1, 6, 18]
    assert found.bottom == TOP + 2 * ROW
    assert found.cells[0].title == "cand, position 0 to 9: 0.4 rel-L2"
    assert found.legend[0].name == "darkest: 0.4 rel-L2"


def test_a_large_heat_map_is_one_path_a_shade():
    """93 layers of 96 heads stay small; every cell is still there."""
    lines = [line([1e-3 * (1 + (row * column) % 50) for column in range(96)]) for row in range(93)]
    places = [f"{head}" for head in range(96)]
    found = plot("heat", y=axis(), x={"label": "head", "places": places}, lines=lines)

    assert len(found.cells) <= 24
    assert sum(cell.path.count("M") for cell in found.cells) == 93 * 96


def test_a_ratio_without_an_end_runs_to_the_edge():
    """An interval that nothing bounds is not drawn as a short one."""
    found = plot(
        "ratios",
        y=axis("log"),
        lines=[
            line([1.0, 30.0, None], low=[0.1, 3.0, None], high=[2.0, None, None]),
            line([1.0, 1.0, 1.0], "expected"),
        ],
    )

    ends = [stroke.path for stroke in found.strokes if stroke.css.startswith("ends")]
    assert len(ends) == 2
    assert ends[1].endswith(f"H{WIDTH - RIGHT:g}")
    assert len(found.marks) == 2


def test_zero_on_a_logarithmic_scale_stands_on_the_edge_and_is_told():
    """A/A gives exactly 0, which no logarithm has a place for."""
    found = plot(y=axis("log"), lines=[line([0.0, 1e-4, 1e-2])])

    assert found.clamped
    assert found.marks[0].y == y(0)


def test_all_zero_still_is_a_plot():
    """Ref against itself."""
    found = plot(y=axis("log"), lines=[line([0.0, 0.0, 0.0])])

    assert [mark.y for mark in found.marks] == [y(0)] * 3


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([0.1, 0.42], ["0", "0.1", "0.2", "0.3", "0.4", "0.5"]),
        ([-3.0, 7.0], ["-4", "-2", "0", "2", "4", "6", "8"]),
        ([0.0], ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        ([], ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
    ],
)
def test_ticks_of_a_linear_scale_are_round(values, labels):
    """1, 2, 2.5 or 5 times a power of ten, about five of them, around all values."""
    assert [tick.label for tick in linear(values, start=0.0, end=1.0).ticks] == labels


def test_a_logarithmic_scale_is_in_whole_decades():
    """At most eight: what is smaller lies on the edge."""
    scale = logarithmic([1e-15, 0.5], start=0.0, end=80.0)

    assert [tick.label for tick in scale.ticks][::4] == ["1e-08", "0.0001", "1"]
    assert [scale.at(value) for value in (1e-15, 1e-8, 1e-4, 1.0, 5.0)] == [0, 0, 40, 80, 80]


@pytest.mark.parametrize(
    "changes",
    [
        {"lines": [line([1.0, 2.0])]},
        {"lines": [line([1.0, 2.0, 3.0], low=[1.0])]},
        {"x": {"label": "p", "places": ["a"], "at": [1, 2]}, "lines": [line([1.0])]},
    ],
)
def test_a_series_whose_lengths_differ_is_refused(changes):
    """A line against the wrong places would still look like a plot."""
    with pytest.raises(ValueError, match=r"series logits.x: \d places, lines of \["):
        Series.model_validate(series("logits.x", **changes))
