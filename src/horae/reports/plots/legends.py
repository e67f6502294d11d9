"""Legends above the panels, where there is no data, in as many columns as fit, and notes below."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.textpath import text_to_path

from horae.reports.plots import style
from horae.reports.plots.style import SMALL_POINTS, Look

POINTS_PER_INCH = 72.0
# In multiples of the font size, as matplotlib has them.
HANDLE, HANDLE_PAD, SPACING, LINE = 2.8, 0.5, 1.4, 1.5
COLUMNS_MAX = 5


class Entry(NamedTuple):
    name: str
    handle: Artist


def line_entry(name: str, look: Look) -> Entry:
    return Entry(name, Line2D([], [], color=look.colour, linestyle=look.dashes, linewidth=style.WIDTH))


def point_entry(name: str, look: Look, dashes: object = "none") -> Entry:
    return Entry(
        name,
        Line2D([], [], color=look.colour, marker=look.marker, linestyle=dashes, markersize=4, linewidth=style.WIDTH),  # type: ignore[arg-type]
    )


def bar_entry(name: str, look: Look) -> Entry:
    return Entry(name, Patch(facecolor=look.colour, hatch=look.hatch, edgecolor="white", linewidth=0.0))


def add_legend(figure: Figure, entries: Sequence[Entry], title: str = "") -> None:
    """Adds a legend and makes the figure higher by its height, so that panels keep theirs."""
    if not entries:
        return
    names = style.shown_short([entry.name for entry in entries], _characters(figure.get_figwidth()))
    columns = _columns(names, figure.get_figwidth() - 0.1)
    made = figure.legend(
        [entry.handle for entry in entries],
        names,
        loc="outside upper center",
        ncols=columns,
        frameon=False,
        fontsize=SMALL_POINTS,
        title=title or None,
        title_fontsize=SMALL_POINTS,
        handlelength=HANDLE,
        handletextpad=HANDLE_PAD,
        columnspacing=SPACING,
        labelspacing=LINE - 1.1,
        borderaxespad=0.2,
        borderpad=0.1,
    )
    made.get_title().set_color(style.GREY)
    lines = -(-len(entries) // columns) + bool(title)
    figure.set_figheight(figure.get_figheight() + (lines * LINE + 0.6) * SMALL_POINTS / POINTS_PER_INCH)


def add_note(figure: Figure, text: str) -> None:
    """Adds a note below the panels, in as many lines as it needs."""
    if not text:
        return
    lines, width = [""], figure.get_figwidth() - 0.1
    for word in style.shown(text).split(" "):
        longer = f"{lines[-1]} {word}".lstrip()
        if text_inches(longer) > width and lines[-1]:
            lines.append(word)
        else:
            lines[-1] = longer
    figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=SMALL_POINTS, color=style.GREY)
    figure.set_figheight(figure.get_figheight() + (len(lines) * LINE) * SMALL_POINTS / POINTS_PER_INCH)


def text_inches(text: str, points: float = SMALL_POINTS) -> float:
    """The width of a text on paper."""
    return _width(text, points) / POINTS_PER_INCH


@cache
def _width(text: str, points: float) -> float:
    width, _, _ = text_to_path.get_text_width_height_descent(text, FontProperties(size=points), ismath=False)
    return float(width)


def _characters(width: float) -> int:
    """Characters that surely fit beside a handle in one column."""
    em = SMALL_POINTS / POINTS_PER_INCH
    return int((width - (HANDLE + HANDLE_PAD + 1) * em) / (0.64 * em))


def _columns(names: Sequence[str], width: float) -> int:
    em = SMALL_POINTS / POINTS_PER_INCH
    for columns in range(min(len(names), COLUMNS_MAX), 1, -1):
        # As matplotlib divides entries among columns: the first ones may have one more.
        longest = [max(map(text_inches, part)) for part in np.array_split(np.array(names, dtype=object), columns)]
        if sum(longest) + columns * (HANDLE + HANDLE_PAD) * em + (columns - 1) * SPACING * em <= width:
            return columns
    return 1
