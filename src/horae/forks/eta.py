"""When a job starts and ends: the median and an interval over draws of what is not known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor
from random import Random

from horae.forks.beliefs import Beliefs, PastJob
from horae.forks.forward import Watch, live_jobs, run_forward, steps_done
from horae.model.jobs import Arrival
from horae.scheduler import Scheduler

DRAWS = 20
HORIZON_SECONDS = 30 * 86_400.0
LOW, HIGH = 0.05, 0.95


@dataclass(frozen=True)
class Moments:
    """A time that is not certain. Infinite: not within the horizon."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Moments:
        """The truth is one more draw: with n values it lies between the first and the last in n - 1 of n + 1 cases."""
        ordered, count = sorted(values), len(values)
        low, high = floor(LOW * (count + 1)), ceil(HIGH * (count + 1))
        return cls(ordered[ceil(0.5 * count) - 1], ordered[max(low, 1) - 1], ordered[min(high, count) - 1])


@dataclass(frozen=True)
class Eta:
    job_id: str
    asked_at: float
    starts: Moments | None  # None: it runs already
    ends: Moments
    draws: int
    cut_off: int  # draws that the time budget ended before the job did: their times count as beyond the horizon


@dataclass(frozen=True)
class Draw:
    """One possible future of one job."""

    starts_at: float
    ends_at: float
    is_cut_off: bool = False


def run_seconds(scheduler: Scheduler) -> dict[str, float]:
    """How long each live job has run, in seconds of its first shape."""
    steps = steps_done(scheduler)
    found: dict[str, float] = {}
    for job_id, (pool, serial) in scheduler.jobs.live.items():
        running, number = scheduler.jobs.on_gpus(job_id) or (pool, serial)
        row = running.table.row[number]
        speed = float(running.table.speed[row, 0])
        found[job_id] = float(steps[running.spec.name][row]) / speed if speed > 0 else 0.0
    return found


def running_jobs(scheduler: Scheduler) -> list[PastJob]:
    """The live jobs that have run, with how long so far."""
    jobs = live_jobs(scheduler)
    return [PastJob(jobs[job_id], seconds) for job_id, seconds in run_seconds(scheduler).items() if seconds > 0]


def draw(
    scheduler: Scheduler,
    job_id: str,
    beliefs: Beliefs,
    seed: int,
    is_over: Callable[[], bool] = lambda: False,
    *,
    only_start: bool = False,
) -> Draw:
    """One possible future; the scheduler is changed: give it a copy. `is_over`: whether the time budget is used up.

    With `only_start` it is left when the job starts.
    """
    rng = Random(f"{seed}")
    now = scheduler.now
    until = now + HORIZON_SECONDS
    runs = scheduler.jobs.on_gpus(job_id) is not None
    watch, cut = Watch(), [False]
    answered = watch.started if only_start else watch.ended
    jobs = live_jobs(scheduler)
    truths = beliefs.truths(jobs, run_seconds(scheduler), rng)

    def enough() -> bool:
        cut[0] = is_over()
        return cut[0] or job_id in answered or scheduler.now >= until

    later = beliefs.arrivals(now, until, rng, (Arrival(job, truths[job_id]) for job_id, job in jobs.items()))
    run_forward(scheduler, truths, later, [watch], enough)
    is_cut = cut[0] and job_id not in watch.ended
    return Draw(now if runs else watch.starts_at(job_id), watch.ends_at(job_id), is_cut)


def summarise(job_id: str, asked_at: float, draws: Sequence[Draw], *, runs: bool) -> Eta:
    starts = None if runs else Moments.of([each.starts_at for each in draws])
    ends = Moments.of([each.ends_at for each in draws])
    return Eta(job_id, asked_at, starts, ends, len(draws), sum(each.is_cut_off for each in draws))


def eta(
    copy: Callable[[], Scheduler],
    job_id: str,
    beliefs: Beliefs,
    *,
    draws: int = DRAWS,
    seed: int = 0,
    is_over: Callable[[], bool] = lambda: False,
) -> Eta:
    """Draws one after the other until there are enough, or the time budget is used up; at least one.

    Where all lengths are known and no arrivals are expected, one draw is all there is.
    """
    made: list[Draw] = []
    first = copy()
    asked_at, runs = first.now, first.jobs.on_gpus(job_id) is not None
    is_certain = not beliefs.past and all(job.steps_total is not None for job in live_jobs(first).values())
    while len(made) < (1 if is_certain else draws):
        made.append(draw(copy() if made else first, job_id, beliefs, seed + len(made), is_over))
        if is_over():
            break
    return summarise(job_id, asked_at, made, runs=runs)
