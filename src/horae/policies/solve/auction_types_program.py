"""The best welfare of an auction as an integer program, for HiGHS: where branch and bound of our own has given up.

Bundles that can not be part of anything better than what is known are left out: their regret at some prices is more
than the gap there.
"""

from __future__ import annotations

from typing import NamedTuple

import highspy
import numpy as np

from horae.model.arrays import Floats, Ints

_NODES_MAX = 20_000  # a wall-clock limit would make results depend on the machine
_OUT_MAX = 1e-6  # by how much the arithmetic of the solver may be out


class Table(NamedTuple):
    """The bundles of all apps that are there, one app after the other."""

    start: Ints  # by app
    gpus: Ints  # by bundle and type
    value: Floats


class Bracket(NamedTuple):
    welfare: float  # -infinity: no allocation was found
    bound: float
    pick: Ints  # by app: its bundle


def bracket_by_program(table: Table, offer: Ints, price: Floats, known: float, slack: float) -> Bracket:
    """An allocation and a bound no further apart than the slack, if that can be had. `known`: some welfare."""
    worth = table.value - table.gpus @ price
    best = np.maximum.reduceat(worth, table.start)
    app = np.searchsorted(table.start, np.arange(len(worth)), side="right") - 1
    gap = float(price @ offer + best.sum()) - known
    columns = np.flatnonzero(best[app] - worth <= max(gap, 0.0) + _OUT_MAX)
    solver = _solver(table, offer, columns, app[columns], slack)
    solver.run()
    bound = solver.getInfo().mip_dual_bound + _OUT_MAX
    taken = np.array(solver.getSolution().col_value)
    pick = np.full(len(table.start), -1, dtype=np.int64)
    if len(taken) == len(columns):
        chosen = columns[taken > 0.5]
        pick[app[chosen]] = chosen
    if (pick < 0).any() or (table.gpus[pick].sum(axis=0) > offer).any():
        return Bracket(-np.inf, max(bound, known), pick)
    welfare = float(table.value[pick].sum())
    return Bracket(welfare, max(bound, known, welfare), pick)


def _solver(table: Table, offer: Ints, columns: Ints, app: Ints, slack: float) -> highspy.Highs:
    program = highspy.HighsLp()
    program.sense_ = highspy.ObjSense.kMaximize
    apps, types, count = len(table.start), len(offer), len(columns)
    program.num_col_, program.num_row_ = count, apps + types
    program.col_cost_ = table.value[columns]
    program.col_lower_, program.col_upper_ = np.zeros(count), np.ones(count)
    program.integrality_ = [highspy.HighsVarType.kInteger] * count
    program.row_lower_ = np.concatenate([np.ones(apps), np.full(types, -highspy.kHighsInf)])
    program.row_upper_ = np.concatenate([np.ones(apps), offer.astype(np.float64)])
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = np.arange(count + 1) * (types + 1)
    rows = np.hstack([app[:, None], np.broadcast_to(apps + np.arange(types), (count, types))])
    program.a_matrix_.index_ = rows.ravel()
    program.a_matrix_.value_ = np.hstack([np.ones((count, 1)), table.gpus[columns].astype(np.float64)]).ravel()
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    options = {"output_flag": False, "threads": 1, "mip_max_nodes": _NODES_MAX, "mip_rel_gap": 0.0}
    for option, value in options.items():
        solver.setOptionValue(option, value)
    solver.setOptionValue("mip_abs_gap", max(slack, 1e-9))
    solver.passModel(program)
    return solver
