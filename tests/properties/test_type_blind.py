"""Shares spread over GPU types by policies that are not aware of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pools_of_types import Instance

from horae.model.arrays import Floats
from horae.policies.finish_time_fairness import FinishTimeFairness
from horae.policies.makespan import Makespan
from horae.policies.max_min import MaxMin
from horae.solvers.classes import Classes, collapse
from horae.solvers.levels.objectives import ClassProgress, finish_time_fairness, isolated_speed, water_filling
from horae.solvers.levels.solve import reach_level
from horae.solvers.levels.targets import LevelTarget
from horae.solvers.levels.types_alike import are_types_alike, fill_alike
from horae.solvers.type_blind import spread_evenly

atoms: Any = cp


def by_type(instance: Instance, policy: MaxMin | Makespan | FinishTimeFairness) -> Floats:
    view = instance.view()
    return instance.by_type(view, policy.decide(view).fraction)


@pytest.mark.parametrize("policy", [MaxMin(aware=False), Makespan(aware=False), FinishTimeFairness(aware=False)])
def test_one_job_that_cannot_use_a_type_leaves_the_others_spread(
    policy: MaxMin | Makespan | FinishTimeFairness,
) -> None:
    """Two V100 and two K80 for four jobs, one of them on V100 only: the others divide what it leaves."""
    speed = np.array([[2.0, 0.0], [2.0, 1.0], [2.0, 1.0], [2.0, 1.0]])
    instance = Instance(speed, [1] * 4, [1.0] * 4, [2, 2], names=["V100", "K80"], steps_left=[100.0] * 4)
    assert by_type(instance, policy) == pytest.approx(np.array([[1.0, 0.0], *[[1 / 3, 2 / 3]] * 3]), abs=1e-6)


def test_gpus_that_the_worst_ratio_leaves_over_are_divided_among_all_jobs() -> None:
    """One job is so late that it sets the ratio alone: the others, of different lengths, divide three GPUs equally."""
    late, others = 1, 8
    instance = Instance(
        np.array([[2.0, 1.0]] * (late + others)),
        [1] * (late + others),
        [1.0] * (late + others),
        [2, 2],
        names=["V100", "K80"],
        steps_left=[100.0, *(1000.0 + 100.0 * number for number in range(others))],
        age_seconds=[1e5, *[0.0] * others],
        isolated_seconds=[10.0, *[0.0] * others],
    )
    total = by_type(instance, FinishTimeFairness(aware=False)).sum(axis=1)
    assert total == pytest.approx([1.0, *[3 / others] * others], rel=1e-6)


class Late(NamedTuple):
    classes: Classes
    progress: ClassProgress


@st.composite
def late_pools(draw: st.DrawFn) -> Late:
    """Jobs of any age, most of them different, to which all types are alike; few GPUs for them, or enough for all."""
    types, jobs = draw(st.integers(1, 4)), draw(st.integers(1, 12))
    speed = draw(st.lists(st.sampled_from([0.5, 1.0, 3.0]), min_size=jobs, max_size=jobs))
    gang = draw(st.lists(st.sampled_from([1, 2, 4]), min_size=jobs, max_size=jobs))
    gpus = draw(st.lists(st.integers(4, 12), min_size=types, max_size=types))
    lengths = st.lists(st.one_of(st.just(1000.0), st.floats(1.0, 1e6)), min_size=jobs, max_size=jobs)
    age, left, isolated = (np.array(draw(lengths)) for _ in range(3))
    view = Instance(np.array(speed)[:, None] * np.ones(types), gang, [1.0] * jobs, gpus).view()
    classes = collapse(view, view.jobs.speed, np.column_stack([age, left, isolated]))
    return Late(classes, ClassProgress(*(each[classes.first] for each in (age, left, isolated))))


@given(late_pools())
def test_types_that_are_alike_give_the_answer_of_the_general_method(pool: Late) -> None:
    classes, progress = pool
    alone = isolated_speed(classes)
    total = progress.isolated_seconds + progress.steps_left / alone
    wish = LevelTarget(
        classes.served, total / progress.steps_left, progress.age_seconds / progress.steps_left, inverse=True
    )
    assert are_types_alike(classes, wish.rising)
    found, general = fill_alike(classes, wish), reach_level("finish-time fairness", classes, wish, fill=True)
    assert found.fraction.sum(axis=1) == pytest.approx(general.fraction.sum(axis=1), rel=1e-7, abs=1e-9)
    assert (found.value, found.bound) == pytest.approx((general.value, general.bound), rel=1e-9)
    assert found.value == pytest.approx(found.bound, rel=1e-12)
    assert found.prices == pytest.approx(general.prices, rel=1e-6, abs=1e-12)
    taken = found.fraction * classes.gpus * classes.jobs[:, None]
    used = np.bincount(classes.accelerator.ravel(), taken.ravel(), minlength=len(classes.capacity))
    assert (used <= classes.capacity * (1 + 1e-12)).all()
    assert finish_time_fairness(classes, progress, alone, fill=True).fraction == pytest.approx(found.fraction)


def test_types_are_not_alike_if_one_job_cannot_use_one_of_them_or_has_no_known_length() -> None:
    view = Instance(np.array([[1.0, 1.0], [1.0, 0.0]]), [1, 1], [1.0] * 2, [2, 2]).view()
    classes = collapse(view, view.jobs.speed)
    assert not are_types_alike(classes, classes.served)
    view = Instance(np.array([[1.0, 1.0], [2.0, 2.0]]), [1, 1], [1.0] * 2, [2, 2]).view()
    classes = collapse(view, view.jobs.speed)
    assert are_types_alike(classes, classes.served)
    assert not are_types_alike(classes, np.array([True, False]))


@st.composite
def pools(draw: st.DrawFn) -> Instance:
    types, jobs = draw(st.integers(1, 4)), draw(st.integers(1, 8))
    row = st.lists(st.sampled_from([0.0, 1.0, 1.0]), min_size=types, max_size=types).filter(any)
    speed = np.array(draw(st.lists(row, min_size=jobs, max_size=jobs)))
    gang = draw(st.lists(st.sampled_from([1, 2, 4]), min_size=jobs, max_size=jobs))
    return Instance(speed, gang, [1.0] * jobs, draw(st.lists(st.integers(1, 12), min_size=types, max_size=types)))


@given(pools())
@settings(max_examples=settings.default.max_examples // 2)  # type: ignore[union-attr]
def test_no_shares_that_fit_are_nearer_to_even_ones(instance: Instance) -> None:
    classes = collapse(instance.view(), instance.view().jobs.speed)
    given_shares = water_filling(classes, np.where(classes.choice, 1.0, 0.0)).fraction
    found = spread_evenly(classes, given_shares)
    wanted = given_shares.sum(axis=1)
    assert found.sum(axis=1) == pytest.approx(wanted, abs=2e-8)
    assert (found[~classes.choice] == 0).all()
    weight = classes.gpus * classes.jobs[:, None]
    kinds = range(len(classes.capacity))
    used = [float((found * weight)[classes.accelerator == kind].sum()) for kind in kinds]
    assert (np.array(used) <= classes.capacity * (1 + 1e-9)).all()
    part = np.where(classes.choice, classes.capacity[classes.accelerator], 0.0)
    even = wanted[:, None] * part / part.sum(axis=1, keepdims=True)
    if all(float((even * weight)[classes.accelerator == kind].sum()) <= classes.capacity[kind] for kind in kinds):
        assert found == pytest.approx(even)
        return
    # By weight: a GPU of a class with many jobs or large gangs counts as often as it is used.
    shares = cp.Variable(found.shape, nonneg=True)
    cells = classes.choice & (wanted[:, None] > 1e-12)
    rules = [atoms.sum(shares, axis=1) == wanted, atoms.multiply(shares, ~cells) == 0]
    mine = [np.where(classes.accelerator == kind, weight, 0.0) for kind in kinds]
    rules += [atoms.sum(atoms.multiply(shares, mine[kind])) <= classes.capacity[kind] for kind in kinds]
    prior = np.where(cells, even, 1.0)
    distance = atoms.sum(atoms.multiply(atoms.rel_entr(shares, prior), weight * cells))
    best = atoms.Problem(cp.Minimize(distance), rules).solve(solver=cp.CLARABEL)
    apart = np.where(found > 0, found * np.log(np.maximum(found, 1e-300) / prior), 0.0)
    assert float((weight * apart)[cells].sum()) <= best + 1e-5 * max(1.0, float((weight * wanted[:, None]).max()))
