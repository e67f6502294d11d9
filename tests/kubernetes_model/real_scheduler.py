"""Horae's scheduler behind the interface of the stub."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random

from kubernetes_model.stub_scheduler import StubJob, StubScheduler

from horae.model.cluster import Cluster
from horae.model.commands import Command
from horae.model.events import Event, JobCancelled, JobEnded, JobSubmitted, SchedulerRestarted, Tick
from horae.model.jobs import Job
from horae.model.setup import PoolSpec, Setup
from horae.model.shapes import Option, Shape
from horae.model.status import FINAL, Status
from horae.scheduler import Scheduler

UNSETTLED = (Status.STARTING, Status.STOPPING, Status.CANCELLING)


@dataclass
class RealScheduler(StubScheduler):
    scheduler: Scheduler | None = None
    late: list[Command] = field(default_factory=list)  # of submissions

    def begin(self, cluster: Cluster) -> None:
        if self.scheduler is None:
            pool = PoolSpec("all", "fifo", {"backfill": True})
            self.scheduler = Scheduler(Setup(cluster, (pool,), start_seconds=400.0, survey_seconds=60.0))
        ledger = self.scheduler.ledger
        self.nodes = {node.name: node for node in ledger.real_cluster.nodes}
        self.health = {name: ledger.health_of(name) for name in self.nodes}
        self.gpus = dict(ledger.gpu_states)

    def restored(self, cluster: Cluster, incarnation: int, *, keeps_leases: bool) -> StubScheduler:
        """From its dump: the store is never lost here."""
        assert self.scheduler is not None
        dump = json.loads(json.dumps(self.scheduler.dump()))
        other = RealScheduler(jobs=self.jobs, is_calm=self.is_calm, scheduler=Scheduler.restore(dump))
        other.late = other._tell(SchedulerRestarted(self.scheduler.now, incarnation))
        return other

    def submit(self, job_id: str, pods: int, pod_gpus: int, now: float) -> None:
        self.jobs[job_id] = StubJob(job_id, pods, pod_gpus)
        option = Option(Shape("gpu", pods * pod_gpus, "cluster"), 1.0)
        job = Job(job_id, now, (option,), steps_total=1000.0, member_gpus=pod_gpus, retries_max=3, grace_seconds=30.0)
        self.late += self._tell(JobSubmitted(now, job))

    def cancel(self, job_id: str, now: float) -> list[Command]:
        return self._tell(JobCancelled(now, job_id, "its Job is gone"))

    def handle(self, event: Event, now: float) -> list[Command]:
        commands = self._tell(event)
        if isinstance(event, JobEnded):
            self._note_final(event.job_id)
        return commands

    def decide(self, random: Random, now: float) -> list[Command]:
        assert self.scheduler is not None
        commands, self.late = self.late, []
        if self.scheduler.next_wakeup_at <= now:
            commands += self._tell(Tick(now))
        return commands

    def unfinished(self) -> list[str]:
        assert self.scheduler is not None
        states = {job_id: self.scheduler.status(job_id) for job_id in self.jobs}
        return [f"{job_id}: {state}" for job_id, state in states.items() if state in UNSETTLED]

    def _tell(self, event: Event) -> list[Command]:
        assert self.scheduler is not None
        return list(self.scheduler.handle(event).commands)

    def _note_final(self, job_id: str) -> None:
        assert self.scheduler is not None
        job = self.jobs.get(job_id)
        if job is not None and not job.is_over and self.scheduler.status(job_id) in FINAL:
            self.end(job)
