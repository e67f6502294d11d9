"""Scenarios recorded from HiveD, with pods on a real control plane, decided by the whole service.

HiveD answers for one pod at a time, and places a group when its first pod comes; here all pods of a group are created
when its first one is recorded. What is compared is what `tests/conformance/test_hived.py` compares: whether a group
is bound, waits or preempts, which pods leave, and that a gang is on as few nodes and as close together as recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from conformance.hived_protocol import Member
from conformance.hived_records import Geometry, config_of
from conformance.hived_scenarios import DEFECT, FILE, HIVED, scenarios
from conformance_folder import missing

from kubernetes.client import Json
from kubernetes.cluster import Cluster
from kubernetes.hived_pods import GPUS, PLACEMENT, Lab, hived_lab, hived_pod, machines

SCENARIOS = (
    *("doc-vc-safety", "doc-pinned", "doc-gang", "doc-opportunistic", "doc-sku-any", "doc-intra-vc-immediate"),
    *("doc-buddy", "doc-reconfig-add-physical", "doc-reconfig-add-node", "doc-reconfig-delete-vc"),
    "upstream-defect-beingpreempted-second-pod",
)
WAITS = (
    "pending",
    "holding",
    "refused",
)  # a gang that is larger than its tenant's cells is refused; HiveD lets it wait

pytestmark = [pytest.mark.kubernetes, pytest.mark.skipif(bool(missing(FILE)), reason=missing(FILE))]


class Scenario:
    def __init__(self, name: str, lab: Lab) -> None:
        self.lab = lab
        self.recorded = scenarios()[name]
        self.is_defect = name.startswith(DEFECT)
        self.geometry = Geometry(config_of(self.recorded["config"]))
        self.names = {each["pod"]: self._group(each) for each in self.recorded["steps"] if each["op"] == "schedule"}
        self.groups: dict[str, list[str]] = {}  # that were created: their pods
        self.seen: dict[str, Json] = {}  # by pod, when it was bound last
        self.left: set[str] = set()  # groups that were deleted, or that had to leave
        self.equal: Counter[bool] = Counter()  # placements that are the recorded ones

    def _group(self, step: Mapping[str, Any]) -> str:
        return str(step["spec"]["affinityGroup"]["name"])

    def play(self) -> None:
        for step in self.recorded["steps"]:
            match step["op"]:
                case "schedule":
                    self.schedule(step)
                case "delete":
                    self.delete(step["pod"])
                case "reconfigure":
                    self.lab.restart(HIVED / step["config"])
                    self.geometry = Geometry(config_of(step["config"]))
                case "recover":
                    self.recover(step)
                case other:
                    pytest.fail(f"unknown step {other}")
            self.check_undisturbed()
        if "sameNode" in self.recorded:
            assert len({self.seen[name]["spec"]["nodeName"] for name in self.recorded["sameNode"]}) == 1

    def schedule(self, step: Mapping[str, Any]) -> None:
        name, expect = self._group(step), step.get("expect", {})
        if name not in self.groups:
            self.create(name, step["spec"])
        pods = self.groups[name]
        match expect.get("result", step.get("observed", {}).get("result")):
            case "bind" | "error" if name not in self.left:  # an error of HiveD's: what is right is that they are bound
                self.see(name)
                self.compare(name, step)
            case "wait":
                self.lab.wait_until_job(name, *WAITS)
                assert not any("nodeName" in self.lab.get(pod)["spec"] for pod in pods)
            case "preempt":
                self.preempt(name, step)

    def create(self, name: str, spec: Mapping[str, Any]) -> None:
        mine = [pod for pod, group in self.names.items() if group == name]
        sizes = [
            member["leafCellNumber"] for member in spec["affinityGroup"]["members"] for _ in range(member["podNumber"])
        ]
        mine += [f"{name}-more-{index}" for index in range(len(sizes) - len(mine))]
        self.groups[name] = mine
        self.lab.create(
            *(hived_pod(pod, {**spec, "leafCellNumber": size}) for pod, size in zip(mine, sizes, strict=True))
        )

    def see(self, name: str) -> None:
        for pod in self.lab.bound(*self.groups[name]):
            self.seen[pod["metadata"]["name"]] = pod

    def preempt(self, name: str, step: Mapping[str, Any]) -> None:
        """Its victims leave, whole gangs, and then it is bound."""
        expect = step.get("expect", {})
        allowed = expect.get("victims") or expect.get("victimsSubsetOf") or step["observed"]["victims"]
        victims = {self.names[pod] for pod in allowed}
        for victim in victims:
            for pod in self.groups[victim]:
                self.lab.wait_until_gone(self.seen[pod])
        self.left |= victims
        self.see(name)

    def delete(self, pod: str) -> None:
        """An owner that deletes a pod; gangs that were preempted are gone already."""
        self.left.add(self.names[pod])
        if self.lab.find(pod) is not None:
            self.lab.delete(pod)
            self.lab.wait_until_gone(self.seen[pod])

    def recover(self, step: Mapping[str, Any]) -> None:
        for group, state in step.get("expect", {}).get("groups", {}).items():
            assert state == "Allocated"
            self.lab.wait_until_job(group, "running")
        loses = bool(step.get("expect", {}).get("lazyPreempted"))
        if loses or step.get("expect", {}).get("notLazyPreempted"):
            assert ("GuaranteeLost" in self.lab.service.log.read_text()) is loses

    def check_undisturbed(self) -> None:
        """Pods that nothing had to leave for are where they were."""
        for name, pod in self.seen.items():
            if self.names.get(name, name.partition("-more-")[0]) not in self.left:
                found = self.lab.get(name)["metadata"]
                assert found["uid"] == pod["metadata"]["uid"], name
                assert "deletionTimestamp" not in found, name

    # Placements

    def compare(self, name: str, step: Mapping[str, Any]) -> None:
        observed, expect = step.get("observed", {}), step.get("expect", {})
        mine = [self.member(self.seen[pod]) for pod in self.groups[name]]
        nodes = {each.node for each in mine}
        assert expect.get("nodeNot") not in nodes
        if step["spec"].get("pinnedCellId"):
            assert nodes == {expect["node"]}
        if "affinityGroupBindInfo" in observed:
            theirs = self.members(observed)
            assert len(nodes) <= len({each.node for each in theirs})
            assert sorted(map(self.geometry.span, mine)) <= sorted(map(self.geometry.span, theirs))
            self.equal[{each[1:3] for each in mine} == {each[1:3] for each in theirs}] += 1
            self.check_types(mine, theirs)

    def check_types(self, mine: Sequence[Member], theirs: Sequence[Member]) -> None:
        """Pods of a gang are told the types of cells that HiveD would tell them, and the chain of their node."""
        assert sorted(each.cell_type for each in mine) == sorted(each.cell_type for each in theirs)
        config = self.geometry.config
        for each in mine:
            assert each.node in config.machines[self.geometry.chains[each.chain]]

    def member(self, pod: Json) -> Member:
        notes = pod["metadata"]["annotations"]
        told = yaml.safe_load(notes[PLACEMENT])
        gpus = tuple(notes[GPUS].split(","))
        assert told["node"] == pod["spec"]["nodeName"]
        assert list(map(str, told["leafCellIsolation"])) == list(gpus)
        own = next(
            each
            for member in told["affinityGroupBindInfo"]
            for each in member["podPlacements"]
            if each["physicalNode"] == told["node"] and each["physicalLeafCellIndices"] == told["leafCellIsolation"]
        )
        return Member(told["cellChain"], told["node"], gpus, own["preassignedCellTypes"][0])

    def members(self, observed: Mapping[str, Any]) -> list[Member]:
        return [
            Member(
                observed["cellChain"],
                each["physicalNode"],
                tuple(map(str, each["physicalLeafCellIndices"])),
                each["preassignedCellTypes"][0],
            )
            for group in observed["affinityGroupBindInfo"]
            for each in group["podPlacements"]
        ]


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_recorded_scenario_comes_out_as_recorded(name: str, cluster: Cluster, tmp_path: Path) -> None:
    recorded = scenarios()[name]
    configs = [recorded["config"], *(each["config"] for each in recorded["steps"] if each["op"] == "reconfigure")]
    paths = [HIVED / each for each in configs]
    with hived_lab(cluster, tmp_path, paths[0], machines(*paths)) as lab:
        scenario = Scenario(name, lab)
        scenario.play()
        print(f"{name}: {scenario.equal[True]} of {scenario.equal.total()} placements are the recorded ones")
