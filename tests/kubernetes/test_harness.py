"""The simulated kubelets enforce what real ones do, on a real control plane, and survive its faults."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from patience import wait_until

from kubernetes.client import Json, condition
from kubernetes.cluster import Cluster, simulated_cluster
from kubernetes.control_plane import ControlPlane
from kubernetes.hand_made import bind_all, phases, start_gang, suspend, unbound, wait_for_phases
from kubernetes.objects import A100, job, node, nodes, pod, real, training

pytestmark = pytest.mark.kubernetes

AT_ONCE = {"horae.test/starts-after": "0", "horae.test/stops-after": "0"}


def _pod(cluster: Cluster, job: str) -> Json:
    (found,) = cluster.client.pods(cluster.namespace, job)
    return found


def _create(cluster: Cluster, *jobs: Json) -> None:
    for each in jobs:
        cluster.client.create_job(cluster.namespace, each)


@pytest.mark.parametrize(
    ("resource", "each", "fitting"),
    [("nvidia.com/gpu", "4", 2), ("cpu", "30", 3), ("memory", "400Gi", 2), ("pods", "", 4)],
)
def test_an_over_booked_node_rejects_the_pod_for_which_it_has_no_room(
    cluster: Cluster, resource: str, each: str, fitting: int
) -> None:
    cluster.add_nodes(node("node", pods=4))
    limits = {} if resource == "pods" else {"resources": {"limits": {resource: each}}}
    _create(cluster, *(job(f"job-{n}", gpus=0, container=limits) for n in range(fitting + 1)))
    for n in range(fitting):
        start_gang(cluster, f"job-{n}", 1, ["node"], gpus="")
        wait_for_phases(cluster, f"job-{n}", "Running")
    start_gang(cluster, f"job-{fitting}", 1, ["node"], gpus="")
    wait_for_phases(cluster, f"job-{fitting}", "Failed")
    status = _pod(cluster, f"job-{fitting}")["status"]
    assert status["reason"] == f"OutOf{resource}"
    assert status["message"].startswith(f"Pod was rejected: Node didn't have enough resource: {resource}, requested: ")
    assert "containerStatuses" not in status
    cluster.eventually(lambda: condition(cluster.client.job(cluster.namespace, f"job-{fitting}"), "Failed"))


def test_a_pod_that_stops_keeps_its_room_until_it_has_ended(cluster: Cluster) -> None:
    cluster.add_nodes(node("node"))
    _create(
        cluster,
        job("first", pod_annotations={**AT_ONCE, "horae.test/stops-after": "1e6"}, grace_seconds=10**7),
        job("second"),
    )
    start_gang(cluster, "first", 1, ["node"])
    wait_for_phases(cluster, "first", "Running")
    cluster.client.patch_job(cluster.namespace, "first", {"spec": {"suspend": True}})
    cluster.eventually(lambda: "deletionTimestamp" in _pod(cluster, "first")["metadata"])
    start_gang(cluster, "second", 1, ["node"])
    wait_for_phases(cluster, "second", "Failed")
    assert _pod(cluster, "second")["status"]["reason"] == "OutOfnvidia.com/gpu"
    assert [each["kind"] for each in cluster.kubelets.take_violations()] == ["gpus of two pods"]


def test_a_pod_that_is_bound_to_no_node_or_to_a_broken_one_is_not_heard(cluster: Cluster) -> None:
    cluster.add_nodes(*nodes(2))
    _create(cluster, *(job(name, pod_annotations=AT_ONCE) for name in ("nowhere", "cut-off", "well")))
    broken = {"metadata": {"annotations": {"horae.test/broken": "yes"}}}
    cluster.client.patch("/api/v1/nodes/node-00", broken)
    cluster.eventually(lambda: not condition(cluster.client.get("/api/v1/nodes/node-00"), "Ready"))
    start_gang(cluster, "nowhere", 1, ["no-such-node"])
    start_gang(cluster, "cut-off", 1, ["node-00"])
    start_gang(cluster, "well", 1, ["node-01"])
    wait_for_phases(cluster, "well", "Running")
    assert phases(cluster, "nowhere") == phases(cluster, "cut-off") == {"Pending"}
    cluster.client.patch("/api/v1/nodes/node-00", {"metadata": {"annotations": {"horae.test/broken": None}}})
    wait_for_phases(cluster, "cut-off", "Running")


def test_a_node_that_is_cut_off_carries_no_stop_out_until_it_is_back(cluster: Cluster) -> None:
    cluster.add_nodes(node("node"))
    _create(cluster, job("job", pod_annotations={**AT_ONCE, **training(1e9, "H100=1000")}))
    start_gang(cluster, "job", 1, ["node"])
    wait_for_phases(cluster, "job", "Running")
    cluster.client.patch("/api/v1/nodes/node", {"metadata": {"annotations": {"horae.test/broken": "Unknown"}}})
    cluster.eventually(lambda: _readiness(cluster) == "Unknown")
    cluster.client.patch_job(cluster.namespace, "job", {"spec": {"suspend": True}})
    cluster.eventually(lambda: "deletionTimestamp" in _pod(cluster, "job")["metadata"])
    assert phases(cluster, "job") == {"Running"}
    cluster.client.patch("/api/v1/nodes/node", {"metadata": {"annotations": {"horae.test/broken": None}}})
    cluster.eventually(lambda: not cluster.client.pods(cluster.namespace, "job"))


def _readiness(cluster: Cluster) -> str:
    conditions = cluster.client.get("/api/v1/nodes/node")["status"]["conditions"]
    return next(str(each["status"]) for each in conditions if each["type"] == "Ready")


@pytest.mark.parametrize(("scale", "reason"), [(1e6, "ErrImagePull"), (0.0, "ImagePullBackOff")])
def test_a_missing_image_is_never_pulled(
    control_plane: ControlPlane, tmp_path: Path, scale: float, reason: str
) -> None:
    with simulated_cluster(control_plane, tmp_path, scale=scale) as cluster:
        cluster.add_nodes(node("node"))
        _create(cluster, job("job", image="registry/missing:1"))
        start_gang(cluster, "job", 1, ["node"])
        cluster.eventually(lambda: _waits_for(_pod(cluster, "job")) == reason)
        (last,) = suspend(cluster, "job")
        assert _exit_code(last) == 137


def _waits_for(pod: Json) -> str:
    states = [each["state"] for each in pod["status"].get("containerStatuses") or ()]
    return next((state["waiting"]["reason"] for state in states if "waiting" in state), "")


def test_a_fraction_of_pods_is_refused(control_plane: ControlPlane, tmp_path: Path) -> None:
    with simulated_cluster(control_plane, tmp_path, refused=0.5) as cluster:
        cluster.add_nodes(node("node"))
        for number in range(32):
            cluster.client.create_pod(cluster.namespace, pod(f"pod-{number}", annotations=AT_ONCE, nodeName="node"))
        found = cluster.eventually(lambda: _if_none_is_pending(cluster.client.pods(cluster.namespace)))
        refused = [each["status"]["reason"] for each in found if each["status"]["phase"] == "Failed"]
        assert 0 < len(refused) < 32  # the chance of failure is that of 32 equal tosses
        assert set(refused) == {"UnexpectedAdmissionError"}


def _if_none_is_pending(pods: list[Json]) -> list[Json] | None:
    return pods if all(each["status"]["phase"] != "Pending" for each in pods) else None


def test_a_gang_trains_only_as_a_whole_and_continues_from_its_saved_steps_on_another_node(cluster: Cluster) -> None:
    cluster.add_nodes(node("h100-0"), node("h100-1"), node("a100-0", product=A100), node("a100-1", product=A100))
    # On H100 the work would take days.
    _create(cluster, job("job", pods=2, annotations=training(1e9, "H100=1000;A100=1e9"), pod_annotations=AT_ONCE))
    start_gang(cluster, "job", 1, ["h100-0", "h100-1"])
    wait_for_phases(cluster, "job", "Running")
    first = suspend(cluster, "job")
    saved = {float(pod["metadata"]["annotations"]["horae.io/saved-steps"]) for pod in first}
    assert len(saved) == 1 and 0 < min(saved) < 1e9
    start_gang(cluster, "job", 2, ["h100-0", "h100-1"])
    wait_for_phases(cluster, "job", "Running")
    second = suspend(cluster, "job")
    assert all(float(pod["metadata"]["annotations"]["horae.io/saved-steps"]) > max(saved) for pod in second)
    start_gang(cluster, "job", 3, ["a100-1", "a100-0"])
    cluster.eventually(lambda: condition(cluster.client.job(cluster.namespace, "job"), "Complete"))
    assert {pod["status"]["phase"] for pod in cluster.client.pods(cluster.namespace, "job")} == {"Succeeded"}


def test_a_gang_that_is_not_whole_makes_no_step(cluster: Cluster) -> None:
    cluster.add_nodes(*nodes(2))
    _create(cluster, job("job", pods=2, pod_annotations={**AT_ONCE, **training(1, "H100=1e9")}))
    client, notes = cluster.client, {"horae.io/epoch": "1"}
    client.patch_job(cluster.namespace, "job", {"spec": {"suspend": False}})
    one, other = unbound(cluster, "job", 2)
    client.bind(one, "node-00", notes)
    wait_for_phases(cluster, "job", "Running", "Pending")
    client.bind(other, "node-01", notes)
    wait_for_phases(cluster, "job", "Succeeded")


def test_pods_end_as_their_annotations_say(cluster: Cluster) -> None:
    cluster.add_nodes(node("node"))
    fails = {**AT_ONCE, "horae.test/fails-after": "0.1", "horae.test/exit-code": "3"}
    slow = {"horae.test/starts-after": "0", "horae.test/stops-after": "60"}
    _create(cluster, job("fails", gpus=1, pod_annotations=fails))
    _create(cluster, job("killed", gpus=1, pod_annotations=slow, grace_seconds=1))
    start_gang(cluster, "fails", 1, ["node"], gpus="0")
    start_gang(cluster, "killed", 1, ["node"], gpus="1")
    wait_for_phases(cluster, "fails", "Failed")
    assert _exit_code(_pod(cluster, "fails")) == 3
    wait_for_phases(cluster, "killed", "Running")
    (killed,) = suspend(cluster, "killed")
    assert _exit_code(killed) == 137


def _exit_code(pod: Json) -> int:
    return int(pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"])


PRINTS_AND_SAVES = """
import os, signal, sys, time
def save(number, frame):
    print("saved", flush=True)
    sys.exit(7)
signal.signal(signal.SIGTERM, save)
print(os.environ["RANK"], os.environ["GPUS"], sys.argv[1], flush=True)
time.sleep(100000)
"""


def test_a_real_container_runs_its_command_and_is_stopped_with_grace(cluster: Cluster) -> None:
    cluster.add_nodes(node("node"))
    container = real(sys.executable, "-c", PRINTS_AND_SAVES, "$(PLAIN)", PLAIN="as it is")
    gpus = {"fieldRef": {"fieldPath": "metadata.annotations['horae.io/gpus']"}}
    rank = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
    container["env"] += [{"name": "GPUS", "valueFrom": gpus}, {"name": "RANK", "valueFrom": rank}]
    annotations = {"horae.test/real": "true", "horae.test/starts-after": "0"}
    _create(cluster, job("job", pod_annotations=annotations, container=container))
    start_gang(cluster, "job", 1, ["node"], gpus="4,5")
    wait_for_phases(cluster, "job", "Running")
    pod = _pod(cluster, "job")
    wait_until(lambda: cluster.kubelets.output(pod) == "0 4,5 as it is\n")
    suspend(cluster, "job")
    assert cluster.kubelets.output(pod) == "0 4,5 as it is\nsaved\n"


def test_two_pods_with_the_same_gpus_are_a_violation(cluster: Cluster) -> None:
    cluster.add_nodes(*nodes(2))
    _create(cluster, *(job(name, gpus=2, pod_annotations=AT_ONCE) for name in ("one", "two", "three", "elsewhere")))
    start_gang(cluster, "one", 1, ["node-00"], gpus="0,1")
    start_gang(cluster, "elsewhere", 1, ["node-01"], gpus="0,1")
    start_gang(cluster, "three", 1, ["node-00"], gpus="2,3")
    for name in ("one", "three", "elsewhere"):
        wait_for_phases(cluster, name, "Running")
    assert not cluster.kubelets.violations()
    start_gang(cluster, "two", 1, ["node-00"], gpus="1,7")
    wait_for_phases(cluster, "two", "Running")
    (violation,) = cluster.kubelets.take_violations()
    assert violation["kind"] == "gpus of two pods"
    assert (violation["node"], violation["gpus"]) == ("node-00", [1])


def test_two_epochs_of_a_job_at_a_time_are_a_violation(cluster: Cluster) -> None:
    cluster.add_nodes(*nodes(2))
    _create(cluster, job("job", pods=2, pod_annotations=AT_ONCE))
    cluster.client.patch_job(cluster.namespace, "job", {"spec": {"suspend": False}})
    for epoch, each in enumerate(unbound(cluster, "job", 2)):
        cluster.client.bind(each, f"node-0{epoch}", {"horae.io/epoch": str(epoch), "horae.io/gpus": "0"})
    wait_for_phases(cluster, "job", "Running")
    cluster.eventually(lambda: len(cluster.kubelets.violations()) == 2)
    kinds = [each["kind"] for each in cluster.kubelets.take_violations()]
    assert kinds == ["two epochs of a Job", "two epochs of a Job are running"]


def test_kubelets_that_start_anew_leave_running_what_runs(cluster: Cluster) -> None:
    cluster.add_nodes(node("node"))
    _create(cluster, *(job(name, pod_annotations=AT_ONCE) for name in ("running", "other")))
    start_gang(cluster, "running", 1, ["node"])
    wait_for_phases(cluster, "running", "Running")
    cluster.kubelets.kill()
    start_gang(cluster, "other", 1, ["node"])
    cluster.kubelets.start()
    wait_for_phases(cluster, "other", "Failed")
    assert phases(cluster, "running") == {"Running"}
    (stopped,) = suspend(cluster, "running")
    assert _exit_code(stopped) == 143
    cluster.kubelets.take_violations()


def test_the_api_server_is_killed_while_gangs_start_train_and_stop(cluster: Cluster) -> None:
    cluster.add_nodes(*nodes(6))
    slowly = {"horae.test/starts-after": "1"}
    work = training(1e9, "H100=1e9")
    _create(cluster, job("starts", pods=2, annotations=work, pod_annotations=slowly))
    _create(cluster, job("trains", pods=2, annotations=training(3e9, "H100=1e9"), pod_annotations=AT_ONCE))
    _create(cluster, job("stops", pods=2, pod_annotations={**AT_ONCE, "horae.test/stops-after": "1"}))
    start_gang(cluster, "stops", 1, ["node-04", "node-05"])
    start_gang(cluster, "trains", 1, ["node-02", "node-03"])
    cluster.eventually(lambda: "Pending" not in phases(cluster, "trains"))
    wait_for_phases(cluster, "stops", "Running")
    start_gang(cluster, "starts", 1, ["node-00", "node-01"])
    cluster.client.patch_job(cluster.namespace, "stops", {"spec": {"suspend": True}})
    cluster.eventually(lambda: all("deletionTimestamp" in each["metadata"] for each in _pods(cluster, "stops")))
    cluster.control_plane.restart("kube-apiserver")
    for name in ("starts", "trains"):
        wait_for_phases(cluster, name, "Succeeded")
    cluster.eventually(lambda: not _pods(cluster, "stops"))


def _pods(cluster: Cluster, job: str) -> list[Json]:
    return cluster.client.pods(cluster.namespace, job)


def test_etcd_is_set_back_to_before_pods_ran_were_bound_and_existed(cluster: Cluster) -> None:
    cluster.add_nodes(*nodes(4))
    names = ("pending", "unbound", "unknown")
    _create(cluster, *(job(name, pod_annotations=AT_ONCE) for name in names))
    cluster.client.patch_job(cluster.namespace, "unbound", {"spec": {"suspend": False}})
    unbound(cluster, "unbound", 1)
    cluster.kubelets.pause()  # so that the copy has a pod that is bound and has not started
    start_gang(cluster, "pending", 1, ["node-00"])
    copy = cluster.control_plane.backup()
    cluster.kubelets.resume()
    bind_all(cluster, "unbound", 1, ["node-01"])
    start_gang(cluster, "unknown", 1, ["node-02"])
    for name in names:
        wait_for_phases(cluster, name, "Running")
    cluster.control_plane.restore(copy)
    # What runs is told again, and what the cluster no longer knows on a node is ended there.
    wait_for_phases(cluster, "pending", "Running")
    assert phases(cluster, "unbound") == {"Pending"} and not _pods(cluster, "unknown")
    cluster.client.bind(
        _pod(cluster, "unbound"), "node-03", {"horae.io/epoch": "2", "horae.io/gpus": "0,1,2,3,4,5,6,7"}
    )
    wait_for_phases(cluster, "unbound", "Running")
    start_gang(cluster, "unknown", 2, ["node-02"])
    wait_for_phases(cluster, "unknown", "Running")


def test_a_pod_that_had_ended_before_etcd_was_set_back_does_not_run_again(cluster: Cluster) -> None:
    cluster.add_nodes(node("node"))
    _create(cluster, job("job", pod_annotations=AT_ONCE))
    start_gang(cluster, "job", 1, ["node"])
    wait_for_phases(cluster, "job", "Running")
    copy = cluster.control_plane.backup()
    suspend(cluster, "job")
    cluster.control_plane.restore(copy)
    wait_for_phases(cluster, "job", "Failed")
    assert _exit_code(_pod(cluster, "job")) == 143
