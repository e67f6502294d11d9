"""Max-min fairness against an independent program over single jobs, and what must not change its answer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pools_of_types import Instance
from scipy.optimize import linprog

from horae.model.arrays import Floats
from horae.policies.max_min import MaxMin
from horae.solvers.classes import Classes, collapse
from horae.solvers.levels.objectives import max_min, water_filling


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    """A few models with gangs and weights, each with several jobs; every job runs somewhere."""
    types = draw(st.integers(1, 4))
    speeds = st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0, 10.0]), min_size=types, max_size=types).filter(any)
    model = st.tuples(speeds, st.sampled_from([1, 2, 4]), st.sampled_from([1.0, 2.0, 5.0]), st.integers(1, 4))
    rows = [(s, g, w) for s, g, w, count in draw(st.lists(model, min_size=1, max_size=6)) for _ in range(count)]
    gpus = draw(st.lists(st.integers(1, 12), min_size=types, max_size=types))
    speed = np.array([row[0] for row in rows])
    return Instance(speed, [row[1] for row in rows], [row[2] for row in rows], gpus)


def by_jobs(instance: Instance, floor: Floats | None = None) -> float:
    """The same program with a row for each job and each type, written out, for another solver to do."""
    jobs, types = instance.speed.shape
    rate = instance.level(np.ones((jobs, types)))  # only to have the scale of each job
    scale = rate / instance.speed.sum(axis=1)
    cells = jobs * types
    cost = np.zeros(cells + 1)
    cost[cells] = -1.0
    rows, sides = [], []
    for job in range(jobs):
        time, level = np.zeros(cells + 1), np.zeros(cells + 1)
        time[job * types : (job + 1) * types] = 1.0
        level[job * types : (job + 1) * types] = -instance.speed[job] * scale[job]
        level[cells] = 1.0
        rows += [time, level]
        sides += [1.0, 0.0]
    for kind in range(types):
        used = np.zeros(cells + 1)
        used[kind:cells:types] = instance.gang
        rows.append(used)
        sides.append(instance.gpus[kind])
    limits = [(0, None if instance.speed.ravel()[cell] > 0 else 0) for cell in range(cells)] + [(0, None)]
    solved = linprog(cost, np.array(rows), np.array(sides), bounds=limits, method="highs-ipm")
    assert solved.fun is not None
    return -float(solved.fun)


def classes_of(instance: Instance) -> tuple[Classes, Floats]:
    view = instance.view()
    classes = collapse(view, view.jobs.speed)
    scale = classes.gang / classes.weight / classes.equal_speed
    return classes, classes.speed * scale[:, None]


@given(instances())
def test_the_least_level_is_that_of_an_independent_program(instance: Instance) -> None:
    answer = max_min(*classes_of(instance))
    want = by_jobs(instance)
    assert answer.value == pytest.approx(want, rel=1e-6)
    assert answer.bound >= want * (1 - 1e-9)
    assert answer.gap <= 1e-6


@given(instances(), st.booleans())
def test_shares_are_feasible_and_reach_the_least_level(instance: Instance, fill: bool) -> None:
    view = instance.view()
    shares = instance.by_type(view, MaxMin(fill=fill).decide(view).fraction)
    instance.check_feasible(shares)
    assert instance.level(shares).min() == pytest.approx(by_jobs(instance), rel=1e-6)


@given(instances(), st.randoms(use_true_random=False))
def test_the_order_of_jobs_changes_nothing(instance: Instance, random: object) -> None:
    order = list(range(len(instance.gang)))
    random.shuffle(order)  # type: ignore[attr-defined]
    first, other = instance.view(), instance.view(order)
    one = instance.by_type(first, MaxMin().decide(first).fraction)
    two = instance.by_type(other, MaxMin().decide(other).fraction)
    assert one == pytest.approx(two, abs=1e-12)


@given(instances())
def test_splitting_a_class_changes_no_level(instance: Instance) -> None:
    """Every job as a class of its own: the answer may differ, the levels may not."""
    classes, rate = classes_of(instance)
    whole = water_filling(classes, rate)
    jobs = classes.member
    split = classes._replace(
        member=np.arange(len(jobs)),
        jobs=np.ones(len(jobs)),
        gang=classes.gang[jobs],
        gpus=classes.gpus[jobs],
        accelerator=classes.accelerator[jobs],
        choice=classes.choice[jobs],
        speed=classes.speed[jobs],
        weight=classes.weight[jobs],
    )
    single = water_filling(split, rate[jobs])
    assert single.value == pytest.approx(whole.value, rel=1e-6)
    one, two = (whole.fraction * rate).sum(axis=1)[jobs], (single.fraction * rate[jobs]).sum(axis=1)
    assert np.minimum(one, 1e9).sum() == pytest.approx(np.minimum(two, 1e9).sum(), rel=1e-5)


def test_the_example_of_the_paper() -> None:
    """One V100 and one K80, three jobs: 18.18, 5.82 and 54.55 steps a second instead of 16.67, 5.33 and 50."""
    instance = Instance(np.array([[40.0, 10.0], [12.0, 4.0], [100.0, 50.0]]), [1, 1, 1], [1.0, 1.0, 1.0], [1, 1])
    view = instance.view()
    shares = instance.by_type(view, MaxMin(fill=False).decide(view).fraction)
    assert shares == pytest.approx(np.array([[5, 0], [5, 1], [1, 10]]) / 11, abs=1e-9)
    assert (shares * instance.speed).sum(axis=1) == pytest.approx([18.1818, 5.8182, 54.5455], abs=1e-4)
