"""An API server in memory: objects with versions, the preconditions of writes, and a record from which watches read.

It knows what the real one knows and no more: a binding is checked neither for capacity nor for the state of the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from random import Random
from typing import Any, NamedTuple

from horae.engines.kubernetes.api import (
    CONFLICT,
    EVENTS,
    JOBS,
    NAMESPACES,
    NODES,
    NOT_FOUND,
    PODS,
    UNPROCESSABLE,
    ApiProblem,
    Json,
    Kind,
    Listed,
)

KINDS = (NODES, NAMESPACES, JOBS, PODS)
TRACKING = "batch.kubernetes.io/job-tracking"  # a finalizer: the job controller has not counted the pod yet
NAMES = {NODES: "Node", NAMESPACES: "Namespace", JOBS: "Job", PODS: "Pod"}


class Change(NamedTuple):
    uid: str
    object: Json | None  # None: deleted


class ApiServer:
    """What is stored; objects are replaced and never changed in place, so that they may be handed out."""

    def __init__(self) -> None:
        self.objects: dict[Kind, dict[str, Json]] = {kind: {} for kind in KINDS}
        self.record: dict[Kind, list[Change]] = {kind: [] for kind in KINDS}
        self.version = 100
        self.uids = 0
        self.on_bound: Callable[[Json, Json], None] = lambda pod, binding: None  # before it is bound

    def all(self, kind: Kind) -> list[Json]:
        return list(self.objects[kind].values())

    def find(self, kind: Kind, namespace: str | None, name: str) -> Json | None:
        for each in self.objects[kind].values():
            if each["metadata"]["name"] == name and each["metadata"].get("namespace") == namespace:
                return each
        return None

    def named(self, kind: Kind, namespace: str | None, name: str) -> Json:
        found = self.find(kind, namespace, name)
        if found is None:
            raise ApiProblem(NOT_FOUND, "NotFound", f"{kind.plural} {name} not found")
        return found

    def pods_of(self, job_uid: str) -> list[Json]:
        return [pod for pod in self.all(PODS) if owner_of(pod) == job_uid]

    # Writes

    def add(self, kind: Kind, body: Json) -> Json:
        self.uids += 1
        found = deepcopy(body)
        found["kind"] = NAMES[kind]
        found["metadata"] = {"annotations": {}, **found["metadata"], "uid": f"u{self.uids}"}
        return self.store(kind, found)

    def store(self, kind: Kind, found: Json) -> Json:
        """Writes an object; one that is told to go and has no finalizer left is removed."""
        uid = found["metadata"]["uid"]
        former = self.objects[kind].get(uid)
        if former == found:
            return former  # as etcd: a write that changes nothing makes no version
        self.version += 1
        found["metadata"]["resourceVersion"] = str(self.version)
        if "deletionTimestamp" in found["metadata"] and self._may_go(kind, found):
            return self.remove(kind, uid)
        self.objects[kind][uid] = found
        self.record[kind].append(Change(uid, found))
        return found

    @staticmethod
    def _may_go(kind: Kind, found: Json) -> bool:
        if found["metadata"].get("finalizers"):
            return False
        return kind != PODS or found["metadata"].get("deletionGracePeriodSeconds") == 0

    def remove(self, kind: Kind, uid: str) -> Json:
        found = self.objects[kind].pop(uid)
        self.version += 1
        self.record[kind].append(Change(uid, None))
        return found

    def change(self, kind: Kind, uid: str, change: Callable[[Json], None]) -> Json:
        """A write by a part of the cluster itself, without preconditions."""
        found = deepcopy(self.objects[kind][uid])
        change(found)
        return self.store(kind, found)

    def delete(self, kind: Kind, uid: str, grace_seconds: float | None = None) -> Json:
        """Told to go: a pod without a node at once, one with a node when its kubelet says so."""
        found = deepcopy(self.objects[kind][uid])
        metadata = found["metadata"]
        if kind == PODS:
            grace = 30 if grace_seconds is None else grace_seconds
            if not found["spec"].get("nodeName") or is_terminal(found):
                grace = 0
            metadata["deletionGracePeriodSeconds"] = min(grace, metadata.get("deletionGracePeriodSeconds", grace))
        metadata.setdefault("deletionTimestamp", "2026-01-01T00:00:00Z")
        return self.store(kind, found)

    def patch(self, kind: Kind, namespace: str | None, name: str, body: Json) -> Json:
        former = self.named(kind, namespace, name)
        asked = body.get("metadata", {})
        for field in ("uid", "resourceVersion"):
            if field in asked and asked[field] != former["metadata"][field]:
                raise ApiProblem(CONFLICT, "Conflict", f"{field} of {name} is {former['metadata'][field]}")
        found = merged(former, body)
        if kind == JOBS:
            _check_job(former, found)
        return self.store(kind, found)

    def bind(self, namespace: str, name: str, binding: Json) -> None:
        former = self.named(PODS, namespace, name)
        asked = binding["metadata"]
        for field in ("uid", "resourceVersion"):
            if field in asked and asked[field] != former["metadata"][field]:
                raise ApiProblem(CONFLICT, "Conflict", f"{field} of {name} is {former['metadata'][field]}")
        if former["spec"].get("nodeName") or "deletionTimestamp" in former["metadata"]:
            raise ApiProblem(CONFLICT, "Conflict", f"pod {name} is assigned to a node, or is being deleted")
        self.on_bound(former, binding)
        found = merged(former, {"metadata": {"annotations": asked.get("annotations", {})}})
        found["spec"] = {**found["spec"], "nodeName": binding["target"]["name"]}
        self.store(PODS, found)


def _check_job(former: Json, found: Json) -> None:
    """The template of a Job may only change while it is suspended and has no pods."""
    if found["spec"]["template"] == former["spec"]["template"]:
        return
    is_still = former["spec"].get("suspend") and has(former, "Suspended") and not former["status"].get("active")
    if not is_still:
        raise ApiProblem(UNPROCESSABLE, "Invalid", "spec.template: field is immutable")


def merged(found: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return deepcopy(patch)
    result = dict(found) if isinstance(found, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


# Reading objects, without the code under test


def owner_of(pod: Json) -> str:
    owners = pod["metadata"].get("ownerReferences") or [{}]
    return str(owners[0].get("uid", ""))


def notes_of(found: Json) -> Json:
    notes: Json = found["metadata"].get("annotations") or {}
    return notes


def node_of(pod: Json) -> str:
    return str(pod["spec"].get("nodeName", ""))


def is_terminal(pod: Json) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def is_deleting(found: Json) -> bool:
    return "deletionTimestamp" in found["metadata"]


def is_active(pod: Json) -> bool:
    return not is_terminal(pod) and not is_deleting(pod)


def gpus_of(pod: Json) -> int:
    return sum(int(each["resources"]["limits"].get("nvidia.com/gpu", 0)) for each in pod["spec"]["containers"])


def has(found: Json, condition: str) -> bool:
    conditions = found["status"].get("conditions") or ()
    return any(each["type"] == condition and each["status"] == "True" for each in conditions)


def set_condition(found: Json, condition: str, *, is_true: bool = True, **fields: str) -> None:
    """Changes a copy that the caller has made."""
    kept = [each for each in found["status"].get("conditions") or () if each["type"] != condition]
    added = {"type": condition, "status": "True" if is_true else "False", **fields}
    found["status"] = {**found["status"], "conditions": [*kept, added]}


class Crash(BaseException):
    """The process ends here."""


class Api:
    """The methods of `KubernetesApi` that the engine calls; calls fail before or after they have taken effect."""

    def __init__(self, server: ApiServer, random: Random) -> None:
        self._server = server
        self._random = random
        self.failing = 0.0  # the probability that a call fails
        self.is_away = False
        self.touched_foreign: list[str] = []  # what it must not write
        self.scheduler = "horae"

    def close(self) -> None:
        pass

    def get(self, kind: Kind, namespace: str | None, name: str) -> Json:
        return self._call(lambda: self._server.named(kind, namespace, name))

    def list(self, kind: Kind, namespace: str | None = None, **_: str) -> Listed:
        return self._call(lambda: Listed(self._server.all(kind), str(self._server.version)))

    def create(self, kind: Kind, namespace: str | None, body: Json) -> Json:
        assert kind == EVENTS
        return self._call(lambda: body)

    def patch(self, kind: Kind, namespace: str | None, name: str, body: Json) -> Json:
        self._note(kind, namespace, name)
        return self._call(lambda: self._server.patch(kind, namespace, name, body))

    def bind(self, namespace: str, pod: str, binding: Json) -> None:
        self._note(PODS, namespace, pod)
        self._call(lambda: self._server.bind(namespace, pod, binding))

    def delete(self, kind: Kind, namespace: str | None, name: str, options: Json | None = None) -> Json:
        self._note(kind, namespace, name)
        asked = options or {}

        def delete() -> Json:
            found = self._server.named(kind, namespace, name)
            uid = asked.get("preconditions", {}).get("uid", found["metadata"]["uid"])
            if uid != found["metadata"]["uid"]:
                raise ApiProblem(CONFLICT, "Conflict", "another uid")
            return self._server.delete(kind, uid, asked.get("gracePeriodSeconds"))

        return self._call(delete)

    def _note(self, kind: Kind, namespace: str | None, name: str) -> None:
        found = self._server.find(kind, namespace, name)
        if found is not None and kind in (JOBS, PODS):
            spec = found["spec"] if kind == PODS else found["spec"]["template"]["spec"]
            if spec.get("schedulerName") != self.scheduler:
                self.touched_foreign.append(f"{kind.plural} {name}")

    def _call(self, act: Callable[[], Any]) -> Any:
        draw = self._random.random()
        if self.is_away or draw < self.failing / 2:
            status = 0 if self.is_away else self._random.choice((0, 429, 500, 503))
            raise ApiProblem(status, "Unreachable", "before it took effect")
        answer = act()
        if draw < self.failing:
            raise ApiProblem(0, "Unreachable", "after it took effect")
        return deepcopy(answer)


def jobs_by_uid(server: ApiServer) -> Iterator[tuple[str, Json]]:
    yield from list(server.objects[JOBS].items())
