"""Points with their names beside them, where they cover nothing, and the Pareto front."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text

from horae.reports.plots import style
from horae.reports.plots.style import GREY, SMALL_POINTS, Look

Point = tuple[float, float]
Box = tuple[float, float, float, float]
MARKER_POINTS = 5.0
NAME_LENGTH = 26


def draw_points(axes: Axes, points: Sequence[Point], looks: Sequence[Look]) -> None:
    """Draws points; those that nearly coincide are nested, the first one largest, so that all are visible."""
    spans = np.ptp(np.array(points), axis=0)

    def alike(point: Point, others: Sequence[Point]) -> int:
        return sum(bool((np.abs(np.subtract(point, other)) <= 0.01 * spans).all()) for other in others)

    for place, (point, look) in enumerate(zip(points, looks, strict=True)):
        below, after = alike(point, points[:place]), alike(point, points[place + 1 :])
        axes.plot(
            *point, marker=look.marker, color=look.colour, linestyle="none", zorder=3 + below,
            markersize=MARKER_POINTS + 2.5 * min(after, 3), fillstyle="none" if after else "full",
        )  # fmt: skip


def place_labels(figure: Figure, axes: Axes, points: Sequence[Point], names: Sequence[str]) -> bool:
    """Places each name beside its point, at the nearest position where it covers neither a point nor a name.

    Where there is no such position for all names, none is placed, and False is returned.
    """
    figure.draw_without_rendering()  # so that positions on the page are known
    pixels = axes.transData.transform(np.array(points))
    pixel = figure.dpi / 72  # of a point of the font
    reach = 4.5 * pixel
    taken: list[Box] = [(x - reach, y - reach, x + reach, y + reach) for x, y in pixels]
    placed: list[Annotation] = []
    for (x, y), name, point in zip(pixels, style.shown_short(names, NAME_LENGTH), points, strict=True):
        text = _annotation(axes, name, point)
        placed.append(text)
        box = Text.get_window_extent(text)  # without the line to its point
        clear = _clear_place((x, y), (box.width, box.height), axes, taken, pixel)
        if clear is None:
            for each in placed:
                each.remove()
            return False
        taken.append(clear)
        text.set_position((clear[0] - x, (clear[1] + clear[3]) / 2 - y))
        if text.arrow_patch is not None:  # a name directly beside its point needs no line to it
            alone = int((np.hypot(*(pixels - (x, y)).T) < reach).sum()) == 1
            near = 8 * pixel
            text.arrow_patch.set_visible(not alone or not _overlap(clear, (x - near, y - near, x + near, y + near)))
    return True


def _annotation(axes: Axes, name: str, point: Point) -> Annotation:
    return axes.annotate(
        name, point, xytext=(0, 0), textcoords="offset pixels", fontsize=SMALL_POINTS, va="center", ha="left",
        arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.4, "shrinkA": 0.5, "shrinkB": 2},
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.85},
    )  # fmt: skip


def _clear_place(at: Point, size: Point, axes: Axes, taken: Sequence[Box], pixel: float) -> Box | None:
    page = axes.get_window_extent()
    (x, y), (width, height) = at, size
    for dx, dy in _offsets(width, height, pixel):
        box = (x + dx, y + dy, x + dx + width, y + dy + height)
        inside = box[0] > page.x0 and box[2] < page.x1 and box[1] > page.y0 and box[3] < page.y1
        if inside and not any(_overlap(box, other) for other in taken):
            return box
    return None


def _offsets(width: float, height: float, pixel: float) -> Iterable[Point]:
    """Corners of a text of this size around a point, near ones first."""
    for radius in np.arange(5.5, 90, 3.0) * pixel:
        for dx, dy in ((radius, -height / 2), (radius, radius / 2), (radius, -radius / 2 - height)):
            yield dx, dy
            yield -dx - width, dy
        yield -width / 2, radius
        yield -width / 2, -radius - height


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def front(points: Sequence[Point]) -> list[Point]:
    """The points that no other point beats in both coordinates, from left to right."""
    best: list[Point] = []
    for point in sorted(points):
        if not best or point[1] < best[-1][1]:
            best.append(point)
    return best


def draw_front(axes: Axes, points: Sequence[Point]) -> None:
    """Draws the Pareto front as a staircase from the top to the right edge; all other points lie above it."""
    best = front(points)
    right, top = axes.get_xlim()[1], axes.get_ylim()[1]
    corners = [(best[0][0], top), *best, (right, best[-1][1])]
    axes.step(*zip(*corners, strict=True), where="post", color="0.6", linewidth=0.8, zorder=1)
    axes.set_xlim(axes.get_xlim()[0], right)
    axes.set_ylim(axes.get_ylim()[0], top)
