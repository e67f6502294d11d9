"""Placement for the admission pass and for policies: compiled where the cluster allows it, plain Python elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from horae.model.arrays import Bools, Ints
from horae.model.cluster import NODE, Cluster
from horae.model.job_table import NONE
from horae.model.plans import Contest, Riders, Settlement, Spot, Turns
from horae.model.shapes import Demand, Shape
from horae.placement.evict import place_over
from horae.placement.fit import levels_of, on_nodes, place
from horae.placement.flat import place_flat, place_over_flat
from horae.scheduler.flat_pass import settle_flat, sizes_of, with_more
from horae.scheduler.gpu_ledger import GpuLedger

if TYPE_CHECKING:
    from horae.scheduler.flat_pass_kernel import Sizes

COMPILED_GPUS_MIN = 65  # on smaller clusters plain placement is quicker than the kernels are compiled


class Placer:
    def __init__(self, ledger: GpuLedger) -> None:
        self._ledger = ledger
        self.spreads = False  # whether gangs of the deciding pool go to the emptiest nodes
        self.move()

    def move(self) -> None:
        """Resets the caches after the ledger has switched to another cluster."""
        self._asked = False  # whether any demand of a compiled pass asks for more than GPUs
        self._masks: dict[tuple[str, ...], Bools] = {}  # by names of nodes: their GPUs
        tenancy = self._ledger.tenancy
        self._has_pins = tenancy is not None and bool(tenancy.is_pinned.any())
        self._sizes: Sizes | None = None  # of all demands known when a policy last ran a pass by turns
        self._starts: Mapping[str, Ints] = {}  # by accelerator, where placement is compiled: the first GPU of each node

    @property
    def cluster(self) -> Cluster:
        return self._ledger.cluster

    def hasten(self) -> None:
        """Switches to compiled placement where possible: loading kernels pays off for pools that move jobs often."""
        if not self._starts and self.cluster.is_flat and self.cluster.gpu_count >= COMPILED_GPUS_MIN:
            self._starts = self.cluster.node_starts

    def settle(self, turns: Turns, demands: Sequence[Demand]) -> Settlement | None:
        """Runs a whole pass at once; None where that is not possible."""
        known = 0 if self._sizes is None else len(self._sizes.gpus)
        self._asked = self._asked or any(
            _is_special(each) or bool(each.nodes or each.pinned) for each in demands[known:]
        )
        if not self._starts or self._asked or self._has_pins:
            return None
        if self._sizes is None:
            self._sizes = sizes_of(self.cluster, demands)
        elif known < len(demands):
            self._sizes = with_more(self._sizes, self.cluster, demands)
        return settle_flat(self._sizes, turns)

    def place(self, free: Bools, riders: Riders, demand: Demand, shape: Shape) -> Spot | None:
        if demand.nodes or demand.pinned or self._has_pins:
            free = free & self._mask(demand)
        if self.spreads and self.cluster.is_flat and shape.level == NODE and not _is_special(demand):
            return self._place_apart(free, shape)
        starts = self._starts.get(shape.accelerator)
        if starts is None or _is_special(demand):
            return place(self.cluster, free, riders, demand, shape)
        return place_flat(starts, free, demand, shape)

    def _place_apart(self, free: Bools, shape: Shape) -> Spot | None:
        """Places a gang on the emptiest node that holds it, as load-balancing schedulers do."""
        first, stop = self.cluster.chain_cells[self.cluster.node_level].get(shape.accelerator, (0, 0))
        starts = self.cluster.first_gpu[self.cluster.node_level]
        counts = np.add.reduceat(free, starts[:-1], dtype=np.int64)[first:stop]
        if not len(counts) or counts.max() < shape.gpus:
            return None
        node = first + int(counts.argmax())
        gpus = starts[node] + np.flatnonzero(free[starts[node] : starts[node + 1]])[: shape.gpus]
        return Spot(gpus, 0 if shape.gpus == 1 else self.cluster.node_level)

    def place_over(self, contest: Contest, riders: Riders, demand: Demand, shape: Shape) -> Spot | None:
        if demand.nodes or demand.pinned or self._has_pins:
            mask = self._mask(demand)
            contest = contest._replace(free=contest.free & mask, yielding=contest.yielding & mask)
        starts = self._starts.get(shape.accelerator)
        if starts is None or _is_special(demand):
            return place_over(self.cluster, contest, riders, demand, shape)
        return place_over_flat(starts, contest, demand, shape)

    def _mask(self, demand: Demand) -> Bools:
        """By GPU: whether it is on a node that the demand accepts, and in its pinned cell or in none."""
        tenancy = self._ledger.tenancy
        if tenancy is None:
            return self._static_mask(demand)
        mask = self._of_pin(demand)
        return mask & tenancy.on_nodes(demand.nodes) if demand.nodes else mask

    def _static_mask(self, demand: Demand) -> Bools:
        """The same mask for an idle cluster, where tenants' cells could be bound anywhere."""
        if self._ledger.tenancy is not None:
            mask = self._of_pin(demand)
            if not demand.nodes:
                return mask
            there = on_nodes(self.cluster, demand.nodes)
            return mask & (there | self._ledger.tenancy.is_virtual)
        if demand.pinned:
            return np.zeros(self.cluster.gpu_count, dtype=bool)
        known = self._masks.get(demand.nodes)
        if known is None:
            known = self._masks[demand.nodes] = on_nodes(self.cluster, demand.nodes)
        return known

    def _of_pin(self, demand: Demand) -> Bools:
        tenancy = self._ledger.tenancy
        assert tenancy is not None
        if not demand.pinned:
            return ~tenancy.is_pinned
        mask = np.zeros(self.cluster.gpu_count, dtype=bool)
        for (_, name), gpus in tenancy.pins.items():
            if name == demand.pinned:
                mask |= gpus
        return mask

    def obtained(self, spot: Spot, shape: Shape) -> Shape:
        level = self.cluster.levels[spot.level]
        return shape if level == shape.level else Shape(shape.accelerator, shape.gpus, level)

    def tighter(self, one: Shape, other: Shape) -> Shape:
        """The shape of the smaller cell of two; a shape of a level that does not exist fits nowhere."""
        levels = self.cluster.levels
        if other.level not in levels:
            return other
        return other if one.level in levels[levels.index(other.level) + 1 :] else one

    def sharing(self, gpus: Ints, holder: Ints) -> set[int]:
        """Epochs of the leases on the nodes of these GPUs."""
        nodes = self.cluster.node_of_gpu
        return set(holder[np.isin(nodes, nodes[gpus])].tolist()) - {NONE}

    def count(self, free: Bools, shape: Shape) -> int:
        start, stop = self.cluster.chain_gpus.get(shape.accelerator, (0, 0))
        return int(np.count_nonzero(free[start:stop]))

    def last_of_type(self, standing: Ints, shape: Shape) -> int:
        """The last rank on any GPU of the type; -1 where there is none."""
        start, stop = self.cluster.chain_gpus.get(shape.accelerator, (0, 0))
        return int(standing[start:stop].max(initial=-1))

    def fit(self, usable: Bools, accelerator: str, gpus: int) -> str | None:
        """The level at which that many GPUs of a type would fit now."""
        free = usable & (self._ledger.holder == NONE)
        shape = Shape(accelerator, gpus, self.cluster.levels[-1])
        found = self.place(free, self._ledger.loads(), Demand((shape,), 1, 0.0, 0.0), shape)
        return None if found is None else self.cluster.levels[found.level]

    def trial(self, usable: Bools, epochs: Ints, gone: Bools, accelerator: str, gangs: Ints) -> Ints:
        """The levels that gangs would get one after the other, if these rows had ended; -1 where too little is left."""
        epoch = epochs[: len(gone)]
        leaving = epoch[gone & (epoch != NONE)]
        holder = self._ledger.holder
        free = usable & ((holder == NONE) | np.isin(holder, leaving))
        return levels_of(self.cluster, free, accelerator, gangs)

    def largest(self, pool_gpus: Bools, demand: Demand, shape: Shape) -> int:
        """The largest gang of this kind that an empty pool can hold."""
        demand = demand._replace(members=())  # a smaller gang has other members, none of them larger
        for gpus in range(min(shape.gpus, self.count(pool_gpus, shape) + 1) - 1, 0, -1):
            if self.could_ever_fit(pool_gpus, demand, Shape(shape.accelerator, gpus, shape.level)):
                return gpus
        return 0

    def could_ever_fit(self, pool_gpus: Bools, demand: Demand, shape: Shape) -> bool:
        if demand.nodes or demand.pinned or self._has_pins:
            pool_gpus = pool_gpus & self._static_mask(demand)
        nothing = Riders(np.zeros(self.cluster.gpu_count), np.zeros(self.cluster.gpu_count))
        return place(self.cluster, pool_gpus, nothing, demand, shape) is not None


def _is_special(demand: Demand) -> bool:
    """Whether a demand asks for more than the compiled search supports: CPUs, memory, members of several sizes."""
    return bool(demand.cpus_per_gpu or demand.memory_bytes_per_gpu or demand.members)
