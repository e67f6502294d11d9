"""`fit` and `evict`, compiled, for clusters of nodes without levels between.

For jobs that ask for no CPUs or memory and have no members of several sizes. Kernels are imported when they are first
called, because that takes longer than most runs spend on placement.
"""

from __future__ import annotations

from horae.model.arrays import Bools, Ints
from horae.model.cluster import CLUSTER, GPU, NODE
from horae.model.plans import Contest, Spot
from horae.model.shapes import Demand, Shape

LEVELS = {GPU: 0, NODE: 1, CLUSTER: 2}


def place_flat(starts: Ints, free: Bools, demand: Demand, shape: Shape) -> Spot | None:
    """GPUs for a gang, or None. `starts`: the first GPU of each node of the type, and the end."""
    from horae.placement.flat_kernel import place  # noqa: PLC0415

    if shape.level not in LEVELS:
        return None
    member_gpus = min(demand.member_gpus, shape.gpus)
    level, gpus = place(free, starts, shape.gpus, member_gpus, LEVELS[shape.level])
    return Spot(gpus, level) if level >= 0 else None


def place_over_flat(starts: Ints, contest: Contest, demand: Demand, shape: Shape) -> Spot | None:
    from horae.placement.flat_kernel import place_over  # noqa: PLC0415

    if shape.level not in LEVELS:
        return None
    member_gpus = min(demand.member_gpus, shape.gpus)
    level, gpus, leaving = place_over(*contest, starts, shape.gpus, member_gpus, LEVELS[shape.level])
    return Spot(gpus, level, tuple(leaving.tolist())) if level >= 0 else None
