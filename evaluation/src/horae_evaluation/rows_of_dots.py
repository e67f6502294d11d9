"""Rows of dots: one row per policy, option or tenant, one dot per series, with ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from horae.reports.plots import style
from horae.reports.plots.dots import Estimate, name_rows
from horae.reports.plots.legends import Entry, point_entry

ROW_INCHES = 0.085  # of one dot; a row has as many as there are series
BETWEEN_INCHES, AROUND_INCHES = 0.08, 0.55


def height_of(rows: int, series: int) -> float:
    return AROUND_INCHES + rows * (series * ROW_INCHES + BETWEEN_INCHES)


def draw_rows(axes: Axes, names: Sequence[str], series: Mapping[str, Sequence[Estimate]]) -> None:
    """Draws the estimates of each series, one below the other within a row."""
    name_rows(axes, style.shown_short(names, 28))
    for number, estimates in enumerate(series.values()):
        look = style.look(number)
        places = [row + 0.7 * ((number + 0.5) / len(series) - 0.5) for row in range(len(estimates))]
        axes.errorbar(
            [each.value for each in estimates], places, xerr=errors_of(estimates), fmt=look.marker, color=look.colour,
            markersize=3.6, elinewidth=0.8, capsize=1.5, capthick=0.8,
        )  # fmt: skip
    axes.set_xlim(left=-0.02 * axes.get_xlim()[1])  # a dot at 0 is seen as a whole
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=(1, 2, 2.5, 5, 10)))


def errors_of(estimates: Sequence[Estimate]) -> list[list[float]]:
    """Distances to the ends of the intervals, as matplotlib wants them; 0 where there is none."""
    below = [each.value - each.low if each.has_interval else 0.0 for each in estimates]
    above = [each.high - each.value if each.has_interval else 0.0 for each in estimates]
    return [below, above]


def entries_of(series: Sequence[str]) -> list[Entry]:
    return [point_entry(name, style.look(number)) for number, name in enumerate(series)]
