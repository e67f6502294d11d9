"""Instances of Gavel's policies, recorded from the public code: the same objective, by the rules of that folder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pools_of_types import Instance

from horae.policies import make_policy

FOLDER = os.environ.get("HORAE_CONFORMANCE")
CASES: list[dict[str, Any]] = json.loads((Path(FOLDER) / "gavel/cases.json").read_text()) if FOLDER else []
MAX_MIN = {
    "max_min_fairness": {"aware": False, "fill": False},
    "max_min_fairness_perf": {"aware": True, "fill": False},
}
WATER_FILLING = {
    "max_min_fairness_water_filling": {"aware": False, "fill": True},
    "max_min_fairness_water_filling_perf": {"aware": True, "fill": True},
}


def cases(*policies: str) -> pytest.MarkDecorator:
    chosen = [case for case in CASES if case["policy"] in policies]
    if not chosen:
        mark = pytest.mark.skip(reason="set HORAE_CONFORMANCE to the folder with the recorded cases")
        return pytest.mark.parametrize("case", [pytest.param({}, marks=mark)])
    return pytest.mark.parametrize("case", chosen, ids=[case["id"] for case in chosen])


def instance_of(case: dict[str, Any], aware: bool = True) -> Instance:
    """To a policy that is not aware of them, all types are equally fast, even those on which a model does not run."""
    inputs = case["inputs"]
    jobs, types = sorted(inputs["throughputs"], key=int), list(inputs["cluster_spec"])
    weights = inputs.get("priority_weights", {})
    speed = np.array([[inputs["throughputs"][job].get(name, 0.0) for name in types] for job in jobs])
    return Instance(
        speed if aware else np.ones_like(speed),
        [int(inputs["scale_factors"][job]) for job in jobs],
        [float(weights.get(job, 1.0)) for job in jobs],
        [int(inputs["cluster_spec"][name]) for name in types],
    )


@cases(*MAX_MIN)
def test_the_least_level_is_what_was_recorded(case: dict[str, Any]) -> None:
    options = MAX_MIN[case["policy"]]
    instance = instance_of(case, options["aware"])
    view = instance.view()
    shares = instance.by_type(view, make_policy("max-min", options).decide(view).fraction)  # type: ignore[union-attr]
    instance.check_feasible(shares)
    level = instance.level(shares, options["aware"]).min()
    assert level == pytest.approx(case["expected"]["objective"], rel=1e-6)


@cases(*WATER_FILLING)
def test_all_levels_are_what_was_recorded(case: dict[str, Any]) -> None:
    options = WATER_FILLING[case["policy"]]
    instance = instance_of(case, options["aware"])
    view = instance.view()
    shares = instance.by_type(view, make_policy("max-min", options).decide(view).fraction)  # type: ignore[union-attr]
    instance.check_feasible(shares)
    rate = np.array(instance.weight) / np.array(instance.gang)
    levels = np.sort(instance.level(shares, options["aware"]) * rate)
    assert levels == pytest.approx(np.sort(case["expected"]["objective"]), rel=1e-6)


@cases("isolated")
def test_isolated_shares_are_those_that_were_recorded(case: dict[str, Any]) -> None:
    instance = instance_of(case)
    view = instance.view()
    shares = instance.by_type(view, make_policy("equal-share").decide(view).fraction)  # type: ignore[union-attr]
    instance.check_feasible(shares)
    recorded = case["expected"]["allocation"]
    types = list(case["inputs"]["cluster_spec"])
    want = [[recorded[job][name] for name in types] for job in sorted(recorded, key=int)]
    assert shares == pytest.approx(np.array(want), rel=1e-6)


@pytest.mark.skipif(FOLDER is None, reason="set HORAE_CONFORMANCE to the folder with the recorded cases")
def test_policies_that_are_not_there_yet_are_named() -> None:
    there = {*MAX_MIN, *WATER_FILLING, "isolated"}
    missing = sorted({case["policy"] for case in CASES} - there)
    pytest.skip(f"not there yet: {', '.join(missing)}")
