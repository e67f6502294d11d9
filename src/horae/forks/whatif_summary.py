"""The answer to a `whatif`: which jobs end sooner and later, and what each schedule did for tenants."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from statistics import mean, median

import numpy as np

from horae.forks.account import Account
from horae.forks.whatif import Outcomes
from horae.model.serialization import Plain
from horae.reports.metrics import GroupMetrics, measure

NOTABLE_SECONDS = 1.0  # a smaller difference of a job's end counts as none
SHOWN = 20  # jobs that end sooner, and as many that end later
SLACK_SECONDS = 60.0  # for jobs to stop and others to start, in what a guarantee allows


@dataclass(frozen=True)
class Side:
    """One of the schedules."""

    account: Account
    until: float

    @cached_property
    def ended(self) -> dict[str, float]:
        """By job that ended: when."""
        jobs = self.account.log().jobs
        return {job_id: at for job_id, at in zip(jobs.id, jobs.ended_at.tolist(), strict=True) if isfinite(at)}

    @cached_property
    def completed(self) -> dict[str, float]:
        """By job that ended: seconds since its submission."""
        jobs = self.account.log().jobs
        seconds = (jobs.ended_at - jobs.submitted_at).tolist()
        return {job_id: each for job_id, each in zip(jobs.id, seconds, strict=True) if isfinite(each)}

    @cached_property
    def tenant_of(self) -> dict[str, str]:
        log = self.account.log()
        return {job_id: log.tenants[number] for job_id, number in zip(log.jobs.id, log.jobs.tenant, strict=True)}

    @cached_property
    def metrics(self) -> Mapping[str, GroupMetrics]:
        return measure(self.account.log()).tenants if len(self.account.log().jobs) else {}

    def numbers(self, jobs: Collection[str], *, is_all: bool) -> dict[str, Plain]:
        """Figures over these jobs, which ended in every schedule; `is_all`: they are those of the whole cluster."""
        seconds = [self.completed[job_id] for job_id in jobs]
        chosen = self.metrics.values()
        found: dict[str, Plain] = {
            "completion_mean_seconds": mean(seconds) if seconds else None,
            "completion_median_seconds": median(seconds) if seconds else None,
        }
        if is_all:
            found["utilisation"] = self.account.utilisation(self.until)
            found["preemptions"] = sum(each.preemptions for each in chosen)
        return found

    def tenant(self, name: str, jobs: Collection[str]) -> dict[str, Plain]:
        found = self.metrics.get(name)
        rho = None if found is None else found.rho_paper
        waits = {job_id: self.account.own_wait_seconds.get(job_id, 0.0) for job_id in self._jobs_of(name)}
        allowed = self.account.wait_allowed_seconds(name)
        lost = self.account.guarantees_lost & waits.keys()
        guarantee = None
        if allowed is not None:
            is_broken = lost or any(each > allowed + SLACK_SECONDS for each in waits.values())
            guarantee = "broken" if is_broken else "kept"
        seconds = [self.completed[job_id] for job_id in jobs]
        return {
            "completion_mean_seconds": mean(seconds) if seconds else None,
            "completion_median_seconds": median(seconds) if seconds else None,
            "rho_mean": None if rho is None or np.isnan(rho.mean) else rho.mean,
            "rho_max": None if rho is None or np.isnan(rho.max) else rho.max,
            "gpu_hours": 0.0 if found is None else found.gpu_hours,
            "preemptions": 0 if found is None else found.preemptions,
            "waited_for_own_cells_seconds": None if allowed is None else sum(waits.values()),
            "guarantee": guarantee,
        }

    def _jobs_of(self, tenant: str) -> list[str]:
        return [job_id for job_id, its in self.tenant_of.items() if its == tenant]


def summarise(
    outcomes: Outcomes, *, only: str | None = None, shown: int = SHOWN, origin: float = 0.0, is_dated: bool = False
) -> Plain:
    """Plain data; `only` leaves the jobs of one tenant. `origin` is added to all times."""
    recorded, same, changed = (
        Side(each, outcomes.until) for each in (outcomes.recorded, outcomes.same, outcomes.changed)
    )
    tenants = sorted(set(recorded.tenant_of.values())) if only is None else [only]
    mine = {job_id for job_id, tenant in recorded.tenant_of.items() if tenant in tenants}
    known = (recorded.ended.keys() & same.ended.keys() & mine) - outcomes.believed
    both = known & changed.ended.keys()
    delay = {job_id: changed.ended[job_id] - same.ended[job_id] for job_id in both}
    later = sorted((job_id for job_id in both if delay[job_id] > NOTABLE_SECONDS), key=lambda one: (-delay[one], one))
    sooner = sorted((job_id for job_id in both if delay[job_id] < -NOTABLE_SECONDS), key=lambda one: (delay[one], one))
    sides = {"recorded": recorded, "same": same, "changed": changed}

    def job(job_id: str) -> Plain:
        ends = {f"{name}_ends_at": origin + side.ended[job_id] for name, side in sides.items()}
        return {"job_id": job_id, "tenant": recorded.tenant_of[job_id], "seconds": delay[job_id], **ends}

    def tenant(name: str) -> Plain:
        its = {job_id for job_id in both if recorded.tenant_of[job_id] == name}
        counts = {"jobs": len(its), "sooner": len(its & {*sooner}), "later": len(its & {*later})}
        return {"tenant": name, **counts, **{each: side.tenant(name, its) for each, side in sides.items()}}

    cut_off_at = outcomes.cut_off_at
    return {
        "since": origin + outcomes.since,
        "until": origin + outcomes.until,
        "is_dated": is_dated,
        "change": list(outcomes.change),
        "is_replay": outcomes.is_replay,
        "jobs": len(both),
        "sooner": len(sooner),
        "later": len(later),
        "unchanged": len(both) - len(sooner) - len(later),
        "never": len(known - both),
        "believed": len(outcomes.believed & mine),
        "cut_off_at": None if cut_off_at is None else origin + cut_off_at,
        **{name: side.numbers(both, is_all=only is None) for name, side in sides.items()},
        "tenants": [tenant(name) for name in tenants],
        "sooner_jobs": [job(job_id) for job_id in sooner[:shown]],
        "later_jobs": [job(job_id) for job_id in later[:shown]],
    }
