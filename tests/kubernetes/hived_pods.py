"""Pods as HiveD's users write them, on simulated nodes that its configuration names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from live_service import Service

from horae.service.models import JobView
from kubernetes import objects
from kubernetes.client import Json, eventually
from kubernetes.cluster import Cluster

HIVED = "hivedscheduler.microsoft.com/"
REQUEST, PLACEMENT, GPUS = HIVED + "pod-scheduling-spec", HIVED + "pod-bind-info", HIVED + "pod-leaf-cell-isolation"
ENABLE = HIVED + "pod-scheduling-enable"
NODE_PODS_MAX = "100"


def hived_node(name: str) -> Json:
    """HiveD needs no device plug-in, and its nodes have no GPUs in their capacity."""
    node = objects.node(name, product="")
    for amounts in node["status"].values():
        del amounts["nvidia.com/gpu"]
        amounts[ENABLE] = NODE_PODS_MAX  # a real kubelet does not count what its node does not have
    return node


def hived_pod(name: str, request: Mapping[str, Any] | str, annotations: Mapping[str, str] | None = None) -> Json:
    text = request if isinstance(request, str) else yaml.safe_dump(dict(request))
    container = {
        "name": "ubuntu",
        "image": "ubuntu:trusty",
        "resources": {"limits": {ENABLE: "1"}},
        "env": [
            {
                "name": "NVIDIA_VISIBLE_DEVICES",
                "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{GPUS}']"}},
            }
        ],
    }
    return {
        "metadata": {"name": name, "annotations": {REQUEST: text, **(annotations or {})}},
        "spec": {
            "schedulerName": "horae",
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
        },
    }


def group(name: str, pods: int, gpus: int, tenant: str = "vc1", kind: str = "K80", **more: Any) -> dict[str, Any]:
    """What each pod of a group of equal pods asks for."""
    members = [{"podNumber": pods, "leafCellNumber": gpus}]
    asked = {"virtualCluster": tenant, "leafCellType": kind, "leafCellNumber": gpus}
    return {**asked, "affinityGroup": {"name": name, "members": members}, **more}


@dataclass(frozen=True)
class Lab:
    """A cluster with HiveD's nodes, and a service with its configuration."""

    cluster: Cluster
    service: Service
    kubeconfig: Path

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.cluster.namespace}/pods"

    def create(self, *pods: Json) -> None:
        for pod in pods:
            self.cluster.client.post(self.path, pod)

    def delete(self, name: str) -> None:
        self.cluster.client.delete(f"{self.path}/{name}")

    def find(self, name: str) -> Json | None:
        return self.cluster.client.find(f"{self.path}/{name}")

    def bound(self, *names: str) -> list[Json]:
        """The pods, once all of them are bound."""

        def all_of_them() -> list[Json] | None:
            found = [pod for name in names if (pod := self.find(name)) is not None and pod["spec"].get("nodeName")]
            return found if len(found) == len(names) else None

        return eventually(all_of_them)

    def get(self, name: str) -> Json:
        return self.cluster.client.get(f"{self.path}/{name}")

    def wait_until_gone(self, pod: Json) -> None:
        """Until the object is gone that had this uid; its owner may have made another of its name."""
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        eventually(lambda: (found := self.find(name)) is None or found["metadata"]["uid"] != uid)

    def events(self, name: str, reason: str) -> list[str]:
        path = f"/api/v1/namespaces/{self.cluster.namespace}/events"
        found = self.cluster.client.items(path, fieldSelector=f"involvedObject.name={name}")
        return [event["message"] for event in found if event["reason"] == reason]

    def job(self, name: str) -> JobView:
        """The latest job for a group."""
        with self.service.client() as client:
            return max((job for job in client.jobs() if job.name == name), key=lambda job: int(job.id))

    def wait_until_job(self, name: str, *states: str) -> None:
        def is_there() -> bool:
            with self.service.client() as client:
                jobs = [job for job in client.jobs() if job.name == name]
            return bool(jobs) and max(jobs, key=lambda job: int(job.id)).state in states

        eventually(is_there)

    def restart(self, config: Path) -> None:
        """The service starts anew with another configuration."""
        self.service.stop()
        self.service.start("--config", str(config))


def machines(*configs: Path) -> list[str]:
    """The addresses of the nodes in HiveD's configurations."""

    def addresses(cell: Mapping[str, Any], kind: str, types: Mapping[str, Any]) -> Iterator[str]:
        if types[kind].get("isNodeLevel"):
            yield str(cell["cellAddress"])
            return
        for child in cell["cellChildren"]:
            yield from addresses(child, types[kind]["childCellType"], types)

    found: list[str] = []
    for config in configs:
        tree = yaml.safe_load(config.read_text())["physicalCluster"]
        for top in tree["physicalCells"]:
            found += addresses(top, top["cellType"], tree["cellTypes"])
    return list(dict.fromkeys(found))


@contextmanager
def hived_lab(cluster: Cluster, folder: Path, config: Path, nodes: Sequence[str]) -> Iterator[Lab]:
    """The namespace of the cluster may use all virtual clusters of the configuration."""
    cluster.add_nodes(*map(hived_node, nodes))
    tenants = list(yaml.safe_load(config.read_text())["virtualClusters"])
    metadata = {"annotations": {"horae.io/tenants": ",".join(tenants)}}
    cluster.client.patch(f"/api/v1/namespaces/{cluster.namespace}", {"metadata": metadata})
    kubeconfig = cluster.control_plane.kubeconfig
    service = Service(folder / "state", "--kubeconfig", str(kubeconfig))
    try:
        service.start("--config", str(config))
        yield Lab(cluster, service, kubeconfig)
    finally:
        service.end()
