"""The partial-allocation auction against an integer program, and what is promised of it: of one round, no more."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import exp, log

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import auction as oracle
from oracles.auction import Table

from horae.model.arrays import Floats
from horae.solvers.auction.single_type import AuctionOutcome, GpuBid, settle_bids, together

SLOW = settings(max_examples=settings.default.max_examples // 3)  # type: ignore[union-attr]
# Ties, plateaus, and numbers of every size; a restart may be worth nothing at all.
STEPS = st.sampled_from([0.0, 0.0, log(2), 0.25, 1.0]) | st.floats(0.0, 5.0)
GANGS = st.sampled_from([1, 1, 2, 3, 4, 8])
REACH = 1e-3  # of shares by a convex program: its optimum is flat
LOWEST = st.sampled_from([0.0, -1.0, -6.0]) | st.floats(-10.0, 3.0)


@st.composite
def tables(draw: st.DrawFn, gangs_max: int = 6) -> Table:
    """Gang after gang, so with gaps; never worth less."""
    steps = draw(st.lists(st.tuples(GANGS, STEPS), max_size=gangs_max))
    gpus = accumulate((gang for gang, _ in steps), initial=0)
    value = accumulate((step for _, step in steps), initial=draw(LOWEST))
    return Table(tuple(gpus), tuple(value))


def auctions(apps_max: int = 6, gangs_max: int = 6) -> st.SearchStrategy[list[Table]]:
    return st.lists(tables(gangs_max), min_size=1, max_size=apps_max)


OFFERS = st.integers(0, 20)


def as_bid(table: Table) -> GpuBid:
    return GpuBid(np.array(table.gpus), np.array(table.value))


def settle(bids: Sequence[Table], offer: int) -> AuctionOutcome:
    return settle_bids([as_bid(table) for table in bids], offer)


def welfare(bids: Sequence[Table], outcome: AuctionOutcome) -> float:
    return oracle.welfare(bids, outcome.choice.tolist())


# Against the oracle


@SLOW
@given(auctions(), OFFERS)
def test_the_winners_and_what_they_keep_are_those_of_an_integer_program_solved_again_without_each(
    bids: list[Table], offer: int
) -> None:
    outcome = settle(bids, offer)
    choice = outcome.choice.tolist()
    assert outcome.gpus.tolist() == [table.gpus[bid] for table, bid in zip(bids, choice, strict=True)]
    assert outcome.gpus.sum() <= offer
    assert welfare(bids, outcome) == pytest.approx(
        oracle.welfare(bids, oracle.winners(bids, offer)), rel=1e-9, abs=1e-9
    )
    assert outcome.kept.tolist() == pytest.approx(oracle.kept(bids, offer, choice), rel=1e-9, abs=1e-9)


@given(auctions(3, 4), OFFERS)
def test_the_winners_of_a_tiny_auction_are_the_best_of_all_that_can_be(bids: list[Table], offer: int) -> None:
    best = oracle.best_by_force(bids, offer)
    assert welfare(bids, settle(bids, offer)) == pytest.approx(best, rel=1e-12, abs=1e-12)
    assert oracle.welfare(bids, oracle.winners(bids, offer)) == pytest.approx(best, rel=1e-9, abs=1e-9)


def test_an_auction_of_nobody_and_one_of_nothing_have_no_winners() -> None:
    assert not len(settle([], 8).choice)
    outcome = settle([Table((0, 1), (0.0, 1.0)), Table((0,), (-2.0,))], 0)
    assert outcome.gpus.tolist() == [0, 0]
    assert outcome.kept.tolist() == [1.0, 1.0]


# What anybody keeps


@given(auctions(), OFFERS)
def test_everybody_keeps_some_of_its_lease_and_no_more_than_all_and_who_wins_nothing_pays_nothing(
    bids: list[Table], offer: int
) -> None:
    outcome = settle(bids, offer)
    assert ((outcome.kept > 0) & (outcome.kept <= 1)).all()
    assert outcome.kept[outcome.gpus == 0] == pytest.approx(1.0, abs=1e-9)


@given(auctions(), OFFERS)
def test_where_there_is_enough_for_all_nobody_pays(bids: list[Table], more: int) -> None:
    outcome = settle(bids, sum(table.gpus[-1] for table in bids) + more)
    assert outcome.kept == pytest.approx(1.0, abs=1e-9)
    assert welfare(bids, outcome) == pytest.approx(sum(table.value[-1] for table in bids), rel=1e-9, abs=1e-9)


@given(auctions(), OFFERS, st.integers(0, 20))
def test_more_gpus_never_lower_the_welfare(bids: list[Table], offer: int, more: int) -> None:
    fewer, many = welfare(bids, settle(bids, offer)), welfare(bids, settle(bids, offer + more))
    assert many >= fewer - 1e-9 * max(1.0, abs(fewer))


@given(auctions(5), OFFERS, st.randoms(use_true_random=False))
def test_the_order_of_apps_changes_no_welfare_and_nothing_at_all_where_no_two_choices_are_equally_good(
    bids: list[Table], offer: int, random: object
) -> None:
    order = list(range(len(bids)))
    random.shuffle(order)  # type: ignore[attr-defined]
    one, other = settle(bids, offer), settle([bids[app] for app in order], offer)
    assert welfare([bids[app] for app in order], other) == pytest.approx(welfare(bids, one), rel=1e-9, abs=1e-9)
    if other.choice.tolist() == one.choice[order].tolist():
        assert other.kept == pytest.approx(one.kept[order], rel=1e-9)


# Truth


@given(auctions(), OFFERS, tables(), st.data())
@example([Table((0, 1), (-log(4), -log(2))), Table((0, 1), (-log(4), 0.0))], 1, Table((0, 1), (-log(4), 9.0)), None)
def test_no_lie_of_one_app_raises_what_it_keeps_of_the_true_value_of_what_it_wins(
    bids: list[Table], offer: int, lie: Table, data: st.DataObject | None
) -> None:
    """The lie may be any table, of other gangs too. This is c(i) V(i): not rho under a shortened lease, see below."""
    liar = 0 if data is None else data.draw(st.integers(0, len(bids) - 1))
    true, lied = settle(bids, offer), settle([*bids[:liar], lie, *bids[liar + 1 :]], offer)
    honest = true.kept[liar] * exp(bids[liar].worth(int(true.gpus[liar])))
    dishonest = lied.kept[liar] * exp(bids[liar].worth(int(lied.gpus[liar])))
    assert dishonest <= honest * (1 + 1e-9)


@given(auctions(), OFFERS, st.floats(0.05, 20.0), st.data())
def test_to_overstate_or_understate_all_gains_by_one_factor_does_not_pay_either(
    bids: list[Table], offer: int, factor: float, data: st.DataObject
) -> None:
    liar = data.draw(st.integers(0, len(bids) - 1))
    lowest = bids[liar].value[0]
    lie = Table(bids[liar].gpus, tuple(lowest + factor * (value - lowest) for value in bids[liar].value))
    true, lied = settle(bids, offer), settle([*bids[:liar], lie, *bids[liar + 1 :]], offer)
    honest = log(true.kept[liar]) + bids[liar].worth(int(true.gpus[liar]))
    assert log(lied.kept[liar]) + bids[liar].worth(int(lied.gpus[liar])) <= honest + 1e-9


@given(auctions(4), OFFERS, tables(), st.data())
def test_where_apps_count_for_more_or_less_a_lie_does_not_pay_either(
    bids: list[Table], offer: int, lie: Table, data: st.DataObject
) -> None:
    """With weights, an app keeps what the others lose to the power of 1 / its weight."""
    weight = np.array([data.draw(st.sampled_from([0.25, 0.5, 1.0, 2.0])) for _ in bids])
    liar = data.draw(st.integers(0, len(bids) - 1))

    def worth(said: list[Table]) -> float:
        outcome = settle_bids(together([as_bid(table) for table in said]).weighted(weight), offer)
        return float(log(outcome.kept[liar]) / weight[liar] + bids[liar].worth(int(outcome.gpus[liar])))

    assert worth([*bids[:liar], lie, *bids[liar + 1 :]]) <= worth(bids) + 1e-8


def test_an_app_in_two_parts_of_half_its_weight_wins_what_it_won_as_one() -> None:
    """Halves do half of the work, so a GPU brings each of them twice as far, at half the weight."""
    whole = [20 / (1 + gpus) for gpus in range(9)]
    half = [20 / (1 + 2 * gpus) for gpus in range(5)]
    one, part = (Table(tuple(range(len(rho))), tuple(-log(value) for value in rho)) for rho in (whole, half))
    together_as_one = settle([one, one], 8)
    assert together_as_one.gpus.tolist() == [4, 4]
    split = settle_bids(together([as_bid(each) for each in (one, part, part)]).weighted(np.array([1, 0.5, 0.5])), 8)
    assert split.gpus.tolist() == [4, 2, 2]
    unweighted = settle([one, part, part], 8)
    assert unweighted.gpus[1:].sum() > 4


def true_rho(table: Table, gpus: int, kept: float) -> float:
    """Of one who has these GPUs for a part of the lease: rho falls in proportion to the work done."""
    nothing, whole = exp(-table.value[0]), exp(-table.worth(gpus))
    return nothing - kept * (nothing - whole)


def test_a_lie_can_improve_ones_true_rho_in_one_round_for_a_shortened_lease_is_better_than_none() -> None:
    """One GPU takes the first app from rho 4 to 2, and the other from 4 to 1. What is truthful is c V, not rho."""
    truth, other = Table((0, 1), (-log(4), -log(2))), Table((0, 1), (-log(4), 0.0))
    lie = Table((0, 1), (-log(4), log(2)))
    honest, dishonest = settle([truth, other], 1), settle([lie, other], 1)
    assert honest.gpus.tolist() == [0, 1]
    assert dishonest.gpus.tolist() == [1, 0]
    assert dishonest.kept[0] == pytest.approx(0.25)
    assert dishonest.kept[0] * exp(truth.worth(1)) < honest.kept[0] * exp(truth.worth(0))
    assert true_rho(truth, 0, honest.kept[0]) == pytest.approx(4.0)
    assert true_rho(truth, 1, dishonest.kept[0]) == pytest.approx(3.5)


# Efficiency and envy


@given(auctions(3, 4), OFFERS)
def test_nobody_can_have_more_without_another_having_less(bids: list[Table], offer: int) -> None:
    """Pareto efficiency of the proportionally fair step, before anything is withheld."""
    choice = settle(bids, offer).choice.tolist()
    have = np.array([table.value[bid] for table, bid in zip(bids, choice, strict=True)])
    for other in oracle.feasible(bids, offer):
        gain = np.array([table.value[bid] for table, bid in zip(bids, other, strict=True)]) - have
        assert gain.min() < 0 or gain.max() <= 1e-12


@st.composite
def divisible_pools(draw: st.DrawFn) -> tuple[Floats, Floats]:
    """How fast each app is on each of several divisible goods, and how much there is of them."""
    apps, goods = draw(st.integers(2, 5)), draw(st.integers(1, 4))
    speeds = st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, 7.0]), min_size=goods, max_size=goods).filter(any)
    speed = np.array(draw(st.lists(speeds, min_size=apps, max_size=apps)))
    return speed, np.array(draw(st.lists(st.floats(0.5, 20.0), min_size=goods, max_size=goods)))


@SLOW
@given(divisible_pools())
def test_where_gpus_are_divisible_and_values_linear_nobody_would_rather_have_what_another_has(
    pool: tuple[Floats, Floats],
) -> None:
    speed, supply = pool
    share = oracle.divisible(speed, supply)
    value = speed @ share.T  # of what the other has, by app and other
    assert (value <= value.diagonal()[:, None] * (1 + REACH)).all()
    # Nor is anybody worse off than with an equal part of everything, which is the sharing incentive.
    assert (value.diagonal() >= speed @ supply / len(speed) * (1 - REACH)).all()


def test_divisible_gpus_of_one_kind_are_divided_evenly_however_fast_each_app_is() -> None:
    share = oracle.divisible(np.array([[1.0], [5.0], [100.0]]), np.array([12.0]))
    assert share[:, 0] == pytest.approx([4.0, 4.0, 4.0], rel=REACH)


@given(st.lists(st.floats(0.1, 100.0), min_size=1, max_size=6), OFFERS)
def test_whole_gpus_and_linear_values_leave_envy_of_one_gpu_at_most(speeds: list[float], offer: int) -> None:
    """What is left of the divisible case when GPUs are whole and gangs single."""
    bids = [
        Table(tuple(range(offer + 1)), tuple(log(speed * max(gpus, 1e-4)) for gpus in range(offer + 1)))
        for speed in speeds
    ]
    gpus = settle(bids, offer).gpus
    assert gpus.sum() == offer
    assert gpus.max() - gpus.min() <= 1


def test_whole_gangs_can_leave_envy() -> None:
    """Two apps alike and one gang's worth of GPUs: one of them has all, and the other would rather be in its place."""
    alike = Table((0, 4), (0.0, 1.0))
    outcome = settle([alike, alike], 7)
    assert sorted(outcome.gpus.tolist()) == [0, 4]
    loser = int(outcome.gpus.argmin())
    assert alike.worth(int(outcome.gpus[1 - loser])) > alike.worth(int(outcome.gpus[loser]))
    # Even of the shortened lease: rho 1, not 1 - (1 - 1 / e) / e.
    assert outcome.kept[1 - loser] == pytest.approx(exp(-1.0))
    assert true_rho(alike, 4, outcome.kept[1 - loser]) < true_rho(alike, 0, 1.0)
