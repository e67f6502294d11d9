"""By GPU: which lease is on it, for which job it is held, and whether it is usable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from horae.cells.binding import CellBinding
from horae.model.arrays import Bools, Ints
from horae.model.cluster import Cluster, Gpu
from horae.model.events import GpuState, Health
from horae.model.job_table import NONE
from horae.model.plans import Riders
from horae.model.shapes import Demand


class GpuLedger:
    """All GPUs of the cluster as columns. Where tenants have cells, these have columns of their own (`CellBinding`)."""

    def __init__(self, real: Cluster, cluster: Cluster, tenancy: CellBinding | None = None) -> None:
        self.health: dict[str, Health] = {}  # by real node, where it is not healthy
        self.gpu_states: dict[Gpu, GpuState] = {}  # where it is not usable
        self.closing: set[str] = set()  # nodes to be removed or changed: they take no new jobs
        self.squatters: dict[tuple[str, int], tuple[Gpu, ...]] = {}  # runs that should have ended, by job and epoch
        self.riding = False  # whether any job ever asked for CPUs or memory
        self.move(real, cluster, tenancy)

    def move(self, real: Cluster, cluster: Cluster, tenancy: CellBinding | None) -> None:
        """Switches to another cluster or other cells: no GPU has a holder, and broken GPUs stay broken."""
        self.real_cluster = real
        self.cluster = cluster
        self.tenancy = tenancy  # if tenants have cells: the real GPUs behind them
        self.holder = np.full(cluster.gpu_count, NONE, dtype=np.int64)  # epoch of the lease
        self.held_for = np.full(cluster.gpu_count, NONE, dtype=np.int64)  # serial of the job
        self.riders = Riders(np.zeros(cluster.gpu_count), np.zeros(cluster.gpu_count))
        self.riders_held = Riders(np.zeros(cluster.gpu_count), np.zeros(cluster.gpu_count))
        self._holds = 0
        self._healthy = np.ones(cluster.gpu_count, dtype=bool)
        self.health = {node: health for node, health in self.health.items() if node in real.node_index}
        self.gpu_states = {gpu: state for gpu, state in self.gpu_states.items() if real.has(gpu)}
        self.closing &= set(real.node_index)
        touched = {*self.health, *self.closing, *(gpu.node for gpu in self._unusable())}
        for node in real.node_index:
            if node in touched:
                self._mark(node)

    # Leases and holds

    def take(self, gpus: Ints, epoch: int, demand: Demand) -> None:
        self.holder[gpus] = epoch
        if self.tenancy is not None:
            self.tenancy.claim(gpus, claimed=True)
        if demand.cpus_per_gpu or demand.memory_bytes_per_gpu:
            self.riding = True
            _load(self.riders, self._both(gpus), demand.cpus_per_gpu, demand.memory_bytes_per_gpu)

    def give_back(self, gpus: Ints) -> None:
        self.holder[gpus] = NONE
        if self.riding:
            _load(self.riders, self._both(gpus), 0.0, 0.0)
        if self.tenancy is not None:
            self.tenancy.claim(gpus[self.held_for[gpus] == NONE], claimed=False)

    def leave_to(self, gpus: Ints, demand: Demand) -> None:
        """Leaves shared GPUs to the remaining job after the other one has ended, without releasing them in between."""
        if self.riding:
            _load(self.riders, self._both(gpus), demand.cpus_per_gpu, demand.memory_bytes_per_gpu)

    def hold(self, gpus: Ints, serial: int, demand: Demand) -> None:
        self.held_for[gpus] = serial
        if self.tenancy is not None:
            self.tenancy.claim(gpus, claimed=True)
        self.riding |= bool(demand.cpus_per_gpu or demand.memory_bytes_per_gpu)
        if self.riding:
            _load(self.riders_held, self._both(gpus), demand.cpus_per_gpu, demand.memory_bytes_per_gpu)
        self._holds += 1

    def release(self, gpus: Ints, serial: int) -> None:
        """Releases what is held for a job, except where another job has taken it over."""
        gpus = gpus[self.held_for[gpus] == serial]
        self._holds -= 1
        if not len(gpus):
            return
        self.held_for[gpus] = NONE
        if self.riding:
            _load(self.riders_held, self._both(gpus), 0.0, 0.0)
        if self.tenancy is not None:
            self.tenancy.claim(gpus[self.holder[gpus] == NONE], claimed=False)

    def _both(self, gpus: Ints) -> Ints:
        """A tenant's GPUs and the real ones behind them: CPUs allocated with either are on the same node."""
        if self.tenancy is None or not self.tenancy.is_virtual[gpus[0]]:
            return gpus
        return np.append(gpus, self.tenancy.guests(gpus))

    def loads(self) -> Riders:
        """CPUs and memory that go with each GPU: of its holder, or of the job for which it is held if that is more."""
        if not self._holds or not self.riding:
            return self.riders
        return Riders(*map(np.maximum, self.riders, self.riders_held))

    # Health

    def health_of(self, node: str) -> Health:
        return self.health.get(node, Health.HEALTHY)

    def set_health(self, node: str, health: Health) -> None:
        self.health[node] = health
        if health is Health.HEALTHY:
            del self.health[node]
        self._mark(node)

    def set_closing(self, node: str, *, on: bool) -> None:
        self.closing.add(node) if on else self.closing.discard(node)
        self._mark(node)

    def set_gpu(self, gpu: Gpu, state: GpuState) -> None:
        self.gpu_states[gpu] = state
        if state is GpuState.USABLE:
            del self.gpu_states[gpu]
        self._mark(gpu.node)

    def set_squatter(self, run: tuple[str, int], gpus: tuple[Gpu, ...]) -> None:
        """Records that a run that should have ended is on these GPUs; with none, that it is gone."""
        before = self.squatters.pop(run, ())
        if gpus:
            self.squatters[run] = gpus  # including GPUs that do not exist here: their node may come back
        for node in dict.fromkeys(gpu.node for gpu in (*before, *gpus)):
            if node in self.real_cluster.node_index:
                self._mark(node)

    def restore_health(
        self,
        health: Mapping[str, Health],
        gpu_states: Mapping[Gpu, GpuState],
        squatters: Mapping[tuple[str, int], tuple[Gpu, ...]],
        closing: Iterable[str],
    ) -> None:
        self.health, self.gpu_states, self.squatters = dict(health), dict(gpu_states), dict(squatters)
        self.closing = set(closing)
        for node in self.real_cluster.node_index:
            if node in self.health or node in self.closing or any(gpu.node == node for gpu in self._unusable()):
                self._mark(node)

    def _unusable(self) -> Iterable[Gpu]:
        yield from self.gpu_states
        for gpus in self.squatters.values():
            yield from gpus

    def _mark(self, node: str) -> None:
        """Recomputes which GPUs of a node are usable."""
        gpus = self.cluster.gpus_of_node(node)
        is_open = self.health_of(node) is Health.HEALTHY and node not in self.closing
        healthy = np.full(gpus.stop - gpus.start, is_open)
        healthy[[gpu.number for gpu in self._unusable() if gpu.node == node and gpu.number < len(healthy)]] = False
        self._healthy[gpus] = healthy
        if self.tenancy is not None:
            real = self.tenancy.real[gpus]
            for bad in (True, False):
                if (healthy != bad).any():
                    self.tenancy.set_bad(real[healthy != bad], bad=bad)

    @property
    def open(self) -> Bools:
        """By GPU: whether new work may start here."""
        return self._healthy if self.tenancy is None else self._healthy & ~self.tenancy.closed

    def usable(self, open_gpus: Bools) -> Bools:
        """Of these, the GPUs that are held for no job."""
        return open_gpus & (self.held_for == NONE) if self._holds else open_gpus

    # Queries

    def on(self, gpus: Iterable[Gpu]) -> tuple[Ints, Ints]:
        """Epochs of the leases, and serials of the holds, that touch these GPUs."""
        positions = self.cluster.positions(gpus)
        if self.tenancy is not None:
            positions = np.append(positions, self.tenancy.behind(self.tenancy.real[positions]))
        epochs, serials = np.unique(self.holder[positions]), np.unique(self.held_for[positions])
        return epochs[epochs != NONE], serials[serials != NONE]

    def of_node(self, node: str) -> list[Gpu]:
        return [Gpu(node, number) for number in range(self.real_cluster.nodes[self.real_cluster.node_index[node]].gpus)]

    def names(self, gpus: Ints) -> tuple[Gpu, ...]:
        """The names by which the engine knows these GPUs."""
        return self.real_cluster.names(gpus if self.tenancy is None else self.tenancy.real[gpus])

    def is_in_cells(self, gpus: Ints) -> bool:
        """Whether these are GPUs of a tenant's cells."""
        return self.tenancy is not None and bool(self.tenancy.is_virtual[gpus].all())

    def cell_levels(self, gpus: Ints) -> tuple[str, ...]:
        """By GPU: the level of the tenant's cell that holds it; empty for GPUs outside of cells."""
        return () if self.tenancy is None else self.tenancy.levels(gpus)

    def guests(self, gpus: Ints, demand: Demand) -> tuple[list[int], list[int]] | None:
        """Leases and holds of jobs without a guarantee on the GPUs of a tenant's job, or using CPUs that it needs.

        They are returned as epochs of leases, and as serials of jobs for which GPUs are held. None where the tenant's
        cells cannot be bound on nodes that the job accepts.
        """
        if self.tenancy is None or not self.tenancy.is_virtual[gpus[0]]:
            return [], []
        if not self.tenancy.bind(gpus, demand.nodes):
            return None
        there = self.tenancy.guests(gpus)
        if demand.cpus_per_gpu or demand.memory_bytes_per_gpu:
            nodes = np.unique(self.cluster.node_of_gpu[there]).tolist()
            there = np.concatenate([there, *(self._in_the_way(node, there, demand) for node in nodes)])
        epochs, serials = set(self.holder[there].tolist()), set(self.held_for[there].tolist())
        return sorted(epochs - {NONE}), sorted(serials - {NONE})

    def _in_the_way(self, node: int, there: Ints, demand: Demand) -> Ints:
        """The GPUs of a node, if it lacks CPUs or memory for a tenant's job beside its guests."""
        starts = self.cluster.first_gpu[self.cluster.node_level]
        inside = np.arange(starts[node], starts[node + 1])
        mine = np.isin(inside, there)
        needs = demand.cpus_per_gpu, demand.memory_bytes_per_gpu
        limits = self.cluster.node_cpus[node], self.cluster.node_memory_bytes[node]
        for load, need, limit in zip(self.loads(), needs, limits, strict=True):
            if np.where(mine, need, load[inside]).sum() > limit * (1 + 1e-9):
                return inside
        return inside[:0]


def _load(riders: Riders, gpus: Ints, cpus_per_gpu: float, memory_bytes_per_gpu: float) -> None:
    riders.cpus[gpus] = cpus_per_gpu
    riders.memory_bytes[gpus] = memory_bytes_per_gpu
