"""Every policy of Gavel's against the straightforward program for it, on random pools."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles import programs
from pools_of_types import Instance, check_shares, reached, speed_by_shape
from profiles import examples

from horae.model.arrays import Floats
from horae.model.decisions import Evidence, Limit, Shares
from horae.model.view import View
from horae.policies import make_policy

REACH = 1e-6
SOME = examples(quick=10, nightly=60)
SPEEDS = st.sampled_from([0.0, 0.3, 0.5, 1.0, 1.7, 3.0, 10.0])
# The policies of this file, as they are asked in the tests of what must not change an answer.
POLICIES: list[tuple[str, dict[str, object]]] = [
    ("max-min", {"fill": False}),
    ("max-min", {"fill": True}),
    ("max-min", {"fill": True, "sharing": True}),
    ("finish-time-fairness", {}),
    ("finish-time-fairness", {"sharing": True}),
    ("makespan", {}),
    ("makespan", {"sharing": True}),
    ("total-throughput", {}),
    ("throughput-per-dollar", {"sharing": True}),
    ("min-cost", {}),
    ("hierarchical", {"weights": {"blue": 1.0, "green": 2.0}, "fifo": "green"}),
    ("partial-allocation", {}),
    ("allox", {}),
    ("gandiva", {}),
    ("fifo-on-fastest", {"sharing": True}),
    ("sjf-on-fastest", {}),
]
UNVALUED = ("allox", "gandiva", "fifo-on-fastest", "sjf-on-fastest", "partial-allocation")  # rules, not optima
COMPANY = pytest.mark.parametrize("sharing", [False, True], ids=["alone", "in company"])
NAMED = pytest.mark.parametrize(("name", "options"), POLICIES)


@st.composite
def instances(draw: st.DrawFn, gangs: tuple[int, ...] = (1, 2, 4, 8), some_empty: bool = False) -> Instance:
    """Up to ten jobs of a few models on one to four types; every job runs somewhere."""
    types = draw(st.integers(1, 4))
    speeds = st.lists(SPEEDS, min_size=types, max_size=types).filter(any)
    model = st.tuples(speeds, st.sampled_from(gangs), st.sampled_from([1.0, 2.0, 5.0]), st.integers(1, 3))
    drawn = draw(st.lists(model, min_size=1, max_size=5))
    rows = [(number, model) for number, model in enumerate(drawn) for _ in range(model[3])][:10]
    gpus = draw(st.lists(st.integers(0 if some_empty else 1, 12), min_size=types, max_size=types).filter(any))
    count = len(rows)
    positive = st.floats(0.05, 20.0)

    def numbers(values: st.SearchStrategy[float]) -> list[float]:
        return draw(st.lists(values, min_size=count, max_size=count))

    return Instance(
        np.array([model[0] for _, model in rows]),
        [model[1] for _, model in rows],
        [model[2] for _, model in rows],
        gpus,
        price=draw(st.lists(st.sampled_from([0.1, 0.5, 2.0]), min_size=types, max_size=types)),
        steps_left=[1000 * steps for steps in numbers(positive)],
        age_seconds=[1000 * seconds for seconds in numbers(st.just(0.0) | positive)],
        isolated_seconds=[1000 * seconds for seconds in numbers(st.just(0.0) | positive)],
        model=[number for number, _ in rows],
        tenant=draw(st.lists(st.sampled_from(["blue", "green"]), min_size=count, max_size=count)),
        kept=_kept(draw, len(drawn), types),
    )


def _kept(draw: st.DrawFn, models: int, types: int) -> Floats:
    """Some pairs do not fit, the others keep a part of their speeds that is not the same both ways."""
    random = np.random.default_rng(draw(st.integers(0, 1000)))
    kept = random.uniform(0.3, 1.0, (models, models, types)).round(2)
    fits = random.random((models, models, types)) < 0.8
    return np.where(fits & fits.transpose(1, 0, 2), kept, 0.0)


@st.composite
def spread_instances(draw: st.DrawFn) -> Instance:
    """Gangs that may also be spread over nodes, more slowly, or not at all."""
    instance = draw(instances(some_empty=True))
    part = draw(st.lists(st.sampled_from([0.0, 0.5, 0.9]), min_size=10, max_size=10))
    return instance._replace(spread=instance.speed * np.array(part)[list(instance.models), None], kept=None)


@st.composite
def hurried_instances(draw: st.DrawFn) -> Instance:
    """Up to five jobs with deadlines, some of which cannot be met, and some of which have passed."""
    instance = draw(instances())
    count = len(instance.gang)
    fastest = np.array(instance.steps_left) / instance.speed.max(axis=1)
    factors = draw(st.lists(st.floats(0.5, 8.0) | st.just(np.inf), min_size=count, max_size=count))
    seconds = fastest * np.array(factors)
    seconds[5:] = np.inf
    if draw(st.booleans()):
        seconds[0] = -60.0
    return instance._replace(deadline_seconds=seconds.tolist())


def ask(name: str, options: dict[str, object], instance: Instance) -> tuple[View, Shares]:
    view = instance.view()
    decision = make_policy(name, options).decide(view)
    assert isinstance(decision, Shares)
    check_shares(view, decision)
    return view, decision


def proved(shares: Shares, achieved: float, best: float) -> Evidence:
    """The shares reach what the program says is best, and the evidence says so and proves it."""
    assert achieved == pytest.approx(best, rel=REACH)
    evidence = shares.evidence
    assert evidence is not None
    assert evidence.value == pytest.approx(achieved, rel=REACH)
    assert abs(evidence.bound - evidence.value) <= REACH * abs(evidence.value)
    return evidence


def served(instance: Instance) -> Any:
    """By job: it runs on a type that has GPUs."""
    best = np.maximum.reduce([steps for _, steps in instance.levels])
    return ((best > 0) & (np.array(instance.gpus) > 0)).any(axis=1)


def levels_of(instance: Instance, view: View, shares: Shares) -> Floats:
    return reached(view, shares) * programs.level_scale(instance)


@SOME
@given(instances(some_empty=True) | spread_instances(), st.booleans(), st.booleans())
def test_max_min_fairness_raises_the_least_level_as_far_as_it_goes(instance: Instance, aware: bool, fill: bool) -> None:
    assume(served(instance).any())
    view, shares = ask("max-min", {"aware": aware, "fill": fill}, instance)
    seen = instance if aware else programs.unaware(instance)
    speed = speed_by_shape(view) if aware else (speed_by_shape(view) > 0).astype(np.float64)
    levels = reached(view, shares, speed) * programs.level_scale(seen)
    proved(shares, levels[served(instance)].min(), programs.max_min(seen))


@SOME
@given(instances(), st.booleans())
def test_max_min_fairness_with_company_knows_all_pairs(instance: Instance, fill: bool) -> None:
    view, shares = ask("max-min", {"sharing": True, "fill": fill}, instance)
    levels = levels_of(instance, view, shares)
    proved(shares, levels.min(), programs.max_min(instance, sharing=True))


@SOME
@given(instances(some_empty=True) | spread_instances())
def test_water_filling_reaches_every_level(instance: Instance) -> None:
    view, shares = ask("max-min", {"fill": True}, instance)
    levels = levels_of(instance, view, shares)
    assert levels == pytest.approx(programs.water_filling(instance), rel=REACH, abs=1e-7)


@SOME
@given(instances(), st.tuples(st.sampled_from([1.0, 3.0]), st.sampled_from([1.0, 2.0])), st.sets(st.just("green")))
def test_a_hierarchy_fills_like_its_program(instance: Instance, weights: tuple[float, float], fifo: set[str]) -> None:
    by_name = dict(zip(("blue", "green"), weights, strict=True))
    view, shares = ask("hierarchical", {"weights": by_name, "fifo": ",".join(fifo)}, instance)
    normalised = reached(view, shares) / programs.equal_throughput(instance)
    want = programs.hierarchical(instance, by_name, fifo)
    assert normalised == pytest.approx(want, rel=REACH, abs=1e-6)


def reference_speed(instance: Instance) -> Floats:
    """By job and type: the speed on the first type on which it runs, everywhere."""
    first = np.argmax(instance.speed > 0, axis=1)
    return np.tile(instance.speed[np.arange(len(first)), first][:, None], (1, len(instance.gpus)))


def by_shape(view: View, speed: Floats) -> Floats:
    """Speeds by job and type as speeds by job and shape."""
    return speed[:, view.shape_accelerator]


@COMPANY
@SOME
@given(instances(), st.booleans())
def test_finish_time_fairness_has_the_least_worst_finish_time(sharing: bool, instance: Instance, aware: bool) -> None:
    view, shares = ask("finish-time-fairness", {"aware": aware, **({"sharing": True} if sharing else {})}, instance)
    speed = instance.speed if aware else reference_speed(instance)
    alone = programs.isolated_throughput(instance, speed)
    assert shares.isolated_speed == pytest.approx(alone, rel=REACH)
    left = np.array(instance.steps_left)
    seconds = np.array(instance.age_seconds) + left / reached(view, shares, by_shape(view, speed))
    worst = (seconds / (np.array(instance.isolated_seconds) + left / alone)).max()
    best = programs.finish_time_fairness(instance, speed, sharing)
    # An interior-point method ends a hair above the best: shares that are feasible and better by that are no fault.
    assert best * (1 - 1e-5) <= worst <= best * (1 + REACH)
    proved(shares, worst, min(worst, best))


@COMPANY
@SOME
@given(instances(), st.booleans())
def test_the_makespan_is_the_shortest(sharing: bool, instance: Instance, aware: bool) -> None:
    view, shares = ask("makespan", {"aware": aware, **({"sharing": True} if sharing else {})}, instance)
    speed = instance.speed if aware else reference_speed(instance)
    seconds = np.array(instance.steps_left) / reached(view, shares, by_shape(view, speed))
    proved(shares, seconds.max(), programs.makespan(instance, speed, sharing))


@SOME
@given(spread_instances())
def test_the_makespan_is_the_shortest_where_gangs_may_be_spread(instance: Instance) -> None:
    assume(served(instance).all())
    view, shares = ask("makespan", {}, instance)
    seconds = np.array(instance.steps_left) / reached(view, shares)
    proved(shares, seconds.max(), programs.makespan(instance))


@COMPANY
@SOME
@given(instances(some_empty=True), st.booleans())
def test_throughput_is_the_greatest(sharing: bool, instance: Instance, dollars: bool) -> None:
    assume(served(instance).any())
    name = "throughput-per-dollar" if dollars else "total-throughput"
    view, shares = ask(name, {"sharing": True} if sharing else {}, instance)
    seen = instance if dollars else instance._replace(price=())
    proved(shares, per_dollar(seen, view, shares), programs.total_throughput(seen, sharing))


def per_dollar(instance: Instance, view: View, shares: Shares) -> float:
    price = np.array(instance.price) if len(instance.price) else np.ones(len(instance.gpus))
    return float(reached(view, shares, speed_by_shape(view) / price[view.shape_accelerator]).sum())


@COMPANY
@SOME
@given(hurried_instances())
def test_as_many_deadlines_as_possible_are_met_at_the_least_cost(sharing: bool, instance: Instance) -> None:
    want = programs.min_cost(instance, sharing)
    # Deadlines that can only just be met, or only just not, are a matter of rounding.
    for hair in (-1e-5, 1e-5):
        assume(programs.min_cost(instance, sharing, hair).met == want.met)
    view, shares = ask("min-cost", {"sharing": True} if sharing else {}, instance)
    evidence = proved(shares, per_dollar(instance, view, shares), want.per_dollar)
    seconds = np.array(instance.deadline_seconds)
    kept = np.isfinite(seconds) & (evidence.limit != int(Limit.DROPPED))
    assert tuple(np.flatnonzero(kept).tolist()) in want.choices
    needed = np.array(instance.steps_left)[kept] / seconds[kept]
    assert (reached(view, shares)[kept] >= needed * (1 - 1e-9)).all()


@SOME
@given(instances())
def test_partial_allocation_leaves_each_its_part_of_the_nash_product(instance: Instance) -> None:
    """The product is flat at its top, so that throughputs are known less well than it is."""
    instance = instance._replace(weight=[1.0] * len(instance.gang))
    view, shares = ask("partial-allocation", {}, instance)
    assert reached(view, shares) == pytest.approx(programs.partial_allocation(instance), rel=1e-3)


@NAMED
@SOME
@given(instances(), st.randoms(use_true_random=False))
def test_the_order_of_jobs_changes_nothing(
    name: str, options: dict[str, object], instance: Instance, random: Random
) -> None:
    order = list(range(len(instance.gang)))
    random.shuffle(order)
    policy = make_policy(name, options)
    views = instance.view(), instance.view(order)
    one, two = (policy.decide(view) for view in views)
    assert isinstance(one, Shares)
    assert isinstance(two, Shares)
    check_shares(views[0], one)
    assert reached(views[0], one) == pytest.approx(reached(views[1], two), rel=1e-9, abs=1e-12)
    shares = [instance.by_type(view, answer.fraction) for view, answer in zip(views, (one, two), strict=True)]
    assert shares[0] == pytest.approx(shares[1], abs=1e-12)


@pytest.mark.parametrize(("name", "options"), [item for item in POLICIES if item[0] not in UNVALUED])
@SOME
@given(instances())
def test_jobs_that_are_all_but_alike_are_treated_alike(
    name: str, options: dict[str, object], instance: Instance
) -> None:
    """Weights that differ in the thirteenth digit part a class; the value may not tell."""
    parted = instance._replace(weight=[w * (1 + 1e-13 * job) for job, w in enumerate(instance.weight)])
    one, two = ask(name, options, instance)[1].evidence, ask(name, options, parted)[1].evidence
    assert one is not None
    assert two is not None
    assert two.value == pytest.approx(one.value, rel=REACH)
