"""Plots of several runs of one workload."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from horae.model.arrays import Floats, Ints
from horae.reports.labels import short_labels
from horae.reports.plots import style
from horae.reports.rho import apps
from horae.reports.run_log import REFUSED, RunLog
from horae.reports.usage import window

SETS_MAX = 4  # of several GPU types, each with its own panel
Types = frozenset[str]
SEVERAL: Types = frozenset({"several"})


def figures(logs: Logs) -> dict[str, Figure]:
    """All plots of a comparison by name; none if there are no runs."""
    makers: dict[str, Callable[[Logs], Figure]] = {
        "completion": completion_figure,
        "rho": rho_figure,
        "utilisation": utilisation_figure,
        "queue": queue_figure,
        "fairness": fairness_figure,
    }
    return {name: make(logs) for name, make in makers.items()} if logs else {}


def plot_comparison(logs: Logs, directory: Path) -> list[Path]:
    """Write one PNG per plot into a folder; returns the files."""
    return [style.save(figure, directory, name) for name, figure in figures(logs).items()]


def completion_figure(logs: Logs) -> Figure:
    figure, (axes,) = style.side_by_side(1, width=6.4)
    for index, log in enumerate(logs.values()):
        style.draw_shares(axes, _completion_hours(log), index)
    style.finish_shares(axes, "finished jobs", "completion time (hours)")
    style.legend(figure, list(logs))
    return figure


def rho_figure(logs: Logs) -> Figure:
    figure, panels = style.side_by_side(2)
    for axes, name in zip(panels, ("rho_paper", "rho_private"), strict=True):
        for index, log in enumerate(logs.values()):
            columns = apps(log)
            style.draw_shares(axes, getattr(columns, name)[columns.counted], index)
        axes.axvline(1.0, color="black", linewidth=1.0, zorder=1)
        style.finish_shares(axes, "apps", f"{name} (shared time / fair time; fair up to 1)")
    style.legend(figure, list(logs))
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
    """GPUs requested by waiting jobs, by the set of GPU types that they accept,
    because no job waits for one of several."""

    def wanted(types: Types) -> Level:
        return lambda log, edges: _wanted_gpus(log, types, edges)

    levels = {_accepted_title(types, logs): wanted(types) for types in _accepted(logs)}
    figure = over_time(logs, "GPUs wanted by\nwaiting jobs", "no job waits", levels)
    for axes in figure.axes:
        axes.set_ylim(0, max(axes.get_ylim()[1], 1.0))
    return figure


def fairness_figure(logs: Logs) -> Figure:
    """Efficiency against fairness: left is efficient, low is fair; policies on the line are Pareto-optimal."""
    figure, (axes,) = style.side_by_side(1, width=6.0, height=4.8)
    points = {name: _efficiency_and_fairness(log) for name, log in logs.items()}
    known = {name: point for name, point in points.items() if np.isfinite(point).all()}
    axes.axhline(1.0, color="black", linewidth=0.8, linestyle=":")
    axes.set_xlabel("mean completion time (hours)")
    axes.set_ylabel("99th percentile of rho_paper (shared time / fair time)")
    axes.set_title("grey: the Pareto front; left is faster, below is fairer", loc="left", fontsize=9, color="0.3")
    axes.margins(0.18)
    if known:
        looks = [index for index, name in enumerate(points) if name in known]
        style.draw_points(axes, list(known.values()), looks)
        if max(rho for _, rho in known.values()) > 8 * min(rho for _, rho in known.values()):
            axes.set_yscale("log")
            style.plain_log(axes, "y")
        axes.set_xlim(left=max(axes.get_xlim()[0], 0.0))  # there is no time before 0
        style.draw_front(axes, list(known.values()))
        style.place_labels(figure, axes, list(known.values()), list(known))
    return figure


def _completion_hours(log: RunLog) -> Floats:
    return (log.jobs.ended_at - log.jobs.submitted_at)[log.finished] / style.HOUR


def _efficiency_and_fairness(log: RunLog) -> tuple[float, float]:
    columns, completion = apps(log), _completion_hours(log)
    rho = columns.rho_paper[columns.counted]
    if not len(completion) or not len(rho):
        return float("nan"), float("nan")
    return float(completion.mean()), float(np.quantile(rho, 0.99))


def _kinds(logs: Logs) -> list[str]:
    return list(dict.fromkeys(name for log in logs.values() for name in log.cluster.accelerators))


def _busy_share(log: RunLog, kind: str, edges: Floats) -> Floats | None:
    """Busy GPUs in percent; None where the run has no such GPUs."""
    if kind not in log.cluster.accelerators:
        return None
    number = log.cluster.accelerators.index(kind)
    leases, rows = log.leases, log.leases.accelerator == number
    gpus, started_at = leases.gpus[rows], leases.started_at[rows]
    # Of two jobs sharing GPUs, each counts for half.
    half = np.where(leases.shared_seconds[rows] > 0, gpus / 2, 0.0)
    times = np.concatenate((started_at, started_at, started_at + leases.shared_seconds[rows], leases.ended_at[rows]))
    busy = style.binned_mean(times, np.concatenate((gpus, -half, half, -gpus)), edges)
    return busy / log.cluster.gpus_by_accelerator[number] * 100


def _types_by_job(log: RunLog) -> tuple[list[Types], Ints]:
    """The sets of GPU types that jobs accept, and the index of each job's set; -1: it was rejected."""
    accepted = np.isfinite(log.jobs.least_gpu_seconds).reshape(len(log.jobs), len(log.cluster.accelerators))
    patterns, number = np.unique(accepted, axis=0, return_inverse=True)
    names = np.array(log.cluster.accelerators)
    sets = [frozenset(names[pattern].tolist()) for pattern in patterns]
    return sets, np.where(log.jobs.outcome == REFUSED, -1, number.reshape(-1))


def _accepted(logs: Logs) -> list[Types]:
    """The sets of GPU types that jobs of any log may wait for, small ones first;
    where there are many, the large ones are merged."""
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
    """GPUs of the reference gangs of jobs that accept these GPU types, are submitted and not on GPUs."""
    jobs, leases = log.jobs, log.leases
    sets, number = _types_by_job(log)
    chosen = [index for index, each in enumerate(sets) if each == types or (types == SEVERAL and len(each) > 1)]
    waits = np.isin(number, chosen)
    rows = waits[leases.job]
    gangs, held = jobs.gpus[waits], jobs.gpus[leases.job[rows]]
    ended_at = np.where(np.isnan(jobs.ended_at[waits]), log.until, jobs.ended_at[waits])
    times = np.concatenate((jobs.submitted_at[waits], ended_at, leases.started_at[rows], leases.ended_at[rows]))
    return style.binned_mean(times, np.concatenate((gangs, -gangs, -held, held)), edges)


# Levels over time of several runs: lines in one panel as long as they can be told apart, otherwise small multiples

Logs = Mapping[str, RunLog]
Level = Callable[[RunLog, Floats], Floats | None]  # its means between edges; None: the run has no such thing
LINES_MAX = 6  # in one panel
BINS, BINS_SMALL = 120, 40
TITLE_LENGTH = 34


def over_time(logs: Logs, unit: str, nothing: str, levels: Mapping[str, Level]) -> Figure:
    """Plots means over bins of equal length from the first submission on; levels are by name."""
    small = len(logs) > LINES_MAX
    start = min(window(log).start for log in logs.values())
    stop = max(*(window(log).stop for log in logs.values()), start + 1.0)
    edges, scale = np.linspace(start, stop, (BINS_SMALL if small else BINS) + 1), style.time_unit(stop - start)
    shown = (edges - start) / scale.seconds
    draw = _by_run if small else _by_level
    return draw(logs, levels, edges, shown, (f"time since the first submission ({scale.name})", unit, nothing))


def _by_level(
    logs: Logs, levels: Mapping[str, Level], edges: Floats, shown: Floats, words: tuple[str, str, str]
) -> Figure:
    """One panel per level, with one line per run."""
    time, unit, nothing = words
    figure, panels = style.panels(len(levels))
    for axes, (title, level) in zip(panels, levels.items(), strict=True):
        _draw(axes, shown, [level(log, edges) for log in logs.values()], nothing)
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_ylabel(unit)
    panels[-1].set_xlabel(time)
    style.legend(figure, list(logs))
    return figure


def _by_run(
    logs: Logs, levels: Mapping[str, Level], edges: Floats, shown: Floats, words: tuple[str, str, str]
) -> Figure:
    """One panel per run, with one line per level and a thin one for its mean; all panels have the same axes."""
    time, unit, nothing = words
    figure, panels = style.grid(len(logs))
    for axes, title, log in zip(panels, short_labels(list(logs), TITLE_LENGTH), logs.values(), strict=True):
        found = [level(log, edges) for level in levels.values()]
        _draw(axes, shown, found, nothing)
        for index, means in enumerate(found):
            if means is not None:
                axes.axhline(means.mean(), color=style.look(index).colour, linewidth=0.7, alpha=0.8)
        axes.set_title(title, loc="left", fontsize=9)
    figure.supxlabel(time, fontsize=10)
    figure.supylabel(f"{unit}; thin: the mean".replace("\n", " "), fontsize=10)
    if len(levels) > 1:
        style.legend(figure, list(levels))
    else:
        figure.suptitle(next(iter(levels)), fontsize=10)
    return figure


def _draw(axes: Axes, shown: Floats, levels: list[Floats | None], nothing: str) -> None:
    for index, means in enumerate(levels):
        if means is not None:
            style.draw_level(axes, shown, means, index)
    if not any(means is not None and means.any() for means in levels):
        axes.text(0.5, 0.5, nothing, transform=axes.transAxes, ha="center", color="0.4")
