"""How long jobs really were, from a log: an observer that measures work and speeds by what the engine reported.

Where an engine reports steps, they are the work, and steps by time is the speed. A job without reports worked as fast
as was believed when it was submitted, so that it takes as long again in the same shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from horae.engines.simulated import speed_at
from horae.forks.beliefs import PastJob
from horae.model.commands import Start, Stop
from horae.model.events import (
    TIME_IS_UP,
    Ending,
    Event,
    JobCancelled,
    JobEnded,
    JobPhase,
    JobProgressed,
    JobStarted,
    JobSubmitted,
    LeaseAdopted,
    Phase,
)
from horae.model.jobs import Job, Truth
from horae.model.plans import Reaction
from horae.model.shapes import Option, Shape
from horae.scheduler import Scheduler

CLOSE = 1e-6  # a measured speed this near the believed one is that


@dataclass(slots=True)
class _Lease:
    epoch: int
    shape: Shape
    steps_at_start: float
    given_at: float
    productive_at: float
    is_alone: bool = True
    is_confirmed: bool = False
    told_at: float = inf  # to stop


@dataclass(slots=True)
class _Past:
    """What is known of one job so far."""

    job: Job
    lease: _Lease | None = None
    work: dict[Shape, tuple[float, float]] = field(default_factory=dict)  # measured steps, and believed ones
    worked_seconds: float = 0.0  # in its first shape
    startup_seconds: float | None = None
    leaving_seconds: float = 0.0
    failures: int = 0
    is_out_of_time: bool = False
    finished_at_step: float | None = None
    failed_at_step: float | None = None


class Lengths:
    """Begins with the jobs of a scheduler, and follows its log."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._levels = scheduler.ledger.real_cluster.levels
        self._past: dict[str, _Past] = {}
        for job_id, (pool, serial) in scheduler.jobs.live.items():
            self._past[job_id] = past = _Past(pool.table.jobs[pool.table.row[serial]])
            held = scheduler.jobs.on_gpus(job_id)
            if held is not None:
                table, row = held[0].table, held[0].table.row[held[1]]
                lease = scheduler.leases.by_epoch[int(table.epoch[row])]
                steps = float(table.steps_base[row] + table.steps_ahead[row])
                past.lease = _Lease(
                    lease.epoch, lease.shape, steps, float(table.since[row]), float(table.productive_at[row]),
                    len(lease.bundle) == 1, bool(table.confirmed_at[row] < inf),
                )  # fmt: skip
        for job_id, each in scheduler.jobs.suspended.items():
            self._past[job_id] = _Past(each.job)

    def reacted(self, event: Event, reaction: Reaction) -> None:
        match event:
            case JobSubmitted():
                self._past.setdefault(event.job.id, _Past(event.job))
            case JobStarted() | JobProgressed():
                self._confirm(event.job_id, event.epoch, event.at)
            case JobPhase() if event.phase in (Phase.RUNNING, Phase.SAVING):
                self._confirm(event.job_id, event.epoch, event.at)
            case JobCancelled() if event.reason.startswith(TIME_IS_UP) and event.job_id in self._past:
                self._past[event.job_id].is_out_of_time = True
            case LeaseAdopted():
                self._adopted(event)
            case JobEnded():
                self._ended(event)
        for command in reaction.commands:
            if isinstance(command, Start):
                self._given(command, event.at)
            elif isinstance(command, Stop):
                lease = self._lease(command.job_id, command.epoch)
                if lease is not None:
                    lease.told_at = min(lease.told_at, event.at)

    def truth(self, job_id: str) -> Truth | None:
        """The length and the speeds of a job; None: it has not ended by itself."""
        past = self._past[job_id]
        costs = {"startup_seconds": past.startup_seconds or 0.0, "leaving_seconds": past.leaving_seconds}
        if past.finished_at_step is not None:
            return Truth(max(past.finished_at_step, 1e-9), self._options(past), **costs)
        if past.failed_at_step is not None:
            total = max(past.job.steps_total or 0.0, 2.0 * past.failed_at_step, 1e-9)
            return Truth(total, self._options(past), fails_at_step=past.failed_at_step, **costs)
        return None

    def worked_seconds(self, job_id: str) -> float:
        """How long a job has worked since this log begins, in seconds of its first shape."""
        return self._past[job_id].worked_seconds

    def past_jobs(self) -> list[PastJob]:
        """The jobs that have ended by themselves, in order of submission."""
        ended = [each for each in self._past.values() if self.truth(each.job.id) is not None and each.worked_seconds]
        return [PastJob(each.job, each.worked_seconds) for each in sorted(ended, key=lambda one: one.job.submitted_at)]

    def _lease(self, job_id: str, epoch: int) -> _Lease | None:
        past = self._past.get(job_id)
        return past.lease if past is not None and past.lease is not None and past.lease.epoch == epoch else None

    def _given(self, command: Start, at: float) -> None:
        for job_id, steps, resumes in zip(command.job_ids, command.steps_done, command.resumes, strict=True):
            past = self._past.get(job_id)
            if past is None or self._lease(job_id, command.epoch) is not None:
                continue  # a command may be sent twice
            resuming_seconds = past.job.restart_seconds if resumes else 0.0
            alone = len(command.job_ids) == 1
            past.lease = _Lease(command.epoch, command.shape, steps, at, at + resuming_seconds, alone)

    def _adopted(self, event: LeaseAdopted) -> None:
        lease = self._scheduler.leases.by_epoch.get(event.epoch)
        for job_id, steps in zip(event.job_ids, event.steps, strict=True):
            if lease is not None and job_id in self._past:
                alone = len(event.job_ids) == 1
                self._past[job_id].lease = _Lease(event.epoch, lease.shape, steps, event.at, event.at, alone, True)

    def _confirm(self, job_id: str, epoch: int, at: float) -> None:
        lease = self._lease(job_id, epoch)
        if lease is None or lease.is_confirmed:
            return
        lease.is_confirmed = True
        delay = max(at - lease.given_at, 0.0)
        lease.productive_at += delay
        past = self._past[job_id]
        past.startup_seconds = delay if past.startup_seconds is None else past.startup_seconds

    def _ended(self, event: JobEnded) -> None:
        past, lease = self._past.get(event.job_id), self._lease(event.job_id, event.epoch)
        if past is None or lease is None:
            return
        past.lease = None
        seconds = max(event.at - lease.productive_at, 0.0)
        believed = seconds * speed_at(past.job.options, lease.shape, self._levels)
        reported = event.steps - lease.steps_at_start
        past.worked_seconds += believed / past.job.options[0].steps_per_second
        if event.ending is Ending.STOPPED and lease.told_at < inf:
            past.leaving_seconds = max(event.at - lease.told_at, 0.0)
        if event.ending in (Ending.FINISHED, Ending.STOPPED) and reported > 0 and believed > 0 and lease.is_alone:
            measured, expected = past.work.get(lease.shape, (0.0, 0.0))
            past.work[lease.shape] = measured + reported, expected + believed
        reached = lease.steps_at_start + believed * self._ratio(past, lease.shape)
        past.failures += event.ending is Ending.FAILED
        if event.ending is Ending.FINISHED:
            past.finished_at_step = event.steps if reported > 0 else reached
        elif past.is_out_of_time or past.failures > past.job.retries_max:
            past.failed_at_step = max(reached, event.steps)

    def _options(self, past: _Past) -> tuple[Option, ...]:
        """The true speeds: those measured, and where a job was never seen, in the same proportion to its estimate."""
        if all(abs(self._ratio(past, shape) - 1.0) < CLOSE for shape in past.work):
            return past.job.options
        return tuple(
            option._replace(steps_per_second=option.steps_per_second * self._ratio(past, option.shape))
            for option in past.job.options
        )

    def _ratio(self, past: _Past, shape: Shape) -> float:
        """The measured speed over the estimated one."""
        same = [each for seen, each in past.work.items() if seen[:2] == shape[:2]]
        found: Sequence[tuple[float, float]] = same or list(past.work.values())
        measured, expected = (sum(column) for column in zip(*found, strict=True)) if found else (1.0, 1.0)
        return 1.0 if abs(measured / expected - 1.0) < CLOSE else measured / expected
