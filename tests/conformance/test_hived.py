"""HiveD's recorded scenarios, answered by the scheduler."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pytest
from conformance.hived_protocol import Decision, Kind, Member, Request, Suggested
from conformance.hived_records import Geometry
from conformance.hived_scenarios import DEFECT, FILE, HIVED, agrees, check_expectation, scenarios
from conformance.scheduler_allocator import SchedulerAllocator
from conformance_folder import missing

from horae.model.errors import ClusterError, JobError
from horae.traces.clusters.hived import read_hived
from horae.traces.readers.hived_pod import Pod, read_pod


class Asked(NamedTuple):
    """One question of a scenario: how its gang stood before, what was answered, and whether it was carried out."""

    state: str
    decision: Decision
    is_done: bool


class World:
    """What HiveD's extender does with the scheduler: pods come one by one, gangs are placed whole."""

    def __init__(self, config: str) -> None:
        self.load(config)
        self.asked: list[Asked] = []

    def load(self, config: str) -> None:
        self.config = read_hived(HIVED / config)
        self.geometry = Geometry(self.config)
        self.allocator = SchedulerAllocator(self.config)
        self.pods: dict[str, set[str]] = {}  # by gang: those that are bound
        self.waiting: dict[str, set[str]] = {}  # by gang: those that wait for victims

    def play(self, step: dict[str, Any], steps: Sequence[dict[str, Any]], *, is_defect: bool) -> None:
        expect = step.get("expect", {})
        match step["op"]:
            case "init":
                assert step is steps[0]
            case "schedule":
                self.schedule(step, is_defect=is_defect)
            case "delete":
                self.delete(step)
            case "set-node-bad" | "set-healthy":
                self.allocator.set_health(step["node"], is_healthy=step["op"] == "set-healthy")
            case "reconfigure":
                self.load(step["config"])
            case "recover":
                self.recover(step, steps)
            case other:
                pytest.fail(f"unknown step {other}")
        self.allocator.check()
        if not is_defect:
            self.check(expect)

    def schedule(self, step: dict[str, Any], *, is_defect: bool) -> None:
        expect = step.get("expect", {})
        observed = {} if is_defect else step.get("observed", {})
        try:
            pod = read_pod(step["pod"], json.dumps(step["spec"]))
        except JobError:
            assert agrees("error", expect["result"])
            return
        request, suggested, gang = _request(pod), self.suggested(step, pod), pod.gang.name
        before = self.allocator.scheduler.dump()
        decision = self.allocator.schedule(request, suggested)
        assert self.allocator.scheduler.dump() == before  # asking changes nothing
        is_done = step["phase"] == "Preempting" and step.get("commitOnBind", True)
        self.asked.append(Asked(self.allocator.states().get(gang, ""), decision, is_done))
        if "result" in expect and not is_defect:
            assert agrees(decision.kind.value, expect["result"]), decision
        if decision.kind is Kind.PREEMPT:
            victims = {each for name in decision.victims for each in self.pods[name]}
            assert victims
            if not is_defect:
                assert victims == set(expect.get("victims", victims))
                assert victims <= set(expect.get("victimsSubsetOf", victims))
            if step["phase"] == "Preempting" and gang not in self.waiting:
                self.forget(decision.cancelled)
                self.allocator.reserve(request, suggested)
            if step["phase"] == "Preempting":
                self.waiting.setdefault(gang, set()).add(step["pod"])
        elif decision.kind is Kind.BIND:
            self.bind(step["pod"], request, decision, observed, expect, is_done=is_done)

    def bind(
        self,
        pod: str,
        request: Request,
        decision: Decision,
        observed: Mapping[str, Any],
        expect: Mapping[str, Any],
        *,
        is_done: bool,
    ) -> None:
        is_new, gang = request.name not in self.pods, request.name
        members: Sequence[Member] = decision.members
        if is_new and "affinityGroupBindInfo" in observed:
            members = self.members(request, observed)
            self.compare(request, decision.members, members, expect)
        if not is_done:
            return
        if is_new:
            self.forget(decision.cancelled)
            for name in decision.downgraded:
                self.allocator.downgrade(name)
            assert self.allocator.commit(request, members), f"{gang} cannot have the recorded placement {members}"
        self.waiting.pop(gang, None)
        self.pods.setdefault(gang, set()).add(pod)

    def forget(self, cancelled: Iterable[str]) -> None:
        for name in cancelled:
            self.allocator.delete(name)
            del self.waiting[name]

    def suggested(self, step: dict[str, Any], pod: Pod) -> Suggested:
        nodes = step["suggestedNodes"]
        if nodes == "*" or not pod.heeds_suggestions:
            return None
        machines = {node for chain in self.config.machines for node in chain}
        return frozenset(machines - set(nodes["allExcept"]) if isinstance(nodes, dict) else nodes)

    def members(self, request: Request, observed: Mapping[str, Any]) -> list[Member]:
        """The recorded placement, by member of the request; those on hardware that is gone are left out."""
        left = [pod for group in observed["affinityGroupBindInfo"] for pod in group["podPlacements"]]
        found = []
        for gpus in request.members:
            pod = next(each for each in left if len(each["physicalLeafCellIndices"]) == gpus)
            left.remove(pod)
            found += self.member(request, pod, observed["cellChain"])
        return found

    def member(self, request: Request, pod: Mapping[str, Any], chain_name: str) -> list[Member]:
        wanted = tuple(str(number) for number in pod["physicalLeafCellIndices"])
        kind = pod["preassignedCellTypes"][0] if request.priority >= 0 else ""
        chains = self.config.territory.chains
        for index in sorted(range(len(chains)), key=lambda index: chains[index].name != chain_name):
            machines, addresses = self.config.machines[index], self.config.gpu_addresses[index]
            for machine, gpus in zip(machines, addresses, strict=True):
                if machine == pod["physicalNode"] and set(wanted) <= set(gpus):
                    return [Member(chains[index].name, machine, wanted, kind)]
        return []

    def compare(self, request: Request, mine: Sequence[Member], theirs: Sequence[Member], expect: Any) -> None:
        """As close together as recorded, on as many nodes; on the same ones where nothing else is possible."""
        nodes = {each.node for each in mine}
        assert len(nodes) <= len({each.node for each in theirs})
        assert sorted(map(self.geometry.span, mine)) <= sorted(map(self.geometry.span, theirs))
        if request.pinned_cell:
            assert nodes == {each.node for each in theirs}
        assert expect.get("nodeNot") not in nodes

    def delete(self, step: dict[str, Any]) -> None:
        before = step.get("expect", {}).get("cellsOfGroupBefore")
        gpus = self.allocator.gpus_of(before["group"]) if before else ()
        for gang in {*self.pods, *self.waiting}:
            for pods in (self.pods, self.waiting):
                pods.get(gang, set()).discard(step["pod"])
            if not self.pods.get(gang) and not self.waiting.get(gang):
                self.pods.pop(gang, None)
                self.waiting.pop(gang, None)
                self.allocator.delete(gang)
        if before:
            used = {rule["priority"] for rule in before["each"] if rule["state"] == "Used"}
            assert {self.allocator.gangs[each].request.priority for each in self.allocator.on(gpus)} <= used

    def recover(self, step: dict[str, Any], steps: Sequence[dict[str, Any]]) -> None:
        records = {each["pod"]: each for each in steps if each["op"] == "schedule" and "spec" in each}
        for name in step["pods"]:
            request = _request(read_pod(name, json.dumps(records[name]["spec"])))
            if request.name not in self.pods:
                self.allocator.recover(request, self.members(request, records[name]["observed"]))
            self.pods.setdefault(request.name, set()).add(name)

    def check(self, expect: dict[str, Any]) -> None:
        states = self.allocator.states()
        for name, state in expect.get("groups", {}).items():
            assert states.get(name, "absent").partition("+")[0] == state, name
        for name in expect.get("lazyPreempted", ()):
            assert states[name].endswith("+lazyPreempted"), name
        for name in expect.get("notLazyPreempted", ()):
            assert not states[name].endswith("+lazyPreempted"), name
        for rule in expect.get("vcCells", ()):
            self.check_health(**rule)

    def check_health(self, vc: str, chain: str, level: int, rule: str) -> None:
        kind = self.config.territory.chains[self.geometry.chains[chain]].types[level - 1]
        cells = self.allocator.cells(vc, chain, kind)
        match rule:
            case "all-healthy":
                assert not any(each.is_bad for each in cells), cells
            case "free-implies-bad":
                assert all(each.is_bad for each in cells if not each.is_used), cells
            case "all-bad":
                assert all(each.is_bad for each in cells), cells
            case _:
                pytest.fail(f"unknown rule {rule}")


def _request(pod: Pod) -> Request:
    gang = pod.gang
    return Request(gang.name, gang.tenant, gang.members, gang.priority, gang.accelerator, gang.pin, gang.lazy)


def run(name: str) -> World | None:
    scenario = scenarios()[name]
    steps = scenario["steps"]
    if steps[0]["op"] == "init" and steps[0]["expect"]["result"] == "error":
        with pytest.raises(ClusterError):
            World(scenario["config"])
        return None
    world = World(scenario["config"])
    for step in steps:
        check_expectation(step.get("expect", {}))
        world.play(step, steps, is_defect=name.startswith(DEFECT))
    if "sameNode" in scenario:
        assert len({each.node for gang in world.allocator.gangs.values() for each in gang.members}) == 1
    return world


def check_waits(world: World) -> None:
    """A further pod of a gang that must leave waits, or is bound to what its gang has."""
    late = [each.decision.kind for each in world.asked if each.state.startswith("BeingPreempted")]
    assert late
    assert all(kind in (Kind.WAIT, Kind.BIND) for kind in late)
    assert any(each.decision.kind is Kind.PREEMPT for each in world.asked)


def check_binds(world: World) -> None:
    assert world.asked
    assert all(each.decision.kind is Kind.BIND for each in world.asked)


def check_asking_changes_nothing(world: World) -> None:
    downgraded = [name for each in world.asked if not each.is_done for name in each.decision.downgraded]
    assert downgraded
    assert not any(world.allocator.states()[name].endswith("+lazyPreempted") for name in downgraded)


def check_recovery_is_safe(world: World) -> None:
    assert not any(each.decision.kind in (Kind.WAIT, Kind.ERROR) for each in world.asked)
    assert any(state.endswith("+lazyPreempted") for state in world.allocator.states().values())


# By what is right according to the recorded scenario.
DEFECTS = {
    "answer wait (or bind to the reserved placement); never crash": check_waits,
    "bind": check_binds,
    "no state change until commit": check_asking_changes_nothing,
    "at recover, lazy-preempt a group whenever num_splittable would become negative; then b and c bind": (
        check_recovery_is_safe
    ),
}


@pytest.mark.skipif(bool(missing(FILE)), reason=missing(FILE))
@pytest.mark.parametrize("name", scenarios() or ["none"])
def test_a_scenario_is_answered_as_recorded(name: str) -> None:
    world = run(name)
    if name.startswith(DEFECT):
        desired = scenarios()[name]["upstreamBug"]["desired"]
        assert desired in DEFECTS, "this is not known here"
        assert world is not None
        DEFECTS[desired](world)


@pytest.mark.skipif(bool(missing(FILE)), reason=missing(FILE))
def test_there_is_a_scenario() -> None:
    assert scenarios(), f"{FILE} is empty"
