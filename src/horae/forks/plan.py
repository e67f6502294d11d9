"""What a new job would do: when it would start and end, and which jobs it would delay.

Each draw is run twice, with and without the job, with the same lengths and later jobs: the difference is the job's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from random import Random
from statistics import median

from horae.forks.beliefs import Beliefs
from horae.forks.eta import HORIZON_SECONDS, Moments
from horae.forks.forward import Watch, run_forward
from horae.forks.present import Present
from horae.model.jobs import Arrival, Job
from horae.scheduler import Scheduler

NOTABLE_SECONDS = 60.0  # smaller differences are not shown


@dataclass(frozen=True)
class Delay:
    """The change of a job's end, in the median of the draws in which it ends with and without the new job."""

    job_id: str
    seconds: float  # negative: it ends sooner


@dataclass(frozen=True)
class Plan:
    asked_at: float
    starts: Moments
    ends: Moments
    shapes: tuple[str, ...]  # in which it would start, the most frequent first
    delays: tuple[Delay, ...]  # the largest first
    draws: int
    cut_off: int  # draws that the time budget ended: their times count as beyond the horizon


def future(
    scheduler: Scheduler,
    job: Job | None,
    beliefs: Beliefs,
    seed: int,
    is_over: Callable[[], bool] = lambda: False,
    *,
    present: Present | None = None,
) -> Watch:
    """Runs until all jobs that are there now have ended, and the new one; the scheduler is changed: give it a copy.

    `present` is that of the scheduler, where it is known already.
    """
    rng = Random(f"{seed}")
    now = scheduler.now
    present = present or Present.of(scheduler)
    jobs = present.jobs
    truths = beliefs.truths(jobs, present.run_seconds, rng)
    length = Random(f"{seed} new")  # apart, so that all else is drawn as without it
    new = [] if job is None else [Arrival(job, beliefs.truth(job, 0.0, length))]
    awaited = {*jobs, *(each.job.id for each in new)} - set(scheduler.jobs.suspended)
    seen = Watch()

    def enough() -> bool:
        return awaited <= seen.ended.keys() or is_over() or scheduler.now >= now + HORIZON_SECONDS

    live = (Arrival(each, truths[job_id]) for job_id, each in jobs.items())
    later = beliefs.arrivals(now, now + HORIZON_SECONDS, rng, live)
    run_forward(scheduler, truths, chain(new, later), [seen], enough, present=present)
    return seen


def summarise(job_id: str, asked_at: float, pairs: Sequence[tuple[Watch, Watch]], cut_off: int = 0) -> Plan:
    """The plan from pairs of futures, without the job and with it."""
    starts = [beside.starts_at(job_id) for _, beside in pairs]
    ends = [beside.ends_at(job_id) for _, beside in pairs]
    shapes = [beside.shapes[job_id] for _, beside in pairs if job_id in beside.shapes]
    changes: dict[str, list[float]] = {}
    for without, beside in pairs:
        for each in without.ended.keys() & beside.ended.keys():
            changes.setdefault(each, []).append(beside.ended[each] - without.ended[each])
    delays = [Delay(each, median(found)) for each, found in changes.items()]
    notable = sorted(
        (each for each in delays if abs(each.seconds) >= NOTABLE_SECONDS), key=lambda each: (-each.seconds, each.job_id)
    )
    ranked = sorted(set(shapes), key=lambda each: (-shapes.count(each), each))
    return Plan(
        asked_at, Moments.of(starts), Moments.of(ends), tuple(ranked), tuple(notable), len(pairs) + cut_off, cut_off
    )
