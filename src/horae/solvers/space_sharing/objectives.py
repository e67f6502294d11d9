"""Policies with space sharing (Gavel, OSDI'20, section 3.1): two jobs of equal gangs may run on the same GPUs.

Each function answers a view with shares of time alone and in pairs. They are the programs without sharing plus a column
for every pair, found by pricing; see `highs_master`. Speeds on equal or isolated shares are those of jobs alone.
"""

from __future__ import annotations

import numpy as np

from horae.model.arrays import Floats
from horae.model.decisions import Shares
from horae.model.view import View
from horae.solvers.solution import Unsolved
from horae.solvers.space_sharing.columns import SharingProblem, company_of
from horae.solvers.space_sharing.finish_time import share_finish_time
from horae.solvers.space_sharing.levels import climb, give_rest, hold_all, raise_others
from horae.solvers.space_sharing.master import MasterProblem, program_of
from horae.solvers.space_sharing.shares import evidence_in_company, share_rest, shares_of

__all__ = ["share_finish_time", "share_makespan", "share_max_min", "share_throughput"]

_TINY = np.finfo(float).tiny
_HAIR = 1e-9  # relative: a floor that can just be reached must not fail by rounding


def share_max_min(view: View, fill: bool = True, speed: Floats | None = None) -> Shares:
    """Maximise the least level: GPUs over weight times speed, over speed with the same part of every type.

    With `fill` the others are raised after that, as far as possible.
    """
    company = company_of(view, view.jobs.speed if speed is None else speed)
    classes = company.classes
    objective = "the least level of any job, of its equal share"
    ask = np.where(classes.served, classes.equal_speed * classes.weight / classes.gang, 0.0)
    if not ask.any():
        return share_rest(view, company, objective, company.rate_of_equal)
    rise = climb("max-min fairness with pairs", company, ask)
    if fill:
        raise_others(rise)
    together = rise.master.together()
    level = company.reached(company.speed, together)[ask > 0] / ask[ask > 0]
    evidence = evidence_in_company(objective, float(level.min()), rise.proof.bound, rise.proof.gpu, company, together)
    return shares_of(view, company, together, evidence)


def share_makespan(view: View, speed: Floats | None = None, fill: bool = True) -> Shares:
    """Minimise the makespan: the speed of each job is at least its steps left over that time.

    With `fill` what is left goes to the jobs that gain most relative to their speed on an equal share; jobs whose work
    left is unknown or zero get only of that.
    """
    jobs = view.jobs
    company = company_of(view, jobs.speed if speed is None else speed, jobs.steps_left)
    objective = "seconds until the last job ends"
    left = jobs.steps_left[company.first]
    ask = np.where(company.classes.served & (left > 0), left, 0.0)  # false for nan
    if not ask.any():
        return share_rest(view, company, objective, company.rate_of_equal)
    rise = climb("makespan with pairs", company, ask)
    if fill:
        hold_all(rise)
        give_rest(rise.master, company.rate_of_equal)
    together = rise.master.together()
    seconds = float((ask / np.maximum(company.reached(company.speed, together), _TINY)).max())
    bound = 1 / rise.proof.bound
    evidence = evidence_in_company(objective, seconds, bound, rise.proof.gpu * bound**2, company, together)
    return shares_of(view, company, together, evidence)


def share_throughput(
    view: View, value: Floats, objective: str, speed: Floats | None = None, floor: Floats | None = None
) -> Shares:
    """Maximise the total of `value`, by row and option, times the fraction of time and what is kept beside a partner.

    `floor`: by row, steps per second below which a job must not fall; if that is infeasible, the program is unsolved.
    """
    jobs = view.jobs
    floor = np.zeros(len(jobs)) if floor is None else floor
    company = company_of(view, jobs.speed if speed is None else speed, floor, *value.T)
    if not company.classes.choice.any():
        return Shares(np.zeros(jobs.shape.shape))
    worth = value[company.first][company.row, company.option]
    top = max(float(worth.max()), _TINY)
    master = _with_floors("the largest total with pairs", company, floor[company.first])
    master.aim_at(0.0, worth / top)
    _, prices = master.solve()
    together = master.together()
    total = float(company.reached(worth, together) @ company.classes.jobs)
    evidence = evidence_in_company(objective, total, master.worth(prices) * top, prices.gpu * top, company, together)
    return shares_of(view, company, together, evidence)


def _with_floors(problem: str, company: SharingProblem, floor: Floats) -> MasterProblem:
    """A program in which no job falls below its floor, with the pairs that this takes."""
    if not floor.any():
        return program_of(problem, company, company.rate, np.zeros(len(floor)))
    rise = climb(problem, company, floor)
    if rise.proof.bound < 1 - _HAIR:
        raise Unsolved(problem, f"no shares reach more than {rise.proof.bound} of all floors")
    rise.master.hold(floor > 0, np.minimum(floor / company.best_speed, rise.master.need * rise.t))
    return rise.master
