"""HiveD's pods run unchanged but for their schedulerName, in a cluster that HiveD's configuration describes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubernetes.client import condition, eventually
from kubernetes.cluster import Cluster
from kubernetes.hived_pods import GPUS, PLACEMENT, Lab, group, hived_lab, hived_pod, machines

pytestmark = pytest.mark.kubernetes

CONFIG = """
kubeApiServerAddress: http://10.10.10.10:8080
physicalCluster:
  cellTypes:
    K80-2GPU: {childCellType: K80, childCellNumber: 2}
    K80-NODE: {childCellType: K80-2GPU, childCellNumber: 2, isNodeLevel: true}
    K80-NODE-POOL: {childCellType: K80-NODE, childCellNumber: 3}
  physicalCells:
  - cellType: K80-NODE-POOL
    cellChildren:
    - cellAddress: 10.1.1.1
    - cellAddress: 10.1.1.2
      pinnedCellId: VC2-K80
    - cellAddress: 10.1.1.3
virtualClusters:
  VC1:
    virtualCells:
    - {cellType: K80-NODE-POOL.K80-NODE, cellNumber: 1}
  VC2:
    virtualCells:
    - {cellType: K80-NODE-POOL.K80-NODE, cellNumber: 1}
    pinnedCells:
    - pinnedCellId: VC2-K80
"""
ALONE = """
virtualCluster: {tenant}
priority: 1000
leafCellType: K80
leafCellNumber: 1
affinityGroup: null
"""
PINNED = """
virtualCluster: VC2
priority: 1000
pinnedCellId: VC2-K80
leafCellNumber: 1
affinityGroup: null
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "hivedscheduler.yaml"
    path.write_text(CONFIG)
    return path


@pytest.fixture
def lab(cluster: Cluster, config: Path, tmp_path: Path) -> Iterator[Lab]:
    with hived_lab(cluster, tmp_path, config, machines(config)) as running:
        yield running


def asked(name: str, pods: int, gpus: int, **more: Any) -> dict[str, Any]:
    return group(name, pods, gpus, "VC1", **more)


def test_the_basic_example_runs(lab: Lab) -> None:
    """Jobs demo1, demo2nopinned and demo2pinned of HiveD's basic example, with as many pods as there are GPUs."""
    demo1 = [f"demo1-a-{index}" for index in range(4)]
    nopinned = [f"demo2nopinned-a-{index}" for index in range(4)]
    pinned = [f"demo2pinned-a-{index}" for index in range(4)]
    lab.create(*(hived_pod(name, ALONE.format(tenant="VC1")) for name in demo1))
    lab.create(*(hived_pod(name, ALONE.format(tenant="VC2")) for name in nopinned))
    lab.create(*(hived_pod(name, PINNED) for name in pinned))
    of_demo1, of_nopinned = lab.bound(*demo1), lab.bound(*nopinned)
    assert {pod["spec"]["nodeName"] for pod in lab.bound(*pinned)} == {"10.1.1.2"}
    others = {pod["spec"]["nodeName"] for pod in of_demo1}, {pod["spec"]["nodeName"] for pod in of_nopinned}
    assert sorted(map(sorted, others)) == [["10.1.1.1"], ["10.1.1.3"]]
    for pods in (of_demo1, of_nopinned):
        assert sorted(pod["metadata"]["annotations"][GPUS] for pod in pods) == ["0", "1", "2", "3"]
    eventually(lambda: all(condition(pod, "Ready") for pod in lab.bound(*demo1)))


def test_a_pod_is_told_where_its_gang_is_as_hived_tells_it(lab: Lab) -> None:
    lab.create(*(hived_pod(f"w-{index}", asked("w", 2, 2)) for index in range(2)))
    first, second = lab.bound("w-0", "w-1")
    node = first["spec"]["nodeName"]
    notes = first["metadata"]["annotations"], second["metadata"]["annotations"]
    assert [each[GPUS] for each in notes] == ["0,1", "2,3"]
    kind = "K80-NODE"
    placements = [
        {"physicalNode": node, "physicalLeafCellIndices": gpus, "preassignedCellTypes": [kind, kind]}
        for gpus in ([0, 1], [2, 3])
    ]
    assert yaml.safe_load(notes[1][PLACEMENT]) == {
        "node": node,
        "leafCellIsolation": [2, 3],
        "cellChain": "K80-NODE-POOL",
        "affinityGroupBindInfo": [{"podPlacements": placements}],
    }


def test_a_gang_is_bound_when_all_of_its_pods_are_there(lab: Lab) -> None:
    lab.create(hived_pod("w-0", asked("w", 2, 1)))
    lab.create(hived_pod("later", asked("later", 1, 1)))
    lab.bound("later")  # the service has seen what came before
    assert "nodeName" not in lab.get("w-0")["spec"]
    lab.create(hived_pod("w-1", asked("w", 2, 1)))
    lab.bound("w-0", "w-1")


def test_a_higher_priority_deletes_the_pods_of_a_lower_one_and_their_successors_are_a_new_job(lab: Lab) -> None:
    low = [f"low-{index}" for index in range(2)]
    lab.create(*(hived_pod(name, asked("low", 2, 2, priority=1)) for name in low))
    former = lab.bound(*low)
    lab.create(hived_pod("high", asked("high", 1, 4, priority=2)))
    for pod in former:
        lab.wait_until_gone(pod)
    lab.bound("high")
    lab.wait_until_job("low", "cancelled")
    lab.create(*(hived_pod(name, asked("low", 2, 2, priority=1)) for name in low))
    lab.wait_until_job("low", "pending")
    lab.delete("high")
    lab.bound(*low)


def test_a_pod_that_ends_leaves_the_others_and_its_successor_gets_its_gpus(lab: Lab) -> None:
    lab.create(
        hived_pod("w-0", asked("w", 2, 2), {"horae.test/fails-after": "0.1s"}), hived_pod("w-1", asked("w", 2, 2))
    )
    first, second = lab.bound("w-0", "w-1")
    eventually(lambda: lab.bound("w-0")[0]["status"].get("phase") in ("Succeeded", "Failed"))
    lab.create(hived_pod("w-0-retry", asked("w", 2, 2)))
    (retry,) = lab.bound("w-0-retry")
    assert retry["metadata"]["annotations"][GPUS] == first["metadata"]["annotations"][GPUS]
    assert retry["metadata"]["annotations"]["horae.io/epoch"] == second["metadata"]["annotations"]["horae.io/epoch"]
    (other,) = lab.bound("w-1")
    assert other["metadata"]["uid"] == second["metadata"]["uid"]
    assert lab.job("w").state == "running"


def test_a_service_without_its_store_goes_on_with_the_gangs_that_it_finds(lab: Lab, config: Path) -> None:
    lab.create(*(hived_pod(f"w-{index}", asked("w", 2, 1)) for index in range(2)))
    before = lab.bound("w-0", "w-1")
    lab.wait_until_job("w", "running")
    lab.service.stop()
    lab.service.state.rename(lab.service.state.with_name("lost"))
    lab.service.start("--config", str(config))
    lab.wait_until_job("w", "running")
    lab.create(hived_pod("next", asked("next", 1, 2)))
    (added,) = lab.bound("next")
    after = lab.bound("w-0", "w-1")
    assert [pod["metadata"]["uid"] for pod in after] == [pod["metadata"]["uid"] for pod in before]
    assert added["metadata"]["annotations"][GPUS] == "2,3"


def test_a_pod_that_cannot_run_is_told_why(lab: Lab) -> None:
    other = lab.cluster.add_namespace(labels={"horae.io/tenant": "VC2"})
    lab.create(hived_pod("unknown", ALONE.format(tenant="VC3")), hived_pod("mistaken", "leafCellNumber: 1"))
    eventually(lambda: "may not use tenant 'VC3'" in "".join(lab.events("unknown", "Rejected")))
    eventually(lambda: "virtualCluster: Field required" in "".join(lab.events("mistaken", "Rejected")))
    path = f"/api/v1/namespaces/{other}"
    lab.cluster.client.post(f"{path}/pods", hived_pod("stranger", ALONE.format(tenant="VC1")))
    eventually(lambda: lab.cluster.client.items(f"{path}/events", fieldSelector="reason=Rejected"))
