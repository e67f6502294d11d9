"""Plots of a workload, before any run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from horae.model.arrays import Floats, Ints
from horae.reports.plots import style
from horae.reports.plots.curves import binned_mean, draw_shares, finish_shares, positive
from horae.reports.plots.legends import Entry, add_legend, bar_entry, line_entry
from horae.reports.plots.style import BASELINE_LOOK, Look, look
from horae.reports.plots.time_axis import HOUR, TimeAxis

BINS = 300
HEIGHT = 2.1


@dataclass(frozen=True)
class PlottedTrace:
    """The jobs of a trace as columns."""

    submitted_at: Floats
    run_seconds: Floats  # nan: unknown
    gpus: Ints
    origin: str = ""  # the date and time of second 0, where the trace has dates
    cluster_gpus: int | None = None  # drawn beside the demand

    def __len__(self) -> int:
        return len(self.submitted_at)


def plot_trace(trace: PlottedTrace, directory: Path) -> list[Path]:
    """Plots submissions, run times, gangs and demand."""
    return style.save_all(trace_figures(trace).items(), directory)


def trace_figures(trace: PlottedTrace) -> dict[str, Figure]:
    if not len(trace):
        return {}
    return {
        "trace-arrivals": arrivals_figure(trace),
        "trace-run-times": run_times_figure(trace),
        "trace-gangs": gangs_figure(trace),
        "trace-demand": demand_figure(trace),
    }


def arrivals_figure(trace: PlottedTrace) -> Figure:
    figure, (axes,) = style.panels(1, 1, style.PAGE_INCHES, HEIGHT)
    edges, time = _edges(trace.submitted_at, trace.origin)
    counts, _ = np.histogram(trace.submitted_at, edges)
    _fill(axes, counts / np.diff(edges) * HOUR, edges, time)
    axes.set_ylabel("jobs submitted per hour")
    return figure


def run_times_figure(trace: PlottedTrace) -> Figure:
    figure, (axes,) = style.panels(1, 1, style.COLUMN_INCHES, HEIGHT)
    hours = positive(trace.run_seconds / HOUR)
    draw_shares(axes, hours, look(0))
    finish_shares(axes, f"{len(hours):,} jobs", "run time (hours)")
    return figure


def gangs_figure(trace: PlottedTrace) -> Figure:
    figure, (axes,) = style.panels(1, 1, style.COLUMN_INCHES, HEIGHT)
    sizes, index = np.unique(trace.gpus, return_inverse=True)
    hours = np.bincount(index, np.nan_to_num(trace.run_seconds) * trace.gpus)
    place = np.arange(len(sizes))
    entries = []
    parts = (f"{len(trace):,} jobs", np.bincount(index)), (f"{hours.sum() / HOUR:,.0f} GPU-hours", hours)
    for number, (label, values) in enumerate(parts):
        each = look(number)
        shares = values / max(values.sum(), 1e-12)
        axes.bar(
            place + 0.4 * number - 0.2, shares, 0.4, color=each.colour, hatch=each.hatch, edgecolor="white", linewidth=0
        )
        entries.append(bar_entry(label, each))
    every = -(-len(sizes) // 8)  # labels that would touch are left out
    axes.set_xticks(place[::every], [f"{size:,}" for size in sizes[::every]])
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("GPUs of a job")
    axes.set_ylabel("share (%)")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))
    add_legend(figure, entries)
    return figure


def demand_figure(trace: PlottedTrace) -> Figure:
    """The GPUs that would be in use if every job started immediately."""
    figure, (axes,) = style.panels(1, 1, style.PAGE_INCHES, HEIGHT)
    known = np.isfinite(trace.run_seconds)
    starts, gangs = trace.submitted_at[known], trace.gpus[known]
    ends = starts + trace.run_seconds[known]
    edges, time = _edges(np.concatenate((trace.submitted_at, ends)), trace.origin)
    demand = binned_mean(np.concatenate((starts, ends)), np.concatenate((gangs, -gangs)), edges)
    _fill(axes, demand, edges, time)
    axes.set_ylabel("GPUs wanted if no job waited")
    if trace.cluster_gpus is not None:
        axes.axhline(trace.cluster_gpus, color=style.BLACK, linewidth=style.WIDTH)
        axes.set_ylim(0, 1.05 * max(float(demand.max()), trace.cluster_gpus))
        cluster = line_entry(f"the cluster's {trace.cluster_gpus:,} GPUs", BASELINE_LOOK)
        add_legend(figure, [_wanted_entry(), cluster])
    return figure


def _wanted_entry() -> Entry:
    return bar_entry("wanted", Look(style.COLOURS[0], "-", ""))


def _fill(axes: Axes, values: Floats, edges: Floats, time: TimeAxis) -> None:
    axes.stairs(values, time.positions(edges), color=style.COLOURS[0], fill=True)
    axes.set_ylim(bottom=0)
    axes.margins(x=0.01)
    time.apply(axes)
    axes.set_xlabel(time.label)


def _edges(times: Floats, origin: str) -> tuple[Floats, TimeAxis]:
    """Bins of at least an hour."""
    start, stop = float(times.min()), float(max(times.max(), times.min() + HOUR))
    bins = int(np.clip((stop - start) // HOUR, 1, BINS))
    return np.linspace(start, stop, bins + 1), TimeAxis(start, stop, origin)
