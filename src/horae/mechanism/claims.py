"""Step 3: every kind of decision becomes one ordered list of claims."""

from __future__ import annotations

from math import inf

import numpy as np

from horae.mechanism.turns import BY_PRIORITY, Standing, claims_of_shares, turns_go_on
from horae.model.decisions import Decision, Grants, Ranking, Shares
from horae.model.job_table import NONE, JobColumns
from horae.model.plans import Claims


def claim(decision: Decision, jobs: JobColumns, standing: Standing = BY_PRIORITY) -> Claims:
    match decision:
        case Ranking():
            return _from_ranking(decision)
        case Shares():
            return claims_of_shares(decision, jobs, standing)
        case Grants():
            return _from_grants(decision, jobs)


def rotates(decision: Decision, jobs: JobColumns) -> bool:
    """Whether the next round may differ from this one although no event happens and the decision stands."""
    return isinstance(decision, Shares) and turns_go_on(decision, jobs)


def tries_everything(decision: Decision) -> bool:
    """Whether a claim that does not fit now cannot fit later, as long as no job leaves and no GPU returns."""
    match decision:
        case Ranking():
            return not decision.blocking and decision.allowed is None
        case Grants():
            return tries_everything(decision.rest)
        case Shares():
            return decision.stands_until == inf


def next_contest_at(decision: Decision, jobs: JobColumns) -> float:
    """When the next holder becomes contestable: its lease has expired, and it has run for its minimum time."""
    ranking = decision.rest if isinstance(decision, Grants) else decision
    if isinstance(ranking, Ranking) and not ranking.preemptive:
        return inf
    protected_until = np.maximum(jobs.protected_until, jobs.lease_until)[jobs.running]
    if isinstance(decision, Grants) and decision.leases:
        # A lease that ends is renewed at that moment, even if its holder may not be stopped yet.
        protected_until = np.append(protected_until, jobs.lease_until[jobs.running])
    return float(np.min(protected_until[protected_until > jobs.now], initial=inf))


def _from_ranking(ranking: Ranking) -> Claims:
    return Claims(ranking.order, None, None, ranking.preemptive, ranking.blocking, ranking.allowed)


def _from_grants(decision: Grants, jobs: JobColumns) -> Claims:
    """Claims for the granted gangs, then the rest with all accepted options, a holder first with its present one."""
    rest = decision.rest
    accepted = jobs.shape[rest.order] >= 0
    if rest.allowed is not None:
        accepted &= rest.allowed[rest.order]
    held = np.flatnonzero(jobs.running[rest.order])
    present = np.zeros_like(accepted)
    present[held, jobs.option[rest.order[held]]] = True
    place, option = np.nonzero(accepted | present)
    turn = np.lexsort((option, ~present[place, option], place))
    place, option = place[turn], option[turn]
    alone = np.full(len(place), NONE)
    return Claims(
        row=np.concatenate([decision.row, rest.order[place]]),
        option=np.concatenate([decision.option, option]),
        lease_seconds=np.concatenate([decision.lease_seconds, np.full(len(place), decision.rest_lease_seconds)]),
        preemptive=rest.preemptive,
        blocking=rest.blocking,
        partner=None if decision.partner is None else np.concatenate([decision.partner, alone]),
        partner_option=None if decision.partner_option is None else np.concatenate([decision.partner_option, alone]),
    )
