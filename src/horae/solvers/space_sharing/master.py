"""The program of `highs_master`, solved by the kernel of `simplex_kernel` as long as it is small.

Where the kernel fails to progress, HiGHS takes over, with the same problem.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from horae.model.arrays import Bools, Floats, Ints
from horae.solvers.space_sharing.columns import SharingProblem, Together
from horae.solvers.space_sharing.highs_master import PRICE_MIN, Master, Prices, within_limits

if TYPE_CHECKING:
    from horae.solvers.space_sharing.simplex_kernel import RightHandSide, SharingBasis, SharingData

CLASSES_MAX = 100  # with more, the inverse is so large that HiGHS is as fast
_OVERDRAWN = 1e-9  # of a right side


class MasterProblem(Protocol):
    """A program that keeps its columns and its basis from one solve to the next."""

    problem: str
    need: Floats

    def ask(self, need: Floats) -> None: ...
    def hold(self, classes: Bools, floor: Floats) -> None: ...
    def aim_at(self, aim: float, value: Floats) -> None: ...
    def solve(self) -> tuple[float, Prices]: ...
    def raise_others(self, t: float, prices: Prices) -> None: ...
    def together(self) -> Together: ...
    def worth(self, prices: Prices) -> float: ...


def program_of(problem: str, company: SharingProblem, rate: Floats, need: Floats) -> MasterProblem:
    """The program. `rate`: by cell; `need`: by class, the least rate of each job, in units of t."""
    kind = Small if 0 < len(need) <= CLASSES_MAX and company.kept.size else Master
    return kind(problem, company, rate, need)


class Small:
    """Like `Master`, by the kernel; levels count from t at the last hold, so that t can start at 0 again."""

    def __init__(self, problem: str, company: SharingProblem, rate: Floats, need: Floats) -> None:
        self.problem, self.company, self.rate, self.need = problem, company, rate, need
        self.value = np.zeros(len(rate))
        self.aim = 1.0
        self.floor = np.zeros(len(need))
        self._begin = 0.0  # t at the last hold
        self._large: Master | None = None
        self._board = _board(company, rate)
        self._basis: SharingBasis | None = None

    def ask(self, need: Floats) -> None:
        """Set what each job needs, in units of t."""
        self.need = need
        if self._large:
            self._large.ask(need)
        elif self._begin > 0:
            self._enlarge()
        elif self._basis:
            from horae.solvers.space_sharing.simplex_kernel import renew  # noqa: PLC0415  numba is slow to import

            if renew(self._board, self._task(), self._basis) < -_OVERDRAWN:
                self._basis = None

    def hold(self, classes: Bools, floor: Floats) -> None:
        """Hold these classes: they no longer rise with t, and do not fall below their floors."""
        from horae.solvers.space_sharing.simplex_kernel import renew, stay  # noqa: PLC0415  numba is slow to import

        t, need = self._t(), self.need
        self.need = np.where(classes, 0.0, need)
        self.floor = np.where(classes, floor, self.floor)
        if self._large:
            self._large.hold(classes, floor)
        elif not self._basis or not stay(self._basis, classes):
            self._enlarge()
        else:
            self._begin = t
            moves = bool((floor != need * t)[classes].any())
            if moves and renew(self._board, self._task(), self._basis) < -_OVERDRAWN:
                self._enlarge()

    def aim_at(self, aim: float, value: Floats) -> None:
        """Set the objective: the value of t and of the time of each cell."""
        self.aim, self.value = aim, value
        if self._large:
            self._large.aim_at(aim, value)

    def solve(self) -> tuple[float, Prices]:
        """The t at the optimum, and the prices that prove it."""
        from horae.solvers.space_sharing.simplex_kernel import improve  # noqa: PLC0415  numba is slow to import

        if self._large is None:
            task = self._task()
            if self._basis is None:
                self._basis = _first_basis(self._board, self.company, task)
            surplus = improve(self._board, task, self._basis)
            if surplus < np.inf:
                return self._t(), self._prices(self._basis, surplus)
        return (self._large or self._enlarge()).solve()

    def raise_others(self, t: float, prices: Prices) -> None:
        """From the best t on, raise the others stage by stage, until no class can rise."""
        from horae.solvers.space_sharing.simplex_kernel import raise_others  # noqa: PLC0415  numba is slow to import

        if self._large:
            self._large.raise_others(t, prices)
        elif self._basis:
            task = self._task()
            self._begin = raise_others(self._board, task, self._basis, PRICE_MIN, self._begin)
            self.floor = np.where(task.need > 0, 0.0, task.side[-len(self.need) :])
            self.need = task.need
            if self.need.any():
                large = self._enlarge()
                large.raise_others(*large.solve())

    def together(self) -> Together:
        """The allocation of the last solve, within its limits to the last digit."""
        if self._large:
            return self._large.together()
        assert self._basis is not None, "nothing was solved"
        cells, amount = len(self.rate), self._basis.amount
        alone, pairs = np.zeros(cells), self._pairs(self._basis)
        cell = self._basis.column - len(amount) - 1
        is_alone = (cell >= 0) & (cell < cells)
        alone[cell[is_alone]] = amount[is_alone]
        return within_limits(self.company, alone, self.company.duos(cell[pairs] - cells), amount[pairs])

    def worth(self, prices: Prices) -> float:
        """An upper bound on the value of any allocation: see `Prices.worth`."""
        return prices.worth(self.company, self.floor)

    def _t(self) -> float:
        if self._basis is None:
            return 0.0
        return self._begin + float(self._basis.amount[self._basis.column == len(self._basis.column)].sum())

    def _task(self) -> RightHandSide:
        from horae.solvers.space_sharing.simplex_kernel import RightHandSide  # noqa: PLC0415  numba is slow to import

        sides = np.ones(len(self.need) + len(self.company.classes.capacity)), self.floor + self.need * self._begin
        return RightHandSide(self.need.copy(), np.concatenate(sides), self.aim, self.value)

    def _prices(self, basis: SharingBasis, surplus: float) -> Prices:
        classes = self.company.classes
        count, levels = len(classes.jobs), len(basis.price) - len(classes.jobs)
        gpu = basis.price[count:levels] / np.maximum(classes.capacity, 1.0)
        return Prices(basis.price[:count] / classes.jobs, gpu, -basis.price[levels:], surplus)

    def _pairs(self, basis: SharingBasis) -> Ints:
        """The rows whose columns are pairs, by the number of the pair."""
        rows = np.flatnonzero(basis.column > len(basis.column) + len(self.rate))
        return rows[np.argsort(basis.column[rows])]

    def _enlarge(self) -> Master:
        """Switch to HiGHS with the same problem."""
        self._large = large = Master(self.problem, self.company, self.rate, self.need)
        if self._basis:  # floors may be infeasible without its pairs
            large.admit(self._basis.column[self._pairs(self._basis)] - len(self._basis.column) - 1 - len(self.rate))
        if self.floor.any():
            large.hold(self.floor > 0, self.floor)
        large.aim_at(self.aim, self.value)
        return large


def _board(company: SharingProblem, rate: Floats) -> SharingData:
    from horae.solvers.space_sharing.simplex_kernel import SharingData  # noqa: PLC0415  numba is slow to import

    jobs = company.classes.jobs[company.row]
    use = company.gpus / np.maximum(company.classes.capacity, 1.0)[company.accelerator]
    places = company.cell, company.kept, company.possible
    row = np.ascontiguousarray(company.row)  # else the kernel would be compiled a second time, for rows with gaps
    return SharingData(row, company.accelerator, 1 / jobs, use, rate / jobs, *places)


def _first_basis(board: SharingData, company: SharingProblem, task: RightHandSide) -> SharingBasis:
    """The first basis: every class with a need runs alone, where it is fastest, and t is as large as that allows."""
    from horae.solvers.space_sharing.simplex_kernel import SharingBasis, renew  # noqa: PLC0415  numba is slow to import

    classes, size = len(task.need), len(task.side)
    column = np.arange(size)
    needy = np.flatnonzero(task.need > 0)
    if len(needy):
        cells = _fastest(company, board.level)[needy]
        time = task.need[needy] / board.level[cells]
        used = np.zeros(size - classes)
        used[needy] = time * board.time[cells]
        np.add.at(used, classes + board.kind[cells], time * board.use[cells])
        column[size - classes + needy] = size + 1 + cells
        column[np.argmax(used)] = size
    basis = SharingBasis(column, np.zeros(size), np.zeros(size), np.zeros((size, size)))
    renew(board, task, basis)
    return basis


def _fastest(company: SharingProblem, level: Floats) -> Ints:
    """By class: its fastest cell, the first of equal ones; 0 for those that have none."""
    order = np.lexsort((np.arange(len(level)), -level, company.row))
    fastest = np.zeros(len(company.first), dtype=np.int64)
    fastest[company.row[order][::-1]] = order[::-1]
    return fastest
