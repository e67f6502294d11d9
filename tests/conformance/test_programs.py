"""The straightforward programs, against which policies are tested, against the recorded instances themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gavel_cases import REACH, REFERENCE, Call, calls_of, cases, only_call
from oracles import programs
from pools_of_types import Instance

from horae.model.arrays import Floats


def seen_as_equal(call: Call) -> Instance:
    """All types are equally fast, even those on which a model does not run."""
    instance = call.instance()
    return instance._replace(speed=np.ones_like(instance.speed))


def reference_speed(instance: Instance) -> Floats:
    one = instance.speed[:, list(instance.types).index(REFERENCE)]
    return np.tile(one[:, None], (1, len(instance.gpus)))


@cases(
    "max_min_fairness",
    "max_min_fairness_perf",
    "max_min_fairness_packed",
    "max_min_fairness_water_filling_packed",
)
def test_the_program_of_max_min_fairness_has_the_recorded_optimum(case: dict[str, Any]) -> None:
    call, policy = only_call(case), case["policy"]
    instance = seen_as_equal(call) if policy == "max_min_fairness" else call.instance()
    found = programs.max_min(instance, sharing=policy.endswith("packed"))
    assert found == pytest.approx(call.expected["objective"], rel=REACH)


@cases("max_min_fairness_water_filling", "max_min_fairness_water_filling_perf")
def test_the_program_of_water_filling_has_the_recorded_levels(case: dict[str, Any]) -> None:
    call = only_call(case)
    instance = call.instance() if case["policy"].endswith("perf") else seen_as_equal(call)
    found = programs.water_filling(instance) * np.array(instance.weight) / np.array(instance.gang)
    assert np.sort(found) == pytest.approx(np.sort(call.expected["objective"]), rel=REACH)


@cases("max_min_fairness_water_filling_perf_hierarchical")
def test_the_program_of_a_hierarchy_has_the_recorded_levels(case: dict[str, Any]) -> None:
    call = only_call(case)
    entities = call.inputs["entities"]
    weights = {name: float(entity["weight"]) for name, entity in entities.items()}
    fifo = {name for name, entity in entities.items() if entity["policy"] == "fifo"}
    found = programs.hierarchical(call.instance(), weights, fifo)
    assert found == pytest.approx(np.array(call.expected["objective"]), rel=REACH)


@cases("finish_time_fairness", "finish_time_fairness_perf", "finish_time_fairness_packed")
def test_the_program_of_finish_time_fairness_has_the_recorded_optimum(case: dict[str, Any]) -> None:
    for call in calls_of(case):
        alone_seconds = call.expected.get("cumulative_isolated_time", np.zeros(len(call.ids)))
        instance = call.instance(isolated_seconds=alone_seconds)
        speed = reference_speed(instance) if case["policy"] == "finish_time_fairness" else None
        found = programs.finish_time_fairness(instance, speed, case["policy"].endswith("packed"))
        assert found == pytest.approx(call.expected["objective"], rel=REACH)


@cases("min_total_duration", "min_total_duration_perf", "min_total_duration_packed")
def test_the_program_of_the_makespan_has_the_recorded_optimum(case: dict[str, Any]) -> None:
    call = only_call(case)
    instance = call.instance()
    speed = reference_speed(instance) if case["policy"] == "min_total_duration" else None
    found = programs.makespan(instance, speed, case["policy"].endswith("packed"))
    assert found == pytest.approx(call.expected["objective"], rel=REACH)


@cases(
    "max_sum_throughput_perf",
    "max_sum_throughput_normalized_by_cost_perf",
    "max_sum_throughput_normalized_by_cost_packed_SLOs",
)
def test_the_program_of_throughput_has_the_recorded_optimum(case: dict[str, Any]) -> None:
    call = only_call(case)
    found = programs.total_throughput(call.instance(), "packed" in case["policy"])
    assert found == pytest.approx(call.expected["objective"], rel=REACH)


@cases("max_sum_throughput_normalized_by_cost_perf_SLOs")
def test_the_program_of_deadlines_has_the_recorded_optimum(case: dict[str, Any]) -> None:
    call = only_call(case)
    kept = programs.min_cost(call.instance())
    dropped = [job for number, job in enumerate(call.ids) if number not in kept.choices[0]]
    assert dropped == call.expected.get("dropped_slos", [])
    assert kept.per_dollar == pytest.approx(call.expected["objective"], rel=REACH)


@cases("max_min_fairness_strategy_proof_perf")
def test_the_program_of_partial_allocation_has_the_recorded_discounts(case: dict[str, Any]) -> None:
    """They are known to five digits: the product is flat at its top."""
    call = only_call(case)
    instance = call.instance()
    found = programs.partial_allocation(instance) / programs.nash(instance)
    assert found == pytest.approx(np.array(call.expected["discount_factors"]), rel=1e-4)
