"""GPU usage: busy, idle, and idle in nodes that are partly in use."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from horae.model.arrays import Floats, Ints
from horae.reports.groups import sums_by
from horae.reports.run_log import REFUSED, RunLog


@dataclass(frozen=True)
class Window:
    """From the first submission to the last end; to the log's end where something still runs."""

    start: float
    stop: float

    @property
    def seconds(self) -> float:
        return self.stop - self.start


def window(log: RunLog) -> Window:
    submitted = log.jobs.submitted_at[log.jobs.outcome != REFUSED]
    ends = np.concatenate((log.jobs.ended_at[log.ended], log.leases.ended_at))
    if not len(ends):
        return Window(0.0, 0.0)
    return Window(float(submitted.min()), float(ends.max()))


def busy_gpu_seconds(log: RunLog) -> Floats:
    """Busy GPU-seconds by accelerator; a GPU that two jobs share counts once."""
    return sums_by(log.leases.accelerator, log.leases.gpu_seconds, len(log.cluster.accelerators))


def fragmentation(log: RunLog) -> float:
    """The share of idle GPU-seconds that lay in nodes partly in use; 0 where nothing was idle.

    A node of n GPUs that is in use for a time t, and on which b GPU-seconds are held, has n t - b of them.
    """
    node_gpus = np.bincount(log.cluster.node)
    busy = float(log.leases.gpu_seconds.sum())
    idle = len(log.cluster) * window(log).seconds - busy
    in_part = float((node_gpus * _node_seconds(log, len(node_gpus))).sum()) - busy
    return max(in_part, 0.0) / idle if idle > 0 else 0.0


def _node_seconds(log: RunLog, nodes: int) -> Floats:
    """By node: seconds in which any of its GPUs was held."""
    leases = log.leases
    lease, node = lease_nodes(log)
    order = np.argsort(leases.started_at[lease], kind="stable")
    by_node = order[np.argsort(node[order].astype(np.int16 if nodes < 2**15 else np.int64), kind="stable")]
    starts, stops = leases.started_at[lease[by_node]], leases.ended_at[lease[by_node]]
    first = np.concatenate(([0], np.cumsum(np.bincount(node, minlength=nodes))))
    seconds = np.zeros(nodes)
    for index in np.flatnonzero(np.diff(first)):
        seconds[index] = _union_seconds(starts[first[index] : first[index + 1]], stops[first[index] : first[index + 1]])
    return seconds


def _union_seconds(starts: Floats, stops: Floats) -> float:
    """The time covered by intervals that are sorted by their starts."""
    reached = np.maximum.accumulate(stops)
    covered = reached - starts
    covered[1:] = reached[1:] - np.maximum(starts[1:], reached[:-1])
    return float(np.maximum(covered, 0.0).sum())


def lease_nodes(log: RunLog) -> tuple[Ints, Ints]:
    """Every pair of a lease and a node on which it has GPUs. A lease's GPUs on one node are adjacent."""
    lease = np.repeat(np.arange(len(log.leases)), log.leases.gpus)
    node = log.cluster.node[log.leases.gpu]
    if not len(node):
        return lease, node
    new = np.ones(len(node), dtype=bool)
    new[1:] = (np.diff(lease) != 0) | (np.diff(node) != 0)
    return lease[new], node[new]


def cost(log: RunLog) -> Floats:
    """By lease: GPU-hours at the prices of the nodes; two jobs that share pay half each."""
    if not len(log.leases):
        return np.zeros(0)
    price_per_hour = np.add.reduceat(log.cluster.price_per_hour[log.leases.gpu], log.leases.offset[:-1])
    return price_per_hour * log.leases.paid_seconds / 3600
