"""An engine for tests that does nothing by itself, and a witness who checks every promise from the outside.

The witness sees only what goes in (events) and what comes out (commands and rounds); it keeps its own books and asks
the scheduler for nothing but `status` and `why`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from horae.model.cells import Cluster
from horae.model.commands import Command, Start, Stop, Survey
from horae.model.events import Ending, Event, Health, JobEnded, JobStarted, JobSubmitted, NodeChanged, Surveyed
from horae.model.jobs import Job
from horae.model.pools import Setup
from horae.model.reasons import Preempted
from horae.model.status import ON_GPUS, Status
from horae.scheduler import Reaction, Scheduler


class Violation(AssertionError):
    """A promise was broken; the message names it."""


@dataclass
class Live:
    job_id: str
    epoch: int
    gpus: tuple[int, ...]
    steps: float
    told_to_stop: bool = False


@dataclass
class World:
    """The true state of the machines. Replies wait in `outbox` until somebody delivers them."""

    live: dict[int, Live] = field(default_factory=dict)  # by epoch
    seen: set[int] = field(default_factory=set)
    outbox: list[Event] = field(default_factory=list)

    def execute(self, commands: tuple[Command, ...], now: float) -> None:
        for command in commands:
            match command:
                case Start():
                    self._start(command, now)
                case Stop() if command.epoch in self.live:
                    self.live[command.epoch].told_to_stop = True
                case Survey():
                    running = tuple((run.job_id, run.epoch, run.steps) for run in self.live.values())
                    self.outbox.append(Surveyed(now, running))

    def _start(self, command: Start, now: float) -> None:
        if command.epoch not in self.seen:
            busy = {gpu: run for run in self.live.values() for gpu in run.gpus}
            for gpu in command.gpus:
                if gpu in busy:
                    raise Violation(
                        f"no GPU held by two bundles: GPU {gpu} of epochs {busy[gpu].epoch}, {command.epoch}"
                    )
            self.seen.add(command.epoch)
            self.live[command.epoch] = Live(command.job_ids[0], command.epoch, command.gpus, command.steps_done[0])
        if command.epoch in self.live:
            self.outbox.append(JobStarted(now, command.job_ids[0], command.epoch))

    def end(self, epoch: int, ending: Ending, now: float) -> JobEnded:
        run = self.live.pop(epoch)
        return JobEnded(now, run.job_id, epoch, ending, run.steps)

    def fail_node(self, cluster: Cluster, node: str, now: float) -> list[Event]:
        gpus = cluster.gpus_of_node(node)
        lost = [epoch for epoch, run in self.live.items() if any(gpus.start <= gpu < gpus.stop for gpu in run.gpus)]
        return [self.end(epoch, Ending.LOST, now) for epoch in lost]


class Witness:
    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.cluster = setup.cluster
        self.jobs: dict[str, Job] = {}
        self.epoch_of: dict[str, int] = {}  # by job: the lease that the scheduler believes in
        self.gpus_of: dict[int, tuple[int, ...]] = {}
        self.reported: dict[str, float] = {}
        self.finished: set[str] = set()
        self.health = dict.fromkeys(self.cluster.node_index, Health.HEALTHY)
        self.epoch_last = -1
        self.maybe_over: set[str] = set()  # by a survey; whether the scheduler believes it shows at the next start
        self.owner = self._owners()

    def _owners(self) -> dict[str, str]:
        named = {node: spec.name for spec in self.setup.pools for node in spec.nodes}
        rest = next((spec.name for spec in self.setup.pools if not spec.nodes), "")
        return {node.name: named.get(node.name, rest) for node in self.cluster.nodes}

    def hear(self, event: Event) -> None:
        match event:
            case JobSubmitted():
                self.jobs.setdefault(event.job.id, event.job)
            case JobEnded() if self.epoch_of.get(event.job_id) == event.epoch:
                self._forget(event.job_id)
                if event.job_id in self.maybe_over:
                    return
                self.reported[event.job_id] = max(self.reported.get(event.job_id, 0.0), event.steps)
                if event.ending is Ending.FINISHED and event.job_id not in self.maybe_over:
                    self.finished.add(event.job_id)
            case NodeChanged() if event.node in self.health:
                self.health[event.node] = event.health
            case Surveyed():
                self._survey(event)

    def _survey(self, event: Surveyed) -> None:
        running = {epoch for _, epoch, _ in event.running}
        for job_id, epoch in list(self.epoch_of.items()):
            if epoch not in running:
                self.maybe_over.add(job_id)

    def _forget(self, job_id: str) -> None:
        self.gpus_of.pop(self.epoch_of.pop(job_id), None)

    def judge(self, event: Event, reaction: Reaction, scheduler: Scheduler) -> None:
        self.hear(event)
        for round_ in reaction.rounds:
            name = dict(zip(round_.serials.tolist(), round_.job_ids, strict=True))
            starting = {name[item.serial] for item in round_.plan.placements}
            for departure in round_.plan.departures:
                if isinstance(departure.reason, Preempted) and departure.reason.by not in starting:
                    raise Violation(f"nobody preempted unless the preemptor starts: {departure.reason}")
        for command in reaction.commands:
            if isinstance(command, Start):
                self._judge_start(command)
        self._judge_jobs(scheduler)

    def compare(self, world: World, scheduler: Scheduler) -> None:
        """What truly runs must be known to run, unless a survey gave reason to think otherwise."""
        for run in world.live.values():
            if run.job_id not in self.maybe_over and scheduler.status(run.job_id) not in ON_GPUS:
                raise Violation(f"a running job is known to run: {run.job_id}")

    def _judge_start(self, command: Start) -> None:
        (job_id,), (steps_done,) = command.job_ids, command.steps_done
        if self.epoch_of.get(job_id) == command.epoch:
            return  # sent again
        if command.epoch <= self.epoch_last:
            raise Violation(f"an epoch is used once: {command.epoch}")
        self.epoch_last = command.epoch
        if job_id in self.epoch_of:
            if job_id not in self.maybe_over:
                raise Violation(f"at most one live lease epoch per job: {job_id}")
            self._forget(job_id)
        self.maybe_over.discard(job_id)
        self._judge_place(command, self.jobs[job_id])
        if steps_done < self.reported.get(job_id, 0.0):
            raise Violation(f"no reported progress is ever lost: {job_id} resumes at {steps_done}")
        self.epoch_of[job_id] = command.epoch
        self.gpus_of[command.epoch] = command.gpus

    def _judge_place(self, command: Start, job: Job) -> None:
        cluster, gpus = self.cluster, command.gpus
        busy = {gpu for epoch in self.gpus_of for gpu in self.gpus_of[epoch]}
        over = {gpu for job_id in self.maybe_over for gpu in self.gpus_of.get(self.epoch_of.get(job_id, -1), ())}
        if (busy - over) & set(gpus):
            raise Violation(f"no GPU held by two bundles: {sorted((busy - over) & set(gpus))}")
        accepted = [
            option.shape
            for option in job.options
            if option.shape.gpus == len(set(gpus)) and option.shape.accelerator == command.shape.accelerator
        ]
        if not accepted or len(gpus) != len(set(gpus)):
            raise Violation(f"gangs are all or nothing: {job.id} got {len(set(gpus))} GPUs")
        for gpu in gpus:
            node = cluster.nodes[int(cluster.node_of_gpu[gpu])]
            if node.accelerator != command.shape.accelerator:
                raise Violation(f"a gang has one GPU type: {job.id}")
            if self.health[node.name] is not Health.HEALTHY:
                raise Violation(f"nothing starts on a node that is {self.health[node.name].value}: {node.name}")
            if self.owner[node.name] != self._pool_of(job):
                raise Violation(f"tenant guarantees are honoured: {job.id} on {node.name}")

    def _pool_of(self, job: Job) -> str:
        own = [spec.name for spec in self.setup.pools if job.tenant in spec.tenants]
        return own[0] if own else next((spec.name for spec in self.setup.pools if not spec.tenants), "")

    def _judge_jobs(self, scheduler: Scheduler) -> None:
        for job_id in self.jobs:
            status = scheduler.status(job_id)
            if status is None:
                raise Violation(f"no accepted job is ever lost: {job_id}")
            if job_id in self.finished and status is not Status.FINISHED:
                raise Violation(f"a finished job stays finished: {job_id}")
            waits = status in (Status.PENDING, Status.HOLDING, Status.REFUSED)
            if waits and not str(scheduler.why(job_id) or ""):
                raise Violation(f"every pending job has a reason: {job_id}")
