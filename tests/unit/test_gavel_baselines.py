"""The baselines of Gavel's evaluation, on pools small enough to work out by hand."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import numpy as np
import pytest
from pools_of_types import NOW, WAITS, Instance, check_shares

from horae.model.decisions import Shares
from horae.model.errors import PolicyError
from horae.model.view import View
from horae.policies import check_policy, make_policy
from horae.policies.allox import Allox
from horae.policies.fastest_type_first import FifoOnFastest, SjfOnFastest
from horae.policies.gandiva.random_packing import Gandiva
from horae.policies.pairing import random_pairs
from horae.policies.stable_random import draw


def pool(speed: list[list[float]], gpus: list[int], **more: Any) -> Instance:
    """Jobs of one GPU, submitted one second after the other, unless more is said."""
    count = len(speed)
    fields: dict[str, Any] = {"gang": [1] * count, "age_seconds": [float(count - serial) for serial in range(count)]}
    return Instance(np.array(speed), weight=[1.0] * count, gpus=gpus, **{**fields, **more})


def types_of(instance: Instance, view: View, shares: Shares) -> list[int | None]:
    """By job: the type of which it has all of its time, alone."""
    check_shares(view, shares)
    by_type = instance.by_type(view, shares.fraction)
    assert set(by_type.ravel().tolist()) <= {0.0, 1.0}
    return [int(row.argmax()) if row.any() else None for row in by_type]


def pairs_of(view: View, shares: Shares) -> set[frozenset[int]]:
    if shares.pairs is None:
        return set()
    serial = view.jobs.serial
    rows = zip(serial[shares.pairs.first].tolist(), serial[shares.pairs.second].tolist(), strict=True)
    return {frozenset(pair) for pair in rows}


def all_keep(part: float, count: int, types: int = 1) -> Any:
    return np.full((count, count, types), part)


# First come or shortest first, on the fastest type


def test_each_takes_the_fastest_type_with_room_in_the_order_of_arrival() -> None:
    instance = pool([[1.0, 3.0], [2.0, 3.0], [9.0, 1.0]], [2, 1])
    view = instance.view()
    assert types_of(instance, view, FifoOnFastest().decide(view)) == [1, 0, 0]


def test_who_came_earlier_goes_first_whatever_its_serial() -> None:
    instance = pool([[1.0], [1.0]], [1], age_seconds=[5.0, 50.0])
    view = instance.view()
    assert types_of(instance, view, FifoOnFastest().decide(view)) == [None, 0]


def test_equally_fast_types_are_taken_by_name() -> None:
    instance = pool([[2.0, 2.0]], [1, 1], names=["v100", "k80"])
    view = instance.view()
    assert types_of(instance, view, FifoOnFastest().decide(view)) == [1]


@pytest.mark.parametrize("policy", [FifoOnFastest(), FifoOnFastest(aware=False), SjfOnFastest()])
def test_the_first_that_fits_nowhere_stops_the_queue(policy: FifoOnFastest | SjfOnFastest) -> None:
    instance = pool([[4.0], [1.0], [1.0]], [3], gang=[2, 4, 1], steps_left=[1.0, 2.0, 3.0])
    view = instance.view()
    assert types_of(instance, view, policy.decide(view)) == [0, None, None]


@pytest.mark.parametrize("policy", [FifoOnFastest(), FifoOnFastest(aware=False), SjfOnFastest()])
def test_a_job_with_room_only_on_types_that_it_cannot_use_is_passed_over(policy: FifoOnFastest | SjfOnFastest) -> None:
    instance = pool([[4.0, 0.0], [3.0, 0.0], [0.0, 1.0]], [1, 1], steps_left=[1.0, 2.0, 3.0])
    view = instance.view()
    assert types_of(instance, view, policy.decide(view)) == [0, None, 1]


def test_who_does_not_know_speeds_spreads_jobs_over_types_by_lot() -> None:
    instance = pool([[1.0, 9.0]] * 40, [40, 40])
    view = instance.view()
    chosen = types_of(instance, view, FifoOnFastest(aware=False).decide(view))
    assert 10 <= chosen.count(1) <= 30
    few = instance._replace(gang=[1] * 20)
    assert types_of(few, few.view(), FifoOnFastest(aware=False).decide(few.view()))[:20] == chosen[:20]


def test_the_shortest_goes_first_by_its_time_on_its_fastest_type() -> None:
    instance = pool([[10.0, 1.0], [1.0, 2.0]], [1, 0], steps_left=[100.0, 19.0])
    view = instance.view()
    assert types_of(instance, view, SjfOnFastest().decide(view)) == [None, 0]


def test_jobs_of_unknown_length_come_last() -> None:
    instance = pool([[1.0], [1.0]], [1], steps_left=[1.0, 1e9])
    view = instance.view()
    vars(view.jobs)["steps_left"] = np.array([nan, 1e9])
    assert types_of(instance, view, SjfOnFastest().decide(view)) == [None, 0]


def test_an_order_by_time_left_stands_until_somebody_may_overtake() -> None:
    instance = pool([[2.0], [2.0], [2.0]], [1], steps_left=[20.0, 80.0, 100.0], runs_on=[WAITS, WAITS, 0])
    assert SjfOnFastest().decide(instance.view()).stands_until == NOW + 10.0
    roomy = instance._replace(gpus=[3])
    assert SjfOnFastest().decide(roomy.view()).stands_until == inf
    assert FifoOnFastest().decide(instance.view()).stands_until == inf


def test_who_waits_overtakes_nobody() -> None:
    waiting = pool([[2.0], [2.0], [2.0]], [1], steps_left=[20.0, 80.0, 100.0])
    assert SjfOnFastest().decide(waiting.view()).stands_until == inf
    down = waiting._replace(gpus=[0])
    assert SjfOnFastest().decide(down.view()).stands_until == inf


def test_the_order_of_those_who_may_join_others_matters_too() -> None:
    """With two GPUs, the first two may have company; the last of the five runs and comes nearer to the fourth."""
    speed = [[1.0]] * 5
    instance = pool(speed, [2], steps_left=[10.0, 20.0, 30.0, 40.0, 45.0], runs_on=[WAITS] * 4 + [0])
    shared = instance._replace(kept=all_keep(0.9, 5))
    assert SjfOnFastest(sharing=True).decide(shared.view()).stands_until == NOW + 5.0
    assert SjfOnFastest().decide(instance.view()).stands_until == NOW + 10.0


def test_those_in_the_queue_join_whom_they_go_with_best() -> None:
    kept = all_keep(0.6, 4)
    kept[2, 1] = kept[1, 2] = 0.9
    instance = pool([[1.0]] * 4, [2], kept=kept)
    view = instance.view()
    shares = FifoOnFastest(sharing=True).decide(view)
    assert pairs_of(view, shares) == {frozenset({1, 2})}  # 0.6 + 0.6 is too little for the last
    assert types_of(instance, view, shares) == [0, None, None, None]
    everybody = FifoOnFastest(sharing=True, packing_min=1.1).decide(view)
    assert pairs_of(view, everybody) == {frozenset({1, 2}), frozenset({0, 3})}


def test_the_first_that_finds_no_company_stops_the_others() -> None:
    kept = all_keep(0.9, 4)
    kept[2, :] = kept[:, 2] = 0.5
    view = pool([[1.0]] * 4, [2], kept=kept).view()
    assert pairs_of(view, FifoOnFastest(sharing=True).decide(view)) == set()


def test_only_gangs_of_one_size_on_one_type_share() -> None:
    instance = pool([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [2, 1], gang=[2, 1, 1], kept=all_keep(1.0, 3, 2))
    view = instance.view()
    assert pairs_of(view, FifoOnFastest(sharing=True).decide(view)) == set()


# AlloX


def test_a_short_job_goes_before_a_long_one_and_a_slow_gpu_may_stay_idle() -> None:
    instance = pool([[10.0, 0.01], [10.0, 0.01]], [1, 1], steps_left=[1000.0, 10.0])
    view = instance.view()
    shares = Allox().decide(view)
    assert types_of(instance, view, shares) == [None, 0]
    assert shares.stands_until == view.now  # once that one runs, the slow GPU is all that there is for the other


def test_who_runs_keeps_its_type_and_the_others_get_what_is_left() -> None:
    instance = pool([[1.0, 5.0], [9.0, 1.0], [9.0, 1.0]], [1, 1], steps_left=[50.0] * 3, runs_on=[0, WAITS, WAITS])
    view = instance.view()
    shares = Allox().decide(view)
    assert types_of(instance, view, shares) == [0, 1, None]
    assert shares.stands_until == inf


def test_who_only_fills_an_idle_gpu_is_matched_as_if_it_waited() -> None:
    instance = pool([[1.0, 5.0, 0.0], [9.0, 1.0, 0.0], [0.0, 0.0, 1.0]], [1, 1, 1], runs_on=[0, 1, 2])
    view = instance.view()
    assert types_of(instance, view, Allox().decide(view)) == [0, 1, 2]  # nobody was matched yet: all keep theirs
    matched = np.zeros(view.jobs.target.shape)
    matched[2, view.jobs.option[2]] = 1.0
    vars(view.jobs)["target"] = matched
    assert types_of(instance, view, Allox().decide(view)) == [1, 0, 2]


def test_jobs_of_several_gpus_are_not_matched_but_may_stay() -> None:
    instance = pool([[1.0], [1.0], [1.0]], [4], gang=[2, 2, 1], runs_on=[WAITS, 0, WAITS])
    view = instance.view()
    assert types_of(instance, view, Allox().decide(view)) == [None, 0, 0]


def test_only_the_oldest_are_matched() -> None:
    instance = pool([[1.0]] * 10, [1], steps_left=[float(10 - serial) for serial in range(10)])
    view = instance.view()
    assert types_of(instance, view, Allox().decide(view)).index(0) == 9
    assert types_of(instance, view, Allox(oldest=0.3).decide(view)).index(0) == 2
    assert types_of(instance, view, Allox(oldest=0.0).decide(view)).index(0) == 0


def test_an_unknown_length_counts_as_the_longest_known_one() -> None:
    instance = pool([[1.0], [2.0], [1.0]], [2], steps_left=[1.0, 10.0, 4.0])
    view = instance.view()
    vars(view.jobs)["steps_left"] = np.array([nan, 10.0, 4.0])
    assert types_of(instance, view, Allox().decide(view)) == [0, None, 0]  # 5 seconds like the next, but older
    alone = pool([[1.0]], [1]).view()
    vars(alone.jobs)["steps_left"] = np.array([nan])
    assert Allox().decide(alone).fraction.tolist() == [[1.0]]


def test_those_who_came_last_give_way_where_gpus_were_lost() -> None:
    instance = pool([[1.0], [1.0]], [1], runs_on=[0, 0])
    view = instance.view()
    assert types_of(instance, view, Allox().decide(view)) == [0, None]


# Gandiva


def test_if_all_fit_everybody_gets_the_same_part_alone() -> None:
    instance = pool([[1.0, 2.0]] * 3, [2, 2], kept=all_keep(1.0, 3, 2))
    view = instance.view()
    shares = Gandiva().decide(view)
    assert shares.pairs is None
    assert instance.by_type(view, shares.fraction) == pytest.approx(np.full((3, 2), 0.5))


def test_a_crowd_shares_gpus_two_by_two() -> None:
    instance = pool([[1.0, 2.0]] * 6, [1, 1], kept=all_keep(0.5, 6, 2))
    view = instance.view()
    shares = Gandiva().decide(view)
    check_shares(view, shares)
    assert len(pairs_of(view, shares)) == 3
    assert shares.pairs is not None
    assert shares.pairs.fraction == pytest.approx(np.full(6, 1 / 3))
    assert not shares.fraction.any()


def test_no_more_share_gpus_than_have_to() -> None:
    instance = pool([[1.0, 2.0]] * 6, [2, 2], kept=all_keep(0.8, 6, 2))
    view = instance.view()
    shares = Gandiva().decide(view)
    check_shares(view, shares)
    assert len(pairs_of(view, shares)) == 2  # six jobs on four GPUs
    assert shares.pairs is not None
    assert shares.pairs.fraction == pytest.approx(np.full(4, 0.5))
    assert np.count_nonzero(shares.fraction.any(axis=1)) == 2


def test_a_pair_that_is_slower_than_taking_turns_on_any_type_is_not_kept() -> None:
    kept = all_keep(0.9, 4, 2)
    kept[..., 1] = 0.49
    instance = pool([[1.0, 2.0]] * 4, [1, 1], kept=kept)
    view = instance.view()
    assert pairs_of(view, Gandiva().decide(view)) == set()
    assert len(pairs_of(view, Gandiva(packing_min=0.0).decide(view))) == 2
    kept[..., 1] = 0.0
    assert pairs_of(view, Gandiva(packing_min=0.0).decide(instance._replace(kept=kept).view())) == set()


def test_who_shares_gpus_now_stays_together() -> None:
    instance = pool([[1.0]] * 8, [2], kept=all_keep(0.8, 8), runs_on=[0, 0, *[WAITS] * 6])
    view = instance.view()
    before = pairs_of(view, Gandiva().decide(view))
    assert frozenset({0, 1}) not in before  # or this test would say nothing
    later = instance.view()
    vars(later.jobs)["epoch"] = np.where(np.arange(8) < 2, 7, later.jobs.epoch)
    later.jobs.bundles = 1
    assert frozenset({0, 1}) in pairs_of(later, Gandiva().decide(later))


def test_few_pairs_change_when_a_job_comes() -> None:
    changes = []
    for count in range(100, 200):
        one, two = (
            set(zip(*(rows.tolist() for rows in pairs), strict=True))
            for pairs in (
                random_pairs(0, np.arange(jobs), np.zeros(jobs, dtype=np.int64), np.ones((1, 1), dtype=np.bool_))
                for jobs in (count, count + 1)
            )
        )
        changes.append(len(one - two))
    assert float(np.mean(changes)) < 5.0


# All of them


def test_lots_depend_on_the_seed_and_the_number_only() -> None:
    numbers = np.arange(1000)
    assert (draw(3, numbers)[::-1] == draw(3, numbers[::-1])).all()
    assert not (draw(3, numbers) == draw(4, numbers)).any()
    assert len(np.unique(draw(3, numbers))) == 1000
    assert abs(float((draw(3, numbers) % np.uint64(2)).mean()) - 0.5) < 0.06


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fifo-on-fastest", {"aware": False, "sharing": True, "packing_min": 1.2}),
        ("fifo-on-fastest", {"sharing": True, "packing_min": 1.0}),
        ("sjf-on-fastest", {"aware": False}),
        ("sjf-on-fastest", {"sharing": True, "packing_min": 1.2}),
        ("allox", {"oldest": 0.4}),
        ("gandiva", {"packing_min": 0.0}),
        ("gandiva", {"packing_min": 1.5}),
    ],
)
def test_every_variant_keeps_the_rules_of_policies(name: str, options: dict[str, object]) -> None:
    for seed in range(3):
        check_policy(make_policy(name, options), seed)


@pytest.mark.parametrize(("name", "options"), [("allox", {"oldest": 1.5}), ("gandiva", {"packing_min": -1.0})])
def test_options_out_of_range_are_refused(name: str, options: dict[str, object]) -> None:
    with pytest.raises(PolicyError):
        make_policy(name, options)
