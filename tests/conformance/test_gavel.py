"""All recorded instances of Gavel's policies: the same objective to 1e-6, and feasible to 1e-9."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conformance_folder import missing
from gavel_cases import (
    CASES,
    FILE,
    REACH,
    REFERENCE,
    Call,
    allocation_of,
    calls_of,
    cases,
    decide,
    only_call,
    recorded_allocation,
    reference_speed,
)
from pools_of_types import WAITS, Instance, check_shares, reached, speed_by_shape

from horae.model.arrays import Floats
from horae.model.decisions import Limit, Shares
from horae.model.view import View

UNAWARE: dict[str, object] = {"aware": False, "reference": REFERENCE}
MAX_MIN: dict[str, dict[str, object]] = {
    "max_min_fairness": {"aware": False, "fill": False},
    "max_min_fairness_perf": {"fill": False},
    "max_min_fairness_packed": {"fill": False, "sharing": True},
    "max_min_fairness_water_filling_packed": {"fill": True, "sharing": True},  # of these the least level was recorded
}
WATER_FILLING: dict[str, dict[str, object]] = {
    "max_min_fairness_water_filling": {"aware": False, "fill": True},
    "max_min_fairness_water_filling_perf": {"fill": True},
}
FINISH_TIME: dict[str, dict[str, object]] = {
    "finish_time_fairness": UNAWARE,
    "finish_time_fairness_perf": {},
    "finish_time_fairness_packed": {"sharing": True},
}
MAKESPAN: dict[str, dict[str, object]] = {
    "min_total_duration": UNAWARE,
    "min_total_duration_perf": {},
    "min_total_duration_packed": {"sharing": True},
}
THROUGHPUT: dict[str, tuple[str, dict[str, object]]] = {
    "max_sum_throughput_perf": ("total-throughput", {}),
    "max_sum_throughput_normalized_by_cost_perf": ("throughput-per-dollar", {}),
    "max_sum_throughput_normalized_by_cost_packed_SLOs": ("throughput-per-dollar", {"sharing": True}),  # without SLOs
}
SLOS = "max_sum_throughput_normalized_by_cost_perf_SLOs"
HIERARCHICAL = "max_min_fairness_water_filling_perf_hierarchical"
ALLOX, GANDIVA = "allox", "gandiva"
EXACT: dict[str, tuple[str, dict[str, object]]] = {
    "isolated": ("equal-share", {}),
    "fifo_perf": ("fifo-on-fastest", {}),
    "fifo_packed": ("fifo-on-fastest", {"sharing": True}),
}
FEASIBLE: dict[str, tuple[str, dict[str, object]]] = {
    "fifo": ("fifo-on-fastest", {"aware": False}),
    "max_min_fairness_strategy_proof_perf": ("partial-allocation", {}),
}


def as_seen(call: Call, options: dict[str, object]) -> Instance:
    """To max-min that is not aware of them, all types are equally fast, even those on which a model does not run."""
    instance = call.instance()
    return instance if options.get("aware", True) else instance._replace(speed=np.ones_like(instance.speed))


def normalised(instance: Instance, view: View, shares: Shares) -> Floats:
    """By job: its speed over that with the same part of every GPU type."""
    gpus = np.array(instance.gpus, dtype=np.float64)
    return reached(view, shares) / (instance.speed @ gpus / gpus.sum())


@cases(*MAX_MIN)
def test_the_least_level_is_what_was_recorded(case: dict[str, Any]) -> None:
    call, options = only_call(case), MAX_MIN[case["policy"]]
    instance = as_seen(call, options)
    view = instance.view()
    shares = decide("max-min", options, view)
    check_shares(view, shares)
    level = normalised(instance, view, shares) * np.array(instance.gang) / np.array(instance.weight)
    assert level.min() == pytest.approx(call.expected["objective"], rel=REACH)


@cases(*WATER_FILLING)
def test_all_levels_are_what_was_recorded(case: dict[str, Any]) -> None:
    call, options = only_call(case), WATER_FILLING[case["policy"]]
    instance = as_seen(call, options)
    view = instance.view()
    shares = decide("max-min", options, view)
    check_shares(view, shares)
    levels = np.sort(normalised(instance, view, shares))
    assert levels == pytest.approx(np.sort(call.expected["objective"]), rel=REACH)


@cases(HIERARCHICAL)
def test_all_levels_of_a_hierarchy_are_what_was_recorded(case: dict[str, Any]) -> None:
    call = only_call(case)
    instance, entities = call.instance(), call.inputs["entities"]
    view = instance.view()
    weights = {name: float(entity["weight"]) for name, entity in entities.items()}
    fifo = ",".join(name for name, entity in entities.items() if entity["policy"] == "fifo")
    shares = decide("hierarchical", {"weights": weights, "fifo": fifo}, view)
    check_shares(view, shares)
    levels = np.sort(normalised(instance, view, shares))
    assert levels == pytest.approx(np.sort(call.expected["objective"]), rel=REACH)


@cases(*FINISH_TIME)
def test_the_worst_finish_time_is_what_was_recorded_call_by_call(case: dict[str, Any]) -> None:
    """What a job's steps would have taken alone is counted up at the speed that the policy itself reckoned."""
    options = FINISH_TIME[case["policy"]]
    calls = list(calls_of(case))
    last_left, last_speed = np.array(calls[0].numbers("num_steps_remaining")), np.ones(1)
    alone_seconds = np.zeros(len(last_left))
    for call in calls:
        left, age = np.array(call.numbers("num_steps_remaining")), np.array(call.numbers("times_since_start"))
        alone_seconds = alone_seconds + (last_left - left) / last_speed
        instance = call.instance(isolated_seconds=alone_seconds)
        view = instance.view()
        shares = decide("finish-time-fairness", options, view)
        check_shares(view, shares)
        assert shares.isolated_speed is not None
        speed = reference_speed(view, instance) if "reference" in options else speed_by_shape(view)
        worst = (age + left / reached(view, shares, speed)) / (alone_seconds + left / shares.isolated_speed)
        assert worst.max() == pytest.approx(call.expected["objective"], rel=REACH)
        if "isolated_throughputs" in call.expected:
            assert shares.isolated_speed == pytest.approx(call.expected["isolated_throughputs"], rel=REACH)
            assert alone_seconds == pytest.approx(call.expected["cumulative_isolated_time"], rel=REACH)
        last_left, last_speed = left, shares.isolated_speed


@cases(*MAKESPAN)
def test_the_makespan_is_what_was_recorded(case: dict[str, Any]) -> None:
    call, options = only_call(case), MAKESPAN[case["policy"]]
    instance = call.instance()
    view = instance.view()
    shares = decide("makespan", options, view)
    check_shares(view, shares)
    speed = reference_speed(view, instance) if "reference" in options else speed_by_shape(view)
    seconds = np.array(instance.steps_left) / reached(view, shares, speed)
    assert seconds.max() == pytest.approx(call.expected["objective"], rel=REACH)


def per_dollar(instance: Instance, view: View, shares: Shares) -> float:
    """The sum of all speeds, those on each type over its price; without prices, the sum of all speeds."""
    price = np.array(instance.price) if len(instance.price) else np.ones(len(instance.gpus))
    return float(reached(view, shares, speed_by_shape(view) / price[view.shape_accelerator]).sum())


@cases(*THROUGHPUT)
def test_the_throughput_is_what_was_recorded(case: dict[str, Any]) -> None:
    call = only_call(case)
    instance = call.instance()
    view = instance.view()
    shares = decide(*THROUGHPUT[case["policy"]], view)
    check_shares(view, shares)
    assert per_dollar(instance, view, shares) == pytest.approx(call.expected["objective"], rel=REACH)


@cases(SLOS)
def test_deadlines_are_kept_and_the_throughput_is_what_was_recorded(case: dict[str, Any]) -> None:
    call = only_call(case)
    instance = call.instance()
    view = instance.view()
    shares = decide("min-cost", {}, view)
    check_shares(view, shares)
    assert shares.evidence is not None
    dropped = shares.evidence.limit == int(Limit.DROPPED)
    assert [call.ids[row] for row in np.flatnonzero(dropped)] == call.expected.get("dropped_slos", [])
    needed = np.array(instance.steps_left) / np.array(instance.deadline_seconds)
    assert (reached(view, shares)[~dropped] >= needed[~dropped] * (1 - 1e-9)).all()
    assert per_dollar(instance, view, shares) == pytest.approx(call.expected["objective"], rel=REACH)


@cases(*EXACT)
def test_shares_are_those_that_were_recorded(case: dict[str, Any]) -> None:
    for call in calls_of(case):
        view = call.instance().view()
        shares = decide(*EXACT[case["policy"]], view)
        check_shares(view, shares)
        assert allocation_of(view, shares, call.ids) == pytest.approx(recorded_allocation(call), rel=REACH)


@cases(ALLOX)
def test_allox_gives_the_gpus_that_were_recorded_call_by_call(case: dict[str, Any]) -> None:
    """Who was given GPUs runs on them from then on."""
    running: dict[str, str] = {}
    for call in calls_of(case):
        types = list(call.inputs["cluster_spec"])
        runs_on = [types.index(running[job]) if job in running else WAITS for job in call.ids]
        view = call.instance(runs_on=runs_on).view()
        shares = decide("allox", {}, view)
        check_shares(view, shares)
        given = allocation_of(view, shares, call.ids)
        assert given == pytest.approx(recorded_allocation(call), rel=REACH)
        running = dict(given)


@cases(GANDIVA)
def test_gandivas_pairs_run_no_slower_together_than_in_turns(case: dict[str, Any]) -> None:
    view = only_call(case).instance().view()
    shares = decide("gandiva", {}, view)
    check_shares(view, shares)
    pairs, jobs = shares.pairs, view.jobs
    if pairs is None:
        return
    one, two = jobs.model[pairs.first], jobs.model[pairs.second]
    first = view.kept[one, two, jobs.shape[pairs.first, pairs.first_option]]
    second = view.kept[two, one, jobs.shape[pairs.second, pairs.second_option]]
    assert (first + second >= 1 - 1e-12)[pairs.fraction > 0].all()


@cases(*FEASIBLE)
def test_shares_are_feasible_where_nothing_else_was_recorded(case: dict[str, Any]) -> None:
    for call in calls_of(case):
        view = call.instance().view()
        shares = decide(*FEASIBLE[case["policy"]], view)
        check_shares(view, shares)
        assert reached(view, shares).any()


TABLES = (MAX_MIN, WATER_FILLING, FINISH_TIME, MAKESPAN, THROUGHPUT, EXACT, FEASIBLE)
TRIED = {name for table in TABLES for name in table} | {SLOS, HIERARCHICAL, ALLOX, GANDIVA}


@pytest.mark.skipif(bool(missing(FILE)), reason=missing(FILE))
def test_there_is_a_test_for_every_recorded_case() -> None:
    assert CASES, f"{FILE} is empty"
    assert {case["policy"] for case in CASES} <= TRIED, "these policies are not known here"
    exact = {case["policy"] for case in CASES if case.get("exact_allocation")}
    assert exact <= {*EXACT, ALLOX, GANDIVA}, "the allocations of these policies are not compared"
