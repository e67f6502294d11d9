"""The auction over several GPU types: what integer programs say of it, by table, by prices and by the solver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.auction_types import best_of_one_type, best_welfare, kept_parts
from profiles import examples

from horae.model.arrays import Ints
from horae.solvers.auction import multi_type
from horae.solvers.auction.multi_type import WIDTH_MAX, BundleBid, TypesOutcome, settle_types

SPEED = (1.0, 2.1, 3.7, 5.2)


def ways() -> dict[str, dict[str, int]]:
    """What to change so that an auction is settled by its table, by prices, or by the solver."""
    prices = {"_STEPS_MAX": 0}
    return {"table": {}, "prices": prices, "solver": {**prices, "_NODES_MAX_WHOLE": 1, "_NODES_MAX_EACH": 1}}


@contextmanager
def by(way: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ways()[way].items():
            patch.setattr(multi_type, name, value)
        yield


def finish_time_bids(seed: int, apps: int, offer: Ints) -> list[BundleBid]:
    """Apps of several gangs; a lease is 20 minutes, and what is not done by then goes on at the entitled share."""
    random, types = np.random.default_rng(seed), len(offer)
    entitled = float(offer @ np.array(SPEED[:types])) / apps
    bids = []
    for _ in range(apps):
        gang, gangs = int(random.choice([1, 2, 4])), int(random.integers(1, 9))
        speed = np.array(SPEED[:types]) ** random.uniform(0.5, 1.2)
        counts = np.indices((gangs + 1,) * types).reshape(types, -1).T
        gpus = gang * counts[counts.sum(axis=1) <= gangs]
        work = gang * gangs * random.uniform(600, 20_000)
        left = np.maximum(work - gpus @ speed * 1200, 0)
        rho = (random.uniform(0, 10_000) + 1200 + left / entitled) / (work / gang / gangs)
        bids.append(BundleBid(gpus.astype(np.int64), -np.log(rho)))
    return bids


def check(bids: list[BundleBid], offer: Ints, outcome: TypesOutcome) -> None:
    """All that is claimed holds."""
    taken = sum((bid.gpus[row] for bid, row in zip(bids, outcome.choice.tolist(), strict=True)), np.zeros_like(offer))
    assert (taken <= offer).all()
    value = sum(bid.value[row] for bid, row in zip(bids, outcome.choice.tolist(), strict=True))
    best = best_welfare(bids, offer)
    assert outcome.welfare == pytest.approx(value, abs=1e-9)
    assert outcome.welfare - 1e-9 <= best <= outcome.welfare_bound + 1e-9
    if outcome.is_exact:
        assert outcome.welfare == pytest.approx(best, abs=2e-9)
    kept = kept_parts(bids, offer, outcome.choice)
    assert (outcome.kept_low <= np.minimum(kept, 1) + 1e-9).all()
    assert (kept <= outcome.kept_high + 1e-9).all()
    assert outcome.width <= WIDTH_MAX
    assert outcome.is_certified
    np.testing.assert_array_equal(outcome.payment_kept, outcome.kept_high)


@st.composite
def auctions(draw: st.DrawFn) -> tuple[list[BundleBid], Ints]:
    """Few apps, any bundles, values with ties that need not grow with GPUs."""
    types = draw(st.integers(1, 4))
    offer = np.array(draw(st.lists(st.integers(0, 7), min_size=types, max_size=types)), dtype=np.int64)
    bundle = st.lists(st.integers(0, 6), min_size=types, max_size=types)
    bids = []
    for _ in range(draw(st.integers(0, 5))):
        bundles = [[0] * types, *draw(st.lists(bundle, max_size=6))]
        value = [draw(st.integers(-20, 20)) / 10 for _ in bundles]
        bids.append(BundleBid(np.array(bundles, dtype=np.int64), np.array(value)))
    return bids, offer


@pytest.mark.parametrize("way", ways())
@examples(quick=20, nightly=200)
@given(auction=auctions())
def test_whatever_the_bids_welfare_and_payments_are_those_of_integer_programs(
    way: str, auction: tuple[list[BundleBid], Ints]
) -> None:
    bids, offer = auction
    with by(way):
        check(bids, offer, settle_types(bids, offer))


@pytest.mark.parametrize("way", ways())
@pytest.mark.parametrize("seed", range(4))
def test_bids_by_finish_time_are_settled_as_by_integer_programs(way: str, seed: int) -> None:
    offer = np.array([(24, 12, 8), (30, 20), (12, 8, 6, 5), (40, 9, 0)][seed])
    bids = finish_time_bids(seed, 8, offer)
    with by(way):
        check(bids, offer, settle_types(bids, offer))


@pytest.mark.parametrize(
    ("apps", "gpus"), [(10, (30, 20, 12)), pytest.param(20, (60, 40, 24), marks=pytest.mark.nightly)]
)
def test_prices_alone_are_exact_on_a_middling_auction(apps: int, gpus: tuple[int, ...]) -> None:
    offer = np.array(gpus)
    bids = finish_time_bids(7, apps, offer)
    with by("prices"):
        outcome = settle_types(bids, offer)
    assert outcome.is_exact
    check(bids, offer, outcome)


@pytest.mark.parametrize("way", ways())
def test_one_type_is_a_plain_dynamic_program(way: str) -> None:
    offer = np.array([50])
    bids = finish_time_bids(3, 15, offer)
    with by(way):
        outcome = settle_types(bids, offer)
    if outcome.is_exact:
        assert outcome.welfare == pytest.approx(best_of_one_type(bids, 50), abs=1e-9)
    own = np.array([bid.value[row] for bid, row in zip(bids, outcome.choice.tolist(), strict=True)])
    for app in range(len(bids)):
        without = best_of_one_type([*bids[:app], *bids[app + 1 :]], 50)
        kept = np.exp(np.delete(own, app).sum() - without)
        assert outcome.kept_low[app] - 1e-9 <= kept <= outcome.kept_high[app] + 1e-9
    assert outcome.is_certified
    if way == "table":
        assert outcome.width == pytest.approx(0, abs=1e-12)


def test_nobody_bids() -> None:
    outcome = settle_types([], np.array([4, 4]))
    assert (len(outcome.choice), outcome.welfare, outcome.welfare_bound) == (0, 0.0, 0.0)
    assert outcome.is_certified


@pytest.mark.parametrize("way", ways())
def test_nothing_is_on_offer(way: str) -> None:
    bids = finish_time_bids(0, 3, np.array([4, 4]))
    with by(way):
        outcome = settle_types(bids, np.array([0, 0]))
    assert outcome.choice.tolist() == [0, 0, 0]
    assert outcome.payment_kept.tolist() == [1, 1, 1]


@pytest.mark.parametrize("way", ways())
def test_an_app_alone_has_its_best_and_keeps_it_all(way: str) -> None:
    offer = np.array([9, 5])
    bids = finish_time_bids(1, 1, offer)
    fits = (bids[0].gpus <= offer).all(axis=1)
    with by(way):
        outcome = settle_types(bids, offer)
    assert bids[0].value[outcome.choice[0]] == bids[0].value[fits].max()
    assert outcome.payment_kept.tolist() == [1]


@pytest.mark.parametrize("way", ways())
def test_apps_that_ask_for_nothing_keep_it_all_and_cost_the_others_nothing(way: str) -> None:
    offer = np.array([12, 6])
    bids = finish_time_bids(2, 4, offer)
    idle = BundleBid(np.zeros((1, 2), dtype=np.int64), np.array([-3.0]))
    with by(way):
        alone, together = settle_types(bids, offer), settle_types([idle, *bids, idle], offer)
    assert together.welfare == pytest.approx(alone.welfare - 6)
    assert together.payment_kept[[0, -1]].tolist() == [1, 1]
    np.testing.assert_allclose(together.payment_kept[1:-1], alone.payment_kept, atol=WIDTH_MAX)


@pytest.mark.parametrize("way", ways())
def test_types_without_gpus_change_nothing(way: str) -> None:
    offer = np.array([12, 0, 6])
    bids = finish_time_bids(4, 5, np.array([12, 3, 6]))
    fewer = [BundleBid(bid.gpus[bid.gpus[:, 1] == 0][:, [0, 2]], bid.value[bid.gpus[:, 1] == 0]) for bid in bids]
    with by(way):
        outcome, of_two = settle_types(bids, offer), settle_types(fewer, offer[[0, 2]])
    assert outcome.welfare == pytest.approx(of_two.welfare)
    np.testing.assert_allclose(outcome.payment_kept, of_two.payment_kept, atol=WIDTH_MAX)


@pytest.mark.parametrize("way", ways())
def test_who_is_in_nobodys_way_keeps_it_all(way: str) -> None:
    offer = np.array([500, 500])
    bids = finish_time_bids(5, 6, np.array([20, 20]))
    with by(way):
        outcome = settle_types(bids, offer)
    assert outcome.welfare == pytest.approx(sum(bid.value.max() for bid in bids))
    np.testing.assert_allclose(outcome.payment_kept, 1, atol=WIDTH_MAX)


@pytest.mark.parametrize("way", ways())
def test_bundles_worth_no_more_than_smaller_ones_keep_nobody_waiting(way: str) -> None:
    gpus = np.array([(0, 0), (30, 30), (3, 0), (0, 3), (2, 2)])
    bids = [BundleBid(gpus, np.array([0, 1, 1, 1, 1]) * (app + 1) / 10) for app in range(12)]
    offer = np.array([18, 18])
    with by(way):
        outcome = settle_types(bids, offer)
    assert outcome.welfare == pytest.approx(sum(range(1, 13)) / 10)
    check(bids, offer, outcome)


def test_more_on_offer_is_never_worse() -> None:
    bids = finish_time_bids(6, 10, np.array([20, 12, 8]))
    welfare = [settle_types(bids, np.array([20, 12, 8]) + more).welfare for more in range(0, 60, 6)]
    assert (np.diff(welfare) >= -1e-9).all()


@pytest.mark.parametrize("way", ways())
def test_the_same_bids_have_the_same_outcome(way: str) -> None:
    offer = np.array([24, 12, 8])
    bids = finish_time_bids(8, 12, offer)
    with by(way):
        one, other = (
            settle_types(bids, offer),
            settle_types([BundleBid(bid.gpus.copy(), bid.value) for bid in bids], offer),
        )
    for mine, yours in zip(one, other, strict=True):
        np.testing.assert_array_equal(mine, yours)


@pytest.mark.parametrize("way", ways())
def test_equal_apps_keep_equal_parts(way: str) -> None:
    offer = np.array([10, 6])
    bids = finish_time_bids(9, 1, np.array([3, 2])) * 6
    with by(way):
        outcome = settle_types(bids, offer)
    check(bids, offer, outcome)
