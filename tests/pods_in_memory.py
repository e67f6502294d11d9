"""An API server in memory, as far as pods without a Job need it; its answers and its news can be late or lost."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Any

from horae.engines.kubernetes import names
from horae.engines.kubernetes.api import CONFLICT, NOT_FOUND, PODS, ApiProblem, Json, Kind
from horae.engines.kubernetes.informer import Change

NAMESPACE = "lab"


def pod(uid: str, name: str, request: str, version: int) -> Json:
    metadata = {
        "namespace": NAMESPACE,
        "name": name,
        "uid": uid,
        "resourceVersion": str(version),
        "annotations": {names.HIVED_REQUEST: request},
    }
    return {"kind": "Pod", "metadata": metadata, "spec": {"schedulerName": "horae", "containers": []}, "status": {}}


class PodsInMemory:
    """Stands for `KubernetesApi`. `news` are the changes that no watch has told yet."""

    def __init__(self) -> None:
        self.pods: dict[str, Json] = {}
        self.news: list[Change] = []
        self.next_fault = ""  # "request" or "answer": what is lost of the next write
        self.on_change: Callable[[], None] = lambda: None
        self._version = 0

    def create(self, kind: Kind, namespace: str | None, body: Json) -> Json:
        return body  # an event

    def log_tail(self, namespace: str, pod: str, lines: int) -> str:
        return ""

    def close(self) -> None:
        pass

    # What owners and kubelets do

    def add(self, uid: str, name: str, request: str) -> None:
        self._version += 1
        self._write(pod(uid, name, request, self._version))

    def set_phase(self, uid: str, phase: str) -> None:
        self._change(uid, lambda found: found["status"].update(phase=phase))

    def remove(self, uid: str) -> None:
        del self.pods[uid]
        self.news.append(Change(PODS, uid, None))
        self.on_change()

    def told_to_leave(self) -> list[str]:
        return [uid for uid, found in self.pods.items() if "deletionTimestamp" in found["metadata"]]

    def holders(self) -> list[Json]:
        """Pods that use their GPUs."""
        return [
            found
            for found in self.pods.values()
            if found["spec"].get("nodeName") and found["status"].get("phase") not in ("Succeeded", "Failed")
        ]

    # What clients do

    def bind(self, namespace: str, name: str, binding: Json) -> None:
        self._begin()
        asked = binding["metadata"]
        found = self._of(asked["uid"])
        stale = found["metadata"]["resourceVersion"] != asked["resourceVersion"]
        if stale or found["spec"].get("nodeName") or "deletionTimestamp" in found["metadata"]:
            raise ApiProblem(CONFLICT, "Conflict", "the pod has changed")

        def place(found: Json) -> None:
            found["spec"]["nodeName"] = binding["target"]["name"]
            found["metadata"]["annotations"].update(asked["annotations"])

        self._change(asked["uid"], place)
        self._answer()

    def patch(self, kind: Kind, namespace: str | None, name: str, body: Json, part: str = "") -> Json:
        self._begin()
        uid, notes = body["metadata"]["uid"], body["metadata"]["annotations"]
        self._of(uid)
        self._change(uid, lambda found: found["metadata"]["annotations"].update(notes))
        self._answer()
        return copy.deepcopy(self.pods[uid])

    def delete(self, kind: Kind, namespace: str | None, name: str, options: Json | None = None) -> Json:
        self._begin()
        assert options is not None
        uid = options["preconditions"]["uid"]
        found = self._of(uid)
        if found["spec"].get("nodeName"):
            self._change(uid, lambda found: found["metadata"].update(deletionTimestamp="now"))
        else:
            self.remove(uid)
        self._answer()
        return {}

    def _begin(self) -> None:
        if self.next_fault == "request":
            self.next_fault = ""
            raise ApiProblem(0, "Unreachable", "the request is lost")

    def _answer(self) -> None:
        if self.next_fault == "answer":
            self.next_fault = ""
            raise ApiProblem(0, "Unreachable", "the answer is lost")

    def _of(self, uid: str) -> Json:
        if uid not in self.pods:
            raise ApiProblem(NOT_FOUND, "NotFound", "there is no such pod")
        return self.pods[uid]

    def _change(self, uid: str, change: Callable[[Json], object]) -> None:
        found = copy.deepcopy(self.pods[uid])
        change(found)
        self._version += 1
        found["metadata"]["resourceVersion"] = str(self._version)
        self._write(found)

    def _write(self, found: Json) -> None:
        self.pods[found["metadata"]["uid"]] = found
        self.news.append(Change(PODS, found["metadata"]["uid"], copy.deepcopy(found)))
        self.on_change()


class Waiting(Executor):
    """Keeps what it is given until a test lets it happen."""

    def __init__(self) -> None:
        self.calls: list[tuple[Callable[..., Any], Sequence[Any]]] = []
        self.on_submit: Callable[[Sequence[Any]], None] = lambda given: None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
        self.on_submit(args)
        self.calls.append((fn, args))
        return Future()

    def run(self, index: int = 0) -> None:
        call, args = self.calls.pop(index)
        call(*args)
