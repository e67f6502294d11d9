"""A cluster for one test: nodes that kubelets serve, and namespaces, on a control plane that tests share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from kubernetes.client import Client, Json, condition, eventually
from kubernetes.control_plane import ControlPlane
from kubernetes.simulated_nodes import SimulatedNodes

Notes = Mapping[str, str]
_NAMESPACES, _NODES = "/api/v1/namespaces", "/api/v1/nodes"
_OF_TESTS = "horae.test/namespace"


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
            eventually(lambda name=node["metadata"]["name"]: self._is_usable(name))  # type: ignore[misc]

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
    eventually(lambda: not client.items("/api/v1/pods"))
