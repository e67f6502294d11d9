"""The log of a run as polars data frames: names instead of numbers, one row per job, lease or app."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from horae.model.arrays import Floats, Ints
from horae.reports.rho import AppFairness, apps
from horae.reports.run_log import ENDINGS, OUTCOMES, RunLog


def jobs_frame(log: RunLog) -> pl.DataFrame:
    """One row per job. Times are seconds from the start of the run, null where a job never started or ended.

    The accelerator is that of its last lease. rho is that of the job's app; null where it does not enter the metrics.
    """
    jobs, fairness = log.jobs, apps(log)
    last_type = np.full(len(jobs), -1)
    last_type[log.leases.job] = log.leases.accelerator  # leases are in the order of their ends
    preemptions = np.bincount(log.leases.job[log.leases.preempted], minlength=len(jobs))
    return pl.DataFrame(
        {
            "id": jobs.id,
            "tenant": _named(log.tenants, jobs.tenant),
            "user": _named(log.users, jobs.user),
            "app": [log.apps[app] if app >= 0 else job_id for app, job_id in zip(jobs.app, jobs.id, strict=True)],
            "model": _named(log.models, jobs.model),
            "pool": _named(log.cluster.pools, jobs.pool),
            "gpus": jobs.gpus,
            "accelerator": _named(log.cluster.accelerators, last_type),
            "outcome": _named(OUTCOMES, jobs.outcome),
            "submitted_at": jobs.submitted_at,
            "started_at": jobs.started_at,
            "ended_at": jobs.ended_at,
            "completion_seconds": jobs.ended_at - jobs.submitted_at,
            "waiting_seconds": jobs.ended_at - jobs.submitted_at - log.run_seconds,
            "run_seconds": log.run_seconds,
            "gpu_seconds": log.gpu_seconds,
            "starts": log.starts,
            "preemptions": preemptions,
            "rho_paper": _of_app(fairness, fairness.rho_paper),
            "rho_private": _of_app(fairness, fairness.rho_private),
        }
    ).fill_nan(None)


def leases_frame(log: RunLog) -> pl.DataFrame:
    """One row per lease, in the order of their ends."""
    leases = log.leases
    return pl.DataFrame(
        {
            "job": [log.jobs.id[row] for row in leases.job.tolist()],
            "accelerator": _named(log.cluster.accelerators, leases.accelerator),
            "gpus": leases.gpus,
            "started_at": leases.started_at,
            "ended_at": leases.ended_at,
            "restart_seconds": leases.restart_seconds,
            "ending": _named(ENDINGS, leases.ending),
        }
    )


def apps_frame(log: RunLog) -> pl.DataFrame:
    """One row per app that was accepted, with its finish-time fairness in three definitions (see `reports.rho`).

    `counted` tells which apps enter the metrics: those of which all jobs have finished or were cancelled.
    """
    found = apps(log)
    first = found.first_job.tolist()
    names = [log.apps[log.jobs.app[row]] if log.jobs.app[row] >= 0 else log.jobs.id[row] for row in first]
    return pl.DataFrame(
        {
            "app": names,
            "tenant": _named(log.tenants, log.jobs.tenant[found.first_job]),
            "pool": _named(log.cluster.pools, found.pool),
            "submitted_at": found.submitted_at,
            "ended_at": found.ended_at,
            "gpu_seconds": found.gpu_seconds,
            "counted": found.counted,
            "rho_paper": found.rho_paper,
            "rho_private": found.rho_private,
            "rho_static": found.rho_static,
        }
    ).fill_nan(None)


def _of_app(fairness: AppFairness, rho: Floats) -> Floats:
    """By job: the rho of its app; nan where it has none."""
    known = np.append(np.where(fairness.counted, rho, np.nan), np.nan)  # the last is for jobs without an app
    return known[fairness.of_job]


def _named(names: Sequence[str], numbers: Ints) -> list[str | None]:
    return [names[number] if number >= 0 else None for number in numbers.tolist()]
