"""Distributions, levels over time, and logarithmic axes."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, PercentFormatter

from horae.model.arrays import Floats
from horae.reports.plots.style import BASELINE_LOOK, GREY, SMALL_POINTS, WIDTH, Look

POINTS_MAX = 1000  # of a curve; more cannot be seen


def positive(values: Floats) -> Floats:
    """The values that a logarithmic axis can show."""
    return values[np.isfinite(values) & (values > 0)]


def draw_shares(axes: Axes, values: Floats, look: Look, width: float = WIDTH) -> None:
    """Draws the cumulative distribution of positive values on a logarithmic axis."""
    values = np.sort(positive(values))
    if not len(values):
        return
    rows = np.unique(np.linspace(0, len(values) - 1, POINTS_MAX).astype(np.int64))
    axes.step(
        [values[0], *values[rows]],
        [0.0, *((rows + 1) / len(values))],
        where="post",
        color=look.colour,
        linestyle=look.dashes,
        linewidth=width,
        zorder=3 if look == BASELINE_LOOK else 2,
    )
    axes.set_xscale("log")


def finish_shares(axes: Axes, what: str, unit: str) -> None:
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))
    axes.set_ylabel(f"share of {what} (%)")
    axes.set_xlabel(unit)
    if axes.get_xscale() == "log":
        plain_log(axes, "x")
    else:
        say(axes, "no values")


def say(axes: Axes, text: str) -> None:
    """Says in an empty panel why it is empty."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", color=GREY, fontsize=SMALL_POINTS)


def plain_log(axes: Axes, which: str, ticks_max: int = 6) -> None:
    """Labels a logarithmic axis with 0.1, 1, 10 rather than powers; on short axes with 2 and 5 as well."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    decades = np.log10(high / low)
    subs = (1.0, 2.0, 5.0) if 3 * decades <= ticks_max else (1.0, 3.0) if 2 * decades <= ticks_max else (1.0,)
    axis.set_major_locator(LogLocator(subs=subs, numticks=ticks_max + 1))
    axis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    axis.set_minor_formatter(NullFormatter())


def compact(value: float) -> str:
    """A number in short: 10,000 and more as 10k, 1M, because neighbouring labels must not touch."""
    for least, unit, letter in ((1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(value) >= least * (1 - 1e-9):
            return f"{value / unit:,g}{letter}"
    return f"{value:,g}".replace("-", "\N{MINUS SIGN}")


def binned_mean(times: Floats, changes: Floats, edges: Floats) -> Floats:
    """The mean between each two edges of a level that starts at 0 and changes at these times."""
    if not len(times):
        return np.zeros(len(edges) - 1)
    order = np.argsort(times, kind="stable")
    at, level = times[order], np.cumsum(changes[order])
    area = np.concatenate(([0.0], np.cumsum(level[:-1] * np.diff(at))))
    means = np.diff(np.interp(edges, at, area)) / np.diff(edges)
    # Sums of many changes leave a rounding residue where nothing is left.
    return np.where(np.abs(means) < 1e-9, 0.0, means)


def draw_level(axes: Axes, positions: Floats, means: Floats, look: Look) -> None:
    # The baseline is drawn first: it is wider, so that it is seen below a line of the same height.
    width = 1.7 * WIDTH if look == BASELINE_LOOK else 0.9 * WIDTH
    axes.stairs(means, positions, baseline=None, color=look.colour, linestyle=look.dashes, linewidth=width)
