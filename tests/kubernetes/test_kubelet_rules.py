"""The rules of the simulated kubelets, without a control plane."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from kubernetes.client import Json
from kubernetes.kubelets.checker import Checker
from kubernetes.kubelets.pods import quantity, refusal, requests
from kubernetes.kubelets.training import speed_on, speeds
from kubernetes.objects import A100, H100, node, pod


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8),
        ("500m", Fraction(1, 2)),
        ("1.5", Fraction(3, 2)),
        ("1e3", 1000),
        ("2k", 2000),
        ("1Ti", 2**40),
        ("3E", 3 * 10**18),
        ("100u", Fraction(1, 10**4)),
    ],
)
def test_quantities_have_the_value_that_kubernetes_gives_them(text: str, value: Fraction) -> None:
    assert quantity(text) == value


def _requesting(gpus: str, **spec: Any) -> Json:
    """As the API server completes it: requests are there, too."""
    return pod(container={"resources": {"requests": {"nvidia.com/gpu": gpus}}}, **spec)


def test_a_pod_requests_what_its_containers_need_together_or_the_largest_before_them() -> None:
    first = [{"resources": {"requests": {"nvidia.com/gpu": "4", "cpu": "1"}}}, {"resources": {}}]
    assert requests(_requesting("2", initContainers=first)) == {"pods": 1, "nvidia.com/gpu": 4, "cpu": 1}


def _on(**spec: Any) -> Json:
    return {**node("node"), "spec": spec}


OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "value": "down", "effect": "NoExecute"}
CORDONED = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("found", "on", "reason"),
    [
        (_requesting("8"), _on(), None),
        (_requesting("9"), _on(), "OutOfnvidia.com/gpu"),
        (_requesting("1", nodeSelector={"zone": "a"}), _on(), "NodeAffinity"),
        (_requesting("1", nodeSelector={"kubernetes.io/hostname": "node"}), _on(), None),
        (_requesting("1"), _on(taints=[CORDONED]), None),
        (_requesting("1"), _on(taints=[OUT_OF_SERVICE]), "TaintToleration"),
        (_requesting("1", tolerations=[{"operator": "Exists"}]), _on(taints=[OUT_OF_SERVICE]), None),
        (
            _requesting("1", tolerations=[{"key": OUT_OF_SERVICE["key"], "value": "up"}]),
            _on(taints=[OUT_OF_SERVICE]),
            "TaintToleration",
        ),
    ],
)
def test_a_kubelet_admits_what_fits_and_tolerates_its_node(found: Json, on: Json, reason: str | None) -> None:
    refused = refusal(found, on, [])
    assert (None if refused is None else refused.reason) == reason


def test_a_rejection_counts_in_the_words_of_the_real_kubelet() -> None:
    refused = refusal(_requesting("5"), _on(), [_requesting("4")])
    assert refused is not None and refused.message == (
        "Pod was rejected: Node didn't have enough resource: nvidia.com/gpu, requested: 5, used: 4, capacity: 8"
    )


@pytest.mark.parametrize(
    ("text", "product", "speed"),
    [
        ("H100=3.1;A100=1.4", H100, 3.1),
        ("H100=3.1; A100=1.4", A100, 1.4),
        ("a100=1;A100-SXM4=2", A100, 2.0),
        ("V100=1", A100, 0.0),
        ("2.5", A100, 2.5),
    ],
)
def test_the_speed_of_a_gang_is_that_of_its_gpu_type(text: str, product: str, speed: float) -> None:
    assert speed_on(speeds(text), product) == speed


def _placed(name: str, gpus: str, phase: str = "Running", epoch: str = "1", job: str = "job") -> Json:
    found = pod(name, annotations={"horae.io/epoch": epoch, "horae.io/gpus": gpus}, nodeName="node")
    owner = {"kind": "Job", "uid": job, "controller": True}
    identity = {"uid": name, "namespace": "tests", "ownerReferences": [owner]}
    return {**found, "metadata": {**found["metadata"], **identity}, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ([[_placed("a", "0,1"), _placed("b", "2,3")]], []),
        ([[_placed("a", "0,1"), _placed("b", "1,2")]], ["gpus of two pods"]),
        ([[_placed("a", "0"), _placed("b", "0")], [_placed("a", "0", "Failed")]], ["gpus of two pods"]),
        ([[_placed("a", "0")], [_placed("a", "0", "Failed")], [_placed("b", "0")]], []),
        # A list shows a new pod before the end of the former one: they were never there together.
        ([[_placed("a", "0")], [_placed("b", "0"), _placed("a", "0", "Succeeded")]], []),
        ([[_placed("a", "0", job="one"), _placed("b", "1", epoch="2", job="other")]], []),
        ([[_placed("a", "0", "Pending"), _placed("b", "1", epoch="2")]], ["two epochs of a Job"]),
        (
            [[_placed("a", "0", "Pending"), _placed("b", "1", epoch="2")], [_placed("a", "0")]],
            ["two epochs of a Job", "two epochs of a Job are running"],
        ),
    ],
)
def test_the_checker_finds_what_no_scheduler_may_do(
    changes: list[list[Json]], kinds: list[str], tmp_path: Path
) -> None:
    checker = Checker(tmp_path / "violations")
    for there in changes:
        checker.apply([], there)
    found = [json.loads(line) for line in (tmp_path / "violations").read_text().splitlines()]
    assert [each["kind"] for each in found] == kinds
