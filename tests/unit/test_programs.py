"""Policies that are programs: examples worked out by hand, and what users get wrong."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from pools_of_types import Instance, reached

from horae.model.arrays import Floats
from horae.model.decisions import Limit, Shares
from horae.model.errors import PolicyError
from horae.model.view import Policy
from horae.policies import check_policy, make_policy
from horae.policies.cost import MinCost, ThroughputPerDollar
from horae.policies.hierarchical import Hierarchical
from horae.policies.partial_allocation import PartialAllocation
from horae.policies.total_throughput import TotalThroughput

ALL: tuple[Policy, ...] = (
    TotalThroughput(),
    TotalThroughput(normalised=True),
    ThroughputPerDollar(),
    MinCost(),
    Hierarchical(),
    Hierarchical(weights={"red": 3.0}, fifo="blue, green"),
    Hierarchical(fifo="*"),
    PartialAllocation(),
)


def shares_of(policy: Policy, instance: Instance) -> Floats:
    view = instance.view()
    decided = policy.decide(view)
    assert isinstance(decided, Shares)
    shares = instance.by_type(view, decided.fraction)
    instance.check_feasible(shares)
    return shares


def limits_of(policy: Policy, instance: Instance) -> Sequence[int]:
    decided = policy.decide(instance.view())
    assert isinstance(decided, Shares)
    assert decided.evidence is not None
    limits: list[int] = decided.evidence.limit.tolist()
    return limits


@pytest.mark.parametrize("policy", ALL, ids=repr)
def test_each_of_them_keeps_the_rules_of_policies(policy: Policy) -> None:
    check_policy(policy)


@pytest.mark.parametrize("policy", ALL, ids=repr)
def test_a_job_that_runs_nowhere_gets_nothing_and_keeps_nobody_from_anything(policy: Policy) -> None:
    instance = Instance(np.array([[0.0, 2.0], [3.0, 0.0]]), [1, 1], [1.0, 1.0], [1, 0])
    assert shares_of(policy, instance) == pytest.approx(np.array([[0.0, 0.0], [1.0, 0.0]]))
    assert limits_of(policy, instance) == [Limit.NOWHERE, Limit.TIME]


@pytest.mark.parametrize("policy", ALL, ids=repr)
def test_where_all_nodes_are_down_nobody_gets_anything(policy: Policy) -> None:
    instance = Instance(np.array([[1.0, 2.0]]), [1], [1.0], [0, 0])
    assert not shares_of(policy, instance).any()
    assert limits_of(policy, instance) == [Limit.NOWHERE]


# Total throughput


def test_the_largest_total_goes_to_those_with_many_steps() -> None:
    instance = Instance(np.array([[100.0], [1.0]]), [1, 1], [1.0, 1.0], [1])
    assert shares_of(TotalThroughput(), instance) == pytest.approx(np.array([[1.0], [0.0]]))


def test_normalised_a_model_with_large_step_rates_has_no_advantage() -> None:
    """Both are worth 1 on an equal share; the second gains four times as much from the first type."""
    instance = Instance(np.array([[100.0, 100.0], [8.0, 2.0]]), [1, 1], [1.0, 1.0], [1, 1])
    shares = shares_of(TotalThroughput(normalised=True), instance)
    assert shares == pytest.approx(np.array([[0.0, 1.0], [1.0, 0.0]]))


# Throughput per dollar


def test_the_cheap_type_is_taken_where_it_gives_more_steps_a_dollar() -> None:
    instance = Instance(np.array([[4.0, 3.0]]), [1], [1.0], [1, 1], price=(2.0, 1.0))
    assert shares_of(ThroughputPerDollar(), instance) == pytest.approx(np.array([[0.0, 1.0]]))


@pytest.mark.parametrize("price", [(), (0.0, 0.0)])
def test_without_prices_all_types_cost_the_same(price: Sequence[float]) -> None:
    instance = Instance(np.array([[4.0, 3.0]]), [1], [1.0], [1, 1], price=price)
    assert shares_of(ThroughputPerDollar(), instance) == pytest.approx(np.array([[1.0, 0.0]]))


@pytest.mark.parametrize("policy", [ThroughputPerDollar(), MinCost()], ids=repr)
def test_a_type_without_a_price_among_others_is_named(policy: Policy) -> None:
    instance = Instance(np.array([[4.0, 3.0]]), [1], [1.0], [1, 1], price=(2.0, 0.0), names=("V100", "K80"))
    with pytest.raises(PolicyError, match=r"K80: no price, while V100 has one.*; give every GPU type"):
        policy.decide(instance.view())


def test_the_price_of_a_type_that_is_not_there_does_not_matter() -> None:
    instance = Instance(np.array([[4.0, 3.0]]), [1], [1.0], [1, 0], price=(2.0, 0.0))
    assert shares_of(ThroughputPerDollar(), instance) == pytest.approx(np.array([[1.0, 0.0]]))


# Min cost


def deadlines(steps: Sequence[float], seconds: Sequence[float], gpus: int = 1) -> Instance:
    """Equal jobs, one step a second, one type."""
    jobs = len(steps)
    return Instance(np.ones((jobs, 1)), [1] * jobs, [1.0] * jobs, [gpus], steps_left=steps, deadline_seconds=seconds)


def test_a_deadline_is_kept_although_it_costs_more() -> None:
    instance = Instance(
        np.array([[4.0, 1.0]]), [1], [1.0], [1, 1], price=(8.0, 1.0), steps_left=[25.0], deadline_seconds=[10.0]
    )
    assert shares_of(MinCost(), instance) == pytest.approx(np.array([[0.5, 0.5]]), abs=1e-7)


def test_many_small_deadlines_are_kept_rather_than_one_large_one() -> None:
    instance = deadlines([9.0, 5.0, 5.0], [10.0, 10.0, 10.0])
    assert limits_of(MinCost(), instance) == [Limit.DROPPED, Limit.SCARCE, Limit.SCARCE]


def test_of_equal_jobs_those_that_came_first_keep_their_deadlines() -> None:
    instance = deadlines([4.0] * 5, [10.0] * 5)
    assert limits_of(MinCost(), instance) == [Limit.SCARCE] * 2 + [Limit.DROPPED] * 3


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 9.0])
def test_a_deadline_that_cannot_be_kept_by_anybody_is_dropped_at_once(seconds: float) -> None:
    instance = deadlines([10.0, 4.0], [seconds, 10.0])
    dropped = [limit == Limit.DROPPED for limit in limits_of(MinCost(), instance)]
    assert dropped == [True, False]
    assert shares_of(MinCost(), instance)[1, 0] >= 0.4 * (1 - 1e-7)


def test_a_deadline_that_takes_all_of_the_time_is_kept() -> None:
    instance = deadlines([10.0], [10.0])
    assert limits_of(MinCost(), instance) == [Limit.TIME]


def test_shares_with_deadlines_are_looked_at_again_and_others_stand() -> None:
    assert MinCost().decide(deadlines([5.0], [10.0]).view()).stands_until == pytest.approx(1e6)
    assert MinCost().decide(deadlines([5.0], [np.inf]).view()).stands_until == np.inf
    assert MinCost().decide(deadlines([5.0], [-1.0]).view()).stands_until == np.inf


# Organisations


def organised(tenant: Sequence[str], gpus: int = 1, age: Sequence[float] = ()) -> Instance:
    jobs = len(tenant)
    return Instance(np.ones((jobs, 1)), [1] * jobs, [1.0] * jobs, [gpus], tenant=tenant, age_seconds=age)


@pytest.mark.parametrize(
    ("tenant", "options", "want"),
    [
        pytest.param(("a", "b", "b"), {}, (0.5, 0.25, 0.25), id="organisations count, not jobs"),
        pytest.param(("a", "b", "b"), {"weights": {"a": 3.0}}, (0.75, 0.125, 0.125), id="weights"),
        pytest.param(("a", "b", "b"), {"fifo": "b"}, (0.5, 0.5, 0.0), id="first come, first served in one"),
        pytest.param(("a", "a", "b", "b"), {"fifo": "*"}, (0.5, 0.0, 0.5, 0.0), id="first come, first served in all"),
        pytest.param(("a/x", "a/y", "a/y", "b"), {}, (0.25, 0.125, 0.125, 0.5), id="three levels"),
        pytest.param(("a/x", "a", "a", "b"), {}, (1 / 6, 1 / 6, 1 / 6, 0.5), id="jobs beside organisations"),
        pytest.param(("a/x", "a/y", "b"), {"weights": {"a/x": 3.0}}, (0.375, 0.125, 0.5), id="weights below"),
        pytest.param(("a/x", "a/y", "b"), {"fifo": "a"}, (0.5, 0.0, 0.5), id="in turn over all that is below"),
    ],
)  # fmt: skip
def test_shares_of_one_gpu(tenant: Sequence[str], options: dict[str, object], want: Sequence[float]) -> None:
    policy = make_policy("hierarchical", options)
    assert shares_of(policy, organised(tenant))[:, 0] == pytest.approx(want, abs=1e-7)


def test_the_weight_of_a_full_job_stays_in_its_organisation() -> None:
    """Of three GPUs each gets one and a half; the first of b is full with one, and the rest goes to the second."""
    instance = organised(("a", "a", "b", "b"), gpus=3)
    assert shares_of(Hierarchical(fifo="b"), instance)[:, 0] == pytest.approx([0.75, 0.75, 1.0, 0.5], abs=1e-7)


def test_the_weight_of_a_full_organisation_passes_to_its_siblings() -> None:
    instance = organised(("a/x", "a/y", "a/y", "b", "b", "b", "b"), gpus=4)
    assert shares_of(Hierarchical(weights={"a": 9.0}), instance)[:, 0] == pytest.approx(
        [1, 1, 1] + [0.25] * 4, abs=1e-7
    )


def test_turns_are_taken_in_the_order_of_submission() -> None:
    instance = organised(("a", "a", "a"), age=(10.0, 30.0, 20.0), gpus=2)
    assert shares_of(Hierarchical(fifo="a"), instance)[:, 0] == pytest.approx([0, 1, 1], abs=1e-7)


def test_the_weight_of_a_tenant_counts_where_no_option_says_otherwise() -> None:
    instance = organised(("a", "b"))
    view = instance.view()._replace(tenant_weight=np.array([3.0, 1.0]))
    assert reached(view, Hierarchical().decide(view)) == pytest.approx([0.75, 0.25])
    assert reached(view, Hierarchical(weights={"a": 1.0}).decide(view)) == pytest.approx([0.5, 0.5])


def test_a_weight_that_is_no_number_is_refused() -> None:
    with pytest.raises(PolicyError, match=r"option 'weights' of policy 'hierarchical' is {'lab': nan}; give numbers"):
        make_policy("hierarchical", {"weights": {"lab": float("nan")}})


@pytest.mark.parametrize("weight", [0.0, -1.0, float("inf")])
def test_an_organisation_with_an_impossible_weight_is_named(weight: float) -> None:
    with pytest.raises(PolicyError, match=r"organisation 'lab' has weight .*; give a positive number"):
        make_policy("hierarchical", {"weights": {"lab": weight}})


# Partial allocation


def test_two_equal_jobs_on_one_gpu_keep_half_of_their_halves() -> None:
    """Without the other each would have twice as much."""
    instance = Instance(np.ones((2, 1)), [1, 1], [1.0, 1.0], [1])
    assert shares_of(PartialAllocation(), instance)[:, 0] == pytest.approx([0.25, 0.25])


def test_a_job_that_takes_nothing_from_the_others_keeps_everything() -> None:
    instance = Instance(np.array([[1.0, 0.0], [0.0, 1.0]]), [1, 1], [1.0, 1.0], [1, 1])
    assert shares_of(PartialAllocation(), instance) == pytest.approx(np.eye(2))


def test_a_heavier_job_gets_more_and_keeps_more_of_it() -> None:
    """Shares 2/3 and 1/3; the heavy one keeps (1/3)^(1/2) of its own, the light one (2/3)^2."""
    instance = Instance(np.ones((2, 1)), [1, 1], [2.0, 1.0], [1])
    want = [2 / 3 * (1 / 3) ** 0.5, 1 / 3 * (2 / 3) ** 2]
    assert shares_of(PartialAllocation(), instance)[:, 0] == pytest.approx(want)


def test_where_prices_are_not_unique_each_still_keeps_its_part() -> None:
    """Alone, the first has all of its time and all of a type: it does not matter which of the two has a price.

    The first keeps half: without it, the second would be twice as fast. The second takes nothing from the first.
    """
    instance = Instance(np.array([[0.0, 0.5], [0.5, 1.0]]), [1, 1], [1.0, 1.0], [1, 1])
    assert shares_of(PartialAllocation(), instance) == pytest.approx(np.array([[0.0, 0.5], [1.0, 0.0]]), abs=1e-4)


def test_a_job_of_a_millionth_of_the_weight_still_keeps_its_part() -> None:
    """It gets w / (1 + w) of the GPU and leaves 1 / (1 + w), of which it keeps (1 / (1 + w))^(1 / w), about 1 / e."""
    instance = Instance(np.ones((2, 1)), [1, 1], [1e3, 1e-3], [1])
    light = 1e-6 / (1 + 1e-6) * (1 + 1e-6) ** -1e6
    assert shares_of(PartialAllocation(), instance)[1, 0] == pytest.approx(light, rel=1e-6)


def test_nobody_gains_by_lying_about_its_speeds() -> None:
    true = np.array([[4.0, 1.0], [3.0, 2.0], [1.0, 1.0]])
    honest = (shares_of(PartialAllocation(), Instance(true, [1] * 3, [1.0] * 3, [1, 1])) * true).sum(axis=1)
    for claimed in ([4.0, 4.0], [1.0, 4.0], [9.0, 1.0], [4.0, 0.1]):
        told = true.copy()
        told[0] = claimed
        lied = (shares_of(PartialAllocation(), Instance(told, [1] * 3, [1.0] * 3, [1, 1])) * true).sum(axis=1)
        assert lied[0] <= honest[0] * (1 + 1e-6)
