"""Linear programs over the shares of classes, solved by HiGHS on one thread.

Columns are the choices (class, option) and then those that a program adds; the rows that all programs share are each
class's time and each accelerator's GPUs.
"""

from __future__ import annotations

from typing import NamedTuple

import highspy
import numpy as np

from horae.model.arrays import Floats, Ints
from horae.solvers.classes import Classes
from horae.solvers.solution import Unsolved

ITERATIONS_MAX = 1_000_000  # of the simplex method; a wall-clock limit would make results depend on the machine
_ENDLESS = highspy.kHighsInf
_OPTIONS = {
    "output_flag": False,
    "threads": 1,
    "simplex_iteration_limit": ITERATIONS_MAX,
    "primal_feasibility_tolerance": 1e-9,
    "dual_feasibility_tolerance": 1e-9,
}


class ProgramRow(NamedTuple):
    """A constraint: low <= coefficients x columns <= high."""

    columns: Ints
    coefficients: Floats
    low: float
    high: float


class Solved(NamedTuple):
    columns: Floats
    value: float
    row_price: Floats  # by row: what the value gains where its side is raised by one


class ClassColumns(NamedTuple):
    """The choices of all classes as columns of a program."""

    row: Ints  # class
    option: Ints
    share_rows: tuple[ProgramRow, ...]  # a class has at most all of its time, an accelerator at most its GPUs

    def spread(self, classes: Classes, columns: Floats) -> Floats:
        """The first columns of a program as an allocation by class and option."""
        fraction = np.zeros(classes.choice.shape)
        fraction[self.row, self.option] = np.clip(columns[: len(self.row)], 0.0, 1.0)
        return fraction


def cells_of(classes: Classes) -> ClassColumns:
    row, option = np.nonzero(classes.choice)
    cells = np.arange(len(row))
    rows = []
    for number in range(len(classes.jobs)):
        mine = cells[row == number]
        rows.append(ProgramRow(mine, np.ones(len(mine)), -_ENDLESS, 1.0))
    accelerator = classes.accelerator[row, option]
    used = (classes.jobs[:, None] * classes.gpus)[row, option]
    for number, gpus in enumerate(classes.capacity):
        mine = cells[accelerator == number]
        rows.append(ProgramRow(mine, used[mine], -_ENDLESS, float(gpus)))
    return ClassColumns(row, option, tuple(rows))


def maximise(problem: str, cost: Floats, rows: tuple[ProgramRow, ...]) -> Solved:
    """Maximise a linear objective over columns of at least 0; anything but an optimum is an error."""
    program = highspy.HighsLp()
    program.sense_ = highspy.ObjSense.kMaximize
    program.num_col_, program.num_row_ = len(cost), len(rows)
    program.col_cost_ = cost
    program.col_lower_, program.col_upper_ = np.zeros(len(cost)), np.full(len(cost), _ENDLESS)
    program.row_lower_ = np.array([row.low for row in rows])
    program.row_upper_ = np.array([row.high for row in rows])
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    program.a_matrix_.start_ = np.cumsum([0, *(len(row.columns) for row in rows)])
    program.a_matrix_.index_ = np.concatenate([row.columns for row in rows])
    program.a_matrix_.value_ = np.concatenate([row.coefficients for row in rows])
    bounds = np.concatenate([program.row_lower_, program.row_upper_])
    if not np.isfinite(program.a_matrix_.value_).all() or not np.isfinite(cost).all() or np.isnan(bounds).any():
        raise Unsolved(problem, "its numbers are not finite")  # the solver would crash
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    for option, value in _OPTIONS.items():
        solver.setOptionValue(option, value)
    solver.passModel(program)
    solver.run()
    status = solver.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        raise Unsolved(problem, solver.modelStatusToString(status))
    solution = solver.getSolution()
    return Solved(np.array(solution.col_value), solver.getInfo().objective_function_value, np.array(solution.row_dual))
