"""Runs of one workload side by side, as pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from horae.model.arrays import Floats
from horae.reports import drawing
from horae.reports.fairness import apps
from horae.reports.log import REFUSED, RunLog
from horae.reports.trace_plots import plot_trace
from horae.reports.usage import window

__all__ = ["plot_comparison", "plot_trace"]

BINS = 120
Logs = Mapping[str, RunLog]


def plot_comparison(logs: Logs, directory: Path) -> list[Path]:
    """One PNG a picture; the files that were written."""
    figures: dict[str, Callable[[Logs], Figure]] = {
        "completion": completion_figure,
        "rho": rho_figure,
        "utilisation": utilisation_figure,
        "queue": queue_figure,
        "fairness": fairness_figure,
    }
    return [drawing.save(make(logs), directory, name) for name, make in figures.items()] if logs else []


def completion_figure(logs: Logs) -> Figure:
    figure, (axes,) = drawing.side_by_side(1, width=6.4)
    for index, log in enumerate(logs.values()):
        drawing.draw_shares(axes, _completion_hours(log), index)
    drawing.finish_shares(axes, "finished jobs", "completion time (hours)")
    drawing.legend(figure, list(logs))
    return figure


def rho_figure(logs: Logs) -> Figure:
    figure, panels = drawing.side_by_side(2)
    for axes, name in zip(panels, ("rho_paper", "rho_private"), strict=True):
        for index, log in enumerate(logs.values()):
            columns = apps(log)
            drawing.draw_shares(axes, getattr(columns, name)[columns.counted], index)
        axes.axvline(1.0, color="black", linewidth=1.0, zorder=1)
        drawing.finish_shares(axes, "apps", f"{name} (shared time / fair time; fair up to 1)")
    drawing.legend(figure, list(logs))
    return figure


def utilisation_figure(logs: Logs) -> Figure:
    def busy(log: RunLog, kind: int, edges: Floats) -> Floats:
        return _busy_gpus(log, kind, edges) / log.cluster.gpus_by_accelerator[kind] * 100

    figure = _over_time(logs, "GPUs in use (%)", "never in use", busy)
    for axes in figure.axes:
        axes.set_ylim(0, 103)
        axes.yaxis.set_major_formatter(PercentFormatter(100.0))
    return figure


def queue_figure(logs: Logs) -> Figure:
    figure = _over_time(logs, "GPUs wanted by\nwaiting jobs", "nobody waits for this type", _wanted_gpus)
    for axes in figure.axes:
        axes.set_ylim(0, max(axes.get_ylim()[1], 1.0))
    return figure


def fairness_figure(logs: Logs) -> Figure:
    """To the left is efficient, below is fair; who is on the line is beaten by nobody in both."""
    figure, (axes,) = drawing.side_by_side(1, width=6.0, height=4.8)
    points = {name: _efficiency_and_fairness(log) for name, log in logs.items()}
    known = {name: point for name, point in points.items() if np.isfinite(point).all()}
    for index, (name, point) in enumerate(points.items()):
        if name in known:
            style = drawing.look(index)
            axes.plot(*point, marker=style.marker, color=style.colour, linestyle="none", markersize=8)
    axes.axhline(1.0, color="black", linewidth=0.8, linestyle=":")
    axes.set_xlabel("mean completion time (hours)")
    axes.set_ylabel("99th percentile of rho_paper (shared time / fair time)")
    axes.set_title("grey: the Pareto front; left is faster, below is fairer", loc="left", fontsize=9, color="0.3")
    axes.margins(0.18)
    if known:
        if max(rho for _, rho in known.values()) > 8 * min(rho for _, rho in known.values()):
            axes.set_yscale("log")
            drawing.plain_log(axes, "y")
        drawing.draw_front(axes, list(known.values()))
        drawing.place_labels(figure, axes, list(known.values()), list(known))
    return figure


def _completion_hours(log: RunLog) -> Floats:
    return (log.jobs.ended_at - log.jobs.submitted_at)[log.finished] / drawing.HOUR


def _efficiency_and_fairness(log: RunLog) -> tuple[float, float]:
    columns, completion = apps(log), _completion_hours(log)
    rho = columns.rho_paper[columns.counted]
    if not len(completion) or not len(rho):
        return float("nan"), float("nan")
    return float(completion.mean()), float(np.quantile(rho, 0.99))


def _over_time(logs: Logs, unit: str, nothing: str, level: Callable[[RunLog, int, Floats], Floats]) -> Figure:
    """One panel a GPU type, one line a log; means over bins of equal length from the first submission on."""
    kinds = list(dict.fromkeys(name for log in logs.values() for name in log.cluster.accelerators))
    start = min(window(log).start for log in logs.values())
    stop = max(*(window(log).stop for log in logs.values()), start + 1.0)
    edges, scale = np.linspace(start, stop, BINS + 1), drawing.time_unit(stop - start)
    figure, panels = drawing.panels(len(kinds))
    for axes, kind in zip(panels, kinds, strict=True):
        drawn = False
        for index, log in enumerate(logs.values()):
            if kind in log.cluster.accelerators:
                means = level(log, log.cluster.accelerators.index(kind), edges)
                drawing.draw_level(axes, (edges - start) / scale.seconds, means, index)
                drawn = drawn or bool(means.any())
        if not drawn:
            axes.text(0.5, 0.5, nothing, transform=axes.transAxes, ha="center", color="0.4")
        axes.set_title(kind, loc="left", fontsize=10)
        axes.set_ylabel(unit)
    panels[-1].set_xlabel(f"time since the first submission ({scale.name})")
    drawing.legend(figure, list(logs))
    return figure


def _busy_gpus(log: RunLog, kind: int, edges: Floats) -> Floats:
    rows = log.leases.accelerator == kind
    gpus = log.leases.gpus[rows]
    times = np.concatenate((log.leases.started_at[rows], log.leases.ended_at[rows]))
    return drawing.binned_mean(times, np.concatenate((gpus, -gpus)), edges)


def _wanted_gpus(log: RunLog, kind: int, edges: Floats) -> Floats:
    """The reference gangs of jobs that are there and not on GPUs, under the type that takes them the least."""
    jobs, leases = log.jobs, log.leases
    likes = (jobs.least_gpu_seconds.argmin(axis=1) == kind) & (jobs.outcome != REFUSED)
    rows = likes[leases.job]
    gangs, held = jobs.gpus[likes], jobs.gpus[leases.job[rows]]
    ended_at = np.where(np.isnan(jobs.ended_at[likes]), log.until, jobs.ended_at[likes])
    times = np.concatenate((jobs.submitted_at[likes], ended_at, leases.started_at[rows], leases.ended_at[rows]))
    return drawing.binned_mean(times, np.concatenate((gangs, -gangs, -held, held)), edges)
