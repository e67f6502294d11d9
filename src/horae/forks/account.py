"""What one schedule did for its jobs and tenants: an observer of a recorded run, or of one that is run forward."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from horae.model.arrays import Floats
from horae.model.cluster import Cluster, Node
from horae.model.commands import Start
from horae.model.events import ClusterChanged, Event, JobStarted, JobSubmitted, LeaseAdopted, Tick
from horae.model.notices import GuaranteeLost
from horae.model.plans import Lease, Reaction
from horae.model.setup import Cadence, Setup
from horae.reports.recorder import Recorder
from horae.reports.run_log import RunLog
from horae.scheduler import Scheduler
from horae.scheduler.own_cells import waiting_for_own_cells


def with_all_nodes(cluster: Cluster, events: Iterable[Event]) -> Cluster:
    """A cluster with all nodes that it ever has, each as large as it gets."""
    nodes: dict[str, Node] = {node.name: node for node in cluster.nodes}
    for event in events:
        if isinstance(event, ClusterChanged):
            for node in event.nodes:
                former = nodes.get(node.name)
                nodes[node.name] = node if former is None or node.gpus >= former.gpus else former
    return cluster if len(nodes) == len(cluster.nodes) else replace(cluster, nodes=tuple(nodes.values()))


class Account:
    """Begins with the jobs that are live in a scheduler."""

    def __init__(self, scheduler: Scheduler, setup: Setup, since: float) -> None:
        """`setup` has all nodes that jobs will get."""
        self.started: dict[str, float] = {}  # by job: when it started first, since then
        self.guarantees_lost: set[str] = set()
        self.own_wait_seconds: dict[str, float] = {}  # by job: while its tenant's cells had room
        self.since = since
        self._scheduler = scheduler
        self._recorder = Recorder(setup)
        self._waiting: list[str] = []
        self._events = 0
        self._log: tuple[int, RunLog] | None = None  # after how many events
        self._waits_since = since
        self._grace_seconds = 0.0  # the longest of any job
        self._capacity: list[tuple[float, int]] = [(since, _gpus(scheduler))]  # from when on: GPUs
        self._take_over()

    def _take_over(self) -> None:
        for pool, serial in self._scheduler.jobs.live.values():
            self._recorder.admit(pool.table.jobs[pool.table.row[serial]])
        for each in self._scheduler.jobs.suspended.values():
            self._recorder.admit(each.job)
        for job_id in self._scheduler.jobs.live:
            held = self._scheduler.jobs.on_gpus(job_id)
            if held is not None:
                table, row = held[0].table, held[0].table.row[held[1]]
                lease = self._scheduler.leases.by_epoch[int(table.epoch[row])]
                self._recorder.resume(job_id, self._start(lease, job_id), float(table.since[row]))

    def _start(self, lease: Lease, job_id: str) -> Start:
        gpus = self._scheduler.ledger.names(lease.gpus)
        job_ids = tuple(self._scheduler.jobs.id_of[serial] for serial in lease.bundle)
        nothing = tuple(0.0 for _ in job_ids)
        return Start(lease.epoch, job_ids or (job_id,), gpus, lease.shape, nothing, tuple(False for _ in job_ids))

    def reacted(self, event: Event, reaction: Reaction) -> None:
        self._events += 1
        self._recorder.reacted(event, reaction)
        if isinstance(event, JobSubmitted):
            self._grace_seconds = max(self._grace_seconds, event.job.grace_seconds)
        elif isinstance(event, JobStarted):
            self.started.setdefault(event.job_id, event.at)
        elif isinstance(event, LeaseAdopted):
            self._adopted(event)
        elif isinstance(event, ClusterChanged):
            self._capacity.append((event.at, _gpus(self._scheduler)))
        for notice in reaction.notices:
            if isinstance(notice, GuaranteeLost):
                self.guarantees_lost.update(notice.job_ids)
        if isinstance(event, Tick) and self._scheduler.pools.has_cells:
            self._count_waiting(event.at)

    def _adopted(self, event: LeaseAdopted) -> None:
        lease = self._scheduler.leases.by_epoch.get(event.epoch)
        for job_id in event.job_ids if lease is not None else ():
            assert lease is not None
            self._recorder.resume(job_id, self._start(lease, job_id), event.at)

    def _count_waiting(self, now: float) -> None:
        for job_id in self._waiting:
            self.own_wait_seconds[job_id] = self.own_wait_seconds.get(job_id, 0.0) + now - self._waits_since
        self._waits_since = now
        self._waiting = list(waiting_for_own_cells(self._scheduler))

    def wait_allowed_seconds(self, tenant: str) -> float | None:
        """How long a job of the tenant may wait for cells of its own: until decisions are made, and others have
        stopped. None: it reserves none."""
        for pool in self._scheduler.pools:
            if pool.spec.reserves and (tenant in pool.spec.tenants or pool.spec.name == tenant):
                rounds = pool.spec.round_seconds if pool.spec.cadence is Cadence.ROUNDS else 0.0
                return rounds + self._grace_seconds
        return None

    def log(self) -> RunLog:
        """What has happened so far."""
        if self._log is None or self._log[0] != self._events:
            self._log = self._events, self._made_log()
        return self._log[1]

    def _made_log(self) -> RunLog:
        refused = [job_id for job_id in self._recorder.live if job_id in self._scheduler.jobs.refused]
        return self._recorder.log(refused)

    @property
    def ended_count(self) -> int:
        return self._recorder.ended_count

    def utilisation(self, until: float) -> float:
        """GPU-seconds in use over those that there were, from the beginning to this time."""
        log = self.log()
        whole = _overlap(log.leases.started_at, log.leases.ended_at, self.since, until)
        shared_until = log.leases.started_at + log.leases.shared_seconds
        shared = _overlap(log.leases.started_at, shared_until, self.since, until)
        busy = float(((whole - shared / 2) * log.leases.gpus).sum())
        ends = [at for at, _ in self._capacity[1:]] + [until]
        there = sum(gpus * max(min(end, until) - at, 0.0) for (at, gpus), end in zip(self._capacity, ends, strict=True))
        return busy / there if there else 0.0


def _gpus(scheduler: Scheduler) -> int:
    return sum(node.gpus for node in scheduler.ledger.real_cluster.nodes)


def _overlap(starts: Floats, ends: Floats, since: float, until: float) -> Floats:
    seconds: Floats = np.maximum(np.minimum(ends, until) - np.maximum(starts, since), 0.0)
    return seconds
