"""What a scheduler does with a gang, done by hand: tests of the harness must not depend on the product."""

from __future__ import annotations

from collections.abc import Sequence

from kubernetes.client import Json, condition
from kubernetes.cluster import Cluster, hold, release

ALL_GPUS = "0,1,2,3,4,5,6,7"


def start_gang(cluster: Cluster, job: str, epoch: int, nodes: Sequence[str], gpus: str = ALL_GPUS) -> None:
    """Unsuspends a Job and binds its pods to these nodes, in the order of their completion indexes."""
    template = {"metadata": {"annotations": {"horae.io/epoch": str(epoch)}}}
    cluster.client.patch_job(cluster.namespace, job, {"spec": {"suspend": False, "template": template}})
    bind_all(cluster, job, epoch, nodes, gpus)


def bind_all(cluster: Cluster, job: str, epoch: int, nodes: Sequence[str], gpus: str = ALL_GPUS) -> None:
    notes = {"horae.io/epoch": str(epoch), "horae.io/gpus": gpus}
    for pod, node in zip(unbound(cluster, job, len(nodes)), nodes, strict=True):
        cluster.client.bind(pod, node, notes)


def unbound(cluster: Cluster, job: str, count: int) -> list[Json]:
    """The pods of a Job, when all are there."""

    def all_of_them() -> list[Json] | None:
        found = [pod for pod in cluster.client.pods(cluster.namespace, job) if "nodeName" not in pod["spec"]]
        return found if len(found) == count else None

    return cluster.eventually(all_of_them)


def suspend(cluster: Cluster, job: str) -> list[Json]:
    """Suspends a Job and returns its pods as they ended, when they are gone."""
    client, namespace = cluster.client, cluster.namespace
    for pod in client.pods(namespace, job):
        hold(client, pod)
    client.patch_job(namespace, job, {"spec": {"suspend": True}})
    ended = cluster.eventually(lambda: _if_ended(client.pods(namespace, job)))
    for pod in ended:
        release(client, pod)
    cluster.eventually(lambda: not client.pods(namespace, job))
    cluster.eventually(lambda: condition(client.job(namespace, job), "Suspended"))
    return ended


def _if_ended(pods: list[Json]) -> list[Json] | None:
    removed = all(pod["metadata"].get("deletionGracePeriodSeconds") == 0 for pod in pods)
    return pods if removed and all(pod["status"]["phase"] in ("Succeeded", "Failed") for pod in pods) else None


def phases(cluster: Cluster, job: str) -> set[str]:
    return {pod["status"]["phase"] for pod in cluster.client.pods(cluster.namespace, job)}


def wait_for_phases(cluster: Cluster, job: str, *wanted: str) -> None:
    cluster.eventually(lambda: phases(cluster, job) == set(wanted))
