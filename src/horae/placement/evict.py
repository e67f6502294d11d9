"""Which leases must end when a gang fits only over others: the rules are in `fit_rules`, for clusters of any kind."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horae.model.arrays import Bools
from horae.model.cluster import Cluster
from horae.model.plans import Contest, Riders, Spot
from horae.model.shapes import Demand, Shape
from horae.placement.fit import place
from horae.placement.fit_rules import last_alone, last_of_all, last_of_one_cell, left_by


class _Gang(NamedTuple):
    cluster: Cluster
    riders: Riders
    demand: Demand
    shape: Shape


def place_over(cluster: Cluster, contest: Contest, riders: Riders, demand: Demand, shape: Shape) -> Spot | None:
    """GPUs for a gang, and the leases that would have to end for it; or None."""
    if shape.accelerator not in cluster.chain_gpus or shape.level not in cluster.levels:
        return None
    free, yielding, holder, rank = contest
    start, stop = cluster.chain_gpus[shape.accelerator]
    only_gpus = not demand.cpus_per_gpu and not demand.memory_bytes_per_gpu
    if shape.gpus == 1 and only_gpus:
        gpu = last_alone(free[start:stop], yielding[start:stop], rank[start:stop])
        if gpu >= 0:
            return Spot(np.array([start + gpu]), 0, (int(holder[start + gpu]),))
    level = cluster.level_index(shape.level)
    if level <= cluster.node_level and only_gpus:
        cells = cluster.cell_gpus[max(level, 1)][shape.accelerator]
        leaving = last_of_one_cell(free, yielding, holder, rank, cells, shape.gpus)
    else:
        mine = np.zeros_like(yielding)
        mine[start:stop] = yielding[start:stop]
        leaving = _last_of_all(_Gang(cluster, riders, demand, shape), free, mine, holder, rank)
    if not len(leaving):
        return None
    spot = place(cluster, free | left_by(leaving, yielding, holder), riders, demand, shape)
    return spot and spot._replace(leaving=tuple(leaving.tolist()))


def _fits(gang: _Gang, available: Bools) -> bool:
    return place(gang.cluster, available, gang.riders, gang.demand, gang.shape) is not None


_last_of_all = last_of_all(_fits)
