"""The common style of plots: colours that the colour-blind can tell apart, line styles, legends outside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, LogLocator, PercentFormatter

from horae.model.arrays import Floats
from horae.model.errors import InputError
from horae.reports.labels import short_labels

# Okabe and Ito's colours without black, which is for lines that are not policies, and yellow, which is hard to see on
# white.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
LINES = ("-", "--", "-.", (0, (1, 1.2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "h", "p")
DOTS_PER_INCH = 130
POINTS_MAX = 1000  # of a curve; more cannot be seen
LABEL_LENGTH = 34
POINT_PIXELS = 12.0  # points that are nearer to each other cover each other
HOUR, DAY = 3600.0, 86400.0


class LineStyle(NamedTuple):
    colour: str
    line: Any
    marker: str


def look(index: int) -> LineStyle:
    """The colour and line style of an index: six colours and four styles give twelve different pairs."""
    return LineStyle(COLOURS[index % len(COLOURS)], LINES[index % len(LINES)], MARKERS[index % len(MARKERS)])


class TimeUnit(NamedTuple):
    name: str
    seconds: float


def time_unit(span_seconds: float) -> TimeUnit:
    return TimeUnit("hours", HOUR) if span_seconds < 4 * DAY else TimeUnit("days", DAY)


def panels(count: int, height: float = 2.6, width: float = 8.0) -> tuple[Figure, list[Axes]]:
    """Panels stacked vertically with a common time axis."""
    figure = Figure(figsize=(width, 1.1 + height * count), dpi=DOTS_PER_INCH, layout="constrained")
    axes = figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0]
    return figure, [_plain_axes(each) for each in axes]


def grid(count: int, columns: int = 3, width: float = 3.2, height: float = 1.7) -> tuple[Figure, list[Axes]]:
    """Small panels that share both axes."""
    rows = -(-count // columns)
    size = (width * columns + 1.2, 0.9 + height * rows)
    figure = Figure(figsize=size, dpi=DOTS_PER_INCH, layout="constrained")
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flatten()
    for each in axes[count:]:
        each.remove()
    for each in axes[max(count - columns, 0) : count]:
        each.tick_params(labelbottom=True)  # also where the panel below is missing
    return figure, [_plain_axes(each) for each in axes[:count]]


def side_by_side(count: int, width: float = 4.6, height: float = 4.0) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(width * count + 1.6, height), dpi=DOTS_PER_INCH, layout="constrained")
    axes = figure.subplots(1, count, squeeze=False)[0]
    return figure, [_plain_axes(each) for each in axes]


def _plain_axes(axes: Axes) -> Axes:
    axes.grid(alpha=0.3, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def legend(figure: Figure, names: Sequence[str]) -> None:
    """A legend beside the panels, where there is no data."""
    handles = [
        Line2D([], [], color=look(index).colour, linestyle=look(index).line, linewidth=1.8)
        for index in range(len(names))
    ]
    figure.legend(handles, short_labels(names, LABEL_LENGTH), loc="outside right upper", frameon=False, handlelength=3)


def draw_shares(axes: Axes, values: Floats, index: int) -> None:
    """Draws the cumulative distribution of values on a logarithmic axis."""
    values = np.sort(values[np.isfinite(values) & (values > 0)])
    if not len(values):
        return
    rows = np.unique(np.linspace(0, len(values) - 1, POINTS_MAX).astype(np.int64))
    shares = (rows + 1) / len(values)
    style = look(index)
    axes.step(
        [values[0], *values[rows]],
        [0.0, *shares],
        where="post",
        color=style.colour,
        linestyle=style.line,
        linewidth=1.5,
    )
    axes.set_xscale("log")


def finish_shares(axes: Axes, what: str, unit: str) -> None:
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylabel(f"share of {what} (%)")
    axes.set_xlabel(unit)
    if axes.get_xscale() == "log":
        plain_log(axes, "x")


def plain_log(axes: Axes, which: str) -> None:
    """Labels a logarithmic axis with 0.1, 1, 10 rather than powers; on short axes with 2 and 5 as well."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    axis.set_major_formatter(FuncFormatter(lambda value, _: _compact(value)))
    if high / low < 50:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_minor_formatter(FuncFormatter(lambda *_: ""))


def _compact(value: float) -> str:
    """A number in short: 10,000 and more as 10k, 1M, because neighbouring labels must not touch."""
    for least, unit, letter in ((1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if value >= least * (1 - 1e-9):
            return f"{value / unit:,g}{letter}"
    return f"{value:,g}"


def binned_mean(times: Floats, changes: Floats, edges: Floats) -> Floats:
    """The mean between each two edges of a level that starts at 0 and changes at these times."""
    order = np.argsort(times, kind="stable")
    at, level = times[order], np.cumsum(changes[order])
    area = np.concatenate(([0.0], np.cumsum(level[:-1] * np.diff(at)))) if len(at) else np.zeros(0)
    if not len(at):
        return np.zeros(len(edges) - 1)
    means = np.diff(np.interp(edges, at, area)) / np.diff(edges)
    # Sums of many changes leave a rounding residue where nothing is left.
    return np.where(np.abs(means) < 1e-9, 0.0, means)


def draw_level(axes: Axes, edges: Floats, means: Floats, index: int) -> None:
    style = look(index)
    axes.stairs(means, edges, baseline=None, color=style.colour, linestyle=style.line, linewidth=1.3)


def draw_points(axes: Axes, points: Sequence[tuple[float, float]], looks: Sequence[int]) -> None:
    """Draws points; those that nearly coincide are nested, the first one largest, so that all are visible."""
    spans = np.ptp(np.array(points), axis=0)
    for place, (point, index) in enumerate(zip(points, looks, strict=True)):
        below = sum(bool((np.abs(np.subtract(point, other)) <= 0.01 * spans).all()) for other in points[:place])
        after = sum(bool((np.abs(np.subtract(point, other)) <= 0.01 * spans).all()) for other in points[place + 1 :])
        style, size = look(index), 7 + 3 * min(after, 3)
        filled = "full" if not after else "none"
        axes.plot(
            *point, marker=style.marker, color=style.colour, linestyle="none", markersize=size, fillstyle=filled,
            zorder=3 + below,
        )  # fmt: skip


def place_labels(figure: Figure, axes: Axes, points: Sequence[tuple[float, float]], names: Sequence[str]) -> None:
    """Places each name beside its point, at the nearest position where it covers neither a point nor a name."""
    figure.draw_without_rendering()  # so that positions on the page are known
    pixels = axes.transData.transform(np.array(points))
    taken = [(x - 12, y - 12, x + 12, y + 12) for x, y in pixels]
    page = axes.get_window_extent()
    for (x, y), name, point in zip(pixels, short_labels(names, LABEL_LENGTH), points, strict=True):
        text = axes.annotate(
            name, point, xytext=(0, 0), textcoords="offset pixels", fontsize=9, va="center", ha="left",
            arrowprops={"arrowstyle": "-", "color": "0.6", "linewidth": 0.6, "shrinkA": 1, "shrinkB": 4},
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85},
        )  # fmt: skip
        box = Text.get_window_extent(text)  # without the line to its point
        width, height = box.width, box.height
        places = [(x + dx, y + dy, x + dx + width, y + dy + height) for dx, dy in _offsets(width, height)]
        inside = [
            each for each in places if each[0] > page.x0 and each[2] < page.x1 and page.y0 < each[1] < each[3] < page.y1
        ]
        clear = next((each for each in inside if not any(_overlap(each, other) for other in taken)), places[0])
        taken.append(clear)
        text.set_position((clear[0] - x, (clear[1] + clear[3]) / 2 - y))
        if text.arrow_patch is not None:  # a name directly beside its point needs no line to it
            alone = int((np.hypot(*(pixels - (x, y)).T) < POINT_PIXELS).sum()) == 1
            text.arrow_patch.set_visible(not alone or not _overlap(clear, (x - 20, y - 20, x + 20, y + 20)))


def _offsets(width: float, height: float) -> Iterable[tuple[float, float]]:
    """Corners of a text of this size around a point, near ones first."""
    for radius in range(14, 240, 8):
        for dx, dy in ((radius, -height / 2), (radius, radius / 2), (radius, -radius / 2 - height)):
            yield dx, dy
            yield -dx - width, dy
        yield -width / 2, radius
        yield -width / 2, -radius - height


def _overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points that no other point beats in both coordinates, from left to right."""
    best: list[tuple[float, float]] = []
    for point in sorted(points):
        if not best or point[1] < best[-1][1]:
            best.append(point)
    return best


def draw_front(axes: Axes, points: Sequence[tuple[float, float]]) -> None:
    """Draws the Pareto front as a staircase from the top to the right edge; all other points lie above it."""
    best = front(points)
    right, top = axes.get_xlim()[1], axes.get_ylim()[1]
    corners = [(best[0][0], top), *best, (right, best[-1][1])]
    axes.step(*zip(*corners, strict=True), where="post", color="0.55", linewidth=1.2, zorder=1)
    axes.set_xlim(axes.get_xlim()[0], right)
    axes.set_ylim(axes.get_ylim()[0], top)


def save(figure: Figure, directory: Path, name: str) -> Path:
    """Saves as PNG without dates or versions: the same figure gives the same bytes."""
    path = directory / f"{name}.png"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="png", metadata={"Software": None})
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}", file=str(path), remedy="name a folder of yours"
        ) from None
    return path
