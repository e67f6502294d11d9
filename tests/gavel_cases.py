"""The recorded instances of Gavel's policies, read into pools; see the README of the folder that holds them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from conformance_folder import missing, read
from pools_of_types import Instance, cells_of

from horae.model.arrays import Floats
from horae.model.decisions import Shares
from horae.model.view import View
from horae.policies import make_policy

FILE = "gavel/cases.json"
CASES: list[dict[str, Any]] = read(FILE) or []
REFERENCE = "v100"  # whose speeds a policy that is not aware of types takes for all of them
REACH = 1e-6  # relative, on objectives


class Call(NamedTuple):
    """One call of the recorded policy: what it was shown, and what it answered."""

    ids: list[str]
    inputs: dict[str, Any]
    expected: dict[str, Any]

    def numbers(self, name: str) -> list[float]:
        return [float(self.inputs[name][job]) for job in self.ids] if name in self.inputs else []

    def instance(self, **changed: Any) -> Instance:
        inputs, ids = self.inputs, self.ids
        types = list(inputs["cluster_spec"])
        speed = np.array([[float(inputs["throughputs"][job].get(name, 0.0)) for name in types] for job in ids])
        fields: dict[str, Any] = {
            "speed": speed,
            "gang": [int(inputs.get("scale_factors", {}).get(job, 1)) for job in ids],
            "weight": [float(inputs.get("priority_weights", {}).get(job, 1.0)) for job in ids],
            "gpus": [int(inputs["cluster_spec"][name]) for name in types],
            "price": [float(inputs["instance_costs"][name]) for name in types] if "instance_costs" in inputs else (),
            "steps_left": self.numbers("num_steps_remaining"),
            "age_seconds": self.numbers("times_since_start"),
            "deadline_seconds": self.numbers("SLOs"),
            "tenant": self._tenants(),
            "kept": self._kept(types, speed),
            "names": types,
        }
        return Instance(**{**fields, **changed})

    def _tenants(self) -> list[str]:
        entities = self.inputs.get("entities", {})
        owner = {str(job): name for name, entity in entities.items() for job in entity["jobs"]}
        return [owner[job] for job in self.ids] if owner else []

    def _kept(self, types: list[str], speed: Floats) -> Floats | None:
        """By job, partner and type, from the speeds of pairs: none but recorded ones fit."""
        pairs = {tuple(name.split(",")): row for name, row in self.inputs["throughputs"].items() if "," in name}
        if not pairs:
            return None
        kept = np.zeros((len(self.ids), len(self.ids), len(types)))
        for (one, two), row in pairs.items():
            first, second = self.ids.index(one), self.ids.index(two)
            for number, name in enumerate(types):
                kept[first, second, number] = row[name][0] / speed[first, number]
                kept[second, first, number] = row[name][1] / speed[second, number]
        return kept


def calls_of(case: dict[str, Any]) -> Iterator[Call]:
    """In the order in which the policy was called; a case without `calls` is one."""
    inputs, expected = case["inputs"], case["expected"]
    calls = inputs.get("calls", [{}])
    answers = expected.get("calls", [expected])
    for call, answer in zip(calls, answers, strict=True):
        shown = {**inputs, **call}
        ids = sorted((name for name in shown["throughputs"] if "," not in name), key=int)
        # Where the allocation alone was recorded, it stands for the whole answer.
        yield Call(ids, shown, answer if "objective" in answer else {"allocation": answer, "objective": None})


def only_call(case: dict[str, Any]) -> Call:
    (call,) = calls_of(case)
    return call


def decide(name: str, options: dict[str, object], view: View) -> Shares:
    decision = make_policy(name, options).decide(view)
    assert isinstance(decision, Shares)
    return decision


def reference_speed(view: View, instance: Instance) -> Floats:
    """By serial and shape: the job's speed on the reference type, whatever the shape."""
    one = instance.speed[:, list(instance.types).index(REFERENCE)]
    return np.tile(one[:, None], (1, len(view.shapes)))


def allocation_of(view: View, shares: Shares, ids: list[str]) -> dict[tuple[str, str], float]:
    """By (job or pair of jobs, type), as cases write it: the fractions that are not 0."""
    found: dict[tuple[str, str], float] = {}
    solo = cells_of(view, shares._replace(pairs=None))
    for serial, shape, fraction in zip(solo.serial.tolist(), solo.shape.tolist(), solo.fraction.tolist(), strict=True):
        found[ids[serial], view.shapes[shape].accelerator] = fraction
    if shares.pairs is None:
        return found
    jobs, pairs = view.jobs, shares.pairs
    for first, second, option, fraction in zip(
        pairs.first.tolist(), pairs.second.tolist(), pairs.first_option.tolist(), pairs.fraction.tolist(), strict=True
    ):
        both = sorted((int(jobs.serial[first]), int(jobs.serial[second])))
        name = view.shapes[int(jobs.shape[first, option])].accelerator
        if fraction > 0:
            found[",".join(ids[serial] for serial in both), name] = fraction
    return found


def recorded_allocation(call: Call) -> dict[tuple[str, str], float]:
    table = call.expected["allocation"]
    return {(job, name): share for job, row in table.items() for name, share in row.items() if share != 0}


def cases(*policies: str) -> pytest.MarkDecorator:
    """All recorded cases of these policies; if there are none, a skipped one that says so."""
    chosen = [case for case in CASES if case["policy"] in policies]
    if not chosen:
        reason = missing(FILE) or f"{FILE} holds no case of {', '.join(policies)}"
        return pytest.mark.parametrize("case", [pytest.param({}, marks=pytest.mark.skip(reason=reason), id="none")])
    return pytest.mark.parametrize("case", chosen, ids=[case["id"] for case in chosen])
