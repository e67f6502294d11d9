"""The same optima by the straightforward formulation in cvxpy: a row for each job, every pair listed.

cvxpy chooses its solver itself. The time is that of building and solving the problem.
"""

from __future__ import annotations

from typing import Any

import cvxpy
import numpy as np
from scipy.sparse import coo_array

from bench.pools import Pool
from horae.model.arrays import Bools, Floats

cp: Any = cvxpy  # whose functions have no types
ACCURATE = {"solver": "HIGHS"}  # for floors that were just reached, and must be within reach again


def max_min(pool: Pool) -> float:
    x, rules = _shares(pool)
    return _solve(cp.Maximize(cp.min(_levels(pool, x))), rules)


def finish_time_fairness(pool: Pool) -> float:
    x, rules = _shares(pool)
    fastest = pool.speed.max(axis=1)
    alone_seconds = pool.isolated_seconds + pool.steps_left / _isolated_speed(pool)
    rate = cp.sum(cp.multiply(pool.speed / fastest[:, None], x), axis=1)
    seconds = cp.multiply(pool.steps_left / fastest / alone_seconds, cp.inv_pos(rate))
    return _solve(cp.Minimize(cp.max(pool.age_seconds / alone_seconds + seconds)), rules)


def water_filling(pool: Pool) -> float:
    """All rise together; then each is asked, by a program of its own, whether it can rise on. The sum of levels."""
    x, rules = _shares(pool)
    levels = _levels(pool, x)
    floor = np.zeros(len(pool.gang))
    rising: Bools = np.ones(len(floor), dtype=bool)
    while rising.any():
        rise = cp.Variable(nonneg=True)
        lowest = floor * (1 - 1e-9)
        floor = floor + rising * _solve(cp.Maximize(rise), [*rules, levels >= lowest + rise * rising], **ACCURATE)
        kept = [*rules, levels >= floor * (1 - 1e-9)]
        for job in np.flatnonzero(rising):
            rising[job] = _solve(cp.Maximize(levels[job]), kept, **ACCURATE) > floor[job] * (1 + 1e-7)
    return float(floor.sum())


def max_min_in_pairs(pool: Pool) -> float:
    """A column for every job and every pair on every type."""
    jobs, types = pool.speed.shape
    first, second = np.triu_indices(jobs, 1)
    columns, scale = len(first) * types, _scale(pool)
    pair = np.arange(columns).reshape(-1, types)
    kind = np.tile(np.arange(types), (len(first), 1))
    rows = np.concatenate([np.repeat(first, types), np.repeat(second, types)])
    numbers = np.concatenate([pair.ravel(), pair.ravel()])
    one, two = pool.model[first], pool.model[second]
    together = np.concatenate(
        [(pool.speed[first] * pool.kept[one, two]).ravel(), (pool.speed[second] * pool.kept[two, one]).ravel()]
    )
    time = coo_array((np.ones(2 * columns), (rows, numbers)), shape=(jobs, columns)).tocsr()
    level = coo_array((together * scale[rows], (rows, numbers)), shape=(jobs, columns)).tocsr()
    used = coo_array((np.ones(columns), (kind.ravel(), pair.ravel())), shape=(types, columns)).tocsr()
    x, y = cp.Variable((jobs, types), nonneg=True), cp.Variable(columns, nonneg=True)
    rules = [cp.sum(x, axis=1) + time @ y <= 1, pool.gang @ x + used @ y <= pool.gpus]
    return _solve(cp.Maximize(cp.min(_levels(pool, x) + level @ y)), rules)


def _shares(pool: Pool) -> tuple[Any, list[Any]]:
    x = cp.Variable(pool.speed.shape, nonneg=True)
    used = (pool.gang @ x) @ np.eye(len(pool.gpus))[pool.kind]
    return x, [cp.sum(x, axis=1) <= 1, used <= pool.gpus]


def _levels(pool: Pool, x: Any) -> Any:
    return cp.multiply(_scale(pool), cp.sum(cp.multiply(pool.speed, x), axis=1))


def _scale(pool: Pool) -> Floats:
    return pool.gang / (pool.speed @ pool.gpus[pool.kind] / pool.gpus.sum())


def _isolated_speed(pool: Pool) -> Floats:
    share = pool.gpus[pool.kind] / len(pool.gang) / pool.gang[:, None]
    share = share / np.maximum(share.sum(axis=1, keepdims=True), 1.0)
    speed: Floats = (pool.speed * share).sum(axis=1)
    return speed


def _solve(objective: Any, rules: list[Any], **options: Any) -> float:
    problem = cp.Problem(objective, rules)
    problem.solve(**options)
    assert problem.status in ("optimal", "optimal_inaccurate"), problem.status
    return float(problem.value)
