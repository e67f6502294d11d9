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
from horae.model.events import Event, JobProgressed, SpeedRevised
from horae.model.job_table import NONE
from horae.model.jobs import Arrival, Truth
from horae.model.shapes import Shape
from horae.service.api.reports import PROGRESS_SECONDS, SPEED_SECONDS, SPEED_STEPS, revised_speed
from horae_evaluation.live.paced_job import REPORT_SECONDS, startup_seconds, steps_seconds
from horae_evaluation.live.service_run import Overheads
from horae_evaluation.live.workload import MODELS, LiveJob

SPEED_WINDOW_SECONDS = 30.0  # of `horae_sdk`


class _Lease(NamedTuple):
    epoch: int
    shape: Shape
    steps_before: int
    first_at: float  # the beginning of its first step
    ends_after: Sequence[float]  # of its steps: seconds since then
    saves_at: float  # when it saves without being told to; infinite: never

    def steps_begun(self, now: float) -> int:
        return self.steps_ended(now) + 1 if now > self.first_at else 0

    def steps_ended(self, now: float) -> int:
        return bisect_right(self.ends_after, now - self.first_at)

    def steps_per_second(self, ended: int) -> float:
        """As the SDK measures it."""
        now = self.ends_after[ended - 1]
        before = bisect_right(self.ends_after, now - SPEED_WINDOW_SECONDS)
        return (ended - before) / (now - (self.ends_after[before - 1] if before else 0.0))


class PacedEngine:
    """Gives every start of a job its own truth, and lets a job that is told to stop finish the step that it is in.

    `seed` is that of the real jobs. What the machine adds is drawn anew at every start, from what was measured.
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
        self._reports: list[tuple[float, int, str]] = []  # a heap: of an epoch
        self._saved = dict.fromkeys(jobs, 0)  # as it was reported
        self._saved_reported_at = dict.fromkeys(jobs, -inf)
        self._speeds: dict[tuple[str, Shape], tuple[float, int]] = {}  # measured, and how often
        self._speed_reported_at: dict[str, float] = {}  # by model

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
        while self._reports and self._reports[0][0] <= self._inner.now:
            _, epoch, job_id = heapq.heappop(self._reports)
            if self._leases[job_id].epoch == epoch:
                events += self._report(job_id, self._leases[job_id])
        while self._stops and self._stops[0][0] <= self._inner.now:
            _, _, job_id, command = heapq.heappop(self._stops)
            self._leases[job_id] = self._leases[job_id]._replace(epoch=NONE)  # it no longer reports
            events += self._inner.execute((command,))
        return events

    def _report(self, job_id: str, lease: _Lease) -> list[Event]:
        """What the service makes of a report of a job, by the rules of `horae.service.api.reports`."""
        now, ended = self._inner.now, lease.steps_ended(self._inner.now)
        if ended >= len(lease.ends_after):
            return []
        heapq.heappush(self._reports, (now + REPORT_SECONDS, lease.epoch, job_id))
        events: list[Event] = []
        saved = lease.steps_before + lease.steps_ended(lease.saves_at)
        is_news = lease.saves_at <= now and saved > self._saved[job_id]
        if is_news and now >= self._saved_reported_at[job_id] + PROGRESS_SECONDS:
            self._saved[job_id], self._saved_reported_at[job_id] = saved, now
            events.append(JobProgressed(now, job_id, lease.epoch, saved, lease.steps_before + ended))
        job, model = self._arrivals[job_id].job, self._jobs[job_id].model
        if ended >= SPEED_STEPS and now >= self._speed_reported_at.get(model, -inf) + SPEED_SECONDS:
            (option,) = (each for each in job.options if each.shape.accelerator == lease.shape.accelerator)
            believed, reports = self._speeds.get((model, option.shape), (option.steps_per_second, 0))
            revised = revised_speed(believed, lease.steps_per_second(ended), reports)
            if revised is not None:
                self._speeds[model, option.shape] = revised, reports + 1
                self._speed_reported_at[model] = now
                events.append(SpeedRevised(now, model, option.shape, revised, job.tenant))
        return events

    def _begin(self, job_id: str, done: float, command: Start) -> None:
        job, arrival, accelerator = self._jobs[job_id], self._arrivals[job_id], command.shape.accelerator
        startup = self._one_of(self._overheads.starting_seconds)
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
            leaving_seconds=self._one_of(self._overheads.leaving_seconds),
            startup_seconds=startup,
            resume_seconds=startup,
            closing_seconds=self._one_of(self._overheads.closing_seconds),
        )
        first_at = self._inner.now + startup
        lease = _Lease(command.epoch, command.shape, self._steps_done[job_id], first_at, tuple(accumulate(left)), inf)
        if command.lease_until > self._inner.now:
            # In the middle of a short lease, at the end of a step.
            due = lease.steps_ended((self._inner.now + command.lease_until) / 2)
            if due < len(left) - 1:
                lease = lease._replace(saves_at=first_at + lease.ends_after[due])
        self._leases[job_id] = lease
        # The first report is sent when the process begins, the second with the first step, but not too soon after that.
        at = max(first_at + left[0], self._inner.now + REPORT_SECONDS)
        heapq.heappush(self._reports, (at, command.epoch, job_id))
        self._inner.expect(replace(arrival, truth=truth))

    def _one_of(self, measured: Sequence[float]) -> float:
        return self._random.choice(measured) if measured else 0.0
