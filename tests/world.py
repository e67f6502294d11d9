"""An engine for tests, in which everything takes time and any message may be lost, delayed or doubled.

It is the truth: runs really occupy GPUs, and a start on a GPU that another run occupies is a violation, whatever the
scheduler was told. Commands of one job are carried out in their order; a doubled command may come again at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Any, ClassVar, NamedTuple

import numpy as np

from horae.model.cluster import Gpu
from horae.model.commands import CallForBids, Command, Start, Stop, Survey
from horae.model.decisions import Pairs, Shares
from horae.model.events import Ending, Event, JobEnded, JobPhase, JobProgressed, JobStarted, Phase, Running, Surveyed
from horae.model.view import View

Key = tuple[str, int]  # a job, and the epoch of one of its leases

START_UP = (Phase.QUEUED, Phase.PULLING, Phase.STARTING)


class Violation(AssertionError):
    """A promise was broken; the message names it."""


class Network(NamedTuple):
    """How likely each fault is, for each message, and how long a delayed one takes at most."""

    lost: float = 0.0
    delayed: float = 0.0
    doubled: float = 0.0
    delay_seconds_max: float = 0.0


class Letter(NamedTuple):
    """A command under way."""

    command: Command
    arrives_at: float
    is_copy: bool  # it keeps no order: later commands of its job do not wait for it


class Parcel(NamedTuple):
    """An event under way to the scheduler."""

    event: Event
    arrives_at: float


@dataclass
class Run:
    """One job that really occupies GPUs."""

    job_id: str
    epoch: int
    gpus: tuple[Gpu, ...]
    phase: Phase
    steps: float  # done
    saved: float  # of these, what would survive its end
    steps_per_second: float = 1.0
    leaves_at: float = inf  # it was told to stop

    @property
    def key(self) -> Key:
        return self.job_id, self.epoch

    @property
    def is_told_to_stop(self) -> bool:
        return self.leaves_at < inf


class World:
    def __init__(self, random: Random, network: Network, *, tells_phases: bool = False) -> None:
        self.random = random
        self.network = network
        self.tells_phases = tells_phases
        self.now = 0.0
        self.runs: dict[Key, Run] = {}
        self.ends: dict[Key, JobEnded] = {}  # of runs, and of leases that were stopped before they were seen
        self.wire: list[Letter] = []  # in the order in which they were sent
        self.post: list[Parcel] = []
        self.calls: list[CallForBids] = []  # that no agent has answered yet
        self.broken: set[Gpu] = set()  # what is started there is lost at once
        self.most_saved: dict[str, float] = {}  # by job

    # Messages

    def send(self, commands: Iterable[Command]) -> None:
        for command in commands:
            if self._happens(self.network.lost):
                continue
            self.wire.append(Letter(command, self._arrival(), False))
            if self._happens(self.network.doubled):
                self.wire.append(Letter(command, self._arrival(), True))

    def answer(self, event: Event) -> None:
        if self._happens(self.network.lost):
            return
        self.post.append(Parcel(event, self._arrival()))
        if self._happens(self.network.doubled):
            self.post.append(Parcel(event, self._arrival()))

    def calm_down(self) -> None:
        """From now on every message arrives at once, as do those under way."""
        self.network = Network()
        self.wire = [letter._replace(arrives_at=self.now) for letter in self.wire]
        self.post = [parcel._replace(arrives_at=self.now) for parcel in self.post]

    def _happens(self, probability: float) -> bool:
        return probability > 0 and self.random.random() < probability

    def _arrival(self) -> float:
        if not self._happens(self.network.delayed):
            return self.now
        return self.now + self.random.random() * self.network.delay_seconds_max

    def carry_out(self) -> None:
        """Execute all commands that have arrived; none overtakes an earlier one of the same job."""
        waiting, under_way = self.wire, set[str]()
        self.wire = []
        for letter in waiting:
            jobs = _jobs_of(letter.command)
            if letter.arrives_at > self.now or (not letter.is_copy and not under_way.isdisjoint(jobs)):
                self.wire.append(letter)
                if not letter.is_copy:
                    under_way.update(jobs)
                continue
            self._execute(letter.command)

    def take_post(self) -> Event | None:
        """The next event that has arrived at the scheduler."""
        for index, parcel in enumerate(self.post):
            if parcel.arrives_at <= self.now:
                del self.post[index]
                return parcel.event
        return None

    # Commands

    def _execute(self, command: Command) -> None:
        match command:
            case Start():
                self._start(command)
            case Stop():
                self._stop(command)
            case Survey():
                self.answer(self.survey())
            case CallForBids():
                self.calls.append(command)

    def survey(self) -> Surveyed:
        """Everything that runs, as of now."""
        running = [Running(run.job_id, run.epoch, run.gpus, run.saved, run.phase) for run in self.runs.values()]
        return Surveyed(self.now, tuple(running))

    def _start(self, command: Start) -> None:
        for job_id, steps_done in zip(command.job_ids, command.steps_done, strict=True):
            key = (job_id, command.epoch)
            if key in self.ends:
                self.answer(self.ends[key])
            elif key in self.runs:
                self._tell_phase(self.runs[key])
            else:
                self._begin(key, command, steps_done)

    def _begin(self, key: Key, command: Start, steps_done: float) -> None:
        for run in self.runs.values():
            if run.epoch != command.epoch and not set(run.gpus).isdisjoint(command.gpus):
                raise Violation(f"no GPU held by two bundles: {command} meets {run}")
            if run.job_id == key[0]:
                raise Violation(f"at most one live lease epoch per job: {command} meets {run}")
        if steps_done > self.most_saved.get(key[0], 0.0):
            raise Violation(f"progress is only what was really done: {command}, {self.most_saved.get(key[0], 0.0)}")
        phase = Phase.QUEUED if self.tells_phases else Phase.RUNNING
        speed = self.random.choice((0.3, 1.0, 2.5))
        self.runs[key] = run = Run(*key, command.gpus, phase, steps_done, steps_done, speed)
        if not self.broken.isdisjoint(command.gpus):
            self.end(key, Ending.LOST)
        else:
            self._tell_phase(run)

    def adopt(self, run: Run) -> None:
        """A run that this scheduler has not started."""
        for other in self.runs.values():
            assert other.job_id != run.job_id
            assert other.epoch == run.epoch or set(other.gpus).isdisjoint(run.gpus)
        self.runs[run.key] = run
        self.most_saved[run.job_id] = max(self.most_saved.get(run.job_id, 0.0), run.saved)

    def _tell_phase(self, run: Run) -> None:
        if run.phase is Phase.RUNNING and self.random.random() < 0.8:
            self.answer(JobStarted(self.now, *run.key))
        elif self.tells_phases:
            self.answer(JobPhase(self.now, *run.key, run.phase))
        else:
            self.answer(JobStarted(self.now, *run.key))

    def _stop(self, command: Stop) -> None:
        key = (command.job_id, command.epoch)
        if key in self.ends:
            self.answer(self.ends[key])
        elif key not in self.runs:
            self.ends[key] = JobEnded(self.now, *key, Ending.STOPPED, 0.0)  # a tombstone: no late start undoes it
            self.answer(self.ends[key])
        else:
            run = self.runs[key]
            run.leaves_at = min(run.leaves_at, self.now + self.random.choice((0.0, 0.5, 1.0)) * command.grace_seconds)
            if self.tells_phases and run.phase is Phase.RUNNING:
                run.phase = Phase.SAVING
                self.answer(JobPhase(self.now, *key, run.phase))

    # What happens by itself

    def advance(self, to: float) -> None:
        """Time passes: work is done, those that were told to stop leave, those that start up come further."""
        seconds, self.now = to - self.now, to
        for run in list(self.runs.values()):
            if run.phase in (Phase.RUNNING, Phase.SAVING):
                run.steps += seconds * run.steps_per_second
            elif run.phase in START_UP and seconds > 0 and not run.is_told_to_stop:
                self._start_up(run)
        for run in list(self.runs.values()):
            if run.leaves_at <= self.now:
                self.leave(run)

    def leave(self, run: Run) -> None:
        """A run that was told to stop is gone, with all its work or with what it had saved before."""
        if self.random.random() < 0.7:
            self.save(run)
        self.end(run.key, Ending.STOPPED)

    def _start_up(self, run: Run) -> None:
        after = (*START_UP, Phase.RUNNING)
        while run.phase is not Phase.RUNNING and self.random.random() < 0.6:
            run.phase = after[after.index(run.phase) + 1]
            self._tell_phase(run)

    def save(self, run: Run) -> None:
        run.saved = run.steps
        self.most_saved[run.job_id] = max(self.most_saved.get(run.job_id, 0.0), run.saved)

    def report(self, key: Key) -> JobProgressed:
        run = self.runs[key]
        self.save(run)
        return JobProgressed(self.now, *key, run.saved)

    def end(self, key: Key, ending: Ending) -> None:
        """A run is over: its GPUs are free from this moment on."""
        run = self.runs.pop(key)
        if ending is Ending.FINISHED:
            self.save(run)
        self.ends[key] = JobEnded(self.now, *key, ending, run.saved)
        self.answer(self.ends[key])

    def on(self, gpus: Iterable[Gpu]) -> list[Run]:
        touched = set(gpus)
        return [run for run in self.runs.values() if not touched.isdisjoint(run.gpus)]


def _jobs_of(command: Command) -> Sequence[str]:
    match command:
        case Start():
            return command.job_ids
        case Stop():
            return (command.job_id,)
    return ()


@dataclass(frozen=True)
class AnyPairs:
    """A policy that pairs whoever fits, at random and otherwise each time: the mechanism must cope with all of it."""

    name: ClassVar[str] = "any-pairs"

    def decide(self, view: View) -> Shares:
        jobs = view.jobs
        memory: Any = view.memory if isinstance(view.memory, dict) else {"asked": 0}
        random = np.random.default_rng([view.seed, len(jobs), int(view.now * 4), memory["asked"]])
        asked = {"asked": memory["asked"] + 1}
        fraction = np.where(jobs.shape >= 0, random.uniform(0.01, random.choice([0.02, 0.5]), jobs.shape.shape), 0.0)
        found = [
            (*pair, random.uniform(0.2, 1.0)) for pair in self._pairs(view) if random.random() < 0.7 or len(jobs) < 3
        ]
        if not found:
            return Shares(fraction, memory=asked)
        first, second, first_option, second_option, time = (np.array(column) for column in zip(*found, strict=True))
        stands_until = view.now + float(random.choice([5.0, 50.0, np.inf]))
        pairs = Pairs(first, second, first_option, second_option, time)
        return Shares(fraction, stands_until, pairs, memory=asked)

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
