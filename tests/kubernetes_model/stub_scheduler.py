"""A scheduler that decides at random, within the protocol: what it starts is free as far as it was told."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random

from horae.model.cluster import Cluster, Gpu, Node
from horae.model.commands import Command, Start, Stop, Survey
from horae.model.events import (
    ClusterChanged,
    Ending,
    Event,
    GpuChanged,
    GpuState,
    Health,
    JobEnded,
    JobPhase,
    JobProgressed,
    JobStarted,
    NodeChanged,
    Phase,
    Running,
    Surveyed,
)
from horae.model.shapes import Shape

START_SECONDS = 400.0
FAILURES_MAX = 3


@dataclass
class Lease:
    epoch: int
    gpus: tuple[Gpu, ...]
    sent_at: float
    confirmed_at: float | None = None
    is_running: bool = False
    is_stopping: bool = False


@dataclass
class StubJob:
    id: str
    pods: int
    pod_gpus: int
    lease: Lease | None = None
    is_over: bool = False
    failures: int = 0
    steps: float = 0.0


@dataclass
class StubScheduler:
    jobs: dict[str, StubJob] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    health: dict[str, Health] = field(default_factory=dict)
    gpus: dict[Gpu, GpuState] = field(default_factory=dict)  # that are not usable
    squatters: dict[tuple[str, int], tuple[Gpu, ...]] = field(default_factory=dict)
    epoch_next: int = 0
    awaits_survey: bool = False
    is_calm: bool = False
    forgotten: list[str] = field(default_factory=list)  # over for good since the last step

    def restored(self, cluster: Cluster, incarnation: int, *, keeps_leases: bool) -> StubScheduler:
        """As a new process has it. Without its leases: the store was lost."""
        other = deepcopy(self)
        other.epoch_next = incarnation << 40
        other.awaits_survey = True
        other.squatters = {}
        if not keeps_leases:
            for job in other.jobs.values():
                job.lease = None
            other.health, other.gpus = {}, {}
            other.nodes = {node.name: node for node in cluster.nodes}
        return other

    # Events

    def handle(self, event: Event, now: float) -> list[Command]:
        match event:
            case ClusterChanged():
                self.nodes |= {node.name: node for node in event.nodes}
                for name in event.removed:
                    self.nodes.pop(name, None)
            case NodeChanged():
                self.health[event.node] = event.health
            case GpuChanged():
                self.gpus[event.gpu] = event.state
            case JobStarted() | JobPhase() | JobProgressed():
                self._confirm(event, now)
            case JobEnded():
                self._ended(event)
            case Surveyed():
                return self._surveyed(event, now)
        return []

    def _confirm(self, event: JobStarted | JobPhase | JobProgressed, now: float) -> None:
        job = self.jobs.get(event.job_id)
        if job is None or job.lease is None or job.lease.epoch != event.epoch:
            return
        job.lease.confirmed_at = job.lease.confirmed_at if job.lease.confirmed_at is not None else now
        is_running = isinstance(event, JobStarted) or (isinstance(event, JobPhase) and event.phase is Phase.RUNNING)
        job.lease.is_running = job.lease.is_running or is_running

    def _ended(self, event: JobEnded) -> None:
        self.squatters.pop((event.job_id, event.epoch), None)
        job = self.jobs.get(event.job_id)
        if job is None or job.lease is None or job.lease.epoch != event.epoch:
            return
        job.lease = None
        job.steps = max(job.steps, event.steps)
        job.failures += event.ending is Ending.FAILED
        if event.ending is Ending.FINISHED or job.failures > FAILURES_MAX or job.is_over:
            self.end(job)

    def end(self, job: StubJob) -> None:
        job.is_over = True
        if job.lease is None:
            self.forgotten.append(job.id)

    def _surveyed(self, survey: Surveyed, now: float) -> list[Command]:
        running = {(run.job_id, run.epoch): run for run in survey.running}
        commands: list[Command] = []
        self.squatters = {key: gpus for key, gpus in self.squatters.items() if key in running}
        taken = {gpu for run in survey.running for gpu in run.gpus}
        for job in self.jobs.values():
            lease = job.lease
            if lease is None or (job.id, lease.epoch) in running:
                continue
            was_confirmed = lease.confirmed_at is not None and lease.confirmed_at < survey.at
            if was_confirmed or (self.awaits_survey and not taken.isdisjoint(lease.gpus)):
                commands.append(Stop(lease.epoch, job.id, 0.0))
                self._ended(JobEnded(now, job.id, lease.epoch, Ending.LOST, 0.0))
        for run in survey.running:
            commands += self._found(run, now)
        self.awaits_survey = False
        return commands

    def _found(self, run: Running, now: float) -> list[Command]:
        job = self.jobs.get(run.job_id)
        if job is not None and job.lease is not None and job.lease.epoch == run.epoch:
            job.lease.confirmed_at = now if job.lease.confirmed_at is None else job.lease.confirmed_at
            job.lease.is_running = job.lease.is_running or run.phase is Phase.RUNNING
            return []
        if job is not None and job.lease is None and not job.is_over and self.awaits_survey:
            job.lease = Lease(run.epoch, run.gpus, now, now, is_running=run.phase is Phase.RUNNING)
            return []
        self.squatters[run.job_id, run.epoch] = run.gpus
        return [Stop(run.epoch, run.job_id, 0.0)]

    # Decisions

    def free(self) -> dict[str, list[int]]:
        """By node: the numbers of the GPUs on which something may start."""
        leased = {gpu for job in self.jobs.values() if job.lease is not None for gpu in job.lease.gpus}
        leased |= {gpu for gpus in self.squatters.values() for gpu in gpus}
        found: dict[str, list[int]] = {}
        for name, node in self.nodes.items():
            if self.health.get(name, Health.HEALTHY) is not Health.HEALTHY:
                continue
            gpus = [Gpu(name, number) for number in range(node.gpus)]
            found[name] = [
                gpu.number
                for gpu in gpus
                if gpu not in leased and self.gpus.get(gpu, GpuState.USABLE) is GpuState.USABLE
            ]
        return found

    def decide(self, random: Random, now: float) -> list[Command]:
        """One random decision; and what is overdue."""
        commands: list[Command] = self._overdue(now)
        jobs = list(self.jobs.values())
        if self.awaits_survey:
            return [Survey()]
        if not jobs:
            return commands
        job, draw = random.choice(jobs), random.random()
        if draw < 0.1:
            return [*commands, Survey()]
        if job.lease is None:
            return [*commands, *([] if job.is_over else self._start(job, random, now))]
        if not self.is_calm and draw < 0.3:
            commands.append(self._stop(job.lease, job))
        elif draw < 0.5:  # sent again
            commands.append(self._stop(job.lease, job) if job.lease.is_stopping else _started(job, job.lease))
        return commands

    def _start(self, job: StubJob, random: Random, now: float) -> Sequence[Command]:
        places = [
            tuple(Gpu(name, number) for number in numbers[start : start + job.pod_gpus])
            for name, numbers in self.free().items()
            for start in range(0, len(numbers) - job.pod_gpus + 1, job.pod_gpus)
        ]
        if len(places) < job.pods:
            return []
        chosen = random.sample(places, job.pods)
        gpus = tuple(gpu for place in chosen for gpu in place)
        job.lease = Lease(self.epoch_next, gpus, now)
        self.epoch_next += 1
        return [_started(job, job.lease)]

    def _stop(self, lease: Lease, job: StubJob) -> Stop:
        lease.is_stopping = True
        return Stop(lease.epoch, job.id, 30.0)

    def _overdue(self, now: float) -> list[Command]:
        """Leases that do not begin in time are stopped; commands are repeated until they are answered."""
        commands: list[Command] = []
        for job in self.jobs.values():
            lease = job.lease
            if lease is not None and not lease.is_running and now > lease.sent_at + START_SECONDS:
                commands.append(self._stop(lease, job))
        return commands


def _started(job: StubJob, lease: Lease) -> Start:
    kind = "gpu"
    shape = Shape(kind, len(lease.gpus), "cluster")
    return Start(lease.epoch, (job.id,), lease.gpus, shape, (job.steps,), (False,))
