"""Finish-time fairness of apps (Themis, NSDI'20): rho = T_sh / T_id, in three definitions that are always named."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from horae.model.arrays import Bools, Floats, Ints
from horae.reports import UNFAIR_ABOVE
from horae.reports.groups import Groups, Sample, sums_by
from horae.reports.run_log import CANCELLED, FINISHED, REFUSED, RunLog

TOLERANCE = 1e-6  # beyond that, rho is over it; the length of a minute in Unix time is known to 1e-8


@dataclass(frozen=True)
class AppFairness:
    """One row per app in its pool, of the apps that were accepted."""

    of_job: Ints  # by row of the log's jobs: the row of its app here; -1 if it was refused
    first_job: Ints  # row of the first of its jobs
    pool: Ints
    submitted_at: Floats  # of the first of its jobs
    ended_at: Floats  # of the last; the end of the log where one has not ended
    gpu_seconds: Floats  # W: what its jobs take alone in their reference shapes
    gpus: Ints  # the most that its jobs asked for at a time
    apps_average: Floats  # N: apps alive in the pool, averaged over this app's life
    static_contention: Floats  # the pool's jobs of the whole run for each of its GPUs, at least 1
    pool_gpus: Ints  # C
    counted: Bools  # all its jobs finished or were cancelled, and there was work
    rho_paper: Floats  # T_id = W / min(C, gangs) x N
    rho_private: Floats  # T_id = W / min(C / N, gangs)
    rho_static: Floats  # T_id = W / min(C, gangs) x static contention


def apps(log: RunLog) -> AppFairness:
    jobs = log.jobs
    rows = np.flatnonzero((jobs.outcome != REFUSED) & (jobs.pool >= 0))
    app, count = _number_apps(log, rows)
    of_job = np.full(len(jobs), -1, dtype=np.int64)
    of_job[rows] = app
    ended_at = np.where(np.isnan(jobs.ended_at[rows]), log.until, jobs.ended_at[rows])
    first_job = np.full(count, len(jobs), dtype=np.int64)
    np.minimum.at(first_job, app, rows)
    submitted, ended = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(submitted, app, jobs.submitted_at[rows])
    np.maximum.at(ended, app, ended_at)
    work = sums_by(app, jobs.ideal_seconds[rows] * jobs.gpus[rows], count)
    gangs = _peak(app, count, jobs.gpus[rows], jobs.submitted_at[rows], ended_at)
    whole = np.isin(jobs.outcome[rows], (FINISHED, CANCELLED))
    pool = jobs.pool[first_job]
    pool_gpus = log.cluster.gpus_by_pool[pool]
    jobs_in_pool = np.bincount(jobs.pool[rows], minlength=len(log.cluster.pools))[pool]
    static = np.maximum(jobs_in_pool / np.maximum(pool_gpus, 1), 1.0)
    average = _average_alive(pool, submitted, ended)
    counted = (np.bincount(app, ~whole, minlength=count) == 0) & (work > 0)
    shared, at_most = ended - submitted, np.minimum(pool_gpus, gangs)
    with np.errstate(divide="ignore", invalid="ignore"):
        return AppFairness(
            of_job, first_job, pool, submitted, ended, work, gangs, average, static, pool_gpus, counted,
            rho_paper=shared / (work / at_most * average),
            rho_private=shared / (work / np.minimum(pool_gpus / average, gangs)),
            rho_static=shared / (work / at_most * static),
        )  # fmt: skip


def _number_apps(log: RunLog, rows: Ints) -> tuple[Ints, int]:
    """By row: the number of its app, and the number of apps. An app in two pools counts as two."""
    jobs, pools = log.jobs, len(log.cluster.pools)
    own = len(log.apps) + rows
    key = np.where(jobs.app[rows] >= 0, jobs.app[rows], own) * pools + jobs.pool[rows]
    used = np.zeros((len(log.apps) + len(jobs)) * pools, dtype=bool)
    used[key] = True
    return (np.cumsum(used) - 1)[key], int(used.sum())


def _peak(app: Ints, apps: int, gpus: Ints, submitted_at: Floats, ended_at: Floats) -> Ints:
    """By app: the largest sum of the gangs of its jobs that were present at a time."""
    owner = np.concatenate([app, app])
    change = np.concatenate([gpus, -gpus])
    times = np.concatenate([submitted_at, ended_at])
    order = np.lexsort((change > 0, times, owner))  # a job that ends makes room for one that arrives at that time
    owner, running = owner[order], np.cumsum(change[order])  # every app returns to zero at its end
    peak = np.zeros(apps, dtype=np.int64)
    np.maximum.at(peak, owner, running)
    # A job that ends as it arrives counts nevertheless.
    np.maximum.at(peak, app, gpus)
    return peak


def _average_alive(pool: Ints, submitted_at: Floats, ended_at: Floats) -> Floats:
    """By app: the number of apps alive in its pool, averaged over its life; 1 for a life of no length."""
    average = np.ones(len(pool))
    for index in np.unique(pool):
        rows = np.flatnonzero(pool == index)
        times = np.concatenate((submitted_at[rows], ended_at[rows]))
        order = np.argsort(times, kind="stable")
        alive = np.cumsum(np.where(order < len(rows), 1, -1))
        integral = np.empty(len(times))  # of the number alive, up to each of the times
        integral[order] = np.concatenate(([0.0], np.cumsum(alive[:-1] * np.diff(times[order]))))
        starts, ends = slice(len(rows)), slice(len(rows), None)
        life, grown = times[ends] - times[starts], integral[ends] - integral[starts]
        average[rows] = np.divide(grown, life, out=np.ones(len(rows)), where=life > 0)
    return average


@dataclass(frozen=True, slots=True)
class Fairness:
    """The rho of some apps, in one of its definitions; nan where there are none."""

    apps: int
    unfair_share: float  # of apps with rho above the threshold, beyond rounding; the threshold is 1 by default
    max: float
    mean: float
    p99: float
    jain: float  # (sum rho)^2 / (apps x sum rho^2): 1 when all are treated alike


def fairness(rho: Sample, groups: Groups, unfair_above: float = UNFAIR_ABOVE) -> list[Fairness]:
    """Fairness statistics by group."""
    count = groups.counts(rho.chosen)
    mean = groups.means(rho)
    largest, p99 = groups.quantiles(rho, (1.0, 0.99))
    with np.errstate(invalid="ignore"):
        unfair = groups.counts(rho.chosen & (rho.values > unfair_above + TOLERANCE)) / count
        jain = mean**2 / groups.means(Sample(rho.values**2, rho.chosen))
    columns = (count, unfair, largest, mean, p99, jain)
    return [Fairness(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]
