"""What a kubelet reads from pods and nodes, and whether a pod has room on a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

from kubernetes.client import Json

_SUFFIXES = {"n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000)} | {
    suffix: Fraction(base**power)
    for base, suffixes in ((1000, "k M G T P E"), (1024, "Ki Mi Gi Ti Pi Ei"))
    for power, suffix in enumerate(suffixes.split(), start=1)
}


class Refusal(NamedTuple):
    """The reason and the message of a pod that is rejected."""

    reason: str
    message: str


def quantity(text: str | int) -> Fraction:
    """The value of a Kubernetes quantity: `500m`, `1Ti`, `1e3`."""
    text = str(text)
    suffix = text.lstrip("+-.0123456789")
    if suffix in _SUFFIXES:
        return Fraction(text[: -len(suffix)]) * _SUFFIXES[suffix]
    return Fraction(text)


def requests(pod: Json) -> dict[str, Fraction]:
    """By resource: what all containers request together, or the largest one that runs before them."""
    found = total([{"pods": Fraction(1)}, *map(_requests, pod["spec"]["containers"])])
    for container in pod["spec"].get("initContainers") or ():
        for resource, amount in _requests(container).items():
            found[resource] = max(amount, found.get(resource, Fraction(0)))
    return found


def total(amounts: Iterable[Mapping[str, Fraction]]) -> dict[str, Fraction]:
    found: dict[str, Fraction] = {}
    for each in amounts:
        for resource, amount in each.items():
            found[resource] = found.get(resource, Fraction(0)) + amount
    return found


def _requests(container: Json) -> dict[str, Fraction]:
    found = (container.get("resources") or {}).get("requests") or {}
    return {resource: quantity(amount) for resource, amount in found.items()}


def refusal(pod: Json, node: Json, others: Iterable[Json]) -> Refusal | None:
    """Why a kubelet does not admit the pod beside others that have not ended; in the words of the real one."""
    return _insufficient(pod, node, others) or _unsuitable(pod, node)


def _insufficient(pod: Json, node: Json, others: Iterable[Json]) -> Refusal | None:
    all_used = total(map(requests, others))
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    for resource, requested in requests(pod).items():
        used, capacity = all_used.get(resource, Fraction(0)), quantity(allocatable.get(resource, 0))
        if requested and used + requested > capacity:
            unit = 1000 if resource == "cpu" else 1
            counts = {"requested": requested, "used": used, "capacity": capacity}
            listed = ", ".join(f"{name}: {int(count * unit)}" for name, count in counts.items())
            message = f"Node didn't have enough resource: {resource}, {listed}"
            return Refusal(f"OutOf{resource}", f"Pod was rejected: {message}")
    return None


def _unsuitable(pod: Json, node: Json) -> Refusal | None:
    """The real kubelet also looks at affinities, which our pods do not have."""
    selector, labels = pod["spec"].get("nodeSelector") or {}, node["metadata"].get("labels") or {}
    if selector.items() - labels.items():
        return _failed("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
    taints = node["spec"].get("taints") or ()
    tolerations = pod["spec"].get("tolerations") or ()
    if any(
        taint["effect"] == "NoExecute" and not any(_tolerates(each, taint) for each in tolerations) for taint in taints
    ):
        return _failed("TaintToleration", "node(s) had taints that the pod didn't tolerate")
    return None


def _failed(predicate: str, description: str) -> Refusal:
    return Refusal(predicate, f"Pod was rejected: Predicate {predicate} failed: {description}")


def _tolerates(toleration: Json, taint: Json) -> bool:
    exists = toleration.get("operator", "Equal") == "Exists"
    return (
        toleration.get("effect") in (None, "", taint["effect"])
        and (toleration.get("key") == taint["key"] or (exists and not toleration.get("key")))
        and (exists or toleration.get("value", "") == taint.get("value", ""))
    )


def uid_of(found: Json) -> str:
    return str(found["metadata"]["uid"])


def path_of(pod: Json) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def name_of(pod: Json) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def node_of(pod: Json) -> str:
    return str(pod["spec"].get("nodeName", ""))


def notes_of(found: Json) -> Mapping[str, str]:
    return found["metadata"].get("annotations") or {}


def job_of(pod: Json) -> str:
    """The uid of the pod's Job, or an empty string."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((owner["uid"] for owner in owners if owner.get("controller") and owner["kind"] == "Job"), "")


def phase_of(pod: Json) -> str:
    return str((pod.get("status") or {}).get("phase", "Pending"))


def is_terminal(pod: Json) -> bool:
    return phase_of(pod) in ("Succeeded", "Failed")


def is_stopping(pod: Json) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def grace_of(pod: Json) -> float:
    """Seconds from SIGTERM to SIGKILL."""
    stated = pod["metadata"].get("deletionGracePeriodSeconds")
    return float(pod["spec"].get("terminationGracePeriodSeconds", 30) if stated is None else stated)
