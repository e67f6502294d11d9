"""Gangs of pods that no Job stands for: what they get, what they are told, and how their leases end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest
import yaml
from pods_in_memory import pod as pod_of

from horae.engines.kubernetes import names
from horae.engines.kubernetes.actions import Action, Bind, Delete, ForceDelete
from horae.engines.kubernetes.hived_notes import HivedNode, hived_notes
from horae.engines.kubernetes.members import places_of_members
from horae.engines.kubernetes.objects import LeaseNote, PodObject, read_pod
from horae.engines.kubernetes.pod_gangs import GroupObject
from horae.engines.kubernetes.reconcile import Report, Wanted
from horae.engines.kubernetes.reconcile_pods import Group, Member, reconcile_pods
from horae.model.cluster import Gpu
from horae.model.errors import ClusterError, InputError, JobError
from horae.model.events import Ending, Phase
from horae.service.config import configure, load_config
from horae.service.kubernetes.pod_specs import read_request, spec_of_pods

PAIRS = [2]


def gpus(node: str, *numbers: int) -> tuple[Gpu, ...]:
    return tuple(Gpu(node, number) for number in numbers)


LEASE = LeaseNote(1, 7, gpus("n", 0, 1, 2, 3), ("node",) * 4, inf, None)


def seen(uid: str, *, node: str = "", phase: str = "Pending", **changes: Any) -> PodObject:
    found = read_pod(pod_of(uid, uid, "", 1))
    return found._replace(node=node, phase=phase, epoch=LEASE.epoch if node else -1, **changes)


def group(*pods: PodObject, **changes: Any) -> Group:
    """Two pods of two GPUs each."""
    return Group((2, 2), [Member(pod, 2) for pod in pods], frozenset({"a", "b"}))._replace(**changes)


def step(found: Group, wanted: Wanted) -> tuple[tuple[Action, ...], tuple[Report, ...]]:
    result = reconcile_pods(found, wanted, 1, lambda node: PAIRS)
    return result.actions, result.reports


GRANTED = Wanted(LEASE)
A, B = gpus("n", 0, 1), gpus("n", 2, 3)


# GPUs of members


@pytest.mark.parametrize(
    ("lease", "members", "places"),
    {
        "equal": (gpus("n", 0, 1, 2, 3), (2, 2), [A, B]),
        "in the smallest cell": (gpus("n", 1, 2, 3), (2, 1), [B, gpus("n", 1)]),
        "whole nodes first": (
            (*gpus("m", 0), *gpus("n", 0, 1, 2)),
            (1, 3),
            [gpus("m", 0), gpus("n", 0, 1, 2)],
        ),
        "members would span nodes": ((*gpus("m", 0), *gpus("n", 0)), (2,), None),
        "GPUs would be left": (gpus("n", 0, 1, 2), (2,), None),
        "mixed, and the greedy choice is wrong": (
            (*gpus("m", 0, 1, 2), *gpus("n", 0, 1, 2, 3)),
            (2, 2, 3),
            [A, B, gpus("m", 0, 1, 2)],
        ),
    }.values(),
)
def test_members_get_gpus_of_one_node(lease: tuple[Gpu, ...], members: tuple[int, ...], places: Any) -> None:
    assert places_of_members(lease, members, lambda node: PAIRS) == places


# The next step


def test_a_gang_waits_until_its_lease_is_wanted() -> None:
    assert step(group(seen("a"), seen("b")), Wanted()) == ((), ())


def test_all_pods_are_bound_together() -> None:
    actions, _ = step(group(seen("a"), seen("b")), GRANTED)
    assert [(each.pod.uid, each.gpus) for each in actions if isinstance(each, Bind)] == [("a", A), ("b", B)]


def test_a_lease_whose_pods_went_before_they_were_bound_is_lost() -> None:
    actions, (report,) = step(group(seen("a"), seen("c")), GRANTED)
    assert not actions
    assert (report.epoch, report.ending) == (7, Ending.LOST)


def test_nothing_is_bound_to_a_lease_that_was_stopped() -> None:
    actions, reports = step(group(seen("a"), seen("b")), Wanted(LEASE, stopped=7))
    assert not actions
    assert [(each.epoch, each.ending) for each in reports] == [(7, Ending.STOPPED)]


BOTH: Mapping[str, Any] = {"lease": LEASE, "tried": {"a": A, "b": B}, "bound": frozenset({"a", "b"})}


def test_a_gang_runs_when_its_pods_are_bound() -> None:
    _, (report,) = step(group(seen("a", node="n"), seen("b", node="n"), **BOTH), GRANTED)
    assert report.phase is Phase.RUNNING


def test_a_stop_deletes_pods_that_have_gpus_and_no_others() -> None:
    actions, reports = step(group(seen("a", node="n"), seen("b", node="n"), seen("c"), **BOTH), Wanted(None, 7))
    assert [each.pod.uid for each in actions if isinstance(each, Delete)] == ["a", "b"]
    assert not reports  # their GPUs are in use until they are gone


def test_a_pod_that_leaves_a_node_that_is_lost_is_removed() -> None:
    leaving = group(seen("a", node="n", is_deleting=True), **BOTH, lost_nodes=frozenset({"n"}))
    actions, _ = step(leaving, Wanted(None, 7))
    assert [type(each) for each in actions] == [ForceDelete]


def test_a_new_pod_gets_the_gpus_of_one_that_has_ended() -> None:
    ended = seen("a", node="n", phase="Failed")
    actions, _ = step(
        group(ended, seen("b", node="n"), seen("c"), **{**BOTH, "tried": {"b": B}}, over={A: ended}), GRANTED
    )
    assert [(each.pod.uid, each.gpus) for each in actions if isinstance(each, Bind)] == [("c", A)]


@pytest.mark.parametrize(
    ("last", "wanted", "ending"),
    {
        "all have succeeded": ((seen("a", phase="Succeeded"), seen("b", phase="Succeeded")), GRANTED, Ending.FINISHED),
        "one has failed": (
            (seen("a", phase="Succeeded"), seen("b", phase="Failed", exit_code=1)),
            GRANTED,
            Ending.FAILED,
        ),
        "one was rejected by its kubelet": (
            (seen("a", phase="Succeeded"), seen("b", phase="Failed", reason="OutOfcpu")),
            GRANTED,
            Ending.LOST,
        ),
        "one was deleted": ((seen("a", phase="Succeeded"), None), GRANTED, Ending.STOPPED),
        "told to leave, they failed": (
            (seen("a", phase="Failed", exit_code=143), None),
            Wanted(None, 7),
            Ending.STOPPED,
        ),
    }.values(),
)
def test_a_lease_ends_as_its_last_pods_have(last: tuple[Any, Any], wanted: Wanted, ending: Ending) -> None:
    over = dict(zip((A, B), last, strict=True))
    _, (report,) = step(group(lease=LEASE, over=over), wanted)
    assert report.ending is ending


# What pods are told


def test_pods_are_told_their_places_by_the_names_of_the_configuration() -> None:
    nodes = {"n": HivedNode("POOL", ("4", "5", "6", "7"), {"node": "K80-NODE"})}
    notes = hived_notes(LEASE, [A, B], B, nodes)
    told = yaml.safe_load(notes[names.HIVED_PLACEMENT])
    assert notes[names.HIVED_GPUS] == "6,7"
    assert (told["node"], told["leafCellIsolation"], told["cellChain"]) == ("n", [6, 7], "POOL")
    (member,) = told["affinityGroupBindInfo"]
    assert [each["physicalLeafCellIndices"] for each in member["podPlacements"]] == [[4, 5], [6, 7]]
    assert member["podPlacements"][0]["preassignedCellTypes"] == ["K80-NODE", "K80-NODE"]


# What they ask for


HIVED = """
physicalCluster:
  cellTypes:
    K80-NODE: {childCellType: K80, childCellNumber: 4, isNodeLevel: true}
    POOL: {childCellType: K80-NODE, childCellNumber: 2}
  physicalCells:
  - {cellType: POOL, cellChildren: [{cellAddress: n0, pinnedCellId: P}, {cellAddress: n1}]}
virtualClusters:
  vc: {virtualCells: [{cellType: POOL.K80-NODE, cellNumber: 1}], pinnedCells: [{pinnedCellId: P}]}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "hivedscheduler.yaml"
    path.write_text(HIVED)
    return path


def of(request: str, **changes: Any) -> PodObject:
    found = read_pod(pod_of("u", "p", request, 1))
    return found._replace(**changes)


def spec(file: Path, request: str, tenants: tuple[str, ...] = ("vc",), **changes: Any) -> Any:
    setup = configure(file.parent, file, [], [], None, None).setup
    asked = GroupObject("lab", "p", "key", (of(request, **changes),))
    return spec_of_pods(asked, tenants, setup, lambda labels: ["n1"] if labels == {"disk": "ssd"} else [])


def test_a_group_is_a_job_of_its_virtual_cluster(file: Path) -> None:
    request = """{virtualCluster: vc, priority: 7, leafCellNumber: 2, lazyPreemptionEnable: true, leafCellType: K80,
        affinityGroup: {name: a/b, members: [{podNumber: 1, leafCellNumber: 2}, {podNumber: 2, leafCellNumber: 1}]}}"""
    found = spec(file, request)
    assert (found.tenant, found.name, found.priority, found.lazy) == ("vc", "a.b", 7, True)
    assert (found.gpus, found.members, found.locality.require) == (4, [2, 1, 1], "cluster")
    assert found.preemptible  # by higher priorities, which is all that this policy does


def test_an_opportunistic_pod_is_stopped_for_guarantees_only(file: Path) -> None:
    found = spec(file, "{virtualCluster: vc, priority: -1, leafCellNumber: 1, pinnedCellId: P}")
    assert (found.priority, found.preemptible, found.pinned) == (-1, False, None)


def test_a_pinned_cell_has_one_type(file: Path) -> None:
    found = spec(file, "{virtualCluster: vc, leafCellNumber: 1, pinnedCellId: P}")
    assert (found.pinned, found.gpu_type) == ("P", ["K80"])
    with pytest.raises(JobError, match="has no pinned cell 'Q'; use one of its own: P"):
        spec(file, "{virtualCluster: vc, leafCellNumber: 1, pinnedCellId: Q}")


def test_suggested_nodes_are_those_of_the_selector(file: Path) -> None:
    request = "{virtualCluster: vc, leafCellNumber: 1, ignoreK8sSuggestedNodes: false}"
    assert spec(file, request, node_selector={"disk": "ssd"}).nodes == ["n1"]
    assert spec(file, request.replace("false", "true"), node_selector={"disk": "ssd"}).nodes == []
    with pytest.raises(JobError, match="no node has these labels"):
        spec(file, request, node_selector={"disk": "tape"})


def test_the_namespace_says_which_virtual_clusters_its_pods_may_use(file: Path) -> None:
    with pytest.raises(JobError, match="namespace lab may not use tenant 'vc'; use other"):
        spec(file, "{virtualCluster: vc, leafCellNumber: 1}", ("other",))


def test_a_limit_of_gpus_must_be_the_number_that_is_asked_for() -> None:
    request = "{virtualCluster: vc, leafCellNumber: 2}"
    assert not isinstance(read_request(of(request, resource_gpus=2)), str)
    assert "leafCellNumber 2" in str(read_request(of(request, resource_gpus=1)))


# The configuration


def test_hiveds_configuration_is_a_configuration_of_the_service(file: Path, tmp_path: Path) -> None:
    config = configure(tmp_path, file, [], [], None, None)
    vc, spare = config.setup.pools
    assert (config.engine, vc.policy, vc.borrow, spare.policy) == ("kubernetes", "priority", False, "fifo")
    assert [node.name for node in config.setup.cluster.nodes] == ["n0", "n1"]
    assert config.hived["n1"].gpus == ("0", "1", "2", "3")
    config.save(tmp_path / "saved.json")
    assert load_config(tmp_path / "saved.json") == replace(config)


def test_policies_are_chosen_beside_hiveds_configuration(file: Path, tmp_path: Path) -> None:
    own = tmp_path / "horae.yaml"
    own.write_text(
        "engine: kubernetes\nkubernetes: {hived: hivedscheduler.yaml}\ntenants: {vc: {policy: fifo, weight: 2}}"
    )
    setup = configure(tmp_path, own, [], [], None, None).setup
    assert (setup.pools[0].policy, setup.tenant_weights) == ("fifo", {"vc": 2.0})
    own.write_text(
        "engine: kubernetes\nkubernetes: {hived: hivedscheduler.yaml}\ntenants: {vc: {cells: {K80.node: 2}}}"
    )
    with pytest.raises(InputError, match="is that of"):
        configure(tmp_path, own, [], [], None, None)


def test_a_machine_with_several_types_is_refused(file: Path, tmp_path: Path) -> None:
    file.write_text(
        HIVED.replace(
            "    POOL:", "    M60-NODE: {childCellType: M60, childCellNumber: 1, isNodeLevel: true}\n    POOL:"
        ).replace("virtualClusters:", "  - {cellType: M60-NODE, cellAddress: n0}\nvirtualClusters:")
    )
    with pytest.raises(ClusterError, match="machine n0 has GPUs of several types"):
        configure(tmp_path, file, [], [], None, None)
