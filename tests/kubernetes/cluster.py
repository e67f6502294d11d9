"""A cluster for one test: nodes that kubelets serve, and namespaces, on a control plane that tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from kubernetes.client import STRATEGIC, Client, Json, condition, eventually
from kubernetes.control_plane import ControlPlane
from kubernetes.simulated_nodes import SimulatedNodes

Notes = Mapping[str, str]
_NAMESPACES, _NODES = "/api/v1/namespaces", "/api/v1/nodes"
_OF_TESTS = "horae.test/namespace"
_HELD = "horae.test/held"
T = TypeVar("T")


@dataclass(frozen=True)
class Cluster:
    control_plane: ControlPlane
    kubelets: SimulatedNodes
    client: Client  # of the administrator
    namespace: str

    def add_nodes(self, *nodes: Json) -> None:
        """Returns when pods may be bound to them."""
        for node in nodes:
            self.client.create_node(node)
        for node in nodes:
            name = node["metadata"]["name"]
            self.eventually(lambda: self._is_usable(name))  # noqa: B023 - it is called at once

    def eventually(self, sought: Callable[[], T | None]) -> T:
        """The first value that is true; fails when a part of the cluster has ended by itself."""
        return eventually(sought, self._check)

    def _check(self) -> None:
        self.control_plane.check()
        self.kubelets.check()

    def _is_usable(self, name: str) -> bool:
        node = self.client.get(f"{_NODES}/{name}")
        return condition(node, "Ready") and not node["spec"].get("taints")

    def add_namespace(self, labels: Notes | None = None, annotations: Notes | None = None) -> str:
        """Its name, which no other test has."""
        return _add_namespace(self.client, labels, annotations)


@contextmanager
def simulated_cluster(control_plane: ControlPlane, folder: Path, **options: Any) -> Iterator[Cluster]:
    """Options of `SimulatedNodes`. Afterwards, no nodes and pods are left."""
    client = control_plane.client()
    with SimulatedNodes(control_plane.kubeconfig, folder, **options) as kubelets:
        try:
            yield Cluster(control_plane, kubelets, client, _add_namespace(client))
        finally:
            control_plane.start()
            _clear(client)


def _add_namespace(client: Client, labels: Notes | None = None, annotations: Notes | None = None) -> str:
    name = f"test-{uuid4().hex[:8]}"
    metadata = {"name": name, "labels": {_OF_TESTS: "true", **(labels or {})}, "annotations": dict(annotations or {})}
    client.post(_NAMESPACES, {"metadata": metadata})
    eventually(lambda: client.find(f"{_NAMESPACES}/{name}/serviceaccounts/default"))  # pods need it
    return name


def _clear(client: Client) -> None:
    for namespace in client.items(_NAMESPACES, labelSelector=_OF_TESTS):
        name = namespace["metadata"]["name"]
        client.delete(f"/apis/batch/v1/namespaces/{name}/jobs", propagationPolicy="Background")
        client.delete(f"{_NAMESPACES}/{name}/pods", gracePeriodSeconds=0)
        client.delete(f"{_NAMESPACES}/{name}")
    for node in client.items(_NODES, labelSelector="horae.test/simulated=true"):
        client.delete(f"{_NODES}/{node['metadata']['name']}")
    for pod in client.items("/api/v1/pods"):
        release(client, pod)
    eventually(lambda: not client.items("/api/v1/pods"))


def hold(client: Client, pod: Json) -> None:
    """Keeps the object of a pod in the API server when the pod has ended, so that a test can look at it."""
    _patch_pod(client, pod, {"finalizers": [_HELD]})


def release(client: Client, pod: Json) -> None:
    _patch_pod(client, pod, {"$deleteFromPrimitiveList/finalizers": [_HELD]})


def _patch_pod(client: Client, pod: Json, metadata: Json) -> None:
    path = f"{_NAMESPACES}/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
    if client.find(path) is not None:
        client.patch(path, {"metadata": metadata}, STRATEGIC)
