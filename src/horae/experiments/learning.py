"""An engine wrapper for schedulers that do not know the true speeds: it learns them from profiles and reports.

The true speeds of a trace stay with the wrapped engine. The scheduler receives each job with the speeds estimated at
that time; these may be wrong, and the decisions derived from them accordingly so.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import exp, inf, isfinite, log, log1p, sqrt
from typing import NamedTuple

import numpy as np

from horae.engines.engine import Engine, Moment
from horae.model.commands import Command, Start, Survey
from horae.model.errors import InputError
from horae.model.events import (
    Ending,
    Event,
    JobCancelled,
    JobEnded,
    JobProgressed,
    JobStarted,
    JobSubmitted,
    SpeedRevised,
    Surveyed,
)
from horae.model.jobs import Job
from horae.model.shapes import Option, Shape
from horae.speed.estimator import Estimator, Key, MeasuredSpeed, family_of, key_of

Profile = Callable[[Job, Shape], float]  # the true speed, which a profiler measures with noise
Asked = tuple[str, Shape]  # a model in a shape
Belief = Callable[[Job, Option], float]

SECONDS_MIN = 10.0  # a shorter run gives no usable speed
START_SECONDS_MAX = 0.2  # maximum delay between a start command and its report for the start time to count as known
REFIT_GROWTH = 1.1  # structure is learned again when the number of measured cells has grown by this factor
WAIT_FOR_NEW_FAMILY = 1.5  # a family profiled before needs this many times its cells left in the budget


@dataclass(frozen=True)
class Learning:
    seed: int = 0
    profile_share: float = 0.2  # of the cells of all classes seen so far; a class is a model with a gang
    profile_whole: bool = True  # all cells of some classes, which shows how types compare; else some cells of many
    profile_seconds: float = 60.0  # for each cell; the job for which a class is profiled waits for them
    profile_noise: float = 0.05  # relative standard deviation
    is_online: bool = True  # whether running jobs are measured
    report_seconds: float = 3600.0  # how often running jobs are asked for their progress
    checkpoint_seconds: float = 0.0  # the maximum age of the progress that the engine reports of a running job
    threshold: float = 0.03  # relative: smaller changes are not reported
    caution: float = 0.0  # standard deviations by which reported speeds lie below the estimates

    def __post_init__(self) -> None:
        if not 0.0 <= self.profile_share <= 1.0:
            raise _bad("profile_share", self.profile_share, "give a number from 0 to 1")
        for name in ("profile_seconds", "profile_noise", "checkpoint_seconds", "threshold"):
            if not 0.0 <= getattr(self, name) < inf:
                raise _bad(name, getattr(self, name), "give a number of at least 0")
        if not self.report_seconds > 0.0:
            raise _bad("report_seconds", self.report_seconds, "give a number above 0; infinite: never ask")
        if not isfinite(self.caution):
            raise _bad("caution", self.caution, "give a finite number")


def as_submitted(job: Job, shape: Shape) -> float:
    """The job's speed in the trace, which is the truth unless the trace has a separate true speed."""
    return next(option.steps_per_second for option in job.options if option.shape == shape)


class Reading(NamedTuple):
    """A speed that was measured while a job ran."""

    model: str
    shape: Shape
    steps_per_second: float
    seconds: float
    stale_seconds: float


class LearningEngine:
    """An engine that estimates speeds; `levels` are the cluster's, finest first;
    `estimator` may know reference jobs."""

    def __init__(
        self,
        inner: Engine,
        levels: Sequence[str],
        learning: Learning | None = None,
        estimator: Estimator | None = None,
        profile: Profile = as_submitted,
    ) -> None:
        self._inner = inner
        self._learning = learning or Learning()
        self._profile = profile
        self._now = 0.0
        self._report_at = self._learning.report_seconds
        self._budget = _Budget(self._learning)
        self._beliefs = _Beliefs(estimator or Estimator(), self._learning)
        self._watches = _Watches(levels, self._learning.checkpoint_seconds)
        self._jobs: dict[str, Job] = {}  # as submitted, until they finish
        self._live: Counter[Asked] = Counter()
        self._held: list[tuple[float, int, Job, tuple[Shape, ...]]] = []  # a heap: until when; what is profiled
        self._held_count = 0

    @property
    def estimator(self) -> Estimator:
        return self._beliefs.estimator

    @property
    def profiled_share(self) -> float:
        """The profiled fraction of the cells of all classes seen so far."""
        return self._budget.spent_cells / max(self._budget.met_cells, 1)

    def wait(self, until: float) -> Moment | None:
        moment = self._inner.wait(min(until, self._held[0][0]) if self._held else until)
        if moment is None:
            return None  # nothing will happen any longer, and what was learned since is of no use
        self._now = moment.at
        events = [told for event in moment.events for told in self._heard(event)]
        while self._held and self._held[0][0] <= self._now:
            events.append(self._release(self._held[0][2].id))
        events.extend(self._ask_for_progress())
        revised = [
            SpeedRevised(self._now, *asked, speed) for asked, speed in self._beliefs.moved() if self._live[asked] > 0
        ]
        return Moment(moment.at, [*events, *revised])

    def execute(self, commands: Sequence[Command]) -> Sequence[Event]:
        for command in commands:
            if isinstance(command, Start):
                self._watches.start(command, self._now, self._jobs)
        return [told for event in self._inner.execute(commands) for told in self._heard(event)]

    def _heard(self, event: Event) -> list[Event]:
        """The events that the scheduler receives for this one."""
        match event:
            case JobSubmitted():
                return self._submitted(event)
            case JobCancelled():
                # A job still being profiled is submitted first, or its cancellation would refer to an unknown job.
                is_held = any(job.id == event.job_id for _, _, job, _ in self._held)
                early = [self._release(event.job_id)] if is_held else []
                self._forget(event.job_id)
                return [*early, event]
            case JobStarted():
                self._watches.confirm(event)
            case JobProgressed():
                self._learn([self._watches.report(event.at, event.job_id, event.epoch, event.steps)])
            case Surveyed():
                seen = [(run.job_id, run.epoch, run.steps) for run in event.running]
                self._learn([self._watches.report(event.at, *run, is_survey=True) for run in seen])
            case JobEnded():
                is_news = self._watches.is_current(event)
                self._learn([self._watches.end(event)])
                if is_news and event.ending is Ending.FINISHED:
                    self._forget(event.job_id)
        return [event]

    def _submitted(self, event: JobSubmitted) -> list[Event]:
        job = event.job
        if not job.model:
            return [event]  # nothing can be learned about a job without a model name
        if job.id in self._jobs:
            return []  # duplicate
        self._jobs[job.id] = job
        self._live.update((job.model, option.shape) for option in job.options)
        shapes = self._budget.spend(job)
        until = event.at + len(shapes) * self._learning.profile_seconds
        self._held_count += 1
        heapq.heappush(self._held, (until, self._held_count, job, shapes))
        return [] if until > self._now else [self._release(job.id)]

    def _release(self, job_id: str) -> JobSubmitted:
        """Submits a job that waited for its profile; if it must go earlier, it goes without."""
        item = next(item for item in self._held if item[2].id == job_id)
        self._held.remove(item)
        heapq.heapify(self._held)
        until, _, job, shapes = item
        for shape in shapes if until <= self._now else ():
            self._beliefs.take_profile(job.model, shape, self._profile(job, shape))
        return JobSubmitted(min(until, self._now), self._beliefs.of_job(job))

    def _learn(self, readings: Iterable[Reading | None]) -> None:
        for reading in readings:
            if reading is not None and self._learning.is_online:
                self._beliefs.take(reading)

    def _forget(self, job_id: str) -> None:
        job = self._jobs.pop(job_id, None)
        if job is not None:
            self._live.subtract((job.model, option.shape) for option in job.options)
            self._watches.forget(job_id)

    def _ask_for_progress(self) -> list[Event]:
        """Surveys the inner engine at an event that occurs anyway:
        it causes no wake-up, and the answer is used only here."""
        if not self._learning.is_online or self._now < self._report_at:
            return []
        self._report_at = self._now + self._learning.report_seconds
        heard = [told for event in self._inner.execute([Survey()]) for told in self._heard(event)]
        return [event for event in heard if not isinstance(event, Surveyed)]


class _Budget:
    """Chooses the cells to profile: never more than the given share of all cells seen so far."""

    def __init__(self, learning: Learning) -> None:
        self.met_cells = self.spent_cells = 0
        self._learning = learning
        self._met: set[tuple[str, int]] = set()  # models with their gangs
        self._profiled: set[tuple[str, int]] = set()
        self._families: set[str] = set()  # of which a class was profiled

    def spend(self, job: Job) -> tuple[Shape, ...]:
        """The cells to profile before this job is submitted:
        some if its class was never profiled and the budget allows it."""
        kind = (job.model, job.gpus)
        if kind in self._profiled:
            return ()
        shapes = sorted({option.shape for option in job.options})
        if kind not in self._met:
            self._met.add(kind)
            self.met_cells += len(shapes)
        order = random_stream(self._learning.seed, "cells", *map(str, kind)).permutation(len(shapes)).tolist()
        chosen = sorted(order[: self._affordable(family_of(job.model), len(shapes))])
        self.spent_cells += len(chosen)
        if chosen:
            self._profiled.add(kind)
            self._families.add(family_of(job.model))
        return tuple(shapes[index] for index in chosen)

    def _affordable(self, family: str, cells: int) -> int:
        share = self._learning.profile_share
        left = share * self.met_cells - self.spent_cells + 1e-9
        if not self._learning.profile_whole:
            return int(left)
        # Families that were never profiled come first: much is known about the others.
        known_factor = WAIT_FOR_NEW_FAMILY if family in self._families and share < 1.0 else 1.0
        return cells if known_factor * cells <= left else 0


@dataclass(slots=True)
class _Watch:
    """A lease whose speed is measured: since which time and step."""

    epoch: int
    job: Job
    shape: Shape  # as the job asked for it
    ordered_at: float
    at: float  # productive since, or last reported
    steps: float
    is_sure: bool  # whether both are known exactly
    stale_seconds: float = 0.0  # the maximum age of the steps when they were reported


class _Watches:
    """The leases of jobs with exclusive GPUs, and the progress of each."""

    def __init__(self, levels: Sequence[str], checkpoint_seconds: float) -> None:
        self._levels = tuple(levels)
        self._checkpoint_seconds = checkpoint_seconds
        self._epoch: dict[str, int] = {}  # of the last lease of each job that ever started
        self._watched: dict[str, _Watch] = {}

    def start(self, command: Start, now: float, jobs: Mapping[str, Job]) -> None:
        """Begins to measure a lease; where two jobs share the GPUs neither has its own speed,
        and nothing is measured."""
        for job_id, steps in zip(command.job_ids, command.steps_done, strict=True):
            job, former = jobs.get(job_id), self._watched.get(job_id)
            if job is None or self._epoch.get(job_id) == command.epoch:
                continue  # no model to learn about, or a duplicate
            self._watched.pop(job_id, None)
            shape = _asked_for(job, command.shape, self._levels)
            if shape is not None and len(command.job_ids) == 1:
                productive_at = now + (job.restart_seconds if job_id in self._epoch else 0.0)
                # If the end of its former lease was not seen, its progress is unknown.
                is_sure = former is None
                self._watched[job_id] = _Watch(command.epoch, job, shape, now, productive_at, steps, is_sure)
            self._epoch[job_id] = command.epoch

    def confirm(self, event: JobStarted) -> None:
        watch = self._watched.get(event.job_id)
        if watch is not None and watch.epoch == event.epoch and event.at > watch.ordered_at + START_SECONDS_MAX:
            watch.is_sure = False

    def report(self, at: float, job_id: str, epoch: int, steps: float, *, is_survey: bool = False) -> Reading | None:
        """The speed measured since the last report."""
        watch = self._watched.get(job_id)
        if watch is None or watch.epoch != epoch or not isfinite(steps):
            return None
        seconds = at - watch.at
        if seconds < SECONDS_MIN or steps <= watch.steps:
            return None
        fresh_stale_seconds = self._checkpoint_seconds if is_survey else 0.0
        stale_seconds = watch.stale_seconds + fresh_stale_seconds
        reading = Reading(watch.job.model, watch.shape, (steps - watch.steps) / seconds, seconds, stale_seconds)
        is_sure = watch.is_sure
        watch.at, watch.steps, watch.is_sure, watch.stale_seconds = at, steps, True, fresh_stale_seconds
        return reading if is_sure else None

    def is_current(self, event: JobEnded) -> bool:
        return self._epoch.get(event.job_id) == event.epoch

    def end(self, event: JobEnded) -> Reading | None:
        reading = None
        if event.ending in (Ending.FINISHED, Ending.STOPPED):  # otherwise the work since the last save is lost
            reading = self.report(event.at, event.job_id, event.epoch, event.steps)
        watch = self._watched.get(event.job_id)
        if watch is not None and watch.epoch == event.epoch:
            del self._watched[event.job_id]
        return reading

    def forget(self, job_id: str) -> None:
        self._epoch.pop(job_id, None)


class _Beliefs:
    """The speeds that the scheduler was given, and the estimates behind them."""

    def __init__(self, estimator: Estimator, learning: Learning) -> None:
        self.estimator = estimator.refitted()
        self._learning = learning
        self._fitted_cells = len(estimator.cells)
        self._considered = dict(estimator.cells)  # cells when beliefs were last updated
        self._is_changed = False  # whether beliefs may have to be updated
        self._believed: dict[Asked, float] = {}

    def take_profile(self, model: str, shape: Shape, steps_per_second: float) -> None:
        noise = self._learning.profile_noise
        factor = lognormal(random_stream(self._learning.seed, "profile", model, *map(str, shape)), noise)
        self.estimator = self.estimator.profiled(model, shape, steps_per_second * factor, noise)
        self._consider(key_of(model, shape))

    def take(self, reading: Reading) -> None:
        self.estimator = self.estimator.observed(*reading)
        self._consider(key_of(reading.model, reading.shape))

    def of_job(self, job: Job) -> Job:
        options = [(job.model, option.shape) for option in job.options]
        self._follow([asked for asked in options if asked not in self._believed])
        return with_beliefs(job, lambda job, option: self._believed[job.model, option.shape])

    def moved(self) -> list[tuple[Asked, float]]:
        """Beliefs that have changed since the last call."""
        if not self._is_changed:
            return []
        self._is_changed = False
        if len(self.estimator.cells) >= REFIT_GROWTH * self._fitted_cells:
            self.estimator = self.estimator.refitted()
            self._fitted_cells = len(self.estimator.cells)
        return [(asked, self._believed[asked]) for asked in self._follow(list(self._believed))]

    def _consider(self, key: Key) -> None:
        """Whether a cell has changed enough to update beliefs: most measurements confirm what was known."""
        cell, before = self.estimator.cells[key], self._considered.get(key)
        if before is None or _differs(cell, before, self._learning.threshold):
            self._considered[key] = cell
            self._is_changed = True

    def _follow(self, asked: Sequence[Asked]) -> list[Asked]:
        """Updates these beliefs. Changes below the threshold are dropped, so that jobs of a class stay alike."""
        self.estimator = self.estimator.knowing(shape for _, shape in asked)
        moved = []
        for one, estimate in zip(asked, self.estimator.estimates(asked), strict=True):
            speed, before = estimate.low(self._learning.caution), self._believed.get(one)
            if before is None or abs(log(speed / before)) > log1p(self._learning.threshold):
                self._believed[one] = speed
                moved.append(one)
        return moved


def with_beliefs(job: Job, belief: Belief) -> Job:
    """The job with estimated speeds; where the fastest type came first, the one estimated fastest comes first now."""
    options = tuple(Option(option.shape, belief(job, option)) for option in job.options)
    if _is_fastest_first(job.options):
        best = {option.shape.accelerator: option.steps_per_second for option in reversed(options)}
        options = tuple(sorted(options, key=lambda option: -best[option.shape.accelerator]))
    return replace(job, options=options)


def _is_fastest_first(options: Sequence[Option]) -> bool:
    """Whether types are sorted by speed, as trace readers sort types for which a job states no preference."""
    speeds: dict[str, float] = {}
    for option in options:
        speeds.setdefault(option.shape.accelerator, option.steps_per_second)
    return all(sooner >= later for sooner, later in pairwise(speeds.values()))


def _asked_for(job: Job, obtained: Shape, levels: Sequence[str]) -> Shape | None:
    """The tightest shape a job accepts that allows the one obtained: its speed applies there."""
    found = [option.shape for option in job.options if _allows(option.shape, obtained, levels)]
    return min(found, key=lambda shape: levels.index(shape.level), default=None)


def _allows(asked: Shape, obtained: Shape, levels: Sequence[str]) -> bool:
    is_same_gang = asked[:2] == obtained[:2] and asked.level in levels
    return is_same_gang and levels.index(obtained.level) <= levels.index(asked.level)


def _differs(cell: MeasuredSpeed, before: MeasuredSpeed, threshold: float) -> bool:
    return abs(cell.log_speed - before.log_speed) > threshold / 3.0 or cell.variance < before.variance / 4.0


def lognormal(stream: np.random.Generator, noise: float) -> float:
    """A factor with mean 1 and this standard deviation."""
    variance = log1p(noise**2)
    return exp(sqrt(variance) * float(stream.standard_normal()) - variance / 2.0)


def random_stream(seed: int, purpose: str, *names: str) -> np.random.Generator:
    """A random stream for this purpose and item alone, so that draws do not depend on their order."""
    return np.random.default_rng([seed, *"\n".join((purpose, *names)).encode()])


def _bad(field: str, value: object, remedy: str) -> InputError:
    return InputError(f"is {value!r}", field=field, remedy=remedy)
