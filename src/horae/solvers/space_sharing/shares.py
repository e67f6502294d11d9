"""The result of a program with pairs: shares by job, and their evidence."""

from __future__ import annotations

import numpy as np

from horae.model.arrays import Floats
from horae.model.decisions import Evidence, Limit, Shares
from horae.model.view import View
from horae.solvers.space_sharing.columns import SharingProblem, Together
from horae.solvers.space_sharing.levels import give_rest
from horae.solvers.space_sharing.master import program_of
from horae.solvers.space_sharing.pairs_by_job import alone_by_job, pairs_by_job

_HAIR = 1e-6


def shares_of(view: View, company: SharingProblem, together: Together, evidence: Evidence) -> Shares:
    pairs = pairs_by_job(view, company, together) if view.kept.size else None
    return Shares(alone_by_job(company, together), pairs=pairs, evidence=evidence)


def evidence_in_company(
    objective: str, value: float, bound: float, prices: Floats, company: SharingProblem, together: Together
) -> Evidence:
    """The evidence of a solve with pairs: a pair takes its GPUs once; a job's time counts alone and shared."""
    classes = company.classes
    time, gpus = company.used(together)
    limit = np.where(time >= classes.jobs * (1 - _HAIR), int(Limit.TIME), int(Limit.SCARCE))
    limit = np.where(classes.served, limit, int(Limit.NOWHERE))
    is_full = (prices > 0) | (gpus >= classes.capacity * (1 - _HAIR))
    return Evidence(objective, value, bound, prices, is_full, limit[classes.member])


def share_rest(view: View, company: SharingProblem, objective: str, gain: Floats) -> Shares:
    """Shares where no job is in the objective: everything goes to the jobs that gain most, by cell."""
    if not company.classes.choice.any():
        return Shares(np.zeros(view.jobs.shape.shape))
    master = program_of(objective, company, company.rate, np.zeros(len(company.first)))
    give_rest(master, gain)
    together = master.together()
    prices = np.zeros(len(company.classes.capacity))
    return shares_of(view, company, together, evidence_in_company(objective, 0.0, 0.0, prices, company, together))
