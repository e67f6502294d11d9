"""Space sharing against independent programs that list every pair of jobs, and what must not change its answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pools_of_types import Instance
from scipy.optimize import linprog

from horae.model.arrays import Bools, Floats, Ints
from horae.model.decisions import Pairs, Shares
from horae.model.view import View
from horae.policies.max_min import MaxMin
from horae.solvers.space_sharing.objectives import share_finish_time, share_makespan, share_max_min, share_throughput


def kept_by_job(pool: Instance) -> Floats:
    """By job, partner and type; 0 unless both keep some, both run there, and the gangs are equal."""
    assert pool.kept is not None
    gang, model, runs = np.array(pool.gang), np.array(pool.model), pool.speed > 0
    kept = pool.kept[model[:, None], model[None, :]]
    equal = (gang[:, None] == gang[None, :]) & ~np.eye(len(gang), dtype=np.bool_)
    both: Bools = (kept > 0) & (kept > 0).transpose(1, 0, 2) & runs[:, None] & runs[None, :] & equal[:, :, None]
    return np.where(both, kept, 0.0)


class Columns(NamedTuple):
    """Every way for one job or two to run."""

    time: Floats  # by job and column: 1 if the job is in it
    speed: Floats  # by job and column
    gpus: Floats  # by type and column
    kind: Ints  # by column: its type


@st.composite
def pools(draw: st.DrawFn, classes_max: int = 5, jobs_max: int = 3) -> Instance:
    types = draw(st.integers(1, 3))
    models = draw(st.integers(1, 4))
    speeds = st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0, 10.0]), min_size=types, max_size=types).filter(any)
    of_model = draw(st.lists(speeds, min_size=models, max_size=models))
    one = st.tuples(
        st.integers(0, models - 1), st.sampled_from([1, 2]), st.sampled_from([1.0, 5.0]), st.integers(1, jobs_max)
    )
    drawn = draw(st.lists(one, min_size=1, max_size=classes_max))
    rows = draw(st.permutations([(m, g, w) for m, g, w, count in drawn for _ in range(count)]))
    gpus = draw(st.lists(st.integers(1, 8), min_size=types, max_size=types))
    part = st.sampled_from([0.0, 0.3, 0.55, 0.8, 0.95, 1.0])
    size = models * models * types
    kept = np.array(draw(st.lists(part, min_size=size, max_size=size))).reshape(models, models, types)
    steps = draw(st.lists(st.sampled_from([1.0, 50.0, 2e3]), min_size=len(rows), max_size=len(rows)))
    age = draw(st.lists(st.sampled_from([0.0, 10.0, 300.0]), min_size=len(rows), max_size=len(rows)))
    isolated = draw(st.lists(st.sampled_from([0.0, 100.0]), min_size=len(rows), max_size=len(rows)))
    return Instance(
        np.array([of_model[m] for m, _, _ in rows]),
        [g for _, g, _ in rows],
        [w for _, _, w in rows],
        gpus,
        price=[1.0 + number for number in range(types)],
        steps_left=steps,
        age_seconds=age,
        isolated_seconds=isolated,
        kept=kept,
        model=[m for m, _, _ in rows],
    )


def columns_of(pool: Instance) -> Columns:
    """All jobs and all pairs of jobs, written out one by one."""
    kept = kept_by_job(pool)
    jobs, types = pool.speed.shape
    time, speed, gpus, kinds = [], [], [], []
    for kind in range(types):
        for one in range(jobs):
            for other in range(one, jobs):
                alone = one == other
                if pool.speed[one, kind] == 0 or not (alone or kept[one, other, kind] > 0):
                    continue
                mine, fast, used = np.zeros(jobs), np.zeros(jobs), np.zeros(types)
                mine[[one, other]] = 1.0
                fast[one] = pool.speed[one, kind] * (1.0 if alone else kept[one, other, kind])
                fast[other] = pool.speed[other, kind] * (1.0 if alone else kept[other, one, kind])
                used[kind] = pool.gang[one]
                time.append(mine)
                speed.append(fast)
                gpus.append(used)
                kinds.append(kind)
    return Columns(np.array(time).T, np.array(speed).T, np.array(gpus).T, np.array(kinds))


def best_least(pool: Instance, ask: Floats) -> float:
    """The largest t with speed >= ask x t for every job."""
    columns = columns_of(pool)
    scale = columns.speed.max(axis=1)
    level = np.column_stack([-columns.speed / scale[:, None], ask / scale])
    limits = np.column_stack([np.vstack([columns.time, columns.gpus]), np.zeros(len(ask) + len(columns.gpus))])
    cost = np.zeros(level.shape[1])
    cost[-1] = -1.0
    sides = np.concatenate([np.zeros(len(ask)), np.ones(len(ask)), np.array(pool.gpus, dtype=np.float64)])
    solved = linprog(cost, np.vstack([level, limits]), sides, method="highs-ds")
    assert solved.fun is not None
    return -float(solved.fun)


def best_total(pool: Instance, value: Floats) -> float:
    """The largest sum of value, by job and type, as far as kept."""
    columns = columns_of(pool)
    part = value[:, columns.kind] / np.where(pool.speed > 0, pool.speed, 1.0)[:, columns.kind]
    sides = np.concatenate([np.ones(len(value)), np.array(pool.gpus, dtype=np.float64)])
    rows = np.vstack([columns.time, columns.gpus])
    solved = linprog(-(columns.speed * part).sum(axis=0), rows, sides, method="highs-ds")
    assert solved.fun is not None
    return -float(solved.fun)


def speeds_checked(pool: Instance, view: View, shares: Shares) -> Floats:
    """By job: steps a second under these shares, each of which is found possible and within its limits."""
    kept, serial = kept_by_job(pool), view.jobs.serial
    alone = pool.by_type(view, shares.fraction)
    assert (alone[pool.speed == 0] == 0).all()
    assert (shares.fraction >= 0).all()
    time, gpus = alone.sum(axis=1), np.array(pool.gang) @ alone
    speed = (alone * pool.speed).sum(axis=1)
    pairs = shares.pairs
    for number in range(len(pairs.first) if pairs else 0):
        assert pairs is not None
        rows = int(pairs.first[number]), int(pairs.second[number])
        options = int(pairs.first_option[number]), int(pairs.second_option[number])
        one, other = (int(serial[row]) for row in rows)
        shapes = [int(view.jobs.shape[row, option]) for row, option in zip(rows, options, strict=True)]
        kind = int(view.shape_accelerator[shapes[0]])
        assert shapes[0] == shapes[1]
        assert kept[one, other, kind] > 0
        fraction = float(pairs.fraction[number])
        assert fraction > 0
        time[[one, other]] += fraction
        gpus[kind] += pool.gang[one] * fraction
        speed[one] += fraction * pool.speed[one, kind] * kept[one, other, kind]
        speed[other] += fraction * pool.speed[other, kind] * kept[other, one, kind]
    assert (time <= 1 + 1e-9).all()
    assert (gpus <= np.array(pool.gpus) * (1 + 1e-9)).all()
    return speed


def asks_of_max_min(pool: Instance) -> Floats:
    """Steps a second at level 1."""
    gpus = np.array(pool.gpus, dtype=np.float64)
    equal = pool.speed @ gpus / gpus.sum()
    return equal * np.array(pool.weight) / np.array(pool.gang)


def per_dollar(view: View) -> Floats:
    price = view.price_per_hour[view.shape_accelerator[view.jobs.shape]]
    return np.where(view.jobs.shape >= 0, view.jobs.speed / price, 0.0)


def share_per_dollar(view: View) -> Shares:
    return share_throughput(view, per_dollar(view), "steps per dollar")


ALL: tuple[Callable[[View], Shares], ...] = (share_max_min, share_makespan, share_finish_time, share_per_dollar)


@given(pools(), st.booleans())
def test_the_least_level_is_that_of_a_program_with_all_pairs(pool: Instance, fill: bool) -> None:
    view, ask = pool.view(), asks_of_max_min(pool)
    shares = share_max_min(view, fill=fill)
    want = best_least(pool, ask)
    assert (speeds_checked(pool, view, shares) / ask).min() == pytest.approx(want, rel=1e-6)
    assert shares.evidence is not None
    assert shares.evidence.value == pytest.approx(want, rel=1e-6)
    assert shares.evidence.bound >= want * (1 - 1e-9)
    assert shares.evidence.bound == pytest.approx(want, rel=1e-6)


@given(pools())
def test_the_makespan_is_that_of_a_program_with_all_pairs(pool: Instance) -> None:
    view, left = pool.view(), np.array(pool.steps_left)
    shares = share_makespan(view)
    want = 1 / best_least(pool, left)
    assert (left / speeds_checked(pool, view, shares)).max() == pytest.approx(want, rel=1e-6)
    assert shares.evidence is not None
    assert shares.evidence.value == pytest.approx(want, rel=1e-6)
    assert shares.evidence.bound == pytest.approx(want, rel=1e-6)


@given(pools())
def test_the_total_is_that_of_a_program_with_all_pairs(pool: Instance) -> None:
    view = pool.view()
    shares = share_per_dollar(view)
    speeds_checked(pool, view, shares)
    want = best_total(pool, pool.speed / np.array(pool.price))
    assert shares.evidence is not None
    assert shares.evidence.value == pytest.approx(want, rel=1e-6)
    assert shares.evidence.bound == pytest.approx(want, rel=1e-6)


@settings(max_examples=30)
@given(pools(classes_max=4))
def test_rho_is_that_of_programs_with_all_pairs(pool: Instance) -> None:
    """By halving an interval of rho, with a program for each."""
    view = pool.view()
    left, age = np.array(pool.steps_left), np.array(pool.age_seconds)
    time = np.array(pool.gpus) / len(left) / np.array(pool.gang)[:, None] * (pool.speed > 0)
    isolated = (pool.speed * time / np.maximum(time.sum(axis=1, keepdims=True), 1.0)).sum(axis=1)
    alone = np.array(pool.isolated_seconds) + left / isolated
    shares = share_finish_time(view)
    assert shares.isolated_speed is not None
    assert shares.isolated_speed[np.argsort(view.jobs.serial)] == pytest.approx(isolated)
    rho = float(((age + left / speeds_checked(pool, view, shares)) / alone).max())
    assert shares.evidence is not None
    assert shares.evidence.value == pytest.approx(rho, rel=1e-9)
    assert rho * (1 - 1e-6) <= shares.evidence.bound <= rho * (1 + 1e-12)
    for near, reachable in ((rho * (1 + 1e-6), True), (rho * (1 - 1e-6), False)):
        room = near * alone - age
        assert (bool((room > 0).all()) and best_least(pool, left / room) >= 1) == reachable


@settings(max_examples=40)
@given(pools(), st.randoms(use_true_random=False))
def test_the_order_of_jobs_changes_nothing(pool: Instance, random: object) -> None:
    order = list(range(len(pool.model)))
    random.shuffle(order)  # type: ignore[attr-defined]
    first, other = pool.view(), pool.view(order)
    for share in ALL:
        one, two = share(first), share(other)
        assert pool.by_type(first, one.fraction) == pytest.approx(pool.by_type(other, two.fraction), abs=1e-12)
        for column, column_too in zip(by_serial(first, one), by_serial(other, two), strict=True):
            assert column == pytest.approx(column_too, abs=1e-12)


def by_serial(view: View, shares: Shares) -> tuple[Floats | Ints, ...]:
    pairs = shares.pairs
    assert pairs is not None
    serial = view.jobs.serial
    return (serial[pairs.first], serial[pairs.second], pairs.first_option, pairs.second_option, pairs.fraction)


@settings(max_examples=40)
@given(pools(jobs_max=7))
def test_equal_jobs_have_the_same_time_in_every_kind_of_company(pool: Instance) -> None:
    view = pool.view()
    shares = share_max_min(view)
    assert shares.pairs is not None
    serial, kinds = view.jobs.serial, _kinds(pool)
    row = np.argsort(serial)
    company = np.zeros((len(kinds), int(kinds.max()) + 1, view.jobs.shape.shape[1]))
    for mine, option, partner in _sides(shares.pairs):
        np.add.at(company, (serial[mine], kinds[serial[partner]], option), shares.pairs.fraction)
    for kind in range(int(kinds.max()) + 1):
        alike = np.flatnonzero(kinds == kind)
        assert shares.fraction[row[alike]] == pytest.approx(shares.fraction[row[alike[:1]]].repeat(len(alike), 0))
        assert company[alike] == pytest.approx(company[alike[:1]].repeat(len(alike), 0), abs=1e-12)


def _kinds(pool: Instance) -> Ints:
    key = np.column_stack([pool.model, pool.gang, pool.weight, pool.speed])
    return np.unique(key, axis=0, return_inverse=True)[1]


def _sides(pairs: Pairs) -> list[tuple[Ints, Ints, Ints]]:
    return [(pairs.first, pairs.first_option, pairs.second), (pairs.second, pairs.second_option, pairs.first)]


@settings(max_examples=40)
@given(pools())
def test_where_nobody_may_share_the_answer_is_that_without_sharing(pool: Instance) -> None:
    view = pool._replace(kept=None).view()
    shares = share_max_min(view)
    assert shares.pairs is None
    alone = MaxMin().decide(view)
    levels = [np.sort(pool.level(pool.by_type(view, item.fraction))) for item in (shares, alone)]
    assert levels[0][0] == pytest.approx(levels[1][0], rel=1e-6)
    assert levels[0].sum() == pytest.approx(levels[1].sum(), rel=1e-5)


@settings(max_examples=40)
@given(pools(classes_max=4, jobs_max=2))
def test_levels_are_those_of_water_filling_over_all_pairs(pool: Instance) -> None:
    """By a program for each job and stage: whoever cannot rise alone while nobody falls is held where it is."""
    view, ask = pool.view(), asks_of_max_min(pool)
    levels = speeds_checked(pool, view, share_max_min(view)) / ask
    columns = columns_of(pool)
    rate = columns.speed / ask[:, None]
    rising, floor = np.ones(len(ask), dtype=np.bool_), np.zeros(len(ask))
    while rising.any():
        floor[rising] = _most(pool, columns, rate, floor, rising)
        alone = [np.arange(len(ask)) == job for job in range(len(ask))]
        most = np.array([_most(pool, columns, rate, floor, who) if rising[who] else 0.0 for who in alone])
        rising &= most > floor * (1 + 1e-6)
    assert levels == pytest.approx(floor, rel=1e-5)


def _most(pool: Instance, columns: Columns, rate: Floats, floor: Floats, who: Bools) -> float:
    """How high these can rise together, while nobody falls below its floor."""
    rows = np.column_stack([np.vstack([columns.time, columns.gpus, -rate]), np.zeros(2 * len(floor) + len(pool.gpus))])
    rows[-len(floor) :, -1] = who
    sides = np.concatenate([np.ones(len(floor)), pool.gpus, np.where(who, 0.0, -floor * (1 - 1e-9))])
    cost = np.append(np.zeros(rate.shape[1]), -1.0)
    solved = linprog(cost, rows, sides, method="highs-ds")
    assert solved.fun is not None
    return -float(solved.fun)
