"""Runs of one workload side by side, as pictures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from horae.model.arrays import Floats, Ints
from horae.reports import drawing
from horae.reports.fairness import apps
from horae.reports.log import REFUSED, RunLog
from horae.reports.time_plots import Level, Logs, over_time
from horae.reports.trace_plots import plot_trace

__all__ = ["plot_comparison", "plot_trace"]

SETS_MAX = 4  # of several GPU types, each with a panel of its own
Types = frozenset[str]
SEVERAL: Types = frozenset({"several"})


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
    def busy(kind: str) -> Level:
        return lambda log, edges: _busy_share(log, kind, edges)

    figure = over_time(logs, "GPUs in use (%)", "never in use", {kind: busy(kind) for kind in _kinds(logs)})
    for axes in figure.axes:
        axes.set_ylim(0, 103)
        axes.yaxis.set_major_formatter(PercentFormatter(100.0))
    return figure


def queue_figure(logs: Logs) -> Figure:
    """By what waiting jobs accept: one that takes either of two types waits for neither of them."""

    def wanted(types: Types) -> Level:
        return lambda log, edges: _wanted_gpus(log, types, edges)

    levels = {_accepted_title(types, logs): wanted(types) for types in _accepted(logs)}
    figure = over_time(logs, "GPUs wanted by\nwaiting jobs", "nobody waits", levels)
    for axes in figure.axes:
        axes.set_ylim(0, max(axes.get_ylim()[1], 1.0))
    return figure


def fairness_figure(logs: Logs) -> Figure:
    """To the left is efficient, below is fair; who is on the line is beaten by nobody in both."""
    figure, (axes,) = drawing.side_by_side(1, width=6.0, height=4.8)
    points = {name: _efficiency_and_fairness(log) for name, log in logs.items()}
    known = {name: point for name, point in points.items() if np.isfinite(point).all()}
    axes.axhline(1.0, color="black", linewidth=0.8, linestyle=":")
    axes.set_xlabel("mean completion time (hours)")
    axes.set_ylabel("99th percentile of rho_paper (shared time / fair time)")
    axes.set_title("grey: the Pareto front; left is faster, below is fairer", loc="left", fontsize=9, color="0.3")
    axes.margins(0.18)
    if known:
        looks = [index for index, name in enumerate(points) if name in known]
        drawing.draw_points(axes, list(known.values()), looks)
        if max(rho for _, rho in known.values()) > 8 * min(rho for _, rho in known.values()):
            axes.set_yscale("log")
            drawing.plain_log(axes, "y")
        axes.set_xlim(left=max(axes.get_xlim()[0], 0.0))  # there is no time before 0
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


def _kinds(logs: Logs) -> list[str]:
    return list(dict.fromkeys(name for log in logs.values() for name in log.cluster.accelerators))


def _busy_share(log: RunLog, kind: str, edges: Floats) -> Floats | None:
    """In percent; None where the run has no such GPUs."""
    if kind not in log.cluster.accelerators:
        return None
    number = log.cluster.accelerators.index(kind)
    leases, rows = log.leases, log.leases.accelerator == number
    gpus, started_at = leases.gpus[rows], leases.started_at[rows]
    # In company, each of the two has half of the GPUs.
    half = np.where(leases.shared_seconds[rows] > 0, gpus / 2, 0.0)
    times = np.concatenate((started_at, started_at, started_at + leases.shared_seconds[rows], leases.ended_at[rows]))
    busy = drawing.binned_mean(times, np.concatenate((gpus, -half, half, -gpus)), edges)
    return busy / log.cluster.gpus_by_accelerator[number] * 100


def _types_by_job(log: RunLog) -> tuple[list[Types], Ints]:
    """What sets of GPU types jobs accept, and the number of each job's among them; -1: it was refused."""
    accepted = np.isfinite(log.jobs.least_gpu_seconds).reshape(len(log.jobs), len(log.cluster.accelerators))
    patterns, number = np.unique(accepted, axis=0, return_inverse=True)
    names = np.array(log.cluster.accelerators)
    sets = [frozenset(names[pattern].tolist()) for pattern in patterns]
    return sets, np.where(log.jobs.outcome == REFUSED, -1, number.reshape(-1))


def _accepted(logs: Logs) -> list[Types]:
    """The sets of GPU types for which jobs of any log may wait, small ones first; where there are many, the large ones
    are one."""
    kinds = _kinds(logs)
    found: set[Types] = set()
    for log in logs.values():
        sets, number = _types_by_job(log)
        found |= {sets[index] for index in np.unique(number[number >= 0]).tolist()}
    ordered = sorted(found, key=lambda types: (len(types), sorted(map(kinds.index, types))))
    single = [types for types in ordered if len(types) <= 1]
    several = ordered[len(single) :]
    return [*single, *(several if len(several) <= SETS_MAX else [SEVERAL])] or [frozenset(kinds)]


def _accepted_title(types: Types, logs: Logs) -> str:
    kinds = _kinds(logs)
    if types == SEVERAL:
        return "jobs that accept several GPU types"
    if len(types) == 1:
        return next(iter(types)) if len(kinds) == 1 else f"jobs that accept {next(iter(types))} only"
    return f"jobs that accept any of {', '.join(kind for kind in kinds if kind in types)}"


def _wanted_gpus(log: RunLog, types: Types, edges: Floats) -> Floats:
    """The reference gangs of jobs that accept these GPU types, are there and not on GPUs."""
    jobs, leases = log.jobs, log.leases
    sets, number = _types_by_job(log)
    chosen = [index for index, each in enumerate(sets) if each == types or (types == SEVERAL and len(each) > 1)]
    waits = np.isin(number, chosen)
    rows = waits[leases.job]
    gangs, held = jobs.gpus[waits], jobs.gpus[leases.job[rows]]
    ended_at = np.where(np.isnan(jobs.ended_at[waits]), log.until, jobs.ended_at[waits])
    times = np.concatenate((jobs.submitted_at[waits], ended_at, leases.started_at[rows], leases.ended_at[rows]))
    return drawing.binned_mean(times, np.concatenate((gangs, -gangs, -held, held)), edges)
