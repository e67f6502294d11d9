"""When a job starts and ends: the median and an interval over draws of what is not known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor, inf
from random import Random

from horae.forks.beliefs import Beliefs
from horae.forks.forward import Watch, run_forward
from horae.forks.present import Present
from horae.model.jobs import Arrival, Truth
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
    cut_off: int  # draws that the time budget ended before the job started: they tell nothing
    estimated: int  # draws that were left after the job had started: its end is an estimate


@dataclass(frozen=True)
class Draw:
    """One possible future of one job."""

    starts_at: float
    ends_at: float
    is_cut_off: bool = False
    is_estimated: bool = False  # its end


def draw(
    scheduler: Scheduler,
    job_id: str,
    beliefs: Beliefs,
    seed: int,
    is_over: Callable[[], bool] = lambda: False,
    is_late: Callable[[], bool] = lambda: False,
    *,
    only_start: bool = False,
    present: Present | None = None,
) -> Draw:
    """One possible future; the scheduler is changed: give it a copy.

    `is_over`: whether the time budget is used up; `is_late`: whether the draw has used its part of it, so that it is
    left once the job has started. With `only_start` it is left then in any case. `present` is that of the scheduler,
    where it is known already.
    """
    rng = Random(f"{seed}")
    now = scheduler.now
    until = now + HORIZON_SECONDS
    watch, is_left = Watch(), [False]
    if scheduler.jobs.on_gpus(job_id) is not None:
        watch.started[job_id] = now
    present = present or Present.of(scheduler)
    truths = beliefs.truths(present.jobs, present.run_seconds, rng)

    def enough() -> bool:
        is_left[0] = is_over() or (job_id in watch.started and (only_start or is_late()))
        return is_left[0] or job_id in watch.ended or scheduler.now >= until

    live = (Arrival(job, truths[job_id]) for job_id, job in present.jobs.items())
    later = beliefs.arrivals(now, until, rng, live)
    run_forward(scheduler, truths, later, [watch], enough, present=present)
    starts_at, ends_at = watch.starts_at(job_id), watch.ends_at(job_id)
    if not is_left[0] or ends_at < inf:
        return Draw(starts_at, ends_at)
    if starts_at == inf:
        return Draw(inf, inf, is_cut_off=True)
    estimate = _estimated_end(scheduler, job_id, truths[job_id])
    return Draw(starts_at, estimate if estimate <= until else inf, is_estimated=True)


def _estimated_end(scheduler: Scheduler, job_id: str, truth: Truth) -> float:
    """When a job ends if it keeps the share of the time that the policy gives it now, or else its GPUs."""
    if job_id not in scheduler.jobs.live:
        return inf  # it was cancelled, suspended or has failed
    pool, serial = scheduler.jobs.on_gpus(job_id) or scheduler.jobs.live[job_id]
    table, row = pool.table, pool.table.row[serial]
    left = max(truth.steps_total - float(table.view(scheduler.now).steps_done[row]), 0.0)
    speed = float(table.target[row] @ table.speed[row]) or float(table.speed[row, max(int(table.option[row]), 0)])
    works_at = max(scheduler.now, float(table.productive_at[row]))
    return works_at + left / speed if speed > 0 else inf


def summarise(job_id: str, asked_at: float, draws: Sequence[Draw], *, runs: bool) -> Eta | None:
    """None: the time budget has cut all draws off."""
    told = [each for each in draws if not each.is_cut_off]
    if not told:
        return None
    starts = None if runs else Moments.of([each.starts_at for each in told])
    ends = Moments.of([each.ends_at for each in told])
    estimated = sum(each.is_estimated for each in told)
    return Eta(job_id, asked_at, starts, ends, len(draws), len(draws) - len(told), estimated)


def eta(
    copy: Callable[[], Scheduler],
    job_id: str,
    beliefs: Beliefs,
    *,
    draws: int = DRAWS,
    seed: int = 0,
    is_over: Callable[[], bool] = lambda: False,
) -> Eta | None:
    """Draws one after the other until there are enough, or the time budget is used up; at least one. None: that tells
    nothing.

    Where all lengths are known and no arrivals are expected, one draw is all there is.
    """
    made: list[Draw] = []
    first = copy()
    asked_at, runs = first.now, first.jobs.on_gpus(job_id) is not None
    is_certain = not beliefs.past and all(job.steps_total is not None for job in Present.of(first).jobs.values())
    while len(made) < (1 if is_certain else draws):
        made.append(draw(copy() if made else first, job_id, beliefs, seed + len(made), is_over))
        if is_over():
            break
    return summarise(job_id, asked_at, made, runs=runs)
