"""HiveD's experiment (OSDI'20): tenants on private parts of a cluster, with quotas of GPUs, or with cells.

A quota limits how many GPUs a tenant may use, not how close together they are. A tenant may therefore find its GPUs
scattered by others and wait longer than on private nodes: the sharing anomaly. With cells it must not wait a second
longer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from time import process_time

import numpy as np
import polars as pl

from horae.experiments.simulate import Run, simulate
from horae.model.arrays import Floats
from horae.model.cluster import CLUSTER, Cluster, Node
from horae.model.jobs import Arrival, Truth
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.model.shapes import Option, Shape
from horae.traces.jobs import arrivals
from horae_evaluation.philly import data as philly

SPARE = "spare"
SPREAD_SPEED = 0.75  # soft affinity: the fraction of its speed that a gang keeps when not on as few nodes as possible
GRACE_SECONDS = 30.0  # time that work without a guarantee takes to save and exit
SMALL_NODES, SMALL_GPUS = 24, 4  # the cluster of the paper's own experiments
PHILLY_VCS = ("7f04ca", "2869ce", "0e4a51", "ee9e8c")


class SharingKind(Enum):
    PRIVATE = "private"  # its own nodes
    QUOTA = "quota"  # a number of GPUs, anywhere
    CELLS = "cells"


class Affinity(Enum):
    HARD = "hard"  # as few nodes as possible, or not at all
    SOFT = "soft"  # preferred, but spread is better than waiting


POLICIES: Mapping[str, tuple[str, Cadence]] = {
    "yarn-cs": ("fifo", Cadence.EVENTS),  # inside one queue, capacity scheduling is first come, first served
    "tiresias": ("tiresias", Cadence.ROUNDS),
    "gandiva": ("equal-share", Cadence.ROUNDS),  # its time slices
}


@dataclass(frozen=True)
class HivedWorkload:
    """Jobs of several tenants, and the nodes in proportion to which they share a cluster."""

    name: str
    nodes: Mapping[str, int]  # by tenant
    gpus_per_node: int
    arrivals: tuple[Arrival, ...]

    @property
    def cluster(self) -> Cluster:
        names = [name for tenant in self.nodes for name in self.names(tenant)]
        return Cluster(self.name, tuple(Node(name, philly.ACCELERATOR, self.gpus_per_node) for name in names))

    def names(self, tenant: str) -> tuple[str, ...]:
        return tuple(f"{tenant}-{index:03}" for index in range(self.nodes[tenant]))


@dataclass(frozen=True)
class HivedCase:
    workload: str
    policy: str
    sharing: SharingKind
    affinity: Affinity = Affinity.HARD
    spreads: bool = False  # with a quota, gangs go to the emptiest nodes rather than to the fullest
    opportunistic: float = 0.0  # fraction of the jobs that have no guarantee
    static_binding: bool = False
    borrow: bool = False  # with cells: jobs without room in them run on spare GPUs

    def __str__(self) -> str:
        sharing = f"{self.sharing.value}, spread" if self.spreads else self.sharing.value
        parts = [self.workload, self.policy, sharing, f"{self.affinity.value} affinity"]
        if self.opportunistic:
            binding = "static" if self.static_binding else "dynamic"
            parts.append(f"{self.opportunistic:.0%} without a guarantee, {binding} binding")
        if self.borrow:
            parts.append("with borrowing")
        return ", ".join(parts)


@dataclass(frozen=True)
class TenantResult:
    tenant: str
    jobs: int
    queueing_mean_seconds: float
    queueing_p99_seconds: float
    completion_mean_seconds: float


@dataclass(frozen=True)
class HivedResult:
    tenants: tuple[TenantResult, ...]
    starts: Mapping[str, float]  # by job with a guarantee: when it first started
    ends: Mapping[str, float]  # likewise: when it ended
    tenant_of: Mapping[str, str]  # likewise: its tenant
    preemptions: int  # of work without a guarantee
    fragmentation: float  # the fraction of idle GPUs on nodes that are partly busy
    processor_seconds: float


def read_workloads(data: Path, names: Sequence[str]) -> dict[str, HivedWorkload]:
    readers = {"philly": _philly, "itp": _itp, "small": _small}
    return {name: readers[name](data) for name in names}


def _philly(data: Path) -> HivedWorkload:
    jobs = philly.philly_jobs(data)
    jobs = jobs.filter(jobs["submit_s"].is_between(*philly.WINDOW) & jobs["vc"].is_in(PHILLY_VCS))
    nodes = philly.philly_nodes(data)
    return _workload("philly", jobs, {vc: nodes[vc] for vc in PHILLY_VCS}, philly.GPUS_PER_NODE, "vc")


def _itp(data: Path) -> HivedWorkload:
    jobs = philly.read_table(data, "itp/itp_jobs.csv.gz").sort("submit_s", maintain_order=True)
    pool = philly.read_columns(data, "itp/pool_1408.csv", {"cluster": None, "nodes": 1})
    nodes = dict(zip(pool["cluster"].to_list(), pool["nodes"].to_list(), strict=True))
    return _workload("itp", jobs, nodes, philly.GPUS_PER_NODE, "cluster")


def _small(data: Path) -> HivedWorkload:
    """A sample of Philly's jobs on 24 nodes of 4 GPUs, each tenant with its part."""
    large = _philly(data)
    total = sum(large.nodes.values())
    nodes = _shares(large.nodes, SMALL_NODES)
    every = round(total * large.gpus_per_node / (SMALL_NODES * SMALL_GPUS))
    jobs = philly.philly_jobs(data)
    jobs = jobs.filter(jobs["submit_s"].is_between(*philly.WINDOW) & jobs["vc"].is_in(PHILLY_VCS))
    jobs = jobs.filter(pl.Series(np.arange(len(jobs)) % every == 0))
    fits = np.array([gpus <= SMALL_GPUS * nodes[vc] for vc, gpus in jobs.select("vc", "num_gpu").iter_rows()])
    return _workload("small", jobs.filter(pl.Series(fits)), nodes, SMALL_GPUS, "vc")


def _shares(weights: Mapping[str, int], total: int) -> dict[str, int]:
    """Whole numbers in proportion to the weights, by largest remainders, at least one each."""
    exact = {name: weight * total / sum(weights.values()) for name, weight in weights.items()}
    given = {name: max(1, int(part)) for name, part in exact.items()}
    for name in sorted(exact, key=lambda name: int(exact[name]) - exact[name]):
        if sum(given.values()) < total:
            given[name] += 1
    return given


def _workload(
    name: str, jobs: pl.DataFrame, nodes: Mapping[str, int], gpus_per_node: int, tenant: str
) -> HivedWorkload:
    empty = HivedWorkload(name, nodes, gpus_per_node, ())
    made, _ = arrivals(philly.as_trace(jobs, tenant), empty.cluster, whole_nodes=True)
    fits = [arrival for arrival in made if arrival.job.gpus <= gpus_per_node * nodes[arrival.job.tenant]]
    return replace(empty, arrivals=tuple(fits))


def run_case(case: HivedCase, workload: HivedWorkload) -> HivedResult:
    started = process_time()
    jobs = [_soft(each) if case.affinity is Affinity.SOFT else each for each in workload.arrivals]
    if case.opportunistic:
        every = round(1 / case.opportunistic)
        jobs = [_without_guarantee(each) if index % every == 0 else each for index, each in enumerate(jobs)]
        if case.sharing is not SharingKind.CELLS:  # a private cluster, or a quota, is for work with a guarantee
            jobs = [each for each in jobs if each.job.priority >= 0]
    run = simulate(setup_of(case, workload), jobs)
    return _result(run, workload, process_time() - started)


def setup_of(case: HivedCase, workload: HivedWorkload) -> Setup:
    policy, cadence = POLICIES[case.policy]
    pools = []
    for tenant, nodes in workload.nodes.items():
        pool = PoolSpec(tenant, policy, {}, cadence, tenants=(tenant,))
        match case.sharing:
            case SharingKind.PRIVATE:
                pools.append(replace(pool, nodes=workload.names(tenant)))
            case SharingKind.QUOTA:
                quota = {philly.ACCELERATOR: nodes * workload.gpus_per_node}
                pools.append(replace(pool, quota=quota, spreads=case.spreads))
            case SharingKind.CELLS:
                pools.append(replace(pool, borrow=case.borrow, cells={f"{philly.ACCELERATOR}.node": nodes}))
    if case.sharing is SharingKind.CELLS:
        pools.append(PoolSpec(SPARE, "fifo", {"backfill": True}))
    return Setup(workload.cluster, tuple(pools), static_binding=case.static_binding)


def _soft(arrival: Arrival) -> Arrival:
    job = arrival.job
    if job.gpus == 1:
        return arrival
    shape, speed = job.options[0]
    spread = Option(Shape(shape.accelerator, shape.gpus, CLUSTER), speed * SPREAD_SPEED)
    options = (*job.options, spread)
    return Arrival(replace(job, options=options, member_gpus=1), Truth(arrival.truth.steps_total, options))


def _without_guarantee(arrival: Arrival) -> Arrival:
    job = replace(arrival.job, priority=-1, grace_seconds=GRACE_SECONDS)
    return Arrival(job, replace(arrival.truth, leaving_seconds=GRACE_SECONDS))


def _result(run: Run, workload: HivedWorkload, processor_seconds: float) -> HivedResult:
    jobs, leases = run.log.jobs, run.log.leases
    tenant_of = np.array(run.log.tenants)[jobs.tenant]
    guaranteed = np.array([pool != SPARE for pool in np.array([*run.log.cluster.pools])[jobs.pool]])
    queueing, completion = jobs.started_at - jobs.submitted_at, jobs.ended_at - jobs.submitted_at
    rows = []
    for tenant in workload.nodes:
        mine = guaranteed & (tenant_of == tenant)
        waits: Floats = queueing[mine]
        rows.append(
            TenantResult(
                tenant,
                int(mine.sum()),
                float(waits.mean()),
                float(np.quantile(waits, 0.99)),
                float(completion[mine].mean()),
            )
        )
    starts = {name: at for name, at, kept in zip(jobs.id, jobs.started_at.tolist(), guaranteed, strict=True) if kept}
    ends = {name: at for name, at, kept in zip(jobs.id, jobs.ended_at.tolist(), guaranteed, strict=True) if kept}
    owners = {name: str(owner) for name, owner, kept in zip(jobs.id, tenant_of, guaranteed, strict=True) if kept}
    preemptions = int((~guaranteed[leases.job]).sum() - (~guaranteed).sum())
    return HivedResult(tuple(rows), starts, ends, owners, preemptions, _fragmentation(run, workload), processor_seconds)


def _fragmentation(run: Run, workload: HivedWorkload, samples: int = 400) -> float:
    """The mean fragmentation over evenly spaced samples of the run."""
    leases, gpus = run.log.leases, workload.gpus_per_node
    count = sum(workload.nodes.values())
    scattered = idle = 0
    length = np.diff(leases.offset)
    start, end = np.repeat(leases.started_at, length), np.repeat(leases.ended_at, length)
    for at in np.linspace(0.0, float(leases.started_at.max()), samples + 1)[1:]:
        busy = np.bincount(leases.gpu[(start <= at) & (at < end)] // gpus, minlength=count)
        scattered += int((gpus - busy)[(busy > 0) & (busy < gpus)].sum())
        idle += int(count * gpus - busy.sum())
    return scattered / idle if idle else 0.0
