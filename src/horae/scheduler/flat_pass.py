"""A whole pass in one compiled call, for claims and clusters that qualify for `placement.flat`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from horae.model.cluster import Cluster
from horae.model.plans import Settlement, Spot, Turns
from horae.model.shapes import Demand
from horae.placement.flat import LEVELS

if TYPE_CHECKING:
    from horae.scheduler.flat_pass_kernel import Sizes


def sizes_of(cluster: Cluster, demands: Sequence[Demand]) -> Sizes:
    from horae.scheduler.flat_pass_kernel import Sizes  # noqa: PLC0415  numba is slow to import

    chains = {name: number for number, name in enumerate(cluster.accelerators)}
    wide = max((len(demand.shapes) for demand in demands), default=1)
    gpus, level, chain = np.zeros((len(demands), wide), np.int64), *np.full((2, len(demands), wide), -1)
    for number, demand in enumerate(demands):
        for option, shape in enumerate(demand.shapes):
            gpus[number, option], chain[number, option] = shape.gpus, chains.get(shape.accelerator, -1)
            if shape.accelerator in chains:
                level[number, option] = LEVELS.get(shape.level, -1)
    members = np.array([demand.member_gpus for demand in demands], dtype=np.int64)
    cells = cluster.chain_cells[cluster.node_level]
    first_node = np.array([*(cells[name][0] for name in cluster.accelerators), len(cluster.nodes)], dtype=np.int64)
    return Sizes(gpus, level, chain, members, first_node, cluster.first_gpu[cluster.node_level].astype(np.int64))


def with_more(former: Sizes, cluster: Cluster, demands: Sequence[Demand]) -> Sizes:
    """The sizes of all demands, extending those already known: new demands come one at a time."""
    more = sizes_of(cluster, demands[len(former.gpus) :])
    if more.gpus.shape[1] != former.gpus.shape[1]:
        return sizes_of(cluster, demands)
    both = [np.concatenate(pair) for pair in zip(former[:4], more[:4], strict=True)]
    return former._replace(gpus=both[0], level=both[1], chain=both[2], member_gpus=both[3])


def settle_flat(sizes: Sizes, turns: Turns) -> Settlement:
    from horae.scheduler.flat_pass_kernel import run_pass  # noqa: PLC0415

    won = run_pass(*turns, sizes)
    wins, begin, asked = [], 0, 0
    leaving = won.leaving.tolist()
    for position, level, count in zip(*map(np.ndarray.tolist, won[:2]), won.leaving_count.tolist(), strict=True):
        size = int(sizes.gpus[turns.demand[turns.row[position]], turns.option[position]])
        spot = Spot(won.gpus[begin : begin + size], level, tuple(leaving[asked : asked + count]))
        wins.append((position, spot))
        begin, asked = begin + size, asked + count
    kinds = (won.refused >= 0).nonzero()[0].tolist()
    refused = [(kind, int(won.refused[kind]), int(won.free[kind])) for kind in kinds]
    return Settlement(wins, list(zip(won.leaver.tolist(), won.cause.tolist(), strict=True)), refused)
