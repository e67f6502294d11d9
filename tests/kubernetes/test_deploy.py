"""The files of `deploy/kubernetes` on a real control plane: rights that suffice and no others, policies that hold."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from live_service import Service
from patience import wait_until
from postgres import server

from horae.cli.main import app
from horae.service.config import ServiceFile
from horae.traces.yaml_files import read_yaml
from kubernetes.client import MERGE, Client, Json, condition, eventually
from kubernetes.cluster import Cluster, simulated_cluster
from kubernetes.deployed import SYSTEM, Deployed, deployed, events, why_refused
from kubernetes.manifests import DEPLOY, create, documents, listed, one, remove
from kubernetes.objects import job, node, nodes, training

pytestmark = pytest.mark.kubernetes

VERSIONS = {"newest": (), "1.34": ("--emulated-version=1.34",)}
NEWEST = "newest"
BATCH, CORE = "/apis/batch/v1/namespaces", "/api/v1/namespaces"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
LEADER = "horae.io/leader"
ONLY_AFTER_FAULTS = {("get", "jobs"), ("delete", "pods")}  # a write that came too late; a pod that its node has lost
AT_ONCE = {"horae.test/starts-after": "0", "horae.test/stops-after": "0"}
HOURS = {**AT_ONCE, **training(1e9, "H100=1000")}


@pytest.fixture(scope="module", params=VERSIONS)
def place(
    control_plane_binary: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Deployed]:
    folder = tmp_path_factory.mktemp("deployed")
    has_defaults = request.param == NEWEST
    with deployed(control_plane_binary, folder, flags=VERSIONS[request.param], has_defaults=has_defaults) as found:
        yield found


@pytest.fixture
def cluster(place: Deployed, tmp_path: Path) -> Iterator[Cluster]:
    with simulated_cluster(place.control_plane, tmp_path) as running:
        yield running


# What the files say


def test_all_files_are_applied_or_named_as_examples() -> None:
    here = {path.name for path in DEPLOY.glob("*.yaml")}
    assert here == {*listed(), "kustomization.yaml"}


def test_the_arguments_and_the_configuration_of_the_deployment_are_valid(tmp_path: Path) -> None:
    (container,) = one("Deployment", "service.yaml")["spec"]["template"]["spec"]["containers"]
    command: Any = typer.main.get_command(app)
    name, *words = container["args"]
    command.get_command(typer.Context(command), name).make_context(name, words)
    path = tmp_path / "horae.yaml"
    path.write_text(one("ConfigMap", "config.yaml")["data"]["horae.yaml"])
    value = read_yaml(path, ServiceFile).value
    assert value.engine == "kubernetes"
    assert [value.api.port] == [port["containerPort"] for port in container["ports"]]


def test_the_examples_are_accepted(place: Deployed) -> None:
    create(place.client, {"kind": "Namespace", "metadata": {"name": "nlp"}})
    for each in documents("examples/postgresql.yaml", "examples/job.yaml"):
        create(place.client, each)
        remove(place.client, each)


def test_the_expressions_of_the_policies_have_the_right_types(place: Deployed) -> None:
    for name in ("horae-jobs", "horae-pods", "horae-tenants"):
        status = eventually(lambda name=name: place.client.get(f"{POLICIES}/{name}").get("status"))  # type: ignore[misc]
        assert status.get("typeChecking", {}).get("expressionWarnings", []) == []


def test_the_pods_of_the_service_may_run_where_pods_are_restricted(place: Deployed) -> None:
    path = f"{CORE}/{SYSTEM}/pods"
    for each in (_pod_of("Deployment", "service.yaml"), _pod_of("StatefulSet", "examples/postgresql.yaml")):
        assert not why_refused(place.client, "POST", path, each)
        privileged = copy.deepcopy(each)
        privileged["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
        assert "violates PodSecurity" in why_refused(place.client, "POST", path, privileged)


def _pod_of(kind: str, file: str, name: str = "pod") -> Json:
    template = one(kind, file)["spec"]["template"]
    metadata = {**template["metadata"], "name": name, "namespace": SYSTEM}
    spec = {**template["spec"], "volumes": template["spec"]["volumes"] + _claims(kind, file)}
    return {"kind": "Pod", "metadata": metadata, "spec": spec}


def _claims(kind: str, file: str) -> list[Json]:
    claims = one(kind, file)["spec"].get("volumeClaimTemplates", [])
    return [{"name": each["metadata"]["name"], "emptyDir": {}} for each in claims]


# The service under its own account


def test_two_replicas_run_jobs_preempt_and_replace_each_other_with_the_rights_of_their_role(
    place: Deployed, cluster: Cluster, tmp_path: Path
) -> None:
    names = ("horae-0", "horae-1")
    for name in names:
        create(place.client, _pod_of("Deployment", "service.yaml", name))
    with server() as postgres:
        store = {"HORAE_STORE": postgres.new_database(), "HORAE_POD_NAMESPACE": SYSTEM}
        replicas = [
            place.service(tmp_path / name, "--standby", injected={**store, "HORAE_POD": name}) for name in names
        ]
        try:
            _use_two_replicas(cluster, replicas)
        finally:
            for each in replicas:
                each.end()
            for name in names:
                place.client.delete(f"{CORE}/{SYSTEM}/pods/{name}", gracePeriodSeconds=0)
    for each in replicas:
        assert "refuses an action" not in each.log.read_text()
        assert "cannot be labelled" not in each.log.read_text()
    asked = place.requests()
    refused = [each for each in asked if each["responseStatus"]["code"] in (401, 403)]
    assert not refused
    used = {(each["verb"], _resource(each["objectRef"])) for each in asked if "objectRef" in each}
    granted = _granted()
    assert used <= granted
    assert granted - used <= ONLY_AFTER_FAULTS


def test_nodes_that_leave_while_a_replica_waits_are_not_there_when_it_leads(
    place: Deployed, cluster: Cluster, tmp_path: Path
) -> None:
    with server() as postgres:
        store = {"HORAE_STORE": postgres.new_database()}
        first, second = (place.service(tmp_path / name, "--standby", injected=store) for name in ("first", "second"))
        try:
            cluster.add_nodes(*nodes(2))
            first.start()
            cluster.add_nodes(node("comes-and-goes"))
            wait_until(lambda: _nodes_of(first) == ["comes-and-goes", "node-00", "node-01"], 0.1)
            second.start(ready=False)
            wait_until(lambda: any(second.state.glob("config-*.json")), 0.05)  # it has read which nodes there are
            cluster.client.delete("/api/v1/nodes/comes-and-goes")
            wait_until(lambda: _nodes_of(first) == ["node-00", "node-01"], 0.1)
            first.kill()
            wait_until(second.is_ready, 0.05)
            assert _nodes_of(second) == ["node-00", "node-01"]
            cluster.client.delete("/api/v1/nodes/node-01")
            wait_until(lambda: _nodes_of(second) == ["node-00"], 0.1)
            file = tmp_path / "second" / "horae.yaml"
            file.write_text(file.read_text().replace("round_seconds: 1", "round_seconds: 2"))
            wait_until(lambda: "configuration was" in second.log.read_text(), 0.1)
            assert "was not applied" not in second.log.read_text()
        finally:
            first.end()
            second.end()


def _nodes_of(service: Service) -> list[str]:
    return sorted(each.name for each in service.client().nodes())


def _use_two_replicas(cluster: Cluster, replicas: list[Service]) -> None:
    cluster.add_nodes(*nodes(2))
    first, second = (cluster.add_namespace({"horae.io/tenant": name}) for name in ("nlp", "vision"))
    replicas[0].start(ready=False)
    wait_until(replicas[0].is_ready, 0.05)
    replicas[1].start(ready=False)
    eventually(lambda: _leaders(cluster.client) == ["horae-0"])
    # One tenant has everything until the other comes; then each has a half.
    for index in range(2):
        cluster.client.create_job(
            first, job(f"long-{index}", annotations=_resumes(), pod_annotations=HOURS, backoff_limit=100)
        )
    eventually(lambda: _running(cluster, first) == 2)
    cluster.client.create_job(second, job("short", pod_annotations=AT_ONCE | training(1, "H100=1e9")))
    eventually(lambda: _is_complete(cluster, second, "short"))
    replicas[0].kill()
    eventually(lambda: _leaders(cluster.client) == ["horae-1"])
    eventually(lambda: _running(cluster, first) == 2)
    _lose_a_node(cluster, first)
    cluster.client.create_job(second, job("later", pod_annotations=AT_ONCE | training(1, "H100=1e9")))
    eventually(lambda: _is_complete(cluster, second, "later"))
    cluster.client.create_job(first, job("third", annotations=_resumes(), pod_annotations=HOURS, backoff_limit=100))
    eventually(lambda: any(condition(each, "horae.io/Waiting") for each in _jobs(cluster, first)))
    assert cluster.kubelets.violations() == []


def _lose_a_node(cluster: Cluster, namespace: str) -> None:
    """Its job starts elsewhere when it may, and the node is used again when it is back."""
    name = next(pod["spec"]["nodeName"] for pod in cluster.client.pods(namespace) if "nodeName" in pod["spec"])
    path = f"/api/v1/nodes/{name}"
    cluster.client.patch(path, {"metadata": {"annotations": {"horae.test/broken": "Unknown"}}})
    eventually(lambda: "out-of-service" in str(cluster.client.get(path)["spec"].get("taints")))
    eventually(lambda: all(pod["spec"].get("nodeName") != name for pod in cluster.client.pods(namespace)))
    cluster.client.patch(path, {"metadata": {"annotations": {"horae.test/broken": None}}})
    eventually(lambda: not cluster.client.get(path)["spec"].get("taints"))


def _resumes() -> dict[str, str]:
    return {"horae.io/checkpoint": "true", **training(1e9, "H100=1000")}


def _leaders(client: Client) -> list[str]:
    found = client.items(f"{CORE}/{SYSTEM}/pods", labelSelector=f"{LEADER}=true")
    return [pod["metadata"]["name"] for pod in found]


def _jobs(cluster: Cluster, namespace: str) -> list[Json]:
    return cluster.client.items(f"{BATCH}/{namespace}/jobs")


def _running(cluster: Cluster, namespace: str) -> int:
    return sum(pod["status"]["phase"] == "Running" for pod in cluster.client.pods(namespace))


def _is_complete(cluster: Cluster, namespace: str, name: str) -> bool:
    return condition(cluster.client.job(namespace, name), "Complete")


def _resource(found: Json) -> str:
    return f"{found['resource']}/{found['subresource']}" if "subresource" in found else str(found["resource"])


def _granted() -> set[tuple[str, str]]:
    rules = next(each for each in documents("rbac.yaml") if each["metadata"]["name"] == "horae" and "rules" in each)
    return {
        (verb, resource)
        for rule in rules["rules"]
        if rule["apiGroups"] != ["horae.io"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


# What a tenant may not do


def test_a_tenant_cannot_do_the_schedulers_work(place: Deployed, cluster: Cluster) -> None:
    namespace = cluster.add_namespace({"horae.io/tenant": "nlp"})
    tenant = place.tenant(namespace)
    tenant.create_job(namespace, job("waits"))
    tenant.post(f"{CORE}/{namespace}/pods", _pod("ours", scheduler="horae"))
    tenant.post(f"{CORE}/{namespace}/pods", _pod("other"))
    jobs, pods = f"{BATCH}/{namespace}/jobs", f"{CORE}/{namespace}/pods"
    unsuspend, tolerate = {"spec": {"suspend": False}}, {"spec": {"tolerations": _DEFAULT_TOLERATIONS + _TOLERATES}}
    placed = _placed("new")
    binding = {"metadata": {"name": "ours"}, "target": {"kind": "Node", "name": "node"}}
    waits = "annotations horae.io/job, uid, lease, ended, recorded and term are written by Horae"
    for message, method, path, body in [
        ("set spec.suspend to true", "PATCH", f"{jobs}/waits", unsuspend),
        *(
            (waits, "PATCH", f"{jobs}/waits", _notes(name))
            for name in ("job", "uid", "lease", "ended", "recorded", "term")
        ),
        *(
            (waits, "POST", jobs, job("new", annotations=_notes(name)["metadata"]["annotations"]))
            for name in ("lease",)
        ),
        ("Horae chooses the nodes", "POST", jobs, placed),
        ("placed by a scheduler", "POST", pods, _pod("new", nodeName="node")),
        ("placed by a scheduler", "POST", pods, _pod("new", gpus=0, scheduler="horae", nodeName="node")),
        ("only Horae uses GPUs", "POST", pods, _pod("new", tolerations=_TOLERATES)),
        ("only Horae uses GPUs", "POST", pods, _pod("new", tolerations=[{"operator": "Exists"}])),
        ("only Horae uses GPUs", "PATCH", f"{pods}/other", tolerate),
        *(
            ("of a pod are written", "PATCH", f"{pods}/ours", _notes(name))
            for name in ("term", "epoch", "gpus", "cells")
        ),
        ("of a pod are written", "POST", pods, _pod("new", scheduler="horae", annotations={"horae.io/gpus": "0"})),
        ("cannot create resource", "POST", f"{pods}/ours/binding", binding),
        ("cannot create resource", "POST", f"{CORE}/{namespace}/bindings", binding),
        ("cannot patch resource", "PATCH", f"{CORE}/{namespace}", {"metadata": {"labels": {"horae.io/tenant": "x"}}}),
        ("cannot patch resource", "PATCH", "/api/v1/nodes/node", {"metadata": {"labels": {"horae.io/ignore": ""}}}),
    ]:
        refused = why_refused(tenant, method, path, body, kind=MERGE if method == "PATCH" else "")
        assert message in refused, (message, method, path, body)


def test_a_tenant_may_do_everything_else_with_its_jobs_and_pods(place: Deployed, cluster: Cluster) -> None:
    namespace = cluster.add_namespace({"horae.io/tenant": "nlp"})
    tenant = place.tenant(namespace)
    jobs, pods = f"{BATCH}/{namespace}/jobs", f"{CORE}/{namespace}/pods"
    tenant.create_job(namespace, job("waits", annotations={"horae.io/priority": "high"}))
    cluster.client.patch_job(namespace, "waits", _notes("lease"))  # by a client with all rights
    tenant.create_job(namespace, job("other", scheduler="default-scheduler", suspend=True))
    tenant.post(pods, _pod("other"))
    for method, path, body in [
        ("PATCH", f"{jobs}/waits", {"metadata": {"annotations": {"horae.io/priority": "low"}}}),
        ("PATCH", f"{jobs}/waits", {"spec": {"parallelism": 2, "completions": 2}}),
        ("PATCH", f"{jobs}/other", {"spec": {"suspend": False}}),
        ("PATCH", f"{pods}/other", {"metadata": {"labels": {"color": "blue"}, "annotations": {"horae.io/gpus": "0"}}}),
        ("POST", pods, _pod("new")),
        ("POST", pods, _pod("new", gpus=0, tolerations=[{"operator": "Exists"}], nodeName="node")),
        ("DELETE", f"{jobs}/waits", {}),
    ]:
        assert why_refused(tenant, method, path, body, kind=MERGE if method == "PATCH" else "") == "", (path, body)


def test_a_job_that_is_not_suspended_is_changed_or_refused(place: Deployed, cluster: Cluster) -> None:
    namespace = cluster.add_namespace({"horae.io/tenant": "nlp"})
    tenant = place.tenant(namespace)
    path, made = f"{BATCH}/{namespace}/jobs", job("plain", suspend=False)
    del made["spec"]["podReplacementPolicy"]
    if not place.has_defaults:
        assert "set spec.suspend to true" in why_refused(tenant, "POST", path, made)
        return
    spec = tenant.post(path, made)["spec"]
    assert spec["suspend"]
    assert spec["podReplacementPolicy"] == "Failed"
    assert [rule["action"] for rule in spec["podFailurePolicy"]["rules"]] == ["Ignore"]
    own = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]}
    assert (
        tenant.post(path, job("own", podFailurePolicy=own))["spec"]["podFailurePolicy"]["rules"][0]["action"]
        == "FailJob"
    )
    other = tenant.post(path, job("other", scheduler="default-scheduler", suspend=False))["spec"]
    assert not other["suspend"]


def test_tenants_are_assigned_to_namespaces_by_members_of_a_role(place: Deployed, cluster: Cluster) -> None:
    namespace = cluster.add_namespace({"horae.io/tenant": "nlp"}, {"horae.io/tenants": "nlp,vision"})
    path = f"{CORE}/{namespace}"
    exempt = {"metadata": {"labels": {"horae.io/exempt": "true"}}}
    for body in (
        {"metadata": {"labels": {"horae.io/tenant": "vision"}}},
        {"metadata": {"labels": {"horae.io/tenant": None}}},
        {"metadata": {"annotations": {"horae.io/tenants": "all"}}},
        {"metadata": {"annotations": {"horae.io/tenants": None}}},
        exempt,
    ):
        assert "set by members of the role horae-tenants" in why_refused(
            place.namespace_editor, "PATCH", path, body, kind=MERGE
        )
        assert not why_refused(place.tenants_editor, "PATCH", path, body, kind=MERGE)
    other = {"metadata": {"labels": {"color": "blue"}, "annotations": {"color": "blue"}}}
    assert not why_refused(place.namespace_editor, "PATCH", path, other, kind=MERGE)
    plain = {"metadata": {"name": "plain"}}
    assert not why_refused(place.namespace_editor, "POST", CORE, plain)
    # Where a namespace is exempt, pods may be placed by hand.
    tenant = place.tenant(namespace)
    by_hand = _pod("new", tolerations=[{"operator": "Exists"}], nodeName="node")
    assert why_refused(tenant, "POST", f"{path}/pods", by_hand)
    place.tenants_editor.patch(path, exempt)
    eventually(lambda: not why_refused(tenant, "POST", f"{path}/pods", by_hand))


def _placed(name: str) -> Json:
    """A Job that names the node of its pods."""
    made = job(name)
    made["spec"]["template"]["spec"]["nodeName"] = "node-00"
    return made


_TOLERATES = [{"key": "horae.io/gpu", "operator": "Exists"}]
_DEFAULT_TOLERATIONS = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in ("not-ready", "unreachable")
]


def _notes(name: str) -> Json:
    return {"metadata": {"annotations": {f"horae.io/{name}": "7"}}}


def _pod(
    name: str,
    gpus: int = 1,
    scheduler: str = "default-scheduler",
    annotations: dict[str, str] | None = None,
    **spec: object,
) -> Json:
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    container = {"name": "main", "image": "training", "resources": resources}
    metadata = {"name": name, "annotations": annotations or {}}
    return {"metadata": metadata, "spec": {"schedulerName": scheduler, "containers": [container], **spec}}


# What the service does about the rest


def test_the_service_rejects_and_undoes_what_no_policy_has_refused(
    place: Deployed, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.add_nodes(*nodes(2))
    cluster.client.patch("/api/v1/nodes/node-01", {"spec": {"unschedulable": True}})  # so that larger Jobs wait
    namespace = cluster.add_namespace({"horae.io/tenant": "nlp"})
    tenant = place.tenant(namespace)
    service = place.service(tmp_path / "service")
    service.start()
    try:
        tenant.create_job(namespace, job("claims", annotations={"horae.io/tenant": "vision"}))
        eventually(lambda: "may not use tenant 'vision'" in events(cluster, namespace, "claims").get("Rejected", ""))
        tenant.create_job(namespace, job("runs", annotations=_resumes(), pod_annotations=HOURS))
        eventually(lambda: _running(cluster, namespace) == 1)
        tenant.create_job(namespace, job("waits", pods=2, pod_annotations=HOURS))
        eventually(lambda: "Submitted" in events(cluster, namespace, "waits"))
        with place.without_policies():
            eventually(lambda: _unsuspend(tenant, namespace, "waits"))
            eventually(lambda: "Suspended" in events(cluster, namespace, "waits"))
            eventually(lambda: cluster.client.job(namespace, "waits")["spec"]["suspend"])
            eventually(lambda: not cluster.client.pods(namespace, "waits"))
            tenant.create_job(namespace, _placed("placed"))
            eventually(lambda: "names a node" in events(cluster, namespace, "placed").get("Rejected", ""))
            tenant.create_job(namespace, job("hasty", pods=2, suspend=False))
            eventually(lambda: cluster.client.job(namespace, "hasty")["spec"]["suspend"])
        assert _running(cluster, namespace) == 1
        assert cluster.kubelets.violations() == []
    finally:
        service.end()


def _unsuspend(tenant: Client, namespace: str, name: str) -> bool:
    """Whether the API server allows it: policies that were deleted hold for a moment."""
    body, path = {"spec": {"suspend": False}}, f"{BATCH}/{namespace}/jobs/{name}"
    if why_refused(tenant, "PATCH", path, body, kind=MERGE):
        return False
    tenant.patch_job(namespace, name, body)
    return True
