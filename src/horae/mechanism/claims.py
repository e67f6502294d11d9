"""Step 3: every kind of decision becomes one ordered list of claims."""

from __future__ import annotations

from math import inf

import numpy as np

from horae.mechanism.turns import BY_PRIORITY, Standing, claims_of_shares, turns_go_on
from horae.model.arrays import Floats, Ints
from horae.model.decisions import Decision, Grant, Grants, Ranking, Shares
from horae.model.plans import Claims
from horae.model.table import JobColumns


def claim(decision: Decision, jobs: JobColumns, standing: Standing = BY_PRIORITY) -> Claims:
    match decision:
        case Ranking():
            return _from_ranking(decision)
        case Shares():
            return claims_of_shares(decision, jobs, standing)
        case Grants():
            return _from_grants(decision, jobs)


def rotates(decision: Decision, jobs: JobColumns) -> bool:
    """Whether the next round may differ from this one although nothing happens and the decision stands."""
    return isinstance(decision, Shares) and turns_go_on(decision, jobs)


def tries_everything(decision: Decision) -> bool:
    """Whether what does not fit now cannot fit later either, as long as nobody leaves and no GPU comes back."""
    match decision:
        case Ranking():
            return not decision.blocking and decision.allowed is None
        case Grants():
            return tries_everything(decision.rest)
        case Shares():
            return decision.stands_until == inf


def next_contest_at(decision: Decision, jobs: JobColumns) -> float:
    """When the next holder may be contested: its lease has run out, and it has run as long as it must."""
    ranking = decision.rest if isinstance(decision, Grants) else decision
    if isinstance(ranking, Ranking) and not ranking.preemptive:
        return inf
    protected_until = np.maximum(jobs.protected_until, jobs.lease_until)[jobs.running]
    return float(np.min(protected_until[protected_until > jobs.now], initial=inf))


def _from_ranking(ranking: Ranking) -> Claims:
    return Claims(
        row=ranking.order,
        option=None,
        lease_seconds=None,
        preemptive=ranking.preemptive,
        blocking=ranking.blocking,
        allowed=ranking.allowed,
    )


def _from_grants(decision: Grants, jobs: JobColumns) -> Claims:
    rest = _from_ranking(decision.rest)
    parts = [split(grant, jobs) for grant in decision.grants]
    rows = [part for part, _ in parts]
    seconds = [part for _, part in parts]
    row = np.concatenate([*rows, rest.row])
    return Claims(
        row=row,
        option=None,
        lease_seconds=np.concatenate([*seconds, np.zeros(len(rest.row))]),
        preemptive=rest.preemptive,
        blocking=rest.blocking,
        allowed=rest.allowed,
    )


def split(grant: Grant, jobs: JobColumns) -> tuple[Ints, Floats]:
    """An app's GPUs go to its jobs in the order of submission; what its holders have now counts first."""
    rows = np.flatnonzero(jobs.app == grant.app)
    rows = rows[np.lexsort((jobs.serial[rows], ~jobs.running[rows]))]
    gangs = np.where(jobs.running[rows], jobs.held_gpus[rows], jobs.gpus[rows])
    served, left = [], grant.gpus
    for row, gpus in zip(rows.tolist(), gangs.tolist(), strict=True):  # the jobs of one app, not of the pool
        if gpus <= left:
            served.append(row)
            left -= gpus
    return np.array(served, dtype=np.int64), np.full(len(served), grant.lease_seconds)
