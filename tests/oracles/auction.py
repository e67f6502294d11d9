"""The auction of Themis (NSDI'20, section 5) as one would write it down: every solve on its own, by a general solver.

Winner determination is an integer program with a variable for each bid; what an app keeps is found by solving again
without it. Tiny auctions are tried in full. For divisible GPUs there is a convex program.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import exp
from typing import Any, NamedTuple
from warnings import catch_warnings

import cvxpy as cp
import highspy
import numpy as np

from horae.model.arrays import Floats

atoms: Any = cp  # which cvxpy does not type
EXACT = {
    "output_flag": False,
    "threads": 1,
    "mip_rel_gap": 0.0,
    "mip_abs_gap": 0.0,
    "mip_feasibility_tolerance": 1e-10,
    "primal_feasibility_tolerance": 1e-10,
    "dual_feasibility_tolerance": 1e-10,
}


class Table(NamedTuple):
    """What each number of GPUs is worth to an app, as log 1 / rho; the first is for none."""

    gpus: tuple[int, ...]
    value: tuple[float, ...]

    def worth(self, gpus: int) -> float:
        """Of so many GPUs, of which it need not use all."""
        return max(value for need, value in zip(self.gpus, self.value, strict=True) if need <= gpus)


def welfare(tables: Sequence[Table], choice: Sequence[int]) -> float:
    return sum(table.value[bid] for table, bid in zip(tables, choice, strict=True))


def winners(tables: Sequence[Table], offer: int) -> list[int]:
    """By app: the bid that wins, by an integer program; one bid of each, no more GPUs than there are."""
    if not tables:
        return []
    bids = [(app, bid) for app, table in enumerate(tables) for bid in range(len(table.gpus))]
    solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    for option, setting in EXACT.items():
        solver.setOptionValue(option, setting)
    for app, bid in bids:
        solver.addVar(0.0, 1.0)
        solver.changeColCost(solver.getNumCol() - 1, tables[app].value[bid])
        solver.changeColIntegrality(solver.getNumCol() - 1, highspy.HighsVarType.kInteger)
    solver.changeObjectiveSense(highspy.ObjSense.kMaximize)
    for app in range(len(tables)):
        mine = np.array([column for column, (other, _) in enumerate(bids) if other == app])
        solver.addRow(1.0, 1.0, len(mine), mine, np.ones(len(mine)))
    needs = np.array([tables[app].gpus[bid] for app, bid in bids], dtype=np.float64)
    solver.addRow(0.0, float(offer), len(bids), np.arange(len(bids)), needs)
    solver.run()
    assert solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    taken = np.array(solver.getSolution().col_value) > 0.5
    choice = [bid for (_, bid), is_taken in zip(bids, taken.tolist(), strict=True) if is_taken]
    assert len(choice) == len(tables)
    assert needs[taken].sum() <= offer
    return choice


def feasible(tables: Sequence[Table], offer: int) -> Iterator[tuple[int, ...]]:
    """Every choice of bids that can be had together."""
    for choice in product(*(range(len(table.gpus)) for table in tables)):
        if sum(table.gpus[bid] for table, bid in zip(tables, choice, strict=True)) <= offer:
            yield choice


def best_by_force(tables: Sequence[Table], offer: int) -> float:
    return max(welfare(tables, choice) for choice in feasible(tables, offer))


def kept(tables: Sequence[Table], offer: int, choice: Sequence[int]) -> list[float]:
    """By app: what the others have of what they would have without it, as a product of 1 / rho; of equals any wins."""
    parts = []
    for app in range(len(tables)):
        others = [*tables[:app], *tables[app + 1 :]]
        theirs = welfare(others, [*choice[:app], *choice[app + 1 :]])
        parts.append(exp(theirs - welfare(others, winners(others, offer))))
    return parts


def divisible(speed: Floats, supply: Floats) -> Floats:
    """By app and good: what it has where the product of all values is largest; a value is linear in what one has."""
    share: Any = cp.Variable(speed.shape, nonneg=True)
    values = atoms.sum(atoms.multiply(speed / speed.max(axis=1, keepdims=True), share), axis=1)
    problem: Any = cp.Problem(cp.Maximize(atoms.sum(atoms.log(values))), [atoms.sum(share, axis=0) <= supply])
    limits = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-9)
    with catch_warnings(action="ignore"):
        problem.solve(solver=cp.CLARABEL, **limits)
    assert problem.status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE)
    return np.maximum(share.value, 0.0)
