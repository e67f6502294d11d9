"""The simulated engine: a virtual clock, exact completion times, and true speeds that only the engine knows.

The clock jumps from one event to the next, or to the time that the scheduler asked for; the time in between changes
nothing and costs nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import floor, inf

from horae.engines.engine import Moment
from horae.model.cluster import Cluster, Gpu
from horae.model.commands import Command, Start, Stop, Survey
from horae.model.errors import BrokenInvariant, JobError
from horae.model.events import (
    Ending,
    Event,
    Health,
    JobEnded,
    JobStarted,
    JobSubmitted,
    NodeChanged,
    Running,
    Surveyed,
)
from horae.model.jobs import Arrival
from horae.model.shapes import Option, Shape
from horae.model.speeds import Sharing, SharingTable


@dataclass(slots=True)
class _Run:
    """A job on GPUs."""

    arrival: Arrival
    epoch: int
    gpus: tuple[Gpu, ...]
    began_at: float  # to work, after the restart
    productive_at: float  # at the present pace since then
    steps_at_start: float
    steps_per_second: float  # without a partner on these GPUs
    ending: Ending  # how it will end without intervention
    partner: str = ""  # the job that shares the GPUs
    pace: float = 1.0  # the fraction of its speed that it keeps beside the partner
    steps_safe: float = 0.0  # at the last checkpoint before its pace changed
    cells: tuple[str, ...] = ()  # as in its `Start`

    def steps(self, now: float) -> float:
        done = self.steps_at_start + max(now - self.productive_at, 0.0) * self.steps_per_second * self.pace
        return min(done, self.arrival.truth.steps_total)

    def ends_at(self) -> float:
        truth = self.arrival.truth
        last = truth.steps_total if self.ending is Ending.FINISHED else truth.fails_at_step
        working_seconds = max(last - self.steps_at_start, 0.0) / (self.steps_per_second * self.pace)
        return self.productive_at + working_seconds + truth.closing_seconds

    def change_pace(self, now: float, partner: str, pace: float) -> None:
        self.steps_at_start, self.productive_at = self.steps(now), max(self.productive_at, now)
        self.partner, self.pace = partner, pace

    def steps_at_checkpoint(self, now: float, every_seconds: float) -> float:
        """Saved steps, with checkpoints counted from the start of work, independent of changes of the pace."""
        checkpoint_at = self.began_at + max(floor((now - self.began_at) / every_seconds), 0) * every_seconds
        return self.steps(checkpoint_at) if checkpoint_at >= self.productive_at else self.steps_safe


class SimulatedEngine:
    """Simulates jobs; `outside` are events of operators and hardware: faults, repairs, drains, cancellations, policy
    changes.

    With `checkpoint_seconds` at 0 every step is saved at once; otherwise jobs on a failed node lose the work since
    their last checkpoint. A job that is told to stop always saves its work first. `sharing` gives the true fractions of
    their speeds that two jobs on the same GPUs keep.
    """

    def __init__(
        self,
        cluster: Cluster,
        arrivals: Iterable[Arrival],
        outside: Iterable[Event] = (),
        checkpoint_seconds: float = 0.0,
        sharing: Iterable[Sharing] = (),
    ) -> None:
        self.now = 0.0
        self._cluster = cluster
        self._checkpoint_seconds = checkpoint_seconds
        self._sharing = SharingTable(sharing)
        self._arrivals: Iterator[Arrival] = iter(arrivals)
        self._await_arrival()
        self._outside = sorted(outside, key=lambda event: event.at)[::-1]
        self._ends: list[tuple[float, int, str]] = []  # time, epoch, job: a heap
        self._runs: dict[str, _Run] = {}
        self._jobs: dict[str, Arrival] = {}
        self._saved: dict[str, float] = {}  # by job: saved steps
        self._finished: set[str] = set()
        self._ended: dict[str, JobEnded] = {}  # by unfinished job: how its latest run ended
        self._leaving: dict[str, tuple[int, float, float]] = {}  # by job saving its work: epoch, until when, steps
        self._epoch_on: dict[Gpu, int] = {}  # by GPU in use: the lease
        self._tombstones: dict[str, JobEnded] = {}  # by job: the latest lease that was stopped before it started

    def expect(self, arrival: Arrival) -> None:
        """Registers a job that is submitted elsewhere."""
        self._jobs[arrival.job.id] = arrival

    def take_over(
        self,
        arrival: Arrival,
        epoch: int,
        gpus: tuple[Gpu, ...],
        shape: Shape,
        steps: float,
        productive_at: float,
        partner: str = "",
        pace: float = 1.0,
        cells: tuple[str, ...] = (),
    ) -> None:
        """Registers a job that runs already, with the steps that it has done by now."""
        speed = speed_at(arrival.truth.options, shape, self._cluster.levels)
        fails = arrival.truth.fails_at_step < arrival.truth.steps_total
        ending = Ending.FAILED if fails else Ending.FINISHED
        run = _Run(arrival, epoch, gpus, productive_at, productive_at, steps, speed, ending, partner, pace, steps)
        run.cells = cells
        self._occupy(run)
        job_id = arrival.job.id
        self._jobs[job_id], self._runs[job_id], self._saved[job_id] = arrival, run, steps
        heapq.heappush(self._ends, (max(run.ends_at(), self.now), epoch, job_id))

    def leave(self, job_id: str) -> JobEnded:
        """Ends the run of a job that was told to stop before."""
        run = self._runs[job_id]
        return self._end(run, Ending.STOPPED, run.steps(self.now))

    def wait(self, until: float) -> Moment | None:
        ends_at = self._ends[0][0] if self._ends else inf
        outside_at = self._outside[-1].at if self._outside else inf
        at = min(until, ends_at, outside_at, self._arrives_at)
        if at == inf:
            return None
        self.now = now = max(self.now, at)
        events: list[Event] = []
        if ends_at <= now:
            self._take_ends(events)
        if outside_at <= now:
            self._take_outside(events)
        if self._arrives_at <= now:
            self._take_arrivals(events)
        return Moment(now, events)

    def execute(self, commands: Sequence[Command]) -> Sequence[Event]:
        replies: list[Event] = []
        for command in commands:
            match command:
                case Start():
                    replies.extend(self._start(command))
                case Stop():
                    replies.extend(self._stop(command))
                case Survey():
                    running = [
                        Running(each, run.epoch, run.gpus, self._safe(run), cells=run.cells)
                        for each, run in self._runs.items()
                    ]
                    replies.append(Surveyed(self.now, tuple(running)))
        return replies

    def _take_ends(self, events: list[Event]) -> None:
        while self._ends and self._ends[0][0] <= self.now:
            _, epoch, job_id = heapq.heappop(self._ends)
            run = self._runs.get(job_id)
            if run is not None and job_id in self._leaving:
                leaving, until, steps = self._leaving[job_id]
                if leaving == epoch == run.epoch and until <= self.now:
                    events.append(self._end(run, Ending.STOPPED, steps))
                continue
            if run is not None and run.epoch == epoch and run.ends_at() <= self.now:
                finished = run.ending is Ending.FINISHED
                done = run.arrival.truth.steps_total if finished else self._saved.get(job_id, 0.0)
                events.append(self._end(run, run.ending, done))

    def _take_outside(self, events: list[Event]) -> None:
        while self._outside and self._outside[-1].at <= self.now:
            event = self._outside.pop()
            events.append(event)
            if isinstance(event, NodeChanged) and event.health is Health.FAILED:
                events.extend(self._lose(event.node))

    def _take_arrivals(self, events: list[Event]) -> None:
        while self._next_arrival is not None and self._arrives_at <= self.now:
            job = self._next_arrival.job
            self._jobs[job.id] = self._next_arrival
            events.append(JobSubmitted(job.submitted_at, job))
            self._await_arrival()

    def _await_arrival(self) -> None:
        self._next_arrival = next(self._arrivals, None)
        self._arrives_at = self._next_arrival.job.submitted_at if self._next_arrival else inf

    def _start(self, command: Start) -> list[Event]:
        events: list[Event] = []
        for job_id, told, resumes in zip(command.job_ids, command.steps_done, command.resumes, strict=True):
            events.extend(self._start_one(job_id, told, resumes, command))
        if len(command.job_ids) > 1:
            self._pair(command)
        return events

    def _pair(self, command: Start) -> None:
        """Slows down both jobs of a pair from now on; a repeated start changes nothing."""
        runs = [self._runs.get(job_id) for job_id in command.job_ids]
        for run, other in zip(runs, runs[::-1], strict=True):
            if run is None or other is None or run.partner or run.epoch != command.epoch:
                continue
            job, mate, shape = run.arrival.job, other.arrival.job, command.shape
            pace = self._sharing.kept(job.model, mate.model, shape)
            if not pace:
                raise JobError(
                    f"how fast {job.model!r} is beside {mate.model!r} on {shape} is not known",
                    field="sharing",
                    remedy="give the engine what the scheduler was told",
                )
            self._change_pace(run, mate.id, pace)

    def _start_one(self, job_id: str, told: float, resumes: bool, command: Start) -> tuple[Event, ...]:
        run = self._runs.get(job_id)
        if run is not None and run.epoch >= command.epoch:
            # A duplicate, or a late command of a superseded lease.
            return (JobStarted(self.now, job_id, command.epoch),) if run.epoch == command.epoch else ()
        if job_id in self._finished:
            # The message of its end was lost; send it again.
            return (JobEnded(self.now, job_id, command.epoch, Ending.FINISHED, told),)
        tombstone = self._tombstones.get(job_id)
        if tombstone is not None and tombstone.epoch >= command.epoch:
            return (tombstone,) if tombstone.epoch == command.epoch else ()
        ended = self._ended.get(job_id)
        if run is None and ended is not None and ended.epoch >= command.epoch:
            return (ended,)  # a lease that it has left is over, though its partner may be told to start again
        if run is not None:
            self._part(run)  # the scheduler has given up the former lease
            self._vacate(run)
        arrival = self._jobs[job_id]
        saved = max(self._saved.get(job_id, 0.0), told)
        speed = speed_at(arrival.truth.options, command.shape, self._cluster.levels)
        productive_at = self.now + _startup_seconds(arrival, resumes=resumes)
        fails = arrival.truth.fails_at_step < arrival.truth.steps_total
        ending = Ending.FAILED if fails else Ending.FINISHED
        run = _Run(arrival, command.epoch, command.gpus, productive_at, productive_at, saved, speed, ending)
        run.cells = command.cells
        run.steps_safe = saved
        self._occupy(run)
        self._runs[job_id] = run
        self._saved[job_id] = saved
        heapq.heappush(self._ends, (run.ends_at(), command.epoch, job_id))
        return (JobStarted(self.now, job_id, command.epoch),)

    def _occupy(self, run: _Run) -> None:
        """Occupies the GPUs of a run, which are exclusive to a lease whatever the scheduler assumes."""
        epoch_on, epoch = self._epoch_on, run.epoch
        for gpu in run.gpus:
            other = epoch_on.setdefault(gpu, epoch)
            if other != epoch:
                raise BrokenInvariant(f"GPU {gpu} is given to lease {epoch} while lease {other} is on it")

    def _vacate(self, run: _Run) -> None:
        other = self._runs.get(run.partner)
        if other is None or other.epoch != run.epoch or other is run:
            for gpu in run.gpus:
                self._epoch_on.pop(gpu, None)

    def _stop(self, command: Stop) -> tuple[Event, ...]:
        run = self._runs.get(command.job_id)
        if run is None or run.epoch < command.epoch:
            return self._entomb(command)
        if run.epoch > command.epoch:
            return ()
        steps = run.steps(self.now)
        finished = steps >= run.arrival.truth.steps_total
        if finished and run.arrival.truth.closing_seconds:
            return ()  # it ends by itself
        leaving_seconds = min(run.arrival.truth.leaving_seconds, command.grace_seconds)
        if leaving_seconds and not finished:
            if command.job_id not in self._leaving:
                self._leaving[command.job_id] = (command.epoch, self.now + leaving_seconds, steps)
                heapq.heappush(self._ends, (self.now + leaving_seconds, command.epoch, command.job_id))
            return ()
        return (self._end(run, Ending.FINISHED if finished else Ending.STOPPED, steps),)

    def _entomb(self, command: Stop) -> tuple[Event, ...]:
        """Records a stop of a lease that does not run, so that its start does nothing if it arrives later."""
        job_id, epoch = command.job_id, command.epoch
        if job_id in self._finished:
            return (JobEnded(self.now, job_id, epoch, Ending.FINISHED, 0.0),)
        ended = self._ended.get(job_id)
        if ended is not None and ended.epoch >= epoch:
            return (ended,) if ended.epoch == epoch else ()
        tombstone = self._tombstones.get(job_id)
        if tombstone is None or tombstone.epoch < epoch:
            tombstone = JobEnded(self.now, job_id, epoch, Ending.STOPPED, self._saved.get(job_id, 0.0))
            self._tombstones[job_id] = tombstone
        return (tombstone,) if tombstone.epoch == epoch else ()

    def _lose(self, node: str) -> list[Event]:
        lost = [run for run in self._runs.values() if any(gpu.node == node for gpu in run.gpus)]
        return [self._end(run, Ending.LOST, self._safe(run)) for run in lost]

    def _safe(self, run: _Run) -> float:
        """Steps that survive a crash."""
        if not self._checkpoint_seconds:
            return run.steps(self.now)
        return run.steps_at_checkpoint(self.now, self._checkpoint_seconds)

    def _end(self, run: _Run, ending: Ending, steps: float) -> JobEnded:
        job = run.arrival.job
        del self._runs[job.id]
        self._leaving.pop(job.id, None)
        self._vacate(run)
        self._part(run)
        self._saved[job.id] = steps
        if ending is Ending.FINISHED:
            del self._jobs[job.id], self._saved[job.id]
            self._ended.pop(job.id, None)
            self._finished.add(job.id)
        ended = JobEnded(self.now, job.id, run.epoch, ending, steps)
        if ending is not Ending.FINISHED:
            self._ended[job.id] = ended
        return ended

    def _part(self, run: _Run) -> None:
        """Ends the sharing of a run's GPUs: its partner has them alone from now on."""
        other = self._runs.get(run.partner)
        if other is not None and other.epoch == run.epoch:
            self._change_pace(other, "", 1.0)

    def _change_pace(self, run: _Run, partner: str, pace: float) -> None:
        run.steps_safe = self._safe(run)
        run.change_pace(self.now, partner, pace)
        heapq.heappush(self._ends, (run.ends_at(), run.epoch, run.arrival.job.id))


def _startup_seconds(arrival: Arrival, *, resumes: bool) -> float:
    if not resumes:
        return arrival.truth.startup_seconds
    known = arrival.truth.resume_seconds
    return arrival.job.restart_seconds if known is None else known


def speed_at(options: Sequence[Option], shape: Shape, levels: Sequence[str]) -> float:
    """The speed in an obtained shape: that of the tightest option which allows it."""
    obtained = levels.index(shape.level)
    best = inf
    speed = 0.0
    for option in options:
        asked = option.shape
        if asked.accelerator == shape.accelerator and asked.gpus == shape.gpus and asked.level in levels:
            level = levels.index(asked.level)
            if obtained <= level < best:
                best, speed = level, option.steps_per_second
    if not speed:
        raise JobError(f"no true speed is known for {shape}", field="speed", remedy="give one for each shape accepted")
    return speed
