"""Gavel's policies (OSDI'20, sections 4 and 5) as one would write them down: a row for each job, every pair listed.

Nothing is collapsed, priced out or warm-started; a general solver does all the work. Slow, and easy to check against
the formulas. Jobs that run on no GPU type of the pool have no part in any of it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any, NamedTuple
from warnings import catch_warnings

import cvxpy as cp
import numpy as np
from pools_of_types import Instance

from horae.model.arrays import Bools, Floats

atoms: Any = cp  # which cvxpy does not type
LINEAR: dict[str, Any] = {
    "solver": cp.HIGHS,
    "primal_feasibility_tolerance": 1e-10,
    "dual_feasibility_tolerance": 1e-10,
}
TOLERANCES = (1e-10, 1e-9, 1e-8)  # of interior points: the first that can be reached
RISES = 1e-7  # a level that can rise by less, of its scale, cannot rise


class Unsolvable(Exception):
    """The program has no answer, or the solver found none."""


class Column(NamedTuple):
    """Jobs that are on the same GPUs at the same time, one or two of them, and how fast each is there."""

    jobs: tuple[int, ...]
    type: int
    speed: tuple[float, ...]


class Shared(NamedTuple):
    """X, what may be asked of it, and what follows from it."""

    rules: list[cp.Constraint]
    throughput: cp.Expression  # by job: steps a second
    per_dollar: cp.Expression  # of all jobs together: steps a second on each type over its price
    served: Bools  # by job: it runs somewhere


def allocation(instance: Instance, speed: Floats | None = None, sharing: bool = False) -> Shared:
    """X >= 0, no job beyond all of its time, no type beyond its GPUs; `speed`: by job and type, if it is not theirs."""
    jobs, types = instance.speed.shape
    columns = _alone(instance, speed) + (_pairs(instance, speed) if sharing else [])
    price = instance.price if len(instance.price) else np.ones(types)
    time, throughput = np.zeros((jobs, len(columns))), np.zeros((jobs, len(columns)))
    used, per_dollar = np.zeros((types, len(columns))), np.zeros(len(columns))
    for number, column in enumerate(columns):
        used[column.type, number] = instance.gang[column.jobs[0]]
        per_dollar[number] = sum(column.speed) / price[column.type]
        for job, steps in zip(column.jobs, column.speed, strict=True):
            time[job, number] = 1.0
            throughput[job, number] = steps
    x: Any = cp.Variable(len(columns), nonneg=True)
    rules = [time @ x <= 1, used @ x <= np.array(instance.gpus, dtype=np.float64)]
    return Shared(rules, throughput @ x, per_dollar @ x, np.array(time.any(axis=1)))


def _alone(instance: Instance, speed: Floats | None) -> list[Column]:
    """A column for each job, type and level at which it runs, where the type has GPUs."""
    return [
        Column((job,), number, (float(steps[job, number] if speed is None else speed[job, number]),))
        for _, steps in instance.levels
        for job in range(len(instance.gang))
        for number in range(len(instance.gpus))
        if steps[job, number] > 0 and instance.gpus[number] > 0
    ]


def _pairs(instance: Instance, speed: Floats | None) -> list[Column]:
    """Two jobs of one gang size on a type that has GPUs, where both run and keep some of their speed."""
    assert instance.kept is not None
    assert instance.spread is None
    believed = instance.speed if speed is None else speed
    columns = []
    for jobs in combinations(range(len(instance.gang)), 2):
        first, second = jobs
        one, two = instance.models[first], instance.models[second]
        for number in range(len(instance.gpus)):
            kept = (instance.kept[one, two, number], instance.kept[two, one, number])
            runs = min(instance.speed[first, number], instance.speed[second, number], *kept) > 0
            if runs and instance.gang[first] == instance.gang[second] and instance.gpus[number] > 0:
                steps = (float(believed[first, number] * kept[0]), float(believed[second, number] * kept[1]))
                columns.append(Column(jobs, number, steps))
    return columns


def solve(objective: cp.Maximize | cp.Minimize, rules: list[cp.Constraint], options: dict[str, Any]) -> float:
    problem: Any = cp.Problem(objective, rules)
    problem.solve(**options)
    if problem.status != cp.OPTIMAL:
        raise Unsolvable(problem.status)
    return float(problem.value)


def solve_convex(objective: cp.Maximize | cp.Minimize, rules: list[cp.Constraint]) -> float:
    for tolerance in TOLERANCES:
        limits = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), tolerance)
        try:
            with catch_warnings(action="ignore"):
                return solve(objective, rules, {"solver": cp.CLARABEL, **limits})
        except Unsolvable:
            continue
    raise Unsolvable("not to eight digits")


def equal_throughput(instance: Instance) -> Floats:
    """tput(m, X_equal): time shares in proportion to the GPUs of each type, the best shape of each."""
    best = np.maximum.reduce([matrix for _, matrix in instance.levels])
    gpus = np.array(instance.gpus, dtype=np.float64)
    return best @ gpus / gpus.sum()


def level_scale(instance: Instance) -> Floats:
    """By job: what turns its throughput into its level, s / w / tput(X_equal)."""
    equal = equal_throughput(instance)
    return np.array(instance.gang) / np.array(instance.weight) / np.where(equal > 0, equal, 1.0)


def unaware(instance: Instance) -> Instance:
    """As max-min fairness that is not aware of types sees it: speed 1 wherever a job runs."""
    spread = None if instance.spread is None else (instance.spread > 0).astype(np.float64)
    return instance._replace(speed=(instance.speed > 0).astype(np.float64), spread=spread)


def max_min(instance: Instance, sharing: bool = False) -> float:
    """max min over m of (s / w) tput(m, X) / tput(m, X_equal)."""
    shared = allocation(instance, sharing=sharing)
    levels = atoms.multiply(shared.throughput, level_scale(instance))[np.flatnonzero(shared.served)]
    return solve(cp.Maximize(atoms.min(levels)), shared.rules, LINEAR)


def water_filling(instance: Instance, sharing: bool = False) -> Floats:
    """By job: its level when all are lexicographically as high as can be; they are unique."""
    weight = np.array(instance.weight)
    return _risen(instance, lambda rising: np.where(rising, weight, 0.0), sharing) / weight


def hierarchical(instance: Instance, weights: dict[str, float], fifo: set[str]) -> Floats:
    """By job: tput(m, X) / tput(m, X_equal) when the water has risen as far as it goes.

    An organisation's weight is that of its jobs that can still rise: in proportion to their own, or all of it to the
    first of them.
    """
    weight, tenant = np.array(instance.weight), np.array(instance.tenant)
    first_come = np.argsort(-np.array(instance.age_seconds), kind="stable") if len(instance.age_seconds) else None

    def rates(rising: Bools) -> Floats:
        rate = np.zeros(len(weight))
        for name in dict.fromkeys(instance.tenant):
            mine = np.flatnonzero(rising & (tenant == name))
            if name in fifo:
                mine = mine[:1] if first_come is None else first_come[np.isin(first_come, mine)][:1]
            rate[mine] = weights[name] * weight[mine] / weight[mine].sum()
        return rate

    return _risen(instance, rates) / np.array(instance.gang)


def _risen(instance: Instance, rates: Callable[[Bools], Floats], sharing: bool = False) -> Floats:
    """By job: s tput(X) / tput(X_equal), risen at these rates, each as far as it can without another's falling."""
    shared = allocation(instance, sharing=sharing)
    height = atoms.multiply(shared.throughput, level_scale(instance) * np.array(instance.weight))
    floor, rising = np.zeros(len(instance.gang)), shared.served.copy()
    while rising.any():
        rate = rates(rising)
        rise = cp.Variable(nonneg=True)
        rules = [*shared.rules, height >= floor * (1 - 1e-9) + rise * rate]
        floor = floor + rate * solve(cp.Maximize(rise), rules, LINEAR)
        kept = [*shared.rules, height >= floor * (1 - 1e-9)]
        for job in np.flatnonzero(rate > 0):
            if solve(cp.Maximize(height[job]), kept, LINEAR) <= floor[job] * (1 + RISES) + RISES * 1e-3:
                rising[job] = False
    return floor


def isolated_throughput(instance: Instance, speed: Floats | None = None) -> Floats:
    """tput(m, X_isolated): n_j / jobs / s_m of each type on which it runs, no more than all of its time."""
    speed = instance.speed if speed is None else speed
    share = np.array(instance.gpus) / len(instance.gang) / np.array(instance.gang)[:, None]
    share = np.where(instance.speed > 0, share, 0.0)
    share = share / np.maximum(share.sum(axis=1, keepdims=True), 1.0)
    return (speed * share).sum(axis=1)


def finish_time_fairness(instance: Instance, speed: Floats | None = None, sharing: bool = False) -> float:
    """min max over m of (t + left / tput(X)) / (isolated time so far + left / tput(X_isolated))."""
    shared = allocation(instance, speed, sharing)
    left, age = np.array(instance.steps_left), np.array(instance.age_seconds)
    alone_seconds = np.array(instance.isolated_seconds) + left / isolated_throughput(instance, speed)
    best = (instance.speed if speed is None else speed).max(axis=1)  # so that all numbers are near 1
    seconds = atoms.multiply(left / best / alone_seconds, atoms.inv_pos(atoms.multiply(shared.throughput, 1 / best)))
    return solve_convex(cp.Minimize(atoms.max(age / alone_seconds + seconds)), shared.rules)


def makespan(instance: Instance, speed: Floats | None = None, sharing: bool = False) -> float:
    """min T such that tput(m, X) >= left / T."""
    shared = allocation(instance, speed, sharing)
    done = atoms.multiply(shared.throughput, np.median(instance.steps_left) / np.array(instance.steps_left))
    rate = solve(cp.Maximize(atoms.min(done[np.flatnonzero(shared.served)])), shared.rules, LINEAR)
    return float(np.median(instance.steps_left)) / rate


def total_throughput(instance: Instance, sharing: bool = False) -> float:
    """max sum over m of tput(m, X), over the price of each type where there are prices."""
    shared = allocation(instance, sharing=sharing)
    return solve(cp.Maximize(shared.per_dollar), shared.rules, LINEAR)


class Kept(NamedTuple):
    met: int
    per_dollar: float
    choices: list[tuple[int, ...]]  # all sets of that many deadlines that can be met together


def min_cost(instance: Instance, sharing: bool = False, hair: float = 0.0) -> Kept:
    """The most throughput per dollar with as many deadlines met as possible, every set of them tried."""
    shared = allocation(instance, sharing=sharing)
    seconds, left = np.array(instance.deadline_seconds), np.array(instance.steps_left)
    wishes = [int(job) for job in np.flatnonzero(np.isfinite(seconds))]
    for count in range(len(wishes), -1, -1):
        found: dict[tuple[int, ...], float] = {}
        for chosen in combinations(wishes, count):
            if (seconds[list(chosen)] <= 0).any():
                continue
            met = [shared.throughput[job] >= left[job] / seconds[job] * (1 + hair) for job in chosen]
            try:
                found[chosen] = solve(cp.Maximize(shared.per_dollar), [*shared.rules, *met], LINEAR)
            except Unsolvable:
                continue
        if found:
            best = max(found.values())
            return Kept(count, best, [chosen for chosen, value in found.items() if value >= best * (1 - 1e-7)])
    raise AssertionError("no deadlines at all can always be met")


def nash(instance: Instance, without: int | None = None) -> Floats:
    """By job: its throughput where the product of all, each to the power of its weight, is largest."""
    shared = allocation(instance)
    jobs = [job for job in np.flatnonzero(shared.served).tolist() if job != without]
    throughput = np.zeros(len(instance.gang))
    if not jobs:
        return throughput
    best = instance.speed.max(axis=1)
    weight = np.array(instance.weight)[jobs]
    rates = atoms.multiply(shared.throughput, 1 / best)[jobs]
    solve_convex(cp.Maximize(atoms.sum(atoms.multiply(weight / weight.sum(), atoms.log(rates)))), shared.rules)
    throughput[jobs] = rates.value * best[jobs]
    return throughput


def partial_allocation(instance: Instance) -> Floats:
    """By job: its Nash throughput, times what it costs the others that it is there (Cole, Gkatzelis, Goel)."""
    together = nash(instance)
    weight = np.array(instance.weight)
    served = np.flatnonzero(together > 0)
    discounted = together.copy()
    for job in served.tolist():
        others = served[served != job]
        without = nash(instance, job)
        ratio = (together[others] / without[others]) ** (weight[others] / weight[job])
        discounted[job] *= float(np.prod(ratio))
    return discounted
