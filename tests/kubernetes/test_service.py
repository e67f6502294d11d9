"""The service on a real control plane: what users and operators see of a gang's life."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from horae.model.errors import HoraeError
from kubernetes.client import Json, condition
from kubernetes.cluster import Cluster
from kubernetes.objects import A100, H100, job, node, nodes, training
from kubernetes.service import Service

pytestmark = pytest.mark.kubernetes
SPEED = "H100=20;A100=5"
H100_ONLY = {"horae.io/gpu-types": "H100", "horae.io/checkpoint": "false"}
CELLS = """
tenants:
  nlp: {cells: {H100.node: 2}, policy: fifo, cadence: events}
  vision: {cells: {H100.node: 2}, policy: fifo, cadence: events}
spare: {policy: fifo, cadence: events}
"""


def trained(name: str, pods: int = 1, steps: float = 20, **more: object) -> Json:
    """A Job whose pods train, save when they are told to stop, and resume."""
    notes = {"horae.io/steps": str(steps), "horae.io/speed": SPEED, "horae.io/checkpoint": "true"}
    extra: dict[str, str] = more.pop("annotations", {})  # type: ignore[assignment]
    return job(name, pods, annotations={**notes, **extra}, pod_annotations=training(steps, SPEED), **more)  # type: ignore[arg-type]


def tenant_of(cluster: Cluster, tenant: str) -> str:
    return cluster.add_namespace({"horae.io/tenant": tenant})


def finished(cluster: Cluster, namespace: str, *names: str) -> bool:
    return all(condition(cluster.client.job(namespace, name), "Complete") for name in names)


def on_nodes(cluster: Cluster, namespace: str, name: str) -> list[str]:
    pods = cluster.client.pods(namespace, name)
    return [pod["spec"]["nodeName"] for pod in pods if pod["status"]["phase"] == "Running"]


def told(cluster: Cluster, namespace: str, name: str) -> str:
    """The reasons and messages of Horae's events about a Job."""
    selector = f"involvedObject.name={name},source=horae"
    events = cluster.client.items(f"/api/v1/namespaces/{namespace}/events", fieldSelector=selector)
    return "\n".join(f"{each['reason']}: {each['message']}" for each in events)


@pytest.fixture
def service(cluster: Cluster, tmp_path: Path) -> Iterator[Service]:
    cluster.add_nodes(*nodes(3, racks=3), node("a-00", product=A100))
    with Service(tmp_path / "service", cluster.control_plane.kubeconfig) as running:
        yield running


@pytest.mark.usefixtures("service")
def test_a_gang_is_bound_whole_runs_and_finishes(cluster: Cluster) -> None:
    namespace = tenant_of(cluster, "nlp")
    cluster.client.create_job(namespace, trained("bert", 3, annotations={"horae.io/gpu-types": "h100"}))
    cluster.eventually(lambda: len(on_nodes(cluster, namespace, "bert")) == 3)
    pods = cluster.client.pods(namespace, "bert")
    assert {pod["metadata"]["annotations"]["horae.io/gpus"] for pod in pods} == {"0,1,2,3,4,5,6,7"}
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 3
    assert {pod["metadata"]["annotations"]["horae.io/term"] for pod in pods} == {"1"}
    cluster.eventually(lambda: finished(cluster, namespace, "bert"))
    cluster.eventually(lambda: "horae.io/recorded" in cluster.client.job(namespace, "bert")["metadata"]["annotations"])


def test_a_job_that_waits_says_why_where_its_owner_looks(cluster: Cluster, service: Service) -> None:
    namespace = tenant_of(cluster, "nlp")
    cluster.client.create_job(namespace, trained("first", 3, steps=100_000, annotations=H100_ONLY))
    cluster.eventually(lambda: len(on_nodes(cluster, namespace, "first")) == 3)
    cluster.client.create_job(namespace, trained("second", 2, annotations=H100_ONLY))

    def waits() -> str:
        conditions = cluster.client.job(namespace, "second")["status"].get("conditions") or ()
        return next((each["message"] for each in conditions if each["type"] == "horae.io/Waiting"), "")

    reason = cluster.eventually(waits)
    mine = next(each for each in service.client.jobs() if each.name == "second")
    assert reason and reason in service.client.why(mine.id).text


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize(
    ("annotations", "change", "expected"),
    [
        ({"horae.io/tenant": "vision"}, {}, "may not use tenant"),
        ({"horae.io/gpu-types": "h200"}, {}, "GPU type 'h200' is not in the cluster"),
        ({"horae.io/colour": "red"}, {}, "horae.io/colour"),
        ({"horae.io/pods": "5-2"}, {}, "give the least and the most"),
        ({"horae.io/steps": "many"}, {}, "give a number"),
        ({}, {"completions": 7}, "set it to 2"),
        ({}, {"pods": 99}, "does not exist, even when the cluster is empty"),
    ],
)
def test_a_job_that_cannot_be_accepted_is_told_why(
    cluster: Cluster, annotations: dict[str, str], change: dict[str, int], expected: str
) -> None:
    namespace = tenant_of(cluster, "nlp")
    body = trained("wrong", change.get("pods", 2), annotations=annotations)
    if "completions" in change:
        body["spec"] |= {"completions": change["completions"], "completionMode": "NonIndexed"}
    cluster.client.create_job(namespace, body)
    cluster.eventually(lambda: expected in told(cluster, namespace, "wrong"))
    assert "horae.io/job" not in cluster.client.job(namespace, "wrong")["metadata"]["annotations"]


@pytest.mark.usefixtures("service")
def test_a_namespace_without_a_tenant_is_told_so_and_served_once_it_has_one(cluster: Cluster) -> None:
    cluster.client.create_job(cluster.namespace, trained("early"))
    cluster.eventually(lambda: "belongs to no tenant" in told(cluster, cluster.namespace, "early"))
    labels = {"metadata": {"labels": {"horae.io/tenant": "nlp"}}}
    cluster.client.patch(f"/api/v1/namespaces/{cluster.namespace}", labels)
    cluster.eventually(lambda: finished(cluster, cluster.namespace, "early"))


def test_a_tenant_takes_its_cells_back_and_the_other_resumes_where_it_was(cluster: Cluster, tmp_path: Path) -> None:
    cluster.add_nodes(*nodes(4), node("a-00", product=A100))
    with Service(tmp_path / "service", cluster.control_plane.kubeconfig, CELLS):
        nlp, vision = tenant_of(cluster, "nlp"), tenant_of(cluster, "vision")
        cluster.client.create_job(nlp, trained("mine", 2, steps=400))
        cluster.client.create_job(nlp, trained("borrowed", 2, steps=400))
        cluster.eventually(lambda: len(on_nodes(cluster, nlp, "borrowed")) == 2)
        cluster.client.create_job(vision, trained("owner", 2, steps=20))
        cluster.eventually(lambda: len(on_nodes(cluster, vision, "owner")) == 2)
        cluster.eventually(lambda: finished(cluster, vision, "owner"))
        assert float(cluster.client.job(nlp, "borrowed")["metadata"]["annotations"]["horae.io/saved-steps"]) > 0
        cluster.eventually(lambda: finished(cluster, nlp, "mine", "borrowed"))


def test_a_killed_service_finds_its_gangs_as_they_were(cluster: Cluster, service: Service) -> None:
    namespace = tenant_of(cluster, "nlp")
    cluster.client.create_job(namespace, trained("bert", 3, steps=200))
    cluster.eventually(lambda: len(on_nodes(cluster, namespace, "bert")) == 3)
    before = {pod["metadata"]["uid"] for pod in cluster.client.pods(namespace, "bert")}
    service.kill()
    service.start()
    assert {pod["metadata"]["uid"] for pod in cluster.client.pods(namespace, "bert")} == before
    cluster.eventually(lambda: finished(cluster, namespace, "bert"))
    assert {pod["metadata"]["uid"] for pod in cluster.client.pods(namespace, "bert")} == before


def test_a_lost_store_is_made_again_from_the_cluster(cluster: Cluster, service: Service, tmp_path: Path) -> None:
    namespace = tenant_of(cluster, "nlp")
    for name in ("runs", "waits"):
        cluster.client.create_job(namespace, trained(name, 3, steps=1e6, annotations=H100_ONLY))
        cluster.eventually(lambda: name in {each.name for each in service.client.jobs()})  # noqa: B023
    cluster.eventually(lambda: len(on_nodes(cluster, namespace, "runs")) == 3)
    known = {each.name: (each.epoch, each.places) for each in service.client.jobs()}
    service.kill()
    with Service(tmp_path / "other", cluster.control_plane.kubeconfig) as other:
        cluster.eventually(lambda: len(list(other.client.jobs(state="running"))) == 1)
        cluster.eventually(lambda: len(list(other.client.jobs(state="pending"))) == 1)
        found = {each.name: (each.epoch, each.places) for each in other.client.jobs()}
        assert found["runs"] == known["runs"]
        assert len(on_nodes(cluster, namespace, "runs")) == 3


@pytest.mark.usefixtures("service")
def test_a_job_that_its_owner_unsuspends_is_suspended_again(cluster: Cluster) -> None:
    namespace = tenant_of(cluster, "nlp")
    cluster.client.create_job(namespace, trained("first", 3, steps=100_000, annotations=H100_ONLY))
    cluster.eventually(lambda: len(on_nodes(cluster, namespace, "first")) == 3)
    cluster.client.create_job(namespace, trained("second", 2, annotations=H100_ONLY))
    cluster.eventually(lambda: "horae.io/job" in cluster.client.job(namespace, "second")["metadata"]["annotations"])
    cluster.client.patch_job(namespace, "second", {"spec": {"suspend": False}})
    cluster.eventually(lambda: "suspended again" in told(cluster, namespace, "second"))
    cluster.eventually(lambda: not cluster.client.pods(namespace, "second"))


@pytest.mark.usefixtures("service")
def test_an_image_that_cannot_be_pulled_fails_the_job_after_three_leases(cluster: Cluster) -> None:
    namespace = tenant_of(cluster, "nlp")
    cluster.client.create_job(namespace, trained("bad", 2, image="missing/image"))
    cluster.eventually(lambda: "ImagePullBackOff" in told(cluster, namespace, "bad"))

    def ended() -> bool:
        notes = cluster.client.job(namespace, "bad")["metadata"]["annotations"]
        found = json.loads(notes.get("horae.io/ended", "{}"))
        return (found.get("ending"), found.get("false_starts")) == ("failed", 3)

    cluster.eventually(ended)


def test_pods_of_others_keep_their_gpus(cluster: Cluster, service: Service) -> None:
    namespace = tenant_of(cluster, "nlp")
    other = job("other", 1, gpus=5)["spec"]["template"]
    pod = {"metadata": {"name": "other"}, "spec": {**other["spec"], "nodeName": "node-00", "schedulerName": "else"}}
    cluster.client.create_pod(cluster.namespace, pod)
    cluster.eventually(lambda: cluster.client.pods(cluster.namespace)[0]["status"]["phase"] == "Running")
    cluster.eventually(
        lambda: any(each.name == "node-00" and len(each.unusable) == 5 for each in service.client.nodes())
    )
    for index in range(3):
        cluster.client.create_job(namespace, trained(f"job{index}", annotations={"horae.io/gpu-types": "H100"}))
    cluster.eventually(lambda: finished(cluster, namespace, "job0", "job1", "job2"))
    assert cluster.client.pods(cluster.namespace)[0]["status"]["phase"] == "Running"
    places = [pod["spec"]["nodeName"] for name in range(3) for pod in cluster.client.pods(namespace, f"job{name}")]
    assert "node-00" not in places


def test_nodes_that_come_and_go_are_noticed(cluster: Cluster, service: Service) -> None:
    namespace = tenant_of(cluster, "nlp")
    cluster.client.create_job(namespace, trained("wide", 4, annotations={"horae.io/gpu-types": "H100"}))
    cluster.eventually(lambda: "does not exist" in told(cluster, namespace, "wide"))
    cluster.add_nodes(node("node-09", product=H100))
    cluster.eventually(lambda: any(each.name == "node-09" for each in service.client.nodes()))
    cluster.client.create_job(namespace, trained("wide2", 4, annotations={"horae.io/gpu-types": "H100"}))
    cluster.eventually(lambda: finished(cluster, namespace, "wide2"))
    cluster.client.patch("/api/v1/nodes/node-09", {"spec": {"unschedulable": True}})
    cluster.eventually(
        lambda: any(each.name == "node-09" and each.health == "draining" for each in service.client.nodes())
    )


def test_a_job_file_sent_to_the_api_is_refused_with_what_to_do(service: Service) -> None:
    with pytest.raises(HoraeError, match="schedules the Jobs of a Kubernetes cluster"):
        service.client.submit({"run": "python train.py", "gpus": 1})
