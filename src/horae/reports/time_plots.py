"""Levels over time, of several runs: lines in one panel as long as they can be told apart, small multiples beyond."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from horae.model.arrays import Floats
from horae.reports import drawing
from horae.reports.labels import short_labels
from horae.reports.log import RunLog
from horae.reports.usage import window

Logs = Mapping[str, RunLog]
Level = Callable[[RunLog, Floats], Floats | None]  # its means between edges; None: the run has no such thing
LINES_MAX = 6  # in one panel
BINS, BINS_SMALL = 120, 40
TITLE_LENGTH = 34


def over_time(logs: Logs, unit: str, nothing: str, levels: Mapping[str, Level]) -> Figure:
    """Means over bins of equal length from the first submission on; levels are by name."""
    small = len(logs) > LINES_MAX
    start = min(window(log).start for log in logs.values())
    stop = max(*(window(log).stop for log in logs.values()), start + 1.0)
    edges, scale = np.linspace(start, stop, (BINS_SMALL if small else BINS) + 1), drawing.time_unit(stop - start)
    shown = (edges - start) / scale.seconds
    draw = _by_run if small else _by_level
    return draw(logs, levels, edges, shown, (f"time since the first submission ({scale.name})", unit, nothing))


def _by_level(
    logs: Logs, levels: Mapping[str, Level], edges: Floats, shown: Floats, words: tuple[str, str, str]
) -> Figure:
    """A panel a level, a line a run."""
    time, unit, nothing = words
    figure, panels = drawing.panels(len(levels))
    for axes, (title, level) in zip(panels, levels.items(), strict=True):
        _draw(axes, shown, [level(log, edges) for log in logs.values()], nothing)
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_ylabel(unit)
    panels[-1].set_xlabel(time)
    drawing.legend(figure, list(logs))
    return figure


def _by_run(
    logs: Logs, levels: Mapping[str, Level], edges: Floats, shown: Floats, words: tuple[str, str, str]
) -> Figure:
    """A panel a run, a line a level and a thin one for its mean; all panels have the same axes."""
    time, unit, nothing = words
    figure, panels = drawing.grid(len(logs))
    for axes, title, log in zip(panels, short_labels(list(logs), TITLE_LENGTH), logs.values(), strict=True):
        found = [level(log, edges) for level in levels.values()]
        _draw(axes, shown, found, nothing)
        for index, means in enumerate(found):
            if means is not None:
                axes.axhline(means.mean(), color=drawing.look(index).colour, linewidth=0.7, alpha=0.8)
        axes.set_title(title, loc="left", fontsize=9)
    figure.supxlabel(time, fontsize=10)
    figure.supylabel(f"{unit}; thin: the mean".replace("\n", " "), fontsize=10)
    if len(levels) > 1:
        drawing.legend(figure, list(levels))
    else:
        figure.suptitle(next(iter(levels)), fontsize=10)
    return figure


def _draw(axes: Axes, shown: Floats, levels: list[Floats | None], nothing: str) -> None:
    for index, means in enumerate(levels):
        if means is not None:
            drawing.draw_level(axes, shown, means, index)
    if not any(means is not None and means.any() for means in levels):
        axes.text(0.5, 0.5, nothing, transform=axes.transAxes, ha="center", color="0.4")
