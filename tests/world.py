"""An engine for tests that does nothing by itself, and a witness who checks every promise from the outside.

The witness sees only what goes in (events) and what comes out (commands and rounds); it keeps its own books and asks
the scheduler for nothing but `status` and `why`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from horae.model.cells import Cluster
from horae.model.commands import Command, Start, Stop, Survey
from horae.model.decisions import Pairs, Shares
from horae.model.events import Ending, Event, Health, JobEnded, JobStarted, JobSubmitted, NodeChanged, Surveyed
from horae.model.jobs import Job
from horae.model.plans import Round
from horae.model.pools import Setup
from horae.model.reasons import Preempted
from horae.model.status import ON_GPUS, Status
from horae.model.view import View
from horae.scheduler import Reaction, Scheduler


class Violation(AssertionError):
    """A promise was broken; the message names it."""


Key = tuple[int, str]  # the epoch of a lease, and one of the jobs that have it


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

    live: dict[Key, Live] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)
    outbox: list[Event] = field(default_factory=list)

    def execute(self, commands: tuple[Command, ...], now: float) -> None:
        for command in commands:
            match command:
                case Start():
                    self._start(command, now)
                case Stop() if (command.epoch, command.job_id) in self.live:
                    self.live[command.epoch, command.job_id].told_to_stop = True
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
            for job_id, steps_done in zip(command.job_ids, command.steps_done, strict=True):
                self.live[command.epoch, job_id] = Live(job_id, command.epoch, command.gpus, steps_done)
        for job_id in command.job_ids:
            if (command.epoch, job_id) in self.live:
                self.outbox.append(JobStarted(now, job_id, command.epoch))

    def end(self, key: Key, ending: Ending, now: float) -> JobEnded:
        run = self.live.pop(key)
        return JobEnded(now, run.job_id, run.epoch, ending, run.steps)

    def fail_node(self, cluster: Cluster, node: str, now: float) -> list[Event]:
        gpus = cluster.gpus_of_node(node)
        lost = [key for key, run in self.live.items() if any(gpus.start <= gpu < gpus.stop for gpu in run.gpus)]
        return [self.end(key, Ending.LOST, now) for key in lost]


@dataclass(frozen=True)
class AnyPairs:
    """A policy that pairs whoever fits, at random and otherwise each time: the mechanism must cope with all of it."""

    name: ClassVar[str] = "any-pairs"

    def decide(self, view: View) -> Shares:
        jobs = view.jobs
        random = np.random.default_rng([view.seed, len(jobs), int(view.now * 4)])
        fraction = np.where(jobs.shape >= 0, random.uniform(0.01, random.choice([0.02, 0.5]), jobs.shape.shape), 0.0)
        found = [
            (*pair, random.uniform(0.2, 1.0)) for pair in self._pairs(view) if random.random() < 0.7 or len(jobs) < 3
        ]
        if not found:
            return Shares(fraction)
        first, second, first_option, second_option, time = (np.array(column) for column in zip(*found, strict=True))
        stands_until = view.now + float(random.choice([5.0, 50.0, np.inf]))
        return Shares(fraction, stands_until, Pairs(first, second, first_option, second_option, time))

    def _pairs(self, view: View) -> Iterator[tuple[int, int, int, int]]:
        """All that fit: rows and options."""
        jobs = view.jobs
        if not len(view.kept):
            return
        rows, options = np.nonzero(jobs.shape >= 0)
        claims = list(zip(rows.tolist(), options.tolist(), strict=True))
        for row, option in claims:
            for other, another in claims:
                shapes = view.shapes[jobs.shape[row, option]], view.shapes[jobs.shape[other, another]]
                kept = view.kept[jobs.model[row], jobs.model[other], jobs.shape[row, option]]
                if row < other and shapes[0][:2] == shapes[1][:2] and kept > 0:
                    yield row, other, option, another


class Witness:
    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.cluster = setup.cluster
        self.jobs: dict[str, Job] = {}
        self.epoch_of: dict[str, int] = {}  # by job: the lease that the scheduler believes in
        self.gpus_of: dict[int, tuple[int, ...]] = {}
        self.told_to_stop: set[Key] = set()
        self.kept = {
            (one, other, accelerator, gpus): min(kept)
            for models, accelerator, gpus, kept in setup.sharing
            for one, other in (models, models[::-1])
        }
        self.reported: dict[str, float] = {}
        self.finished: set[str] = set()
        self.health = dict.fromkeys(self.cluster.node_index, Health.HEALTHY)
        self.epoch_last = -1
        self.maybe_over: set[str] = set()  # by a survey; whether the scheduler believes it shows at the next start
        self.owner = self._owners()
        self.reserves = any(spec.cells for spec in setup.pools)  # then nobody owns nodes

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
        running = {(job_id, epoch) for job_id, epoch, _ in event.running}
        for job_id, epoch in list(self.epoch_of.items()):
            if (job_id, epoch) not in running:
                self.maybe_over.add(job_id)

    def _forget(self, job_id: str) -> None:
        epoch = self.epoch_of.pop(job_id)
        if epoch not in self.epoch_of.values():
            self.gpus_of.pop(epoch, None)

    def _bundle(self, epoch: int) -> set[str]:
        return {job_id for job_id, its_epoch in self.epoch_of.items() if its_epoch == epoch}

    def judge(self, event: Event, reaction: Reaction, scheduler: Scheduler) -> None:
        self.hear(event)
        for round_ in reaction.rounds:
            self._judge_round(round_)
        for command in reaction.commands:
            if isinstance(command, Start):
                self._judge_start(command)
            elif isinstance(command, Stop):
                self.told_to_stop.add((command.epoch, command.job_id))
        self._judge_jobs(scheduler)

    def _judge_round(self, round_: Round) -> None:
        name = dict(zip(round_.serials.tolist(), round_.job_ids, strict=True))
        starting = {name[serial] for item in round_.plan.placements for serial in item.bundle}
        leaving = {name[departure.serial] for departure in round_.plan.departures}
        for departure in round_.plan.departures:
            if isinstance(departure.reason, Preempted) and departure.reason.by not in starting:
                raise Violation(f"nobody preempted unless the preemptor starts: {departure.reason}")
            job_id = name[departure.serial]
            if job_id in self.maybe_over or job_id not in self.epoch_of:
                continue
            epoch = self.epoch_of[job_id]
            for other in self._bundle(epoch) - leaving - self.maybe_over:
                if (epoch, other) not in self.told_to_stop:
                    raise Violation(f"two that share GPUs leave together: {job_id} without {other}")

    def compare(self, world: World, scheduler: Scheduler) -> None:
        """What truly runs must be known to run, unless a survey gave reason to think otherwise."""
        for run in world.live.values():
            if run.job_id not in self.maybe_over and scheduler.status(run.job_id) not in ON_GPUS:
                raise Violation(f"a running job is known to run: {run.job_id}")

    def _judge_start(self, command: Start) -> None:
        if command.epoch <= self.epoch_last:
            self._judge_again(command)
            return
        self.epoch_last = command.epoch
        for job_id in command.job_ids:
            if job_id in self.epoch_of:
                if job_id not in self.maybe_over:
                    raise Violation(f"at most one live lease epoch per job: {job_id}")
                self._forget(job_id)
            self.maybe_over.discard(job_id)
        self._judge_gpus(command)
        self._judge_company(command)
        for job_id, steps_done in zip(command.job_ids, command.steps_done, strict=True):
            self._judge_place(command, self.jobs[job_id])
            if steps_done < self.reported.get(job_id, 0.0):
                raise Violation(f"no reported progress is ever lost: {job_id} resumes at {steps_done}")
            self.epoch_of[job_id] = command.epoch
        self.gpus_of[command.epoch] = command.gpus
        self._judge_riders(command)

    def _judge_again(self, command: Start) -> None:
        """A start may be sent again, to those who have not left since."""
        for job_id in command.job_ids:
            if self.epoch_of.get(job_id) != command.epoch and job_id not in self.maybe_over:
                raise Violation(f"an epoch is used once, and by nobody who has left: {job_id}, {command.epoch}")

    def _judge_gpus(self, command: Start) -> None:
        over = {epoch for epoch in self.gpus_of if self._bundle(epoch) <= self.maybe_over}
        busy = {gpu for epoch in self.gpus_of.keys() - over for gpu in self.gpus_of[epoch]}
        if busy & set(command.gpus):
            raise Violation(f"no GPU held by two bundles: {sorted(busy & set(command.gpus))}")

    def _judge_company(self, command: Start) -> None:
        if len(command.job_ids) == 1:
            return
        first, second = (self.jobs[job_id].model for job_id in command.job_ids)
        if not self.kept.get((first, second, command.shape.accelerator, command.shape.gpus)):
            raise Violation(f"only those who fit together share GPUs: {command.job_ids}")

    def _judge_riders(self, command: Start) -> None:
        """The CPUs of both of a pair count, and of all who are on the node."""
        for node, its in self.cluster.node_index.items():
            gpus = self.cluster.gpus_of_node(node)
            carried = sum(
                self.jobs[job_id].cpus_per_gpu * sum(gpus.start <= gpu < gpus.stop for gpu in self.gpus_of[epoch])
                for job_id, epoch in self.epoch_of.items()
                if job_id not in self.maybe_over
            )
            if carried > self.cluster.nodes[its].cpus + 1e-9:
                raise Violation(f"no node carries more CPUs than it has: {node} with {command}")

    def _judge_place(self, command: Start, job: Job) -> None:
        cluster, gpus, levels = self.cluster, command.gpus, self.cluster.levels
        accepted = [
            option.shape
            for option in job.options
            if option.shape.gpus == len(set(gpus))
            and option.shape.accelerator == command.shape.accelerator
            and levels.index(command.shape.level) <= levels.index(option.shape.level)
        ]
        if not accepted or len(gpus) != len(set(gpus)):
            raise Violation(f"gangs are all or nothing: {job.id} got {command.shape} on {len(set(gpus))} GPUs")
        for gpu in gpus:
            node = cluster.nodes[int(cluster.node_of_gpu[gpu])]
            if node.accelerator != command.shape.accelerator:
                raise Violation(f"a gang has one GPU type: {job.id}")
            if self.health[node.name] is not Health.HEALTHY:
                raise Violation(f"nothing starts on a node that is {self.health[node.name].value}: {node.name}")
            if not self.reserves and self.owner[node.name] != self._pool_of(job):
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
