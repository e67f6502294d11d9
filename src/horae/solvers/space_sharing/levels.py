"""Levels in company: the least one as high as can be, then the others, then what is left.

    maximise t   subject to   speed of each job >= what it asks for x t

Who has a positive price on its level keeps the others down and cannot rise in any best answer: it is frozen there, and
the rest rises on (water filling; Gavel, section 4.3). When all are frozen, nobody can gain from what is left: whoever
could would not have been. Where the others are not raised, what is left goes to whoever gains most.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horae.model.arrays import Floats
from horae.solvers.solution import Unsolved
from horae.solvers.space_sharing.columns import Company
from horae.solvers.space_sharing.highs_master import Prices
from horae.solvers.space_sharing.master import Program, program_of

_NEED_MIN = 1e-7  # of a job's best speed; less would be lost in the solver's tolerance


class Proof(NamedTuple):
    """Prices that show how high t can be at most: weak duality."""

    bound: float
    gpu: Floats  # by accelerator: what one more adds to t
    pull: Floats  # by class: weights of the levels, with sum of pull x need = 1


class Climb(NamedTuple):
    """A program whose t is as large as can be."""

    master: Program
    t: float
    prices: Prices
    proof: Proof


def climb(problem: str, company: Company, ask: Floats) -> Climb:
    """`ask`: by class, steps a second of each job, in units of t; 0: nothing."""
    need = ask / company.best_speed
    top = float(need.max())
    master = program_of(problem, company, company.rate, needed(need / top))
    t, prices = master.solve()
    proof = proof_of(master, prices, need)
    return Climb(master, t, prices, proof)


def needed(need: Floats) -> Floats:
    """Those who need next to nothing get a little more than that, not nothing."""
    return np.where(need > 0, np.maximum(need, _NEED_MIN), 0.0)


def proof_of(master: Program, prices: Prices, need: Floats) -> Proof:
    """By these prices, for what jobs need in truth, as parts of their best speeds."""
    total = float(prices.level @ need)
    if total <= 0:
        raise Unsolved(master.problem, "no level has a price")
    return Proof(master.worth(prices) / total, prices.gpu / total, prices.level / total)


def raise_others(rise: Climb) -> None:
    """From the best least level on, stage by stage, until nobody can rise."""
    rise.master.raise_others(rise.t, rise.prices)


def hold_all(rise: Climb) -> None:
    """Nobody rises any more, and nobody falls."""
    need = rise.master.need
    rise.master.hold(need > 0, need * rise.t)


def give_rest(master: Program, value: Floats) -> None:
    """What is left goes to whoever gains most, by cell; nobody falls below its floor."""
    master.aim_at(0.0, value / max(float(value.max(initial=0.0)), np.finfo(float).tiny))
    master.solve()
