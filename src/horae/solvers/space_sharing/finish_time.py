"""Finish-time fairness with space sharing (Gavel, section 4.2, after Themis): minimise the worst finish-time ratio.

    rho = max over jobs of (age + left / speed) / (isolated seconds so far + left / isolated speed)

At a given rho each job asks for the speed left / (rho D - age), with D the denominator: that is a program of levels,
and rho is feasible if its t is 1 or more. Where t is less, the prices say more: no speeds reach a larger sum of pull x
speed, so no rho is feasible at which the jobs ask for more than that. The least rho at which they do not is a better
lower bound, from which the program is solved again; it converges to the answer from below, quadratically (Newton). The
speeds of each program give an upper bound.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horae.model.arrays import Floats
from horae.model.decisions import Shares
from horae.model.view import View
from horae.solvers.levels.objectives import ClassProgress, isolated_speed
from horae.solvers.solution import Unsolved
from horae.solvers.space_sharing.columns import SharingProblem, company_of
from horae.solvers.space_sharing.levels import Climb, give_rest, hold_all, needed, proof_of
from horae.solvers.space_sharing.master import program_of
from horae.solvers.space_sharing.shares import evidence_in_company, share_rest, shares_of

OBJECTIVE = "the worst ratio of finish times, shared to alone"
_PROGRAMS_MAX = 100
_GAP = 1e-9  # relative distance between the bounds that is good enough
_GAP_MAX = 1e-6  # the same where rounding allows no better
_TINY = np.finfo(float).tiny


class _Wishes(NamedTuple):
    """By class, the speed a job asks for at some rho: 1 / (slope x rho - delay) steps per second."""

    slope: Floats  # D / left; infinite for jobs without a target
    delay: Floats  # age / left
    best: Floats  # steps per second

    def need(self, rho: float) -> Floats:
        """The speed asked for, as a fraction of the best speed."""
        return 1 / ((self.slope * rho - self.delay) * self.best)

    def rho(self, speed: Floats) -> float:
        """The worst rho at these speeds."""
        return float(((self.delay + 1 / np.maximum(speed, _TINY)) / self.slope).max())

    def lower(self, rho: float, pull: Floats, bound: float) -> float:
        """From below, the least rho at which the sum of pull x need is at most the bound; it is convex."""
        for _ in range(_PROGRAMS_MAX):
            need = self.need(rho)
            step = (float(pull @ need) - bound) / self.steepness(rho, pull)
            if not rho + step > rho:
                break
            rho += step
        return rho

    def steepness(self, rho: float, pull: Floats) -> float:
        """How fast the sum of pull x need falls with rho."""
        need = self.need(rho)
        return float((pull * need**2 * self.best) @ np.where(need > 0, self.slope, 0.0))


def share_finish_time(view: View, speed: Floats | None = None, fill: bool = True) -> Shares:
    """The shares of the least worst ratio; with `fill` the rest goes where it adds most relative to isolated speed.

    A job whose work left is unknown or zero has no ratio that shares could change: it gets only of what is left over.
    """
    jobs = view.jobs
    state = view.now - jobs.submitted_at, jobs.steps_left, jobs.isolated_seconds
    company = company_of(view, jobs.speed if speed is None else speed, *state)
    isolated = isolated_speed(company.classes)
    by_job = company.classes.by_job(isolated)
    wishes = _wishes(company, ClassProgress(*(column[company.first] for column in state)), isolated)
    gain = company.speed / np.where(isolated > 0, isolated, 1.0)[company.row]
    if not np.isfinite(wishes.slope).any():
        return share_rest(view, company, OBJECTIVE, gain)._replace(isolated_speed=by_job)
    least, lower = _least_rho(company, wishes)
    if fill:
        hold_all(least)
        give_rest(least.master, gain)
    together = least.master.together()
    rho = wishes.rho(company.reached(company.speed, together))
    prices = least.proof.gpu / wishes.steepness(lower, least.proof.pull)
    evidence = evidence_in_company(OBJECTIVE, rho, lower, prices, company, together)
    return shares_of(view, company, together, evidence)._replace(isolated_speed=by_job)


def _wishes(company: SharingProblem, progress: ClassProgress, isolated: Floats) -> _Wishes:
    asks = (progress.steps_left > 0) & (isolated > 0)  # false for nan
    left = np.where(asks, progress.steps_left, 1.0)
    slope = progress.isolated_seconds / left + 1 / np.where(asks, isolated, 1.0)
    delay = progress.age_seconds / left
    return _Wishes(np.where(asks, slope, np.inf), np.where(asks, delay, 0.0), company.best_speed)


def _least_rho(company: SharingProblem, wishes: _Wishes) -> tuple[Climb, float]:
    """The program at the largest lower bound of rho, and that bound."""
    problem = "finish-time fairness with pairs"
    lower = wishes.rho(wishes.best)
    master = program_of(problem, company, company.rate, needed(wishes.need(lower)))
    for _ in range(_PROGRAMS_MAX):
        t, prices = master.solve()
        proof = proof_of(master, prices, wishes.need(lower))
        upper = wishes.rho(company.reached(company.speed, master.together()))
        before, lower = lower, wishes.lower(lower, proof.pull, proof.bound)
        if upper - lower <= _GAP * upper or lower <= before:
            break
        master.ask(needed(wishes.need(lower)))
    if upper - lower > _GAP_MAX * upper:
        raise Unsolved(problem, f"rho is between {lower} and {upper}")
    return Climb(master, t, prices, proof), lower
