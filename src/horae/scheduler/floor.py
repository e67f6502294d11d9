"""Who is on which GPU, for whom it is held, and whether it works."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from horae.guarantees.tenancy import Tenancy
from horae.model.arrays import Bools, Ints
from horae.model.cells import NODE, Cluster
from horae.model.events import Health
from horae.model.plans import Contest, Riders, Settlement, Spot, Turns
from horae.model.shapes import Demand, Shape
from horae.model.table import NOBODY
from horae.placement.evict import place_over
from horae.placement.fit import place
from horae.placement.flat import place_flat, place_over_flat, settle_flat, sizes_of, with_more
from horae.placement.trial import levels_of

if TYPE_CHECKING:
    from horae.placement.flat_kernel import Sizes


class Floor:
    """All GPUs of the cluster as columns; also what the admission pass knows of placement."""

    def __init__(self, cluster: Cluster, tenancy: Tenancy | None = None) -> None:
        self.cluster = cluster
        self.tenancy = tenancy  # if tenants have cells: which GPUs are behind theirs
        self.holder = np.full(cluster.gpu_count, NOBODY, dtype=np.int64)  # epoch of the lease
        self.held_for = np.full(cluster.gpu_count, NOBODY, dtype=np.int64)  # serial of the job
        self._holds = 0
        self._healthy = np.ones(cluster.gpu_count, dtype=bool)
        self.spreads = False  # whether gangs of the pool that decides go to the emptiest nodes
        self.health: dict[str, Health] = dict.fromkeys(cluster.node_index, Health.HEALTHY)
        self.riding = False  # whether any job ever asked for CPUs or memory
        self.riders = Riders(np.zeros(cluster.gpu_count), np.zeros(cluster.gpu_count))
        self.riders_held = Riders(np.zeros(cluster.gpu_count), np.zeros(cluster.gpu_count))
        self._asked = False  # whether any demand for which a whole pass was wanted has CPUs or memory in it
        self._sizes: Sizes | None = None  # of all demands that were met when somebody last worked by turns
        self._starts: dict[str, Ints] = {}  # by accelerator, where placement is compiled: the first GPU of each node

    @property
    def open(self) -> Bools:
        """By GPU: whether new work may start here."""
        return self._healthy if self.tenancy is None else self._healthy & ~self.tenancy.closed

    def moved(self, cluster: Cluster, tenancy: Tenancy) -> Floor:
        """An empty floor for other cells, with the health of the nodes as it is."""
        floor = Floor(cluster, tenancy)
        floor.riding = self.riding
        for node, health in self.health.items():
            if node in floor.health and health is not Health.HEALTHY and not self._is_of_a_tenant(node):
                floor.set_health(node, health)
        return floor

    def _is_of_a_tenant(self, node: str) -> bool:
        return self.tenancy is not None and bool(self.tenancy.is_virtual[self.cluster.gpus_of_node(node)].any())

    def usable(self, open_gpus: Bools) -> Bools:
        """Of these, the GPUs that are held for nobody."""
        return open_gpus & (self.held_for == NOBODY) if self._holds else open_gpus

    def take(self, gpus: Ints, epoch: int, demand: Demand) -> None:
        self.holder[gpus] = epoch
        if self.tenancy is not None:
            self.tenancy.claim(gpus, claimed=True)
        if demand.cpus_per_gpu or demand.memory_bytes_per_gpu:
            self.riding = True
            _load(self.riders, self._both(gpus), demand.cpus_per_gpu, demand.memory_bytes_per_gpu)

    def _both(self, gpus: Ints) -> Ints:
        """A tenant's GPUs and the real ones behind them: what rides along with either is on the same node."""
        if self.tenancy is None or not self.tenancy.is_virtual[gpus[0]]:
            return gpus
        return np.append(gpus, self.tenancy.guests(gpus))

    def give_back(self, gpus: Ints) -> None:
        self.holder[gpus] = NOBODY
        if self.riding:
            _load(self.riders, self._both(gpus), 0.0, 0.0)
        if self.tenancy is not None:
            self.tenancy.claim(gpus[self.held_for[gpus] == NOBODY], claimed=False)

    def leave_to(self, gpus: Ints, demand: Demand) -> None:
        """One of two has left these GPUs and the other goes on there; the GPUs were never anybody else's in between."""
        if self.riding:
            _load(self.riders, self._both(gpus), demand.cpus_per_gpu, demand.memory_bytes_per_gpu)

    def loads(self) -> Riders:
        """CPUs and memory that go with each GPU: of its holder, or of the job for which it is held if that is more."""
        if not self._holds or not self.riding:
            return self.riders
        return Riders(*map(np.maximum, self.riders, self.riders_held))

    def hold(self, gpus: Ints, serial: int, demand: Demand) -> None:
        self.held_for[gpus] = serial
        if self.tenancy is not None:
            self.tenancy.claim(gpus, claimed=True)
        self.riding |= bool(demand.cpus_per_gpu or demand.memory_bytes_per_gpu)
        _load(self.riders_held, self._both(gpus), demand.cpus_per_gpu, demand.memory_bytes_per_gpu)
        self._holds += 1

    def release(self, gpus: Ints) -> None:
        self.held_for[gpus] = NOBODY
        _load(self.riders_held, self._both(gpus), 0.0, 0.0)
        if self.tenancy is not None:
            self.tenancy.claim(gpus[self.holder[gpus] == NOBODY], claimed=False)
        self._holds -= 1

    def set_health(self, node: str, health: Health) -> None:
        self.health[node] = health
        gpus = self.cluster.gpus_of_node(node)
        self._healthy[gpus] = health is Health.HEALTHY
        if self.tenancy is not None:
            self.tenancy.set_bad(self.tenancy.real[gpus], bad=health is not Health.HEALTHY)

    def on_node(self, node: str) -> tuple[Ints, Ints]:
        """Epochs of the leases, and serials of the holds, that touch a node."""
        gpus = np.arange(self.cluster.gpu_count)[self.cluster.gpus_of_node(node)]
        if self.tenancy is not None:
            gpus = np.append(gpus, self.tenancy.behind(self.tenancy.real[gpus]))
        epochs, serials = np.unique(self.holder[gpus]), np.unique(self.held_for[gpus])
        return epochs[epochs != NOBODY], serials[serials != NOBODY]

    def guests(self, gpus: Ints, demand: Demand) -> tuple[list[int], list[int]]:
        """Work without a guarantee where a tenant's job shall go, or with CPUs that it needs: leases and holds.

        They are told by the epochs of leases, and by the serials of those for whom GPUs are held.
        """
        if self.tenancy is None or not self.tenancy.is_virtual[gpus[0]]:
            return [], []
        self.tenancy.bind(gpus)
        there = self.tenancy.guests(gpus)
        if demand.cpus_per_gpu or demand.memory_bytes_per_gpu:
            nodes = np.unique(self.cluster.node_of_gpu[there]).tolist()
            there = np.concatenate([there, *(self._in_the_way(node, there, demand) for node in nodes)])
        epochs, serials = set(self.holder[there].tolist()), set(self.held_for[there].tolist())
        return sorted(epochs - {NOBODY}), sorted(serials - {NOBODY})

    def _in_the_way(self, node: int, there: Ints, demand: Demand) -> Ints:
        """The GPUs of a node, if it has not the CPUs or the memory for a tenant's job beside its guests."""
        starts = self.cluster.first_gpu[self.cluster.node_level]
        inside = np.arange(starts[node], starts[node + 1])
        mine = np.isin(inside, there)
        needs = demand.cpus_per_gpu, demand.memory_bytes_per_gpu
        limits = self.cluster.node_cpus[node], self.cluster.node_memory_bytes[node]
        for load, need, limit in zip(self.loads(), needs, limits, strict=True):
            if np.where(mine, need, load[inside]).sum() > limit * (1 + 1e-9):
                return inside
        return inside[:0]

    def real(self, gpus: Ints) -> tuple[int, ...]:
        """The numbers by which the engine knows these GPUs."""
        return tuple((gpus if self.tenancy is None else self.tenancy.real[gpus]).tolist())

    def hasten(self) -> None:
        """From now on placement is compiled where it can be, for those to whom loading that is worth it."""
        if not self._starts and self.cluster.is_flat:
            nodes, cells = self.cluster.first_gpu[self.cluster.node_level], self.cluster.chain_cells
            chains = cells[self.cluster.node_level].items()
            self._starts = {name: nodes[first : last + 1].astype(np.int64) for name, (first, last) in chains}

    def settle(self, turns: Turns, demands: tuple[Demand, ...]) -> Settlement | None:
        """A whole pass at once; None where that is not possible."""
        known = 0 if self._sizes is None else len(self._sizes.gpus)
        self._asked = self._asked or any(each.cpus_per_gpu or each.memory_bytes_per_gpu for each in demands[known:])
        if not self._starts or self._asked:
            return None
        if self._sizes is None:
            self._sizes = sizes_of(self.cluster, demands)
        elif known < len(demands):
            self._sizes = with_more(self._sizes, self.cluster, demands)
        return settle_flat(self._sizes, turns)

    def place(self, free: Bools, riders: Riders, demand: Demand, shape: Shape) -> Spot | None:
        if self.spreads and self.cluster.is_flat and shape.level == NODE:
            return self._place_apart(free, shape)
        starts = self._starts.get(shape.accelerator)
        if starts is None or demand.cpus_per_gpu or demand.memory_bytes_per_gpu:
            return place(self.cluster, free, riders, demand, shape)
        return place_flat(starts, free, demand, shape)

    def _place_apart(self, free: Bools, shape: Shape) -> Spot | None:
        """On the emptiest node that holds a gang, as schedulers do that balance load."""
        first, stop = self.cluster.chain_cells[self.cluster.node_level].get(shape.accelerator, (0, 0))
        starts = self.cluster.first_gpu[self.cluster.node_level]
        counts = np.add.reduceat(free, starts[:-1], dtype=np.int64)[first:stop]
        if not len(counts) or counts.max() < shape.gpus:
            return None
        node = first + int(counts.argmax())
        gpus = starts[node] + np.flatnonzero(free[starts[node] : starts[node + 1]])[: shape.gpus]
        return Spot(gpus, 0 if shape.gpus == 1 else self.cluster.node_level)

    def place_over(self, contest: Contest, riders: Riders, demand: Demand, shape: Shape) -> Spot | None:
        starts = self._starts.get(shape.accelerator)
        if starts is None or demand.cpus_per_gpu or demand.memory_bytes_per_gpu:
            return place_over(self.cluster, contest, riders, demand, shape)
        return place_over_flat(starts, contest, demand, shape)

    def obtained(self, spot: Spot, shape: Shape) -> Shape:
        level = self.cluster.levels[spot.level]
        return shape if level == shape.level else Shape(shape.accelerator, shape.gpus, level)

    def tighter(self, one: Shape, other: Shape) -> Shape:
        """Of two shapes, that of the smaller cell; one of a level that does not exist fits nowhere."""
        levels = self.cluster.levels
        if other.level not in levels:
            return other
        return other if one.level in levels[levels.index(other.level) + 1 :] else one

    def sharing(self, gpus: Ints, holder: Ints) -> set[int]:
        """Epochs of the leases on the nodes of these GPUs."""
        nodes = self.cluster.node_of_gpu
        return set(holder[np.isin(nodes, nodes[gpus])].tolist()) - {NOBODY}

    def count(self, free: Bools, shape: Shape) -> int:
        start, stop = self.cluster.chain_gpus.get(shape.accelerator, (0, 0))
        return int(np.count_nonzero(free[start:stop]))

    def last_of_type(self, standing: Ints, shape: Shape) -> int:
        """The last in rank on any GPU of the type; -1 where there is none."""
        start, stop = self.cluster.chain_gpus.get(shape.accelerator, (0, 0))
        return int(standing[start:stop].max(initial=-1))

    def fit(self, usable: Bools, accelerator: str, gpus: int) -> str | None:
        """The level at which that many GPUs of a type would fit now."""
        free = usable & (self.holder == NOBODY)
        shape = Shape(accelerator, gpus, self.cluster.levels[-1])
        found = self.place(free, self.loads(), Demand((shape,), 1, 0.0, 0.0), shape)
        return None if found is None else self.cluster.levels[found.level]

    def trial(self, usable: Bools, epochs: Ints, gone: Bools, accelerator: str, gangs: Ints) -> Ints:
        """The levels that gangs would get one after the other, if these rows were gone; -1 where too little is left."""
        epoch = epochs[: len(gone)]
        leaving = epoch[gone & (epoch != NOBODY)]
        free = usable & ((self.holder == NOBODY) | np.isin(self.holder, leaving))
        return levels_of(self.cluster, free, accelerator, gangs)

    def largest(self, pool_gpus: Bools, demand: Demand, shape: Shape) -> int:
        """The largest gang of this kind that an empty pool can hold."""
        for gpus in range(min(shape.gpus, self.count(pool_gpus, shape) + 1) - 1, 0, -1):
            if self.could_ever_fit(pool_gpus, demand, Shape(shape.accelerator, gpus, shape.level)):
                return gpus
        return 0

    def could_ever_fit(self, pool_gpus: Bools, demand: Demand, shape: Shape) -> bool:
        nothing = Riders(np.zeros(self.cluster.gpu_count), np.zeros(self.cluster.gpu_count))
        return place(self.cluster, pool_gpus, nothing, demand, shape) is not None


def _load(riders: Riders, gpus: Ints, cpus_per_gpu: float, memory_bytes_per_gpu: float) -> None:
    riders.cpus[gpus] = cpus_per_gpu
    riders.memory_bytes[gpus] = memory_bytes_per_gpu
