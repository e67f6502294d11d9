"""Dot plots: one row per policy, tenant or option, one panel per number, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite, nan
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from horae.reports.plots import style
from horae.reports.plots.curves import compact, plain_log, say
from horae.reports.plots.style import Look

ROW_INCHES, AROUND_INCHES = 0.155, 0.5  # of one row, and of the axis below the rows
LOG_RATIO = 30.0  # of values, from which a logarithmic axis shows them better
NAMES_WIDE, NAMES_NARROW = 40, 28  # characters of a row's name, in figures of a page and of a column
POINT_LOOK = Look(style.COLOURS[0], "-", "o")


class Estimate(NamedTuple):
    """A number and its interval, which is not finite where there is none."""

    value: float
    low: float = nan
    high: float = nan

    @property
    def has_interval(self) -> bool:
        return isfinite(self.value) and isfinite(self.low) and isfinite(self.high)

    def within(self, least: float, most: float) -> Estimate:
        """The same with an interval that does not leave the range of possible values."""
        return self._replace(low=max(self.low, least), high=min(self.high, most)) if self.has_interval else self


class DotRow(NamedTuple):
    name: str
    look: Look = POINT_LOOK
    is_reference: bool = False  # a thin line through all rows shows its value


class DotPanel(NamedTuple):
    label: str  # of the axis, with the unit
    estimates: Sequence[Estimate]  # one per row
    bound: float = nan  # no value can be better
    zero: bool = False  # the axis has a line at 0, and shows both sides of it
    least: float = -inf  # there are no smaller values
    most: float = inf


def dots_figure(rows: Sequence[DotRow], panels: Sequence[DotPanel], columns: int, width: float) -> Figure:
    row_height = AROUND_INCHES + ROW_INCHES * max(len(rows), 2)
    lines = -(-len(panels) // columns)
    figure, axes = style.panels(lines, columns, width, row_height, sharey=True)
    names = style.shown_short([row.name for row in rows], NAMES_WIDE if width > 4 else NAMES_NARROW)
    for each, panel in zip(axes, panels, strict=False):
        draw_dots(each, rows, panel)
        scale_axis(each, panel)
        name_rows(each, names)
        each.set_xlabel(panel.label, fontsize=style.SMALL_POINTS if width > 4 else style.LABEL_POINTS)
    for each in axes[len(panels) :]:
        each.remove()
    return figure


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Names the rows, the first one on top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)


def draw_dots(axes: Axes, rows: Sequence[DotRow], panel: DotPanel) -> None:
    for place, (row, estimate) in enumerate(zip(rows, panel.estimates, strict=True)):
        if isfinite(estimate.value):
            _draw_dot(axes, place, row, estimate.within(panel.least, panel.most))
            if row.is_reference and not panel.zero:
                axes.axvline(estimate.value, color=row.look.colour, linewidth=0.5, linestyle=(0, (4, 2)), zorder=1)
    if isfinite(panel.bound):
        axes.axvline(panel.bound, color=style.COLOURS[3], linewidth=0.9, linestyle=(0, (1, 1)), zorder=1)


def _draw_dot(axes: Axes, place: int, row: DotRow, estimate: Estimate) -> None:
    errors = None
    if estimate.has_interval:
        errors = [[max(estimate.value - estimate.low, 0.0)], [max(estimate.high - estimate.value, 0.0)]]
    axes.errorbar(
        [estimate.value], [place], xerr=errors, fmt=row.look.marker, color=row.look.colour, markersize=3.6,
        elinewidth=0.9, capsize=1.8, capthick=0.9, zorder=3, clip_on=True,
    )  # fmt: skip


def scale_axis(axes: Axes, panel: DotPanel) -> None:
    """Sets the axis so that it shows all estimates of a panel."""
    known = [estimate.value for estimate in panel.estimates if isfinite(estimate.value)]
    if not known:
        axes.set_xticks([])
        say(axes, "no values")
        return
    if not panel.zero and min(known) > 0 and max(known) > LOG_RATIO * min(known):
        _log_scale(axes, panel, known)
        return
    inside = [estimate.within(panel.least, panel.most) for estimate in panel.estimates]
    ends = [end for estimate in inside if estimate.has_interval for end in estimate[1:]]
    bound = [panel.bound] if isfinite(panel.bound) else []
    zero = [0.0] if panel.zero or panel.least == 0 else []
    low, high = min([*known, *ends, *bound, *zero]), max([*known, *ends, *bound, *zero])
    margin = 0.06 * (high - low) or 0.5 * abs(high) or 1.0
    left = max(low - margin, panel.least) if low > panel.least else panel.least - 0.02 * (high - panel.least or 1.0)
    right = high + margin if high < panel.most else panel.most + 0.03 * (panel.most - left)
    axes.set_xlim(left, right)
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=(1, 2, 2.5, 5, 10), min_n_ticks=2))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(round(value, 9) + 0.0)))
    if panel.zero:
        axes.axvline(0.0, color="black", linewidth=0.6, zorder=1)


def _log_scale(axes: Axes, panel: DotPanel, known: Sequence[float]) -> None:
    """A logarithmic axis; an interval that reaches to 0 has no end on it."""
    axes.set_xscale("log")
    inside = [estimate.within(panel.least, panel.most) for estimate in panel.estimates]
    ends = [end for estimate in inside if estimate.has_interval for end in estimate[1:]]
    bound = [panel.bound] if panel.bound > 0 and isfinite(panel.bound) else []
    low = min([*known, *bound, *(end for end in ends if end > 0.2 * min(known))])
    axes.set_xlim(low / 1.4, max([*known, *ends]) * 1.4)
    plain_log(axes, "x", ticks_max=4)
    axes.xaxis.set_minor_locator(NullLocator())
