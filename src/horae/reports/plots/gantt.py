"""The cluster over time: which tenant had which nodes. It is a picture of fixed size, however many jobs there were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from horae.model.arrays import Floats, Ints
from horae.reports.plots import style
from horae.reports.plots.comparison import PlottedRuns
from horae.reports.plots.legends import Entry, add_legend, add_note, bar_entry
from horae.reports.plots.style import Look
from horae.reports.plots.time_axis import TimeAxis
from horae.reports.run_log import ClusterLog, RunLog
from horae.reports.usage import window

BINS = 280  # of time: about one per half millimetre
ROWS_MAX = 64  # of GPUs or nodes; larger clusters have several nodes in a row
NAMED_MAX = 12  # nodes with their names beside them
NAME_LENGTH = 14  # characters


class Owners(NamedTuple):
    """Groups with a colour of their own, and the group of each job; the last group is all others."""

    names: tuple[str, ...]
    of_job: Ints


def gantt_figure(runs: PlottedRuns, by: str = "tenants", nodes: Sequence[str] = ()) -> Figure:
    """One panel per run: GPUs or nodes from top to bottom, time from left to right, coloured by tenant or user.

    The colour is that of the group with most GPU-seconds there; it is the paler, the more of the GPUs were idle.
    """
    logs = list(runs.logs.values())
    start = min(window(log).start for log in logs)
    time = TimeAxis(start, max(*(window(log).stop for log in logs), start + 1.0), runs.origin)
    edges = np.linspace(time.start, time.stop, BINS + 1)
    names = _largest(logs, by)
    figure, panels = style.panels(len(logs), 1, style.PAGE_INCHES, 1.95, sharex=True)
    positions = time.positions(edges)
    for axes, (label, log) in zip(panels, runs.logs.items(), strict=True):
        axes.imshow(
            gantt_colours(log, owners(log, by, names), edges),
            aspect="auto",
            interpolation="nearest",
            extent=(float(positions[0]), float(positions[-1]), len(log.cluster), 0),
        )
        _name_nodes(axes, log, nodes)
        style.title(axes, style.shown_short([runs.name(label)], style.GRID_TITLE[1])[0])
    time.apply(panels[-1])
    panels[-1].set_xlabel(time.label)
    add_legend(figure, _entries(logs, by, names))
    add_note(figure, "Pale: idle for a part of the time, or some of the GPUs of a row. White: idle.")
    return figure


def owners(log: RunLog, by: str, names: Sequence[str]) -> Owners:
    """The group of each job, as a position in `names`, or behind them."""
    every, number = (log.users, log.jobs.user) if by == "users" else (log.tenants, log.jobs.tenant)
    place = {name: index for index, name in enumerate(names)}
    return Owners(tuple(names), np.array([place.get(name, len(names)) for name in every], dtype=np.int64)[number])


def _largest(logs: Sequence[RunLog], by: str) -> list[str]:
    """The groups with most GPU-seconds over all runs, as many as there are colours."""
    used: dict[str, float] = {}
    for log in logs:
        every, number = (log.users, log.jobs.user) if by == "users" else (log.tenants, log.jobs.tenant)
        for name, seconds in zip(every, np.bincount(number, log.gpu_seconds, minlength=len(every)), strict=True):
            used[name] = used.get(name, 0.0) + float(seconds)
    return sorted(used, key=lambda name: (-used[name], name))[: len(style.COLOURS)]


def _entries(logs: Sequence[RunLog], by: str, names: Sequence[str]) -> list[Entry]:
    entries = [
        bar_entry(name or "no user", Look(colour, "-", "")) for name, colour in zip(names, style.COLOURS, strict=False)
    ]
    every = {name for log in logs for name in (log.users if by == "users" else log.tenants)}
    if len(every) > len(names):
        entries.append(bar_entry(f"{len(every) - len(names):,} other {by}", Look(style.GREY, "-", "")))
    return entries


def gantt_colours(log: RunLog, groups: Owners, edges: Floats) -> Floats:
    """Red, green and blue by row of nodes and bin of time."""
    busy = gantt_shares(log, groups, edges)
    palette = np.array([to_rgb(colour) for colour in (*style.COLOURS[: len(groups.names)], style.GREY)])
    colour = palette[busy.argmax(axis=0)]
    filled = np.minimum(busy.sum(axis=0), 1.0)[..., np.newaxis]
    return filled * colour + (1 - filled)


def gantt_shares(log: RunLog, groups: Owners, edges: Floats) -> Floats:
    """By group, row of nodes and bin: the share of the GPU-seconds there that its jobs held."""
    leases, row_of_gpu = log.leases, rows_of_gpus(log.cluster)
    rows = int(row_of_gpu.max(initial=-1)) + 1
    lease = np.repeat(np.arange(len(leases)), leases.gpus)
    # One entry per lease and row, with the GPUs that it has there.
    key, count = np.unique(lease * rows + row_of_gpu[leases.gpu], return_counts=True)
    lease, row = key // rows, key % rows
    paid = np.divide(leases.paid_seconds, leases.seconds, out=np.ones(len(leases)), where=leases.seconds > 0)
    held = count * paid[lease]
    slot = groups.of_job[leases.job[lease]] * rows + row
    slots, bins = (len(groups.names) + 1) * rows, len(edges) - 1
    held_gpus = _levels(slot, slots, leases.started_at[lease], leases.ended_at[lease], held, edges)
    gpus = np.bincount(row_of_gpu, minlength=rows)
    return held_gpus.reshape(len(groups.names) + 1, rows, bins) / gpus[:, np.newaxis]


def _levels(slot: Ints, slots: int, starts: Floats, ends: Floats, heights: Floats, edges: Floats) -> Floats:
    """By slot and bin: the mean height of the bars of the slot.

    A bar from s to e adds to a bin what (t - s)+ - (t - e)+ grows by between its edges. That is linear in t beyond the
    bin of s or e: the two sums of each bin, cumulated, give it without a loop over bars and bins.
    """
    width, bins = float(edges[1] - edges[0]), len(edges) - 1
    slope, offset = np.zeros((slots, bins + 2)), np.zeros((slots, bins + 2))
    for times, sign in ((starts, 1.0), (ends, -1.0)):
        place = np.clip((times - edges[0]) / width, 0.0, bins)
        first = np.floor(place).astype(np.int64) + 1  # the first edge at or behind the time
        np.add.at(slope, (slot, first), sign * heights)
        np.add.at(offset, (slot, first), -sign * heights * place)
    reached = np.cumsum(slope, axis=1) * np.arange(bins + 2) + np.cumsum(offset, axis=1)
    return np.maximum(np.diff(reached[:, : bins + 1], axis=1), 0.0)


def rows_of_gpus(cluster: ClusterLog) -> Ints:
    """The row of each GPU: one per GPU, or per node, or per several nodes, as many as can be told apart."""
    units = np.arange(len(cluster)) if len(cluster) <= ROWS_MAX else cluster.node
    count = int(units.max(initial=-1)) + 1
    return units * min(count, ROWS_MAX) // max(count, 1)


def _name_nodes(axes: Axes, log: RunLog, names: Sequence[str]) -> None:
    """Lines between nodes, with their names, as long as there are few."""
    axes.grid(visible=False)
    first = np.flatnonzero(np.diff(log.cluster.node, prepend=-1))
    if len(first) > NAMED_MAX or len(names) <= int(log.cluster.node.max(initial=0)):
        axes.set_ylabel("GPU")
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        return
    there = [names[node] for node in log.cluster.node[first].tolist()]
    bounds = np.append(first, len(log.cluster))
    axes.set_yticks((bounds[:-1] + bounds[1:]) / 2, style.shown_short(there, NAME_LENGTH))
    for place in first[1:].tolist():
        axes.axhline(place, color=style.BLACK, linewidth=0.4)
