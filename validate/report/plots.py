"""A series into the shapes of one SVG: coordinates are laid out here, no figure is computed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from validate.gates.outcome import number
from validate.report.plots_scale import Scale, Tick, every, linear, logarithmic
from validate.schema.series import Series, SeriesLine

__all__ = ["Cell", "Key", "Plot", "Shape", "draw"]

WIDTH = 720.0
LEFT, RIGHT, TOP, BOTTOM = 78.0, 14.0, 14.0, 42.0
BODY = 220.0
"""Height of the plotting area of all but heat maps and ratios."""
ROW = 17.0
NAMES = 150.0
"""Width of the column of names in heat maps and ratios."""
MOST_LABELS = 12
LABEL_CHARACTERS = 9
"""Longer place names are written slanted."""
SLANT = 24.0
"""Height that slanted names take in addition."""
LEVELS = 24
"""Shades of a heat map."""
TOLD_CELLS = 600
"""Cells up to which each carries its own tooltip."""
NARROW = 5.0
"""Values closer together than this factor are drawn on a linear scale."""
MARKED = 60
"""Places up to which each has a marker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One path or marker and the class that styles it."""

    css: str
    path: str = ""
    x: float = 0.0
    y: float = 0.0
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One rectangle of a heat map, or all of one shade."""

    path: str
    shade: float
    """Opacity; 0: there is no value."""
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One entry of the legend."""

    css: str
    name: str
    shape: str
    """``line``, ``box`` or ``dot``."""


@dataclass(slots=True, kw_only=True)
class Plot:
    """All shapes of one SVG."""

    series: Series
    number: int
    width: float = WIDTH
    height: float = TOP + BODY + BOTTOM
    left: float = LEFT
    right: float = WIDTH - RIGHT
    top: float = TOP
    bottom: float = TOP + BODY
    x_ticks: tuple[Tick, ...] = ()
    y_ticks: tuple[Tick, ...] = ()
    slanted: bool = False
    sideways: bool = False
    """Values run to the right, and places have names on the left."""
    areas: list[Shape] = field(default_factory=list)
    strokes: list[Shape] = field(default_factory=list)
    marks: list[Shape] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    legend: list[Key] = field(default_factory=list)
    clamped: bool = False
    """Zero or less stands on the lower edge of a logarithmic scale."""


def draw(series: Series, *, number: int = 0) -> Plot:
    """Lay one series out; ``number`` tells it from the other plots of a page."""
    plot = Plot(series=series, number=number)
    kinds = {"heat": _heat, "ratios": _ratios, "bars": _bars}
    kinds.get(series.kind, _lines)(plot)
    return plot


def _css(series: Series) -> list[str]:
    """Role of each line, and which of its role it is."""
    seen: dict[str, int] = {}
    made = []
    for line in series.lines:
        seen[line.role] = seen.get(line.role, 0) + 1
        made.append(f"{line.role} v{min(seen[line.role], 4)}")
    return made


def _values(series: Series) -> Iterator[float]:
    for line in series.lines:
        for values in (line.values, line.low, line.high):
            yield from (value for value in values if value is not None)


def _value_scale(plot: Plot, *, start: float, end: float) -> Scale:
    series = plot.series
    values = list(_values(series))
    if series.y.scale == "log":
        plot.clamped = any(value <= 0 for value in values)
        if not plot.clamped and values and max(values) < NARROW * min(values):
            return linear(values, start=start, end=end, zero=False)
        return logarithmic(values, start=start, end=end)
    return linear(values, start=start, end=end)


def _x_places(plot: Plot, *, inset: float) -> list[float]:
    """Pixel of each place, and the axis' labels."""
    axis = plot.series.x
    count = len(axis.places)
    start, end = plot.left + inset, plot.right - inset
    if axis.at and all(value is not None for value in axis.at) and count > 1:
        known = [value for value in axis.at if value is not None]
        low, high = min(known), max(known)
        scale = Scale(low, high if high > low else low + 1.0, start, end, log=False, ticks=())
        xs = [scale.at(value) for value in known]
    else:
        step = (end - start) / count if count else 0.0
        xs = [round(start + (place + 0.5) * step, 1) for place in range(count)]
    plot.slanted = any(len(label) > LABEL_CHARACTERS for label in axis.places)
    plot.height += SLANT if plot.slanted else 0.0
    written = every(axis.places, most=MOST_LABELS)
    plot.x_ticks = tuple(
        Tick(x, label) for x, label, show in zip(xs, axis.places, written, strict=True) if show
    )
    return xs


def _lines(plot: Plot) -> None:
    series = plot.series
    scale = _value_scale(plot, start=plot.bottom, end=plot.top)
    plot.y_ticks = scale.ticks
    xs = _x_places(plot, inset=12.0)
    for css, line in zip(_css(series), series.lines, strict=True):
        if line.low and line.high:
            plot.areas.append(Shape(css=css, path=_band(xs, line, scale)))
        plot.strokes.append(
            Shape(css=css, path=_path(xs, line.values, scale, steps=series.kind == "steps"))
        )
        if series.kind != "steps" and len(xs) <= MARKED:
            plot.marks += _markers(plot, css, line, xs, scale)
        plot.legend.append(Key(css=css, name=line.name, shape="line"))


def _markers(
    plot: Plot, css: str, line: SeriesLine, xs: Sequence[float], scale: Scale
) -> Iterator[Shape]:
    for x, place, value in zip(xs, plot.series.x.places, line.values, strict=True):
        if value is not None:
            yield Shape(css=css, x=x, y=scale.at(value), title=_told(plot, line.name, place, value))


def _told(plot: Plot, name: str, place: str, value: float) -> str:
    series = plot.series
    return f"{name}, {series.x.label} {place}: {number(value, series.y.unit)}"


def _path(
    xs: Sequence[float], values: Sequence[float | None], scale: Scale, *, steps: bool = False
) -> str:
    """One path; a missing value interrupts it, and a value on its own is a dot."""
    pieces: list[list[str]] = [[]]
    for x, value in zip(xs, values, strict=True):
        if value is None:
            pieces.append([])
            continue
        y = scale.at(value)
        if not pieces[-1]:
            pieces[-1].append(f"M{x:g} {y:g}")
        else:
            pieces[-1].append(f"H{x:g}V{y:g}" if steps else f"L{x:g} {y:g}")
    return "".join("".join(one) if len(one) > 1 else f"{one[0]}h0" for one in pieces if one)


def _band(xs: Sequence[float], line: SeriesLine, scale: Scale) -> str:
    """The area between ``low`` and ``high``, in pieces where either is missing."""
    parts: list[str] = []
    piece: list[tuple[float, float, float]] = []

    def close() -> None:
        if piece:
            up = "L".join(f"{x:g} {high:g}" for x, _, high in piece)
            down = "L".join(f"{x:g} {low:g}" for x, low, _ in reversed(piece))
            parts.append(f"M{up}L{down}Z")
            piece.clear()

    for x, low, high in zip(xs, line.low, line.high, strict=True):
        if low is None or high is None:
            close()
        else:
            piece.append((x, scale.at(low), scale.at(high)))
    close()
    return "".join(parts)


def _bars(plot: Plot) -> None:
    series = plot.series
    scale = _value_scale(plot, start=plot.bottom, end=plot.top)
    plot.y_ticks = scale.ticks
    xs = _x_places(plot, inset=0.0)
    bars = [line for line in series.lines if line.role != "expected"]
    step = (plot.right - plot.left) / (len(xs) or 1)
    width = step * 0.84 / (len(bars) or 1)
    drawn = 0
    for css, line in zip(_css(series), series.lines, strict=True):
        if line.role == "expected":
            if line.low and line.high:
                plot.areas.append(Shape(css=css, path=_band(xs, line, scale)))
            plot.strokes.append(Shape(css=css, path=_path(xs, line.values, scale)))
            plot.legend.append(Key(css=css, name=line.name, shape="line"))
            continue
        left = -step * 0.42 + drawn * width
        for x, place, value in zip(xs, series.x.places, line.values, strict=True):
            if value is not None:
                y, start = scale.at(value), round(x + left, 1)
                path = f"M{start:g} {plot.bottom:g}V{y:g}h{width - 1:.1f}V{plot.bottom:g}Z"
                title = _told(plot, line.name, place, value)
                plot.marks.append(Shape(css=f"bar {css}", path=path, title=title))
        plot.legend.append(Key(css=css, name=line.name, shape="box"))
        drawn += 1


def _heat(plot: Plot) -> None:
    series = plot.series
    rows, columns = len(series.lines), len(series.x.places)
    plot.left = LEFT
    plot.bottom = TOP + rows * ROW
    plot.height = plot.bottom + BOTTOM
    width = (plot.right - plot.left) / (columns or 1)
    known = [value for value in _values(series) if value > 0]
    most = max(known) if known else 1.0
    told = rows * columns <= TOLD_CELLS
    shades: dict[float, list[str]] = {}
    for row, line in enumerate(series.lines):
        for column, value in enumerate(line.values):
            if value is None:
                continue
            shade = max(round(max(value, 0.0) / most * LEVELS), 1) / LEVELS
            x, y = round(plot.left + column * width, 1), round(TOP + row * ROW, 1)
            path = f"M{x:g} {y:g}h{width - 1:.1f}v{ROW - 1:g}h-{width - 1:.1f}Z"
            if told:
                title = _told(plot, line.name, series.x.places[column], value)
                plot.cells.append(Cell(path=path, shade=shade, title=title))
            else:
                shades.setdefault(shade, []).append(path)
    plot.cells += [Cell(path="".join(paths), shade=shade) for shade, paths in shades.items()]
    names = every([line.name for line in series.lines], most=60)
    plot.y_ticks = tuple(
        Tick(round(TOP + (row + 0.5) * ROW, 1), line.name)
        for row, line in enumerate(series.lines)
        if names[row]
    )
    written = every(series.x.places, most=24)
    plot.x_ticks = tuple(
        Tick(round(plot.left + (column + 0.5) * width, 1), label)
        for column, label in enumerate(series.x.places)
        if written[column]
    )
    plot.legend.append(Key(css="cand", name=f"darkest: {number(most, series.y.unit)}", shape="box"))


def _ratios(plot: Plot) -> None:
    series = plot.series
    count = len(series.x.places)
    plot.sideways = True
    plot.left = NAMES
    plot.bottom = TOP + count * ROW
    plot.height = plot.bottom + BOTTOM
    scale = _value_scale(plot, start=plot.left + 8, end=plot.right - 8)
    plot.x_ticks = scale.ticks
    ys = [round(TOP + (row + 0.5) * ROW, 1) for row in range(count)]
    plot.y_ticks = tuple(Tick(y, label) for y, label in zip(ys, series.x.places, strict=True))
    for css, line in zip(_css(series), series.lines, strict=True):
        if line.role == "expected" and line.values and line.values[0] is not None:
            x = scale.at(line.values[0])
            plot.strokes.append(Shape(css=css, path=f"M{x:g} {TOP:g}V{plot.bottom:g}"))
            plot.legend.append(Key(css=css, name=line.name, shape="line"))
            continue
        for row, value in enumerate(line.values):
            if value is None:
                continue
            y, name = ys[row], series.x.places[row]
            if line.low and line.high:
                low, high = line.low[row], line.high[row]
                start = plot.left if low is None else scale.at(low)
                end = plot.right if high is None else scale.at(high)
                plot.strokes.append(Shape(css=f"ends {css}", path=f"M{start:g} {y:g}H{end:g}"))
            title = _told(plot, line.name, name, value)
            plot.marks.append(Shape(css=css, x=scale.at(value), y=y, title=title))
        plot.legend.append(Key(css=css, name=line.name, shape="dot"))
