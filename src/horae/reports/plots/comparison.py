"""Plots of several runs of one workload: distributions over jobs and apps, and levels over time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from horae.model.arrays import Floats, Ints
from horae.reports.plots import style
from horae.reports.plots.curves import binned_mean, draw_level, draw_shares, finish_shares, positive, say
from horae.reports.plots.legends import Entry, add_legend, add_note, line_entry
from horae.reports.plots.style import BASELINE_LOOK, RECORDED_LOOK, Look, look
from horae.reports.plots.time_axis import HOUR, TimeAxis
from horae.reports.rho import apps
from horae.reports.run_log import REFUSED, RunLog
from horae.reports.usage import window

Logs = Mapping[str, RunLog]
Types = frozenset[str]
Values = Mapping[str, Floats]  # by label of the run
SEVERAL: Types = frozenset({"several"})
SETS_MAX = 4  # of several GPU types, each with its own panel
LEVEL_LINES_MAX, SHARE_LINES_MAX = 6, 8  # in one panel: levels cross each other all the time, distributions rarely
BINS, BINS_SMALL = 120, 40
RHOS = {
    "rho_paper": "rho, fair share: all GPUs for 1/N of the time",
    "rho_private": "rho, fair share: 1/N of the GPUs all the time",
}
THIN_GREY = Look(style.GREY, "-", "")
RHO_NOTE = "rho: time in the shared cluster / time on a fair share, with N apps at a time; up to 1 is fair."


@dataclass(frozen=True)
class PlottedRuns:
    """Runs of the same jobs by label, and how they are shown."""

    logs: Logs
    baseline: str = ""
    recorded: str = ""  # the label of what the trace records
    names: Mapping[str, str] = field(default_factory=dict)  # by label, where another name is shown
    origin: str = ""  # the date and time of second 0, where the trace has dates

    def name(self, label: str) -> str:
        name = self.names.get(label, label)
        return f"{name} (baseline)" if label == self.baseline else name

    @property
    def looks(self) -> dict[str, Look]:
        """The baseline is black, what was recorded grey; the colours are for the others."""
        special = {self.baseline: BASELINE_LOOK, self.recorded: RECORDED_LOOK}
        others = [label for label in self.logs if label not in special]
        return {label: special.get(label) or look(others.index(label)) for label in self.logs}

    @property
    def entries(self) -> list[Entry]:
        return [line_entry(self.name(label), each) for label, each in self.looks.items()]


def run_figures(runs: PlottedRuns) -> dict[str, Figure]:
    """Plots of runs by name; none if there are no runs."""
    makers: dict[str, Callable[[PlottedRuns], Figure]] = {
        "completion": completion_figure,
        "rho": rho_figure,
        "utilisation": utilisation_figure,
        "queue": queue_figure,
    }
    return {name: make(runs) for name, make in makers.items()} if runs.logs else {}


# Distributions


def completion_figure(runs: PlottedRuns) -> Figure:
    hours = {label: positive(_completion_hours(log)) for label, log in runs.logs.items()}
    unit = "completion time (hours)"
    if len(runs.logs) > SHARE_LINES_MAX:
        return _share_grid(runs, {unit: hours}, "finished jobs")
    figure, (axes,) = style.panels(1, 1, style.COLUMN_INCHES, 2.1)
    add_legend(figure, *_share_lines(axes, runs, hours, "finished jobs", unit))
    return figure


def times_figure(runs: PlottedRuns) -> Figure:
    """Completion and waiting times side by side."""
    values = {
        "completion time (hours)": {label: positive(_completion_hours(log)) for label, log in runs.logs.items()},
        "waiting time (hours); left edge: up to 1 s": {label: _waiting_hours(log) for label, log in runs.logs.items()},
    }
    if len(runs.logs) > SHARE_LINES_MAX:
        return _share_grid(runs, values, "finished jobs")
    figure, panels = style.panels(1, 2, style.PAGE_INCHES, 2.5, sharey=True)
    found = [
        _share_lines(axes, runs, each, "finished jobs", words)
        for axes, (words, each) in zip(panels, values.items(), strict=True)
    ]
    for axes in panels:
        axes.label_outer()
    add_legend(figure, *found[0])
    return figure


def rho_figure(runs: PlottedRuns) -> Figure:
    values: dict[str, Values] = {words: _rhos(runs.logs, name) for name, words in RHOS.items()}
    if len(runs.logs) > SHARE_LINES_MAX:
        return _share_grid(runs, values, "apps", fair=True)
    figure, panels = style.panels(1, 2, style.PAGE_INCHES, 2.3, sharey=True)
    found = [
        _share_lines(axes, runs, each, "apps", words)
        for axes, (words, each) in zip(panels, values.items(), strict=True)
    ]
    for axes in panels:
        axes.axvline(1.0, color=style.GREY, linewidth=0.8, zorder=1)
        axes.label_outer()
    add_legend(figure, *found[0])
    add_note(figure, RHO_NOTE)
    return figure


def _share_lines(axes: Axes, runs: PlottedRuns, values: Values, what: str, unit: str) -> tuple[Sequence[Entry], str]:
    """Draws one line per run; returns the entries of the legend and its title."""
    for label, each in runs.looks.items():
        draw_shares(axes, values[label], each)
    counts = {len(each) for each in values.values()}
    # Of how many a distribution is: on the axis where all are of as many, else beside each name.
    finish_shares(axes, f"{counts.pop():,} {what}" if len(counts) == 1 else what, unit)
    if not counts:
        return runs.entries, ""
    entries = [
        entry._replace(name=f"{entry.name}: {len(values[label]):,}")
        for label, entry in zip(runs.logs, runs.entries, strict=True)
    ]
    return entries, f"policy: number of {what}"


def _share_grid(runs: PlottedRuns, values: Mapping[str, Values], what: str, fair: bool = False) -> Figure:
    """One panel per run, with one line per quantity, and those of the baseline thin."""
    counts = [len(next(iter(values.values()))[label]) for label in runs.logs]
    titles = [runs.name(label) for label in runs.logs]
    if len(set(counts)) > 1:
        titles = [f"{title}: {count:,}" for title, count in zip(titles, counts, strict=True)]
    figure, panels = style.grid(titles, 1.15)
    looks = [look(index) for index in range(len(values))]
    for axes, label in zip(panels, runs.logs, strict=True):
        for each, quantity in zip(looks, values.values(), strict=True):
            if runs.baseline and label != runs.baseline:
                draw_shares(axes, quantity[runs.baseline], Look(style.GREY, each.dashes, ""), style.THIN)
            draw_shares(axes, quantity[label], each)
        if fair:
            axes.axvline(1.0, color=style.GREY, linewidth=0.6, zorder=1)
        finish_shares(axes, what, "")
        axes.set_ylabel("")
    units = list(values)
    together = "rho: shared time / fair time" if fair else "hours"
    figure.supxlabel(units[0] if len(units) == 1 else together, fontsize=style.LABEL_POINTS)
    number = f"{counts[0]:,} " if len(set(counts)) == 1 else ""
    named = "" if number else "; their number: in the titles"
    figure.supylabel(f"share of {number}{what} (%){named}", fontsize=style.LABEL_POINTS)
    entries = [line_entry(unit, each) for unit, each in zip(units, looks, strict=True)] if len(units) > 1 else []
    if runs.baseline:
        entries.append(line_entry(f"{runs.names.get(runs.baseline, runs.baseline)}, for comparison", THIN_GREY))
    add_legend(figure, entries)
    return figure


def _completion_hours(log: RunLog) -> Floats:
    return (log.jobs.ended_at - log.jobs.submitted_at)[log.finished] / HOUR


def _waiting_hours(log: RunLog) -> Floats:
    """A job that did not wait at all counts as one second: a logarithmic axis has no zero."""
    waited = (log.jobs.ended_at - log.jobs.submitted_at - log.run_seconds)[log.finished]
    return np.maximum(waited, 1.0) / HOUR


def _rhos(logs: Logs, name: str) -> Values:
    found = {label: apps(log) for label, log in logs.items()}
    return {label: positive(getattr(columns, name)[columns.counted]) for label, columns in found.items()}


# Levels over time: lines in one panel as long as they can be told apart, otherwise small multiples

Level = Callable[[RunLog, Floats], Floats | None]  # its means between edges; None: the run has no such thing


def utilisation_figure(runs: PlottedRuns) -> Figure:
    def busy(kind: str) -> Level:
        return lambda log, edges: _busy_share(log, kind, edges)

    levels = {kind: busy(kind) for kind in _kinds(runs.logs)}
    figure = over_time(runs, "GPUs in use (%)", "never in use", levels)
    for axes in figure.axes:
        axes.set_ylim(0, 103)
        axes.yaxis.set_major_formatter(PercentFormatter(100.0, symbol=""))
    return figure


def queue_figure(runs: PlottedRuns) -> Figure:
    """GPUs requested by waiting jobs, by the set of GPU types that they accept,
    because no job waits for one of several."""

    def wanted(types: Types) -> Level:
        return lambda log, edges: _wanted_gpus(log, types, edges)

    levels = {_accepted_title(types, runs.logs): wanted(types) for types in _accepted(runs.logs)}
    figure = over_time(runs, "GPUs wanted by waiting jobs", "no job waits", levels)
    for axes in figure.axes:
        axes.set_ylim(0, max(axes.get_ylim()[1], 1.0))
    return figure


def over_time(runs: PlottedRuns, unit: str, nothing: str, levels: Mapping[str, Level]) -> Figure:
    """Plots means over bins of equal length from the first submission on; levels are by name."""
    logs = runs.logs.values()
    start = min(window(log).start for log in logs)
    time = TimeAxis(start, max(*(window(log).stop for log in logs), start + 1.0), runs.origin)
    draw = _by_run if len(runs.logs) > LEVEL_LINES_MAX else _by_level
    return draw(runs, levels, time, (unit, nothing))


def _by_level(runs: PlottedRuns, levels: Mapping[str, Level], time: TimeAxis, words: tuple[str, str]) -> Figure:
    """One panel per level, with one line per run."""
    edges = np.linspace(time.start, time.stop, BINS + 1)
    figure, panels = style.panels(len(levels), 1, style.PAGE_INCHES, 1.75, sharex=True)
    for axes, (title, level) in zip(panels, levels.items(), strict=True):
        found = [level(log, edges) for log in runs.logs.values()]
        _draw_levels(axes, time.positions(edges), found, list(runs.looks.values()), words[1])
        if len(levels) > 1:
            style.title(axes, style.shown(title))
        axes.set_ylabel(words[0].replace(" by ", "\nby "))
    panels[-1].set_xlabel(time.label)
    time.apply(panels[-1])
    add_legend(figure, runs.entries)
    return figure


def _by_run(runs: PlottedRuns, levels: Mapping[str, Level], time: TimeAxis, words: tuple[str, str]) -> Figure:
    """One panel per run, with one line per level and a thin one for its mean; all panels have the same axes."""
    edges = np.linspace(time.start, time.stop, BINS_SMALL + 1)
    figure, panels = style.grid([runs.name(label) for label in runs.logs], 1.1)
    looks = [look(index) for index in range(len(levels))]
    for axes, log in zip(panels, runs.logs.values(), strict=True):
        found = [level(log, edges) for level in levels.values()]
        _draw_levels(axes, time.positions(edges), found, looks, words[1])
        own = np.array([window(log).start, max(window(log).stop, window(log).start + 1.0)])
        for each, level in zip(looks, levels.values(), strict=True):
            mean = level(log, own)  # over the run's own time, as in tables: others may go on for longer
            if mean is not None:
                axes.plot(time.positions(own), [mean[0]] * 2, color=each.colour, linewidth=style.THIN, alpha=0.8)
        time.apply(axes, ticks_max=5)
    figure.supxlabel(time.label, fontsize=style.LABEL_POINTS)
    label = words[0].replace(" by ", "\nby ")
    figure.supylabel(f"{label};\nthin: the mean", fontsize=style.LABEL_POINTS)
    if len(levels) > 1:
        add_legend(figure, [line_entry(name, each) for name, each in zip(levels, looks, strict=True)])
    return figure


def _draw_levels(
    axes: Axes, positions: Floats, levels: Sequence[Floats | None], looks: Sequence[Look], nothing: str
) -> None:
    for means, each in zip(levels, looks, strict=True):
        if means is not None:
            draw_level(axes, positions, means, each)
    axes.margins(x=0.01)
    if not any(means is not None and means.any() for means in levels):
        say(axes, nothing)


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
    busy = binned_mean(times, np.concatenate((gpus, -half, half, -gpus)), edges)
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
    return binned_mean(times, np.concatenate((gangs, -gangs, -held, held)), edges)
