"""What must hold of every plan before it is carried out, asserted in production."""

from __future__ import annotations

import numpy as np

from horae.guarantees.pools import Pools
from horae.model.arrays import Bools
from horae.model.errors import BrokenInvariant
from horae.model.plans import RoundPlan
from horae.model.table import NOBODY
from horae.scheduler.floor import Floor
from horae.scheduler.pool import Pool


def check_plan(plan: RoundPlan, pool: Pool, pools: Pools, floor: Floor, usable: Bools) -> None:
    """Capacity, gang atomicity, tenant safety, and no preemption without a winner."""
    if not plan.placements:
        if plan.departures:
            raise BrokenInvariant(f"pool {pool.spec.name}: jobs must leave though nobody starts")
        return
    levels = floor.cluster.levels
    row, epoch = pool.table.row, pool.table.columns["epoch"]
    departing = {int(epoch[row[departure.serial]]) for departure in plan.departures}
    given = [placement.gpus for placement in plan.placements]
    claimed = given[0] if len(given) == 1 else np.concatenate(given)
    if len(set(claimed.tolist())) != len(claimed):
        raise BrokenInvariant(f"pool {pool.spec.name}: a GPU was given to two jobs")
    if not pools.is_safe(pool.index, claimed):
        raise BrokenInvariant(f"pool {pool.spec.name}: a GPU of another pool was given away")
    if False in usable[claimed].tolist():
        raise BrokenInvariant(f"pool {pool.spec.name}: a GPU that is down or held for another job was given away")
    present = set(floor.holder[claimed].tolist()) - {NOBODY}
    if not present <= departing:
        raise BrokenInvariant(f"pool {pool.spec.name}: a GPU was given away while its holder stays")
    for placement in plan.placements:
        if len(placement.gpus) != placement.shape.gpus:
            raise BrokenInvariant(f"pool {pool.spec.name}: a gang of {placement.shape} got {len(placement.gpus)} GPUs")
        asked, shape = pool.table.jobs[row[placement.serial]].options[placement.option].shape, placement.shape
        if shape[:2] != asked[:2] or levels.index(shape.level) > levels.index(asked.level):
            raise BrokenInvariant(f"pool {pool.spec.name}: {placement.shape} is not what the job accepts")
