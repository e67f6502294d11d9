"""Levels with space sharing: maximise the least one, then the others, then allocate what is left.

    maximise t   subject to   speed of each job >= what it asks for x t

A class with a positive price on its level limits the others and cannot rise in any optimum: it is frozen there, and the
rest rises on (water filling; Gavel, section 4.3). When all are frozen, no class can gain from what is left: otherwise
it would not have been frozen. Where the others are not raised, what is left goes to the jobs that gain most.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horae.model.arrays import Floats
from horae.solvers.solution import Unsolved
from horae.solvers.space_sharing.columns import SharingProblem
from horae.solvers.space_sharing.highs_master import Prices
from horae.solvers.space_sharing.master import MasterProblem, program_of

_NEED_MIN = 1e-7  # of a job's best speed; less would be lost in the solver's tolerance


class Proof(NamedTuple):
    """Prices that prove an upper bound on t: weak duality."""

    bound: float
    gpu: Floats  # by accelerator: what one more adds to t
    pull: Floats  # by class: weights of the levels, with sum of pull x need = 1


class Climb(NamedTuple):
    """A program solved for the largest t."""

    master: MasterProblem
    t: float
    prices: Prices
    proof: Proof


def climb(problem: str, company: SharingProblem, ask: Floats) -> Climb:
    """Solve for the largest t. `ask`: by class, steps per second of each job, in units of t; 0: nothing."""
    need = ask / company.best_speed
    top = float(need.max())
    master = program_of(problem, company, company.rate, needed(need / top))
    t, prices = master.solve()
    proof = proof_of(master, prices, need)
    return Climb(master, t, prices, proof)


def needed(need: Floats) -> Floats:
    """The needs, with tiny positive ones raised to a minimum instead of being lost."""
    return np.where(need > 0, np.maximum(need, _NEED_MIN), 0.0)


def proof_of(master: MasterProblem, prices: Prices, need: Floats) -> Proof:
    """The proof given by these prices, for the actual needs of jobs, as fractions of their best speeds."""
    total = float(prices.level @ need)
    if total <= 0:
        raise Unsolved(master.problem, "no level has a price")
    return Proof(master.worth(prices) / total, prices.gpu / total, prices.level / total)


def raise_others(rise: Climb) -> None:
    """From the best least level on, raise the others stage by stage, until no class can rise."""
    rise.master.raise_others(rise.t, rise.prices)


def hold_all(rise: Climb) -> None:
    """Hold all classes at their levels: none rises any further, and none falls."""
    need = rise.master.need
    rise.master.hold(need > 0, need * rise.t)


def give_rest(master: MasterProblem, value: Floats) -> None:
    """Allocate what is left to the jobs that gain most, by cell; no class falls below its floor."""
    master.aim_at(0.0, value / max(float(value.max(initial=0.0)), np.finfo(float).tiny))
    master.solve()
