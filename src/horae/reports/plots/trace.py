"""Plots of a workload, before any run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from horae.model.arrays import Floats, Ints
from horae.reports.plots import style

BINS = 300


def plot_trace(
    submitted_at: Floats, run_seconds: Floats, gpus: Ints, directory: Path, cluster_gpus: int | None = None
) -> list[Path]:
    """Plots submissions, run times (nan: unknown) and gangs by job.

    With `cluster_gpus`, the cluster size is drawn as well.
    """
    if not len(submitted_at):
        return []
    figures = {
        "trace-arrivals": arrivals_figure(submitted_at),
        "trace-run-times": run_times_figure(run_seconds),
        "trace-gangs": gangs_figure(gpus, run_seconds),
        "trace-demand": demand_figure(submitted_at, run_seconds, gpus, cluster_gpus),
    }
    return [style.save(figure, directory, name) for name, figure in figures.items()]


def arrivals_figure(submitted_at: Floats) -> Figure:
    figure, (axes,) = style.panels(1)
    edges, scale = _edges(submitted_at)
    counts, _ = np.histogram(submitted_at, edges)
    axes.stairs(
        counts / np.diff(edges) * style.HOUR, (edges - edges[0]) / scale.seconds, color=style.COLOURS[0], fill=True
    )
    axes.set_ylabel("jobs submitted an hour")
    axes.set_xlabel(f"time since the first submission ({scale.name})")
    return figure


def run_times_figure(run_seconds: Floats) -> Figure:
    figure, (axes,) = style.side_by_side(1, width=5.4)
    style.draw_shares(axes, run_seconds / style.HOUR, 0)
    style.finish_shares(axes, "jobs", "run time (hours)")
    return figure


def gangs_figure(gpus: Ints, run_seconds: Floats) -> Figure:
    figure, (axes,) = style.side_by_side(1, width=6.0)
    sizes, index = np.unique(gpus, return_inverse=True)
    hours = np.bincount(index, np.nan_to_num(run_seconds) * gpus)
    place = np.arange(len(sizes))
    for shift, values, label, number in ((-0.2, np.bincount(index), "jobs", 0), (0.2, hours, "GPU-hours", 1)):
        shares = values / max(values.sum(), 1e-12)
        axes.bar(place + shift, shares, 0.4, color=style.COLOURS[number], label=label)
    every = -(-len(sizes) // 12)  # labels that would touch are left out
    axes.set_xticks(place[::every], [str(size) for size in sizes[::every]])
    axes.set_xlabel("gang (GPUs)")
    axes.set_ylabel("share (%)")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    figure.legend(loc="outside right upper", frameon=False)
    return figure


def demand_figure(submitted_at: Floats, run_seconds: Floats, gpus: Ints, cluster_gpus: int | None) -> Figure:
    """The GPUs that would be in use if every job started immediately."""
    figure, (axes,) = style.panels(1)
    known = np.isfinite(run_seconds)
    starts, gangs = submitted_at[known], gpus[known]
    ends = starts + run_seconds[known]
    edges, scale = _edges(np.concatenate((submitted_at, ends)))
    demand = style.binned_mean(np.concatenate((starts, ends)), np.concatenate((gangs, -gangs)), edges)
    axes.stairs(demand, (edges - edges[0]) / scale.seconds, color=style.COLOURS[0], fill=True)
    if cluster_gpus is not None:
        axes.axhline(cluster_gpus, color="black", linewidth=1.2, label=f"the cluster's {cluster_gpus:,}")
        figure.legend(loc="outside upper right", frameon=False)
    axes.set_ylabel("GPUs wanted if no job waited")
    axes.set_xlabel(f"time since the first submission ({scale.name})")
    return figure


def _edges(times: Floats) -> tuple[Floats, style.TimeUnit]:
    """Bins of at least an hour."""
    start, stop = float(times.min()), float(max(times.max(), times.min() + style.HOUR))
    bins = int(np.clip((stop - start) // style.HOUR, 1, BINS))
    return np.linspace(start, stop, bins + 1), style.time_unit(stop - start)
