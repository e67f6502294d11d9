"""Finish-time fairness, makespan and water filling against programs over single jobs, done by another solver."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pools_of_types import Instance
from scipy.optimize import linprog

from horae.model.arrays import Floats
from horae.model.decisions import Shares
from horae.policies.finish_time_fairness import FinishTimeFairness
from horae.policies.makespan import Makespan
from horae.solvers.classes import collapse
from horae.solvers.levels.bisection import reach_by_program
from horae.solvers.levels.objectives import water_filling
from horae.solvers.levels.targets import LevelTarget


class Pool(NamedTuple):
    instance: Instance
    age: Floats
    left: Floats
    isolated: Floats  # seconds


@st.composite
def pools(draw: st.DrawFn) -> Pool:
    """A few jobs that run somewhere, with ties and with speeds of nothing; some of them have got on already."""
    types, jobs = draw(st.integers(1, 5)), draw(st.integers(1, 8))
    numbers = st.sampled_from([0.0, 0.5, 1.0, 3.0, 10.0]) if draw(st.booleans()) else st.floats(0.1, 10.0)
    speeds = st.lists(numbers, min_size=types, max_size=types).filter(any)
    ages, lefts = st.sampled_from([0.0, 10.0, 1000.0]), st.sampled_from([1.0, 50.0, 4000.0])
    job = st.tuples(speeds, st.sampled_from([1, 2, 4]), st.sampled_from([1.0, 2.0, 5.0]), ages, lefts, ages)
    rows = draw(st.lists(job, min_size=jobs, max_size=jobs))
    speed, gang, weight = [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]
    age, left, isolated = [row[3] for row in rows], [row[4] for row in rows], [row[5] for row in rows]
    gpus = draw(st.lists(st.integers(1, 12), min_size=types, max_size=types))
    instance = Instance(
        np.array(speed), gang, weight, gpus, steps_left=left, age_seconds=age, isolated_seconds=isolated
    )
    return Pool(instance, np.array(age), np.array(left), np.array(isolated))


def idle_part(instance: Instance, asked: Floats) -> float:
    """The largest part of every type that can stay idle when each job is to have a speed; negative: out of reach."""
    jobs, types = instance.speed.shape
    cells = jobs * types
    rows, sides = [], []
    for job in range(jobs):
        time, speed = np.zeros(cells + 1), np.zeros(cells + 1)
        time[job * types : (job + 1) * types] = 1.0
        speed[job * types : (job + 1) * types] = -instance.speed[job] / instance.speed[job].max()
        rows += [time, speed]
        sides += [1.0, -asked[job] / instance.speed[job].max()]
    for kind in range(types):
        used = np.zeros(cells + 1)
        used[kind:cells:types] = np.array(instance.gang) / instance.gpus[kind]
        used[cells] = 1.0
        rows.append(used)
        sides.append(1.0)
    cost = np.zeros(cells + 1)
    cost[cells] = -1.0
    limits = [(0.0, None if speed > 0 else 0.0) for speed in instance.speed.ravel()] + [(None, None)]
    solved = linprog(cost, np.array(rows), np.array(sides), bounds=limits, method="highs")
    return -np.inf if solved.fun is None else -float(solved.fun)


def alone(instance: Instance) -> Floats:
    """Gavel's isolated speeds, job by job."""
    jobs = len(instance.gang)
    share = np.array(instance.gpus) / jobs / np.array(instance.gang)[:, None] * (instance.speed > 0)
    return (share * instance.speed).sum(axis=1) / np.maximum(share.sum(axis=1), 1.0)


def ratio(pool: Pool, speed: Floats) -> Floats:
    return (pool.age + pool.left / speed) / (pool.isolated + pool.left / alone(pool.instance))


def reached(pool: Pool, answer: Shares) -> Floats:
    """By job: its speed; the shares must be feasible."""
    view = pool.instance.view()
    shares = pool.instance.by_type(view, answer.fraction)
    pool.instance.check_feasible(shares)
    return (shares * pool.instance.speed).sum(axis=1)


@given(pools())
def test_the_worst_ratio_is_as_small_as_can_be(pool: Pool) -> None:
    answer = FinishTimeFairness().decide(pool.instance.view())
    assert answer.evidence is not None
    value = answer.evidence.value
    assert ratio(pool, reached(pool, answer)).max() == pytest.approx(value, rel=1e-9)
    assert answer.evidence.bound == pytest.approx(value, rel=1e-9)
    better = value * (1 - 1e-6) * (pool.isolated + pool.left / alone(pool.instance)) - pool.age
    within_time = (better > 0) & (pool.left <= better * pool.instance.speed.max(axis=1))
    assert not within_time.all() or idle_part(pool.instance, pool.left / better) < 0


@given(pools())
def test_the_makespan_is_as_short_as_can_be(pool: Pool) -> None:
    answer = Makespan().decide(pool.instance.view())
    assert answer.evidence is not None
    value = answer.evidence.value
    assert (pool.left / reached(pool, answer)).max() == pytest.approx(value, rel=1e-9)
    assert answer.evidence.bound == pytest.approx(value, rel=1e-9)
    better = pool.left / (value * (1 - 1e-6))
    assert (better > pool.instance.speed.max(axis=1)).any() or idle_part(pool.instance, better) < 0


@settings(max_examples=30)
@given(pools())
def test_water_filling_leaves_nobody_who_could_rise_at_the_cost_of_the_better_off_only(pool: Pool) -> None:
    """Max-min fairness by its definition: to raise a job somebody no better off would have to fall."""
    view = pool.instance.view()
    classes = collapse(view, view.jobs.speed)
    scale = classes.gang / classes.weight / classes.equal_speed
    answer = water_filling(classes, classes.speed * scale[:, None])
    shares = pool.instance.by_type(view, classes.by_job(answer.fraction))
    pool.instance.check_feasible(shares)
    level = pool.instance.level(shares)
    for job in range(len(level)):
        asked = np.where(level <= level[job] * (1 + 1e-7), level * (1 - 1e-9), level[job] * (1 - 1e-9))
        asked[job] = level[job] * (1 + 1e-4)
        speed = asked * (shares * pool.instance.speed).sum(axis=1) / level
        assert speed[job] > pool.instance.speed[job].max() or idle_part(pool.instance, speed) < 1e-9


@given(pools(), st.randoms(use_true_random=False))
def test_the_order_of_jobs_changes_nothing(pool: Pool, random: object) -> None:
    order = list(range(len(pool.left)))
    random.shuffle(order)  # type: ignore[attr-defined]
    first, other = pool.instance.view(), pool.instance.view(order)
    for policy in (FinishTimeFairness(), Makespan()):
        one = pool.instance.by_type(first, policy.decide(first).fraction)
        two = pool.instance.by_type(other, policy.decide(other).fraction)
        assert one == pytest.approx(two, abs=1e-12)


@settings(max_examples=20)
@given(pools(), st.booleans())
def test_the_slow_way_comes_to_the_same_levels(pool: Pool, fill: bool) -> None:
    """What is done where the compiled method gives up."""
    view = pool.instance.view()
    classes = collapse(view, view.jobs.speed)
    rate = classes.speed * (classes.gang / classes.weight / classes.equal_speed)[:, None]
    levels = classes._replace(speed=rate)
    wish = LevelTarget(classes.served, np.ones(len(rate)), np.zeros(len(rate)))
    slow = reach_by_program("a level", levels, wish, fill=fill, gain=None)
    quick = water_filling(classes, rate)
    assert slow.value == pytest.approx(quick.value, rel=1e-6)
    if fill:
        assert (slow.fraction * rate).sum(axis=1) == pytest.approx((quick.fraction * rate).sum(axis=1), rel=1e-4)
