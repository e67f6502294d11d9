"""A linear program over classes with pairs as columns, solved by HiGHS on one thread, with column generation.

A column is the time that gangs run in a cell, alone or two together, summed over the jobs of the class. Its rows are

    time      sum over columns of y x (how many jobs of class c are in it) <= jobs of c
    GPUs      sum over columns of y x GPUs, of a pair once                 <= GPUs of the accelerator
    level     sum over columns of y x rate of class c, as far as kept      >= jobs of c x (need of c x t, or a floor)

each divided by its right side, so that tolerances are relative.

Pairs are added only when the prices of time, GPUs and levels say that they would raise the value. When none would, the
answer is optimal for the program with all pairs, and the same prices prove it.
"""

from __future__ import annotations

from typing import NamedTuple

import highspy
import numpy as np

from horae.model.arrays import Bools, Floats, Ints
from horae.solvers.linear_program import ITERATIONS_MAX
from horae.solvers.solution import Unsolved
from horae.solvers.space_sharing.columns import Duos, SharingProblem, Together

ROUNDS_MAX = 10_000  # of pricing
PRICE_MIN = 1e-9  # below that a level is not what limits the others
_SURPLUS_MIN = 1e-9  # relative to the largest gain of a cell
_DUST = 1e-9  # of job-time: rounding, not a share, although a mechanism would serve it first
_ENDLESS = highspy.kHighsInf
_OPTIONS: dict[str, bool | int | float | str] = {
    "output_flag": False,
    "threads": 1,
    "presolve": "off",  # it would discard the last basis
    "solver": "simplex",
    "simplex_strategy": 4,  # primal: the last optimum stays feasible when columns are added
    "simplex_iteration_limit": ITERATIONS_MAX,
    "primal_feasibility_tolerance": 1e-9,
    "dual_feasibility_tolerance": 1e-9,
}


class Prices(NamedTuple):
    """The gain in value per extra unit: a job's whole time, a GPU; or per unit less of the need of a class."""

    time: Floats  # by class
    gpu: Floats  # by accelerator
    level: Floats  # by class
    surplus: float  # no column adds more than this at these prices

    def worth(self, company: SharingProblem, floor: Floats) -> float:
        """An upper bound on the value of any allocation.

        No column adds more than it costs and the surplus, and no gang runs longer than all the time.
        """
        classes = company.classes
        worth = self.time @ classes.jobs + self.gpu @ classes.capacity - self.level @ floor
        return float(worth + max(self.surplus, 0.0) * classes.jobs.sum())


class Master:
    """A program that keeps its columns and its basis from one solve to the next."""

    def __init__(self, problem: str, company: SharingProblem, rate: Floats, need: Floats) -> None:
        """Set up the program; `rate`: by cell; `need`: by class, the least rate of each job, in units of t."""
        self.problem = problem
        self.company = company
        self.rate = rate
        self.need = need
        self.value = np.zeros(len(rate))  # by cell: per unit of its time
        self.aim = 1.0  # value of t
        self.floor = np.zeros(len(need))
        self._duos = company.duos(np.empty(0, dtype=np.int64))
        self._open = company.possible.copy()  # pairs that are not in the program
        self._solver = self._make()

    def _make(self) -> highspy.Highs:
        company, classes = self.company, self.company.classes
        count, types = len(classes.jobs), len(classes.capacity)
        cells = len(company.row)
        program = highspy.HighsLp()
        program.sense_ = highspy.ObjSense.kMaximize
        program.num_col_, program.num_row_ = cells + 1, 2 * count + types
        program.col_cost_ = np.append(self.aim, self.value)
        program.col_lower_, program.col_upper_ = np.zeros(cells + 1), np.full(cells + 1, _ENDLESS)
        program.row_lower_ = np.concatenate([np.full(count + types, -_ENDLESS), np.zeros(count)])
        program.row_upper_ = np.concatenate([np.ones(count + types), np.full(count, _ENDLESS)])
        jobs, capacity = classes.jobs[company.row], np.maximum(classes.capacity, 1.0)
        index = np.stack([company.row, count + company.accelerator, count + types + company.row], axis=1)
        entry = np.stack([1 / jobs, company.gpus / capacity[company.accelerator], self.rate / jobs], axis=1)
        program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        program.a_matrix_.start_ = np.append(0, count + 3 * np.arange(cells + 1))
        program.a_matrix_.index_ = np.append(count + types + np.arange(count), index)
        program.a_matrix_.value_ = np.append(-self.need, entry)
        solver = highspy.Highs()  # type: ignore[no-untyped-call]
        for option, setting in _OPTIONS.items():
            solver.setOptionValue(option, setting)
        solver.passModel(program)
        return solver

    def ask(self, need: Floats) -> None:
        """Set what each job needs, in units of t."""
        first = len(self.company.classes.jobs) + len(self.company.classes.capacity)
        for number in np.flatnonzero(need != self.need).tolist():
            self._solver.changeCoeff(first + number, 0, -float(need[number]))
        self.need = need

    def hold(self, classes: Bools, floor: Floats) -> None:
        """Hold these classes: they no longer rise with t, and do not fall below their floors."""
        first = len(self.company.classes.jobs) + len(self.company.classes.capacity)
        self.ask(np.where(classes, 0.0, self.need))
        self.floor = np.where(classes, floor, self.floor)
        for number in np.flatnonzero(classes).tolist():
            self._solver.changeRowBounds(first + number, float(floor[number]), _ENDLESS)

    def aim_at(self, aim: float, value: Floats) -> None:
        """Set the objective: the value of t and of the time of each cell."""
        self.aim, self.value = aim, value
        columns = 1 + len(value) + len(self._duos.number)
        cost = np.concatenate([[aim], value, self._duos.sum(value)])
        self._solver.changeColsCost(columns, np.arange(columns, dtype=np.int32), cost)

    def solve(self) -> tuple[float, Prices]:
        """The t at the optimum, and the prices that prove it."""
        for _ in range(ROUNDS_MAX):
            prices = self._run()
            wanted, prices = self._price(prices)
            if not len(wanted):
                return float(self._solver.getSolution().col_value[0]), prices
            self.admit(wanted)
        raise Unsolved(self.problem, f"pairs still came in after {ROUNDS_MAX} rounds of pricing")

    def raise_others(self, t: float, prices: Prices) -> None:
        """From the best t on, raise the others stage by stage, until no class can rise."""
        need = self.need
        rising = need > 0
        while rising.any():
            held = rising & (prices.level > PRICE_MIN)
            if not held.any():
                raise Unsolved(self.problem, "levels rise without end")
            self.hold(held, need * t)
            rising = rising & ~held
            if rising.any():
                t, prices = self.solve()

    def together(self) -> Together:
        """The allocation of the last solve, within its limits to the last digit."""
        columns = np.array(self._solver.getSolution().col_value)[1:]
        cells = len(self.company.row)
        return within_limits(self.company, columns[:cells], self._duos, columns[cells:])

    def worth(self, prices: Prices) -> float:
        """An upper bound on the value of any allocation: see `Prices.worth`."""
        return prices.worth(self.company, self.floor)

    def _run(self) -> Prices:
        solver, classes = self._solver, self.company.classes
        solver.run()
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            solver.clearSolver()  # changes since may have left a singular basis: start without one
            solver.run()
        status = solver.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            raise Unsolved(self.problem, solver.modelStatusToString(status))
        dual = np.array(solver.getSolution().row_dual)
        time, gpu, level = np.split(dual, np.cumsum([len(classes.jobs), len(classes.capacity)]))
        gpu = np.maximum(gpu, 0.0) / np.maximum(classes.capacity, 1.0)
        return Prices(np.maximum(time, 0.0) / classes.jobs, gpu, np.maximum(-level, 0.0), 0.0)

    def _price(self, prices: Prices) -> tuple[Ints, Prices]:
        """The pairs that would raise the value most, and the prices with the most that any column would add."""
        company, duos = self.company, self._duos
        gain = self.value + (prices.level / company.classes.jobs)[company.row] * self.rate
        gpus, time = prices.gpu[company.accelerator] * company.gpus, prices.time[company.row]
        cost = time + gpus / 2
        most = float((gain - gpus - time).max(initial=0.0))
        most = max(most, float((duos.sum(gain) - cost[duos.one] - cost[duos.other]).max(initial=0.0)))
        if not company.kept.size:
            return duos.number[:0], prices._replace(surplus=most)
        from horae.solvers.space_sharing.pricing_kernel import best_pairs  # noqa: PLC0415  numba is slow to import

        wanted, added = best_pairs(gain, cost, company.cell, company.kept, self._open, _SURPLUS_MIN * gain.max())
        return wanted, prices._replace(surplus=max(most, added))

    def admit(self, wanted: Ints) -> None:
        """Add columns for these pairs, which it does not have yet.

        A class with itself has one entry per row where two classes have two.
        """
        company, jobs, duos = self.company, self.company.classes.jobs, self.company.duos(wanted)
        capacity = np.maximum(company.classes.capacity, 1.0)
        count, levels = len(jobs), len(jobs) + len(capacity)
        first, second, accelerator = company.row[duos.one], company.row[duos.other], company.accelerator[duos.one]
        twice = first == second
        level, level_too = (
            self.rate[duos.one] * duos.kept / jobs[first],
            self.rate[duos.other] * duos.kept_too / jobs[second],
        )
        index = np.stack([first, second, count + accelerator, levels + first, levels + second], axis=1)
        gpus, times = company.gpus[duos.one] / capacity[accelerator], np.where(twice, 2.0, 1.0)
        entry = np.stack([times / jobs[first], 1 / jobs[second], gpus, level + twice * level_too, level_too], axis=1)
        there = np.ones(entry.shape, dtype=np.bool_)
        there[:, 1] = there[:, 4] = ~twice
        start = np.cumsum(there.sum(axis=1)) - there.sum(axis=1)
        nothing, endless = np.zeros(len(wanted)), np.full(len(wanted), _ENDLESS)
        self._solver.addCols(
            len(wanted), duos.sum(self.value), nothing, endless, int(there.sum()),
            start.astype(np.int32), index[there].astype(np.int32), entry[there],
        )  # fmt: skip
        self._duos = Duos(*(np.concatenate(both) for both in zip(self._duos, duos, strict=True)))
        self._open.ravel()[wanted] = False  # the kernel visits only pairs with the smaller place first


def within_limits(company: SharingProblem, alone: Floats, duos: Duos, paired: Floats) -> Together:
    """An allocation without rounding residues, cut back to its limits to the last digit."""
    classes = company.classes
    alone, used = np.where(alone < _DUST, 0.0, alone), paired >= _DUST
    duos = duos.some(used)
    together = Together(alone, duos, paired[used])
    time, gpus = company.used(together)
    over = np.maximum(time / classes.jobs, 1.0)[company.row]
    over *= np.maximum(gpus / np.maximum(classes.capacity, 1.0), 1.0)[company.accelerator]
    return Together(alone / over, duos, together.paired / np.maximum(over[duos.one], over[duos.other]))
