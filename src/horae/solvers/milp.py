"""Linear programs given as triplets, some of whose columns may be whole numbers; solved by HiGHS on one thread.

Infeasibility is an answer here: requirements of several jobs may contradict each other. Any other end but a proven
optimum is an error.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from horae.model.arrays import Bools, Floats, Ints
from horae.solvers.classes import Classes
from horae.solvers.solution import Unsolved

if TYPE_CHECKING:  # HiGHS takes a while to load, and most runs never use it
    import highspy

ENDLESS = inf
NODES_MAX = 100_000  # of a search over whole numbers; a wall-clock limit would make results depend on the machine
_OPTIONS = {
    "output_flag": False,
    "threads": 1,
    "simplex_iteration_limit": 1_000_000,
    "primal_feasibility_tolerance": 1e-9,
    "dual_feasibility_tolerance": 1e-9,
    "mip_feasibility_tolerance": 1e-9,
    "mip_max_nodes": NODES_MAX,
    "mip_rel_gap": 1e-7,
    "mip_abs_gap": 1e-9,
}


class Triplets(NamedTuple):
    """The coefficients of some rows of a program, one by one."""

    row: Ints
    column: Ints
    value: Floats


class LinearProgram(NamedTuple):
    """Maximise cost x columns; low <= coefficients x columns <= high, 0 <= columns <= upper."""

    cost: Floats
    triplets: tuple[Triplets, ...]
    low: Floats  # by row
    high: Floats
    upper: Floats | None = None  # by column; None: unbounded
    whole: Bools | None = None  # by column: must be a whole number


class ProgramSolution(NamedTuple):
    columns: Floats
    value: float
    bound: float  # no columns have a better value
    row_price: Floats  # what the value gains where the side of a row is raised by one; none with whole numbers
    basis: highspy.HighsBasis  # warm start for the next solve of a similar program


class Grid(NamedTuple):
    """The choices of all classes as columns of a program, and the rows that every program has."""

    row: Ints  # class
    option: Ints
    time: Triplets  # by class: the part of its time that is allocated
    gpus: Triplets  # by accelerator, after the classes: the GPUs that are allocated

    def over(self, by_option: Floats) -> Floats:
        """The values by class and option, as columns."""
        return by_option[self.row, self.option]

    def spread(self, classes: Classes, columns: Floats) -> Floats:
        """The first columns of a program as an allocation that keeps within time and GPUs to the last digit."""
        fraction = np.zeros(classes.choice.shape)
        fraction[self.row, self.option] = np.maximum(columns[: len(self.row)], 0.0)
        fraction /= np.maximum(fraction.sum(axis=1, keepdims=True), 1.0)
        given = np.zeros(len(classes.capacity))
        used = fraction * classes.gpus * classes.jobs[:, None]
        np.add.at(given, classes.accelerator[self.row, self.option], self.over(used))
        excess = np.maximum(given / np.maximum(classes.capacity, 1.0), 1.0)
        return np.where(classes.choice, fraction / excess[classes.accelerator], 0.0)


def grid_of(classes: Classes) -> Grid:
    row, option = np.nonzero(classes.choice)
    columns = np.arange(len(row))
    time = Triplets(row, columns, np.ones(len(row)))
    used = (classes.jobs[:, None] * classes.gpus)[row, option]
    return Grid(row, option, time, Triplets(len(classes.jobs) + classes.accelerator[row, option], columns, used))


def solve(problem: str, program: LinearProgram, start: highspy.HighsBasis | None = None) -> ProgramSolution | None:
    """The optimal columns, or None where the rows are infeasible."""
    import highspy  # noqa: PLC0415 (slow to load)

    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    for option, value in _OPTIONS.items():
        solver.setOptionValue(option, value)
    solver.passModel(_as_lp(program))
    if start is not None:
        solver.setBasis(start)
    solver.run()
    status = solver.getModelStatus()
    if status in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible):
        return None
    if status != highspy.HighsModelStatus.kOptimal:
        raise Unsolved(problem, solver.modelStatusToString(status))
    solution, info = solver.getSolution(), solver.getInfo()
    value = info.objective_function_value
    bound = value if program.whole is None else info.mip_dual_bound
    return ProgramSolution(np.array(solution.col_value), value, bound, np.array(solution.row_dual), solver.getBasis())


def _as_lp(program: LinearProgram) -> highspy.HighsLp:
    import highspy  # noqa: PLC0415

    row, column, value = (np.concatenate(parts) for parts in zip(*program.triplets, strict=True))
    order = np.lexsort((row, column))
    columns = len(program.cost)
    model = highspy.HighsLp()
    model.sense_ = highspy.ObjSense.kMaximize
    model.num_col_, model.num_row_ = columns, len(program.low)
    model.col_cost_ = program.cost
    model.col_lower_ = np.zeros(columns)
    model.col_upper_ = np.full(columns, ENDLESS) if program.upper is None else program.upper
    model.row_lower_, model.row_upper_ = program.low, program.high
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = np.searchsorted(column[order], np.arange(columns + 1))
    model.a_matrix_.index_ = row[order]
    model.a_matrix_.value_ = value[order]
    if program.whole is not None:
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        model.integrality_ = [kinds[is_whole] for is_whole in program.whole.tolist()]
    return model
