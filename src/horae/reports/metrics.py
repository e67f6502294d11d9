"""The metrics of a run. Each is defined in words and as a formula in docs/reference/metrics.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from math import isnan
from typing import Any, NamedTuple

import numpy as np

from horae.model.arrays import Floats, Ints
from horae.model.serialization import Plain
from horae.reports import UNFAIR_ABOVE, usage
from horae.reports.groups import Groups, Sample
from horae.reports.rho import AppFairness, Fairness, apps, fairness
from horae.reports.run_log import OUTCOMES, RunLog

RHOS = ("rho_paper", "rho_private", "rho_static")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetrics:
    """Metrics of the jobs of one group. Times are of jobs that finished; nan where there are none."""

    jobs: int
    finished: int
    failed: int
    cancelled: int
    unfinished: int  # accepted, and not ended
    refused: int  # they can never run
    completion_mean_seconds: float  # from submission to end
    completion_median_seconds: float
    completion_p90_seconds: float
    completion_p99_seconds: float
    queueing_mean_seconds: float  # from submission to first start
    queueing_p99_seconds: float
    waiting_mean_seconds: float  # from submission to end, less the time on GPUs
    preemptions: int  # leases that the scheduler ended before the job had
    restarts: int  # starts beyond the first
    restart_gpu_hours: float  # GPU-hours lost to resuming
    gpu_hours: float  # held; two jobs that share GPUs have half each
    cost: float  # GPU-hours at the price of their nodes
    deadlines: int  # jobs that have one
    deadlines_missed: int  # not finished by then
    deadlines_missed_share: float
    apps_left_out: int  # without a rho: a job has not ended or failed, or there was no work
    rho_paper: Fairness  # T_id: alone on the pool, times the number of apps
    rho_private: Fairness  # T_id: alone on the pool's GPUs over the number of apps
    rho_static: Fairness  # T_id: alone on the pool, times the pool's jobs of the whole run over its GPUs


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics(GroupMetrics):
    makespan_seconds: float  # from the first submission to the last end
    utilisation: float  # GPU-seconds held / (GPUs x makespan)
    utilisation_by_accelerator: Mapping[str, float]
    fragmentation: float  # share of idle GPU-seconds that lay in nodes partly in use
    tenants: Mapping[str, GroupMetrics]
    users: Mapping[str, GroupMetrics]  # users with a name

    def plain(self) -> dict[str, Plain]:
        """The metrics as plain data; JSON has no number for the mean of nothing."""
        return _plain(self)


def measure(log: RunLog, unfair_above: float = UNFAIR_ABOVE) -> Metrics:
    """All metrics of a run; an app with a rho above this threshold counts as treated unfairly."""
    facts = _facts(log, unfair_above)
    everyone = Groups(np.zeros(len(log.jobs), dtype=np.int64), 1)
    named = np.array([bool(name) for name in log.users], dtype=bool)[log.jobs.user]
    (overall,) = _measure(facts, everyone)
    by_tenant = _measure(facts, Groups(log.jobs.tenant, len(log.tenants)))
    by_user = _measure(facts, Groups(np.where(named, log.jobs.user, -1), len(log.users)))
    span_seconds = usage.window(log).seconds
    busy, gpus = usage.busy_gpu_seconds(log), log.cluster.gpus_by_accelerator
    by_type = busy / (gpus * span_seconds) if span_seconds else np.zeros(len(gpus))
    return Metrics(
        **overall,
        makespan_seconds=span_seconds,
        utilisation=float(busy.sum()) / (len(log.cluster) * span_seconds) if span_seconds else 0.0,
        utilisation_by_accelerator=dict(zip(log.cluster.accelerators, by_type.tolist(), strict=True)),
        fragmentation=usage.fragmentation(log),
        tenants={name: GroupMetrics(**row) for name, row in zip(log.tenants, by_tenant, strict=True)},
        users={name: GroupMetrics(**row) for name, row in zip(log.users, by_user, strict=True) if name},
    )


class _Facts(NamedTuple):
    """Intermediate results computed once for all groupings."""

    log: RunLog
    completion: Sample
    queueing: Sample
    waiting: Sample
    lease_cost: Floats
    lost_gpu_seconds: Floats  # by lease
    apps: AppFairness
    rho: Mapping[str, Sample]
    unfair_above: float


def _facts(log: RunLog, unfair_above: float) -> _Facts:
    jobs, leases, app_columns = log.jobs, log.leases, apps(log)
    completion = jobs.ended_at - jobs.submitted_at
    return _Facts(
        log=log,
        completion=Sample(completion, log.finished),
        queueing=Sample(jobs.started_at - jobs.submitted_at, log.finished),
        waiting=Sample(completion - log.run_seconds, log.finished),
        lease_cost=usage.cost(log),
        lost_gpu_seconds=leases.restart_gpu_seconds,
        apps=app_columns,
        rho={name: Sample(getattr(app_columns, name), app_columns.counted) for name in RHOS},
        unfair_above=unfair_above,
    )


def _measure(facts: _Facts, groups: Groups) -> list[dict[str, Any]]:
    """The metric fields of each group."""
    columns = {
        **_counts(facts.log, groups),
        **_times(facts, groups),
        **_leases(facts, groups),
        **_deadlines(facts.log, groups),
        **_fairness(facts, groups),
    }
    lists = {name: column if isinstance(column, list) else column.tolist() for name, column in columns.items()}
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]


_Columns = dict[str, Floats | Ints | list[Fairness]]


def _counts(log: RunLog, groups: Groups) -> _Columns:
    outcomes = {name: groups.counts(log.jobs.outcome == code) for code, name in enumerate(OUTCOMES)}
    return {"jobs": groups.counts(), **outcomes}


def _times(facts: _Facts, groups: Groups) -> _Columns:
    median, p90, p99 = groups.quantiles(facts.completion, (0.5, 0.9, 0.99))
    return {
        "completion_mean_seconds": groups.means(facts.completion),
        "completion_median_seconds": median,
        "completion_p90_seconds": p90,
        "completion_p99_seconds": p99,
        "queueing_mean_seconds": groups.means(facts.queueing),
        "queueing_p99_seconds": groups.quantiles(facts.queueing, (0.99,))[0],
        "waiting_mean_seconds": groups.means(facts.waiting),
    }


def _leases(facts: _Facts, groups: Groups) -> _Columns:
    leases = facts.log.leases
    by_lease = Groups(groups.group[leases.job], groups.count)
    return {
        "preemptions": by_lease.counts(leases.preempted),
        "restarts": groups.sums(np.maximum(facts.log.starts - 1, 0)).astype(np.int64),
        "restart_gpu_hours": by_lease.sums(facts.lost_gpu_seconds) / 3600,
        "gpu_hours": by_lease.sums(leases.gpu_seconds) / 3600,
        "cost": by_lease.sums(facts.lease_cost),
    }


def _deadlines(log: RunLog, groups: Groups) -> _Columns:
    jobs = log.jobs
    has_one = np.isfinite(jobs.deadline_at)
    met = log.finished & (jobs.ended_at <= jobs.deadline_at)
    deadlines, missed = groups.counts(has_one), groups.counts(has_one & ~met)
    with np.errstate(invalid="ignore"):
        return {"deadlines": deadlines, "deadlines_missed": missed, "deadlines_missed_share": missed / deadlines}


def _fairness(facts: _Facts, groups: Groups) -> _Columns:
    by_app = Groups(groups.group[facts.apps.first_job], groups.count)
    rho: _Columns = {name: fairness(sample, by_app, facts.unfair_above) for name, sample in facts.rho.items()}
    return {"apps_left_out": by_app.counts(~facts.apps.counted), **rho}


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return None if isinstance(value, float) and isnan(value) else value
