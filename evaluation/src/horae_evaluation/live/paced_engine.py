"""The simulated counterpart of `paced_job.py`: jobs that draw the same lengths of steps and start-ups."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from math import inf
from random import Random
from typing import NamedTuple

from horae.engines.engine import Moment
from horae.engines.simulated import SimulatedEngine
from horae.model.commands import Command, Start, Stop
from horae.model.events import Event, JobProgressed
from horae.model.jobs import Arrival, Truth
from horae.service.api.reports import PROGRESS_SECONDS
from horae_evaluation.live.paced_job import REPORT_SECONDS, startup_seconds, steps_seconds
from horae_evaluation.live.service_run import Overheads
from horae_evaluation.live.workload import MODELS, LiveJob


class _Lease(NamedTuple):
    epoch: int
    steps_before: int
    first_at: float  # the beginning of its first step
    ends_after: Sequence[float]  # of its steps: seconds since then

    def steps_begun(self, now: float) -> int:
        return self.steps_ended(now) + 1 if now > self.first_at else 0

    def steps_ended(self, now: float) -> int:
        return bisect_right(self.ends_after, now - self.first_at)


class _Report(NamedTuple):
    """Of a job that has saved, which it does once in a lease."""

    at: float
    epoch: int
    job_id: str
    saved: int


class PacedEngine:
    """Gives every start of a job its own truth, and lets a job that is told to stop finish the step that it is in.

    `seed` is that of the real jobs. What the machine adds is drawn anew at every start, around the measured means.
    """

    def __init__(
        self,
        inner: SimulatedEngine,
        arrivals: Iterable[Arrival],
        jobs: Mapping[str, LiveJob],
        seed: object,
        overheads: Overheads,
        random: Random,
    ) -> None:
        self._inner = inner
        self._arrivals = {arrival.job.id: arrival for arrival in arrivals}
        self._jobs = jobs
        self._seed = seed
        self._overheads = overheads
        self._random = random
        self._steps_seconds = {
            job_id: steps_seconds(seed, job.name, job.steps) for job_id, job in jobs.items()
        }  # at one step per second
        self._steps_done = dict.fromkeys(jobs, 0)  # and saved, in whole steps
        self._starts = dict.fromkeys(jobs, 0)
        self._leases: dict[str, _Lease] = {}
        self._stops: list[tuple[float, int, str, Stop]] = []  # a heap: at the end of a step
        self._reports: list[_Report] = []  # a heap
        self._reported_at = dict.fromkeys(jobs, -inf)

    def wait(self, until: float) -> Moment | None:
        due_at = min([until, *(each[0][0] for each in (self._stops, self._reports) if each)])
        moment = self._inner.wait(due_at)
        if moment is None:
            return None
        return Moment(moment.at, [*moment.events, *self._due()])

    def execute(self, commands: Sequence[Command]) -> Sequence[Event]:
        events: list[Event] = []
        for command in commands:
            if isinstance(command, Start):
                for job_id, done in zip(command.job_ids, command.steps_done, strict=True):
                    self._begin(job_id, done, command)
            elif isinstance(command, Stop):
                self._stop(command)
                continue
            events += self._inner.execute((command,))
        return [*events, *self._due()]

    def _stop(self, command: Stop) -> None:
        job_id, lease = command.job_id, self._leases[command.job_id]
        begun = lease.steps_begun(self._inner.now)
        if begun < len(lease.ends_after):  # in its last step it finishes
            at = lease.first_at + lease.ends_after[begun - 1] if begun else self._inner.now
            self._steps_done[job_id] += begun
            heapq.heappush(self._stops, (at, command.epoch, job_id, command))

    def _due(self) -> list[Event]:
        """Reports, and the ends of jobs that were told to stop and have come to the end of their step."""
        events: list[Event] = []
        while self._reports and self._reports[0].at <= self._inner.now:
            _, epoch, job_id, saved = heapq.heappop(self._reports)
            lease = self._leases[job_id]
            if lease.epoch == epoch:
                done = lease.steps_before + lease.steps_ended(self._inner.now)
                events.append(JobProgressed(self._inner.now, job_id, epoch, saved, done))
        while self._stops and self._stops[0][0] <= self._inner.now:
            events += self._inner.execute((heapq.heappop(self._stops)[-1],))
        return events

    def _begin(self, job_id: str, done: float, command: Start) -> None:
        job, arrival, accelerator = self._jobs[job_id], self._arrivals[job_id], command.shape.accelerator
        startup = self._about(self._overheads.starting_seconds)
        startup += startup_seconds(self._seed, job.name, self._starts[job_id], resumes=self._steps_done[job_id] > 0)
        self._starts[job_id] += 1
        mean = MODELS[job.model][accelerator]
        left = [seconds / mean for seconds in self._steps_seconds[job_id][self._steps_done[job_id] :]]
        # The inner engine has fractions of steps: its job ends when this one does.
        speed = (job.steps - done) / sum(left)
        options = tuple(
            option._replace(steps_per_second=speed) if option.shape.accelerator == accelerator else option
            for option in arrival.truth.options
        )
        truth = Truth(
            job.steps,
            options,
            leaving_seconds=self._about(self._overheads.leaving_seconds),
            startup_seconds=startup,
            resume_seconds=startup,
            closing_seconds=self._about(self._overheads.closing_seconds),
        )
        first_at = self._inner.now + startup
        lease = self._leases[job_id] = _Lease(
            command.epoch, self._steps_done[job_id], first_at, tuple(accumulate(left))
        )
        if command.lease_until > self._inner.now:
            self._expect_report(job_id, command, lease)
        self._inner.expect(replace(arrival, truth=truth))

    def _expect_report(self, job_id: str, command: Start, lease: _Lease) -> None:
        """A job saves in the middle of a short lease, reports that with its next report, and not too often."""
        half_at = (self._inner.now + command.lease_until) / 2
        steps = max(lease.steps_ended(half_at) + 1, 1)
        if steps >= len(lease.ends_after):
            return
        saved_at = lease.first_at + lease.ends_after[steps - 1]
        at = max(saved_at, self._reported_at[job_id] + PROGRESS_SECONDS) + self._random.uniform(0.0, REPORT_SECONDS)
        self._reported_at[job_id] = at
        heapq.heappush(self._reports, _Report(at, command.epoch, job_id, lease.steps_before + steps))

    def _about(self, mean_seconds: float) -> float:
        return self._random.uniform(0.5, 1.5) * mean_seconds
