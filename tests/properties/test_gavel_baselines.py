"""The baselines of Gavel's evaluation against plain programs that do the same one job at a time."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pools_of_types import WAITS, Instance, check_shares
from scipy.optimize import linear_sum_assignment

from horae.model.arrays import Bools, Floats, Ints
from horae.model.decisions import Shares
from horae.model.view import View
from horae.policies import make_policy
from horae.policies.allox import Allox, least_sum
from horae.policies.fastest_type_first import FifoOnFastest, SjfOnFastest
from horae.policies.gandiva.random_packing import Gandiva
from horae.policies.pairing import random_pairs
from horae.policies.stable_random import draw, mix

POLICIES = [
    ("fifo-on-fastest", {}),
    ("fifo-on-fastest", {"aware": False}),
    ("fifo-on-fastest", {"sharing": True, "packing_min": 1.2}),
    ("sjf-on-fastest", {}),
    ("sjf-on-fastest", {"aware": False, "sharing": True, "packing_min": 1.0}),
    ("allox", {}),
    ("allox", {"oldest": 0.5}),
    ("gandiva", {}),
    ("gandiva", {"packing_min": 0.0}),
]


@st.composite
def instances(draw: st.DrawFn, gangs: tuple[int, ...] = (1, 1, 2, 4)) -> Instance:
    """A crowd of a few models; some jobs run already, where there is room."""
    types, models, count = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 14))
    speeds = st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0, 10.0]), min_size=types, max_size=types).filter(any)
    by_model = np.array(draw(st.lists(speeds, min_size=models, max_size=models)))
    model = draw(st.lists(st.integers(0, models - 1), min_size=count, max_size=count))
    gang = draw(st.lists(st.sampled_from(gangs), min_size=count, max_size=count))
    gpus = draw(st.lists(st.integers(0, 6), min_size=types, max_size=types))
    parts = st.lists(st.sampled_from([0.0, 0.3, 0.5, 0.8, 1.0]), min_size=models**2 * types, max_size=models**2 * types)
    kept = np.array(draw(parts)).reshape(models, models, types)
    kept[(kept == 0) | (kept.transpose(1, 0, 2) == 0)] = 0.0  # as the scheduler has it: both fit or neither
    runs_on, room = [], list(gpus)
    for serial in range(count):
        kind = draw(st.integers(WAITS, types - 1))
        runs = kind != WAITS and by_model[model[serial], kind] > 0 and room[kind] >= gang[serial]
        room[kind] -= gang[serial] * runs
        runs_on.append(kind if runs else WAITS)
    return Instance(
        by_model[model],
        gang,
        [1.0] * count,
        gpus,
        steps_left=draw(st.lists(st.sampled_from([1.0, 5.0, 40.0, 41.0, 300.0]), min_size=count, max_size=count)),
        age_seconds=draw(st.lists(st.sampled_from([0.0, 10.0, 20.0, 30.0]), min_size=count, max_size=count)),
        kept=kept,
        model=model,
        runs_on=runs_on,
    )


def decide(policy: tuple[str, dict[str, object]], view: View) -> Shares:
    decision = make_policy(*policy).decide(view)
    assert isinstance(decision, Shares)
    return decision


def by_serial(view: View, shares: Shares) -> tuple[list[Any], set[Any]]:
    order, serial, pairs = np.argsort(view.jobs.serial), view.jobs.serial, shares.pairs
    company: set[Any] = set()
    if pairs is not None:
        for first, second, one, two, fraction in zip(*(column.tolist() for column in pairs), strict=True):
            both = frozenset({(int(serial[first]), one), (int(serial[second]), two)})
            company.add((both, round(fraction, 12)))
    return shares.fraction[order].round(12).tolist(), company


@given(instances(), st.sampled_from(POLICIES))
def test_nothing_is_given_away_that_is_not_there(instance: Instance, policy: tuple[str, dict[str, object]]) -> None:
    view = instance.view()
    check_shares(view, decide(policy, view))


@given(instances(), st.sampled_from(POLICIES), st.randoms(use_true_random=False))
def test_the_order_of_jobs_changes_nothing(
    instance: Instance, policy: tuple[str, dict[str, object]], random: object
) -> None:
    order = list(range(len(instance.gang)))
    random.shuffle(order)  # type: ignore[attr-defined]
    one, two = instance.view(), instance.view(order)
    assert by_serial(one, decide(policy, one)) == by_serial(two, decide(policy, two))


# First come or shortest first


def in_turn(instance: Instance, order: list[int]) -> list[int | None]:
    """By job: its type. One after the other, the fastest with room; the first for which no type has any ends it."""
    room = list(instance.gpus)
    chosen: list[int | None] = [None] * len(order)
    for serial in order:
        fits = [kind for kind in range(len(room)) if instance.speed[serial, kind] > 0]
        fits = [kind for kind in fits if room[kind] >= instance.gang[serial]]
        if max(room) < instance.gang[serial]:
            break
        if not fits:
            continue
        chosen[serial] = max(fits, key=lambda kind: (instance.speed[serial, kind], -kind))
        room[chosen[serial]] -= instance.gang[serial]  # type: ignore[index]
    return chosen


@given(instances(), st.booleans())
def test_jobs_are_served_as_if_one_after_the_other(instance: Instance, shortest: bool) -> None:
    view = instance.view()
    serials = range(len(instance.gang))
    if shortest:
        left = np.array(instance.steps_left) / instance.speed.max(axis=1)
        order = sorted(serials, key=lambda serial: (left[serial], serial))
    else:
        order = sorted(serials, key=lambda serial: (-instance.age_seconds[serial], serial))
    policy = SjfOnFastest() if shortest else FifoOnFastest()
    by_type = instance.by_type(view, policy.decide(view).fraction)
    assert [int(row.argmax()) if row.any() else None for row in by_type] == in_turn(instance, order)


@given(instances(), st.booleans(), st.floats(0.0, 0.999))
def test_the_shortest_first_stand_as_long_as_they_say(instance: Instance, aware: bool, part: float) -> None:
    """Whoever runs meanwhile of those who do or may start, at whatever speed, the answer is the same until then."""
    view = instance.view()
    shares = SjfOnFastest(aware=aware).decide(view)
    seconds = min(shares.stands_until - view.now, 1e6) * part
    may_run = (np.array(instance.runs_on) != WAITS) | shares.fraction.any(axis=1)
    for runs in (np.array(instance.runs_on) != WAITS, may_run, may_run & (np.arange(len(view.jobs)) % 2 == 0)):
        later = instance.view()
        fastest = later.jobs.speed.max(axis=1)
        vars(later.jobs)["steps_left"] = later.jobs.steps_left - runs * seconds * fastest
        assume((later.jobs.steps_left > 0).all())
        assert by_serial(later, SjfOnFastest(aware=aware).decide(later)) == by_serial(view, shares)


# AlloX


def completion(seconds: Floats, kind: Ints, free: Ints) -> float:
    """The sum of completion times if each type runs the shortest of its jobs first."""
    total = 0.0
    for number, gpus in enumerate(free.tolist()):
        mine = np.sort(seconds[kind == number, number])[::-1]
        total += float(((np.arange(len(mine)) // max(gpus, 1) + 1) * mine).sum())
    return total


def whole_matching(seconds: Floats, free: Ints) -> float:
    """Every job to every place on every single GPU."""
    gpus = np.repeat(np.arange(len(free)), free)
    places = np.tile(gpus, len(seconds))
    rank = np.repeat(np.arange(1, len(seconds) + 1), len(gpus))
    cost = np.minimum(seconds[:, places] * rank, 1e9)
    row, column = linear_sum_assignment(cost)
    return float(cost[row, column].sum())


@st.composite
def matchings(draw: st.DrawFn) -> tuple[Floats, Ints]:
    types, count = draw(st.integers(2, 4)), draw(st.integers(1, 30))
    free = np.array(draw(st.lists(st.integers(1, 4), min_size=types, max_size=types)))
    lengths = st.lists(st.sampled_from([np.inf, 1.0, 2.0, 3.5, 50.0, 51.0, 700.0]), min_size=types, max_size=types)
    rows = lengths.filter(lambda row: min(row) < np.inf)
    return np.array(draw(st.lists(rows, min_size=count, max_size=count))), free


@given(matchings())
def test_the_sum_of_completion_times_is_that_of_the_whole_matching(matching: tuple[Floats, Ints]) -> None:
    seconds, free = matching
    kind = least_sum(seconds, free)
    assert completion(seconds, kind, free) == pytest.approx(whole_matching(seconds, free), rel=1e-9)


@pytest.mark.parametrize("free", [(1, 1, 0), (1, 1, 1), (3, 2, 1), (12, 12, 12)])
def test_a_long_queue_of_few_models_is_matched_at_least_cost(free: tuple[int, ...]) -> None:
    """Among jobs of one model many ways cost the same, and rounding must not go round in circles on them."""
    random = np.random.default_rng(sum(free))
    speed = random.uniform(0.1, 1.0, (5, 3)).round(1)
    seconds = (60 * 10 ** random.uniform(1.5, 4, 120)).round()[:, None] / speed[random.integers(0, 5, 120)]
    kind = least_sum(seconds, np.array(free))
    assert completion(seconds, kind, np.array(free)) == pytest.approx(whole_matching(seconds, np.array(free)), rel=1e-9)


@given(instances(gangs=(1,)))
def test_who_runs_stays_and_no_gpu_is_idle_for_long(instance: Instance) -> None:
    """Once those who were to start have started, the answer stands, or names more to start."""
    for _ in range(len(instance.gang) + 1):
        view = instance.view()
        shares = Allox().decide(view)
        by_type = instance.by_type(view, shares.fraction)
        runs_on = [int(row.argmax()) if row.any() else WAITS for row in by_type]
        assert all(now in (WAITS, then) for now, then in zip(instance.runs_on, runs_on, strict=True))
        if shares.stands_until == np.inf:
            break
        assert runs_on != list(instance.runs_on)
        instance = instance._replace(runs_on=runs_on)
    idle = np.array(instance.gpus) - by_type.sum(axis=0)
    waits = instance.speed[~by_type.any(axis=1)]
    assert not ((waits > 0) & (idle > 0)).any()


# Gandiva


@given(instances(), st.sampled_from([0.0, 1.0, 1.3]))
def test_every_pair_is_worth_it_and_nobody_is_in_two(instance: Instance, packing_min: float) -> None:
    view = instance.view()
    shares = Gandiva(packing_min).decide(view)
    check_shares(view, shares)
    pairs, jobs = shares.pairs, view.jobs
    if pairs is None:
        return
    freed = {(a, b): int(jobs.gpus[a]) for a, b in zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)}
    excess = sum(instance.gang) - sum(instance.gpus)
    assert sum(list(freed.values())[:-1]) < excess  # no pair without need
    one, two = jobs.model[pairs.first], jobs.model[pairs.second]
    shape = jobs.shape[pairs.first, pairs.first_option]
    assert (view.kept[one, two, shape] + view.kept[two, one, shape] >= packing_min - 1e-9).all()
    together = {(a, b) for a, b in zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)}
    members = [row for pair in together for row in pair]
    assert len(members) == len(set(members))
    assert not shares.fraction[members].any()


def one_pair_after_the_other(seed: int, serial: Ints, kind: Ints, matches: Bools) -> set[tuple[int, int]]:
    lots = draw(seed, serial)
    rows = np.argsort(serial).tolist()
    edges = [pair for pair in combinations(rows, 2) if matches[kind[pair[0]], kind[pair[1]]]]
    alone, made = set(rows), set()
    for one, two in sorted(edges, key=lambda pair: int(mix(lots[[pair[0]]] + lots[[pair[1]]])[0])):
        if {one, two} <= alone:
            alone -= {one, two}
            made.add((one, two))
    return made


@given(st.integers(0, 5), st.lists(st.integers(0, 2), min_size=0, max_size=25), st.integers(0, 63), st.integers(0, 9))
def test_random_pairs_are_made_lowest_lot_first_and_without_a_pair_the_others_stay(
    seed: int, kinds: list[int], bits: int, which: int
) -> None:
    kind = np.array(kinds, dtype=np.int64)
    serial = np.random.default_rng(len(kinds)).permutation(len(kinds)) * 3
    matches = np.zeros((3, 3), dtype=np.bool_)
    matches[np.triu_indices(3)] = [bool(bits >> bit & 1) for bit in range(6)]
    matches |= matches.T
    first, second = random_pairs(seed, serial, kind, matches)
    made = list(zip(first.tolist(), second.tolist(), strict=True))
    assert set(made) == one_pair_after_the_other(seed, serial, kind, matches)
    if made:
        gone = made.pop(which % len(made))
        rest = np.setdiff1d(np.arange(len(kinds)), gone)
        one, two = random_pairs(seed, serial[rest], kind[rest], matches)
        assert set(zip(rest[one].tolist(), rest[two].tolist(), strict=True)) == set(made)
