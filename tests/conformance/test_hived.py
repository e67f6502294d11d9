"""HiveD's recorded scenarios, step by step: the same answers; then everybody goes on from the recorded placement."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import pytest
from conformance_folder import FOLDER, missing, read

from horae.guarantees.hive import Hive
from horae.guarantees.roster import State
from horae.model.chains import CellKind
from horae.model.errors import ClusterError, JobError
from horae.model.gangs import Answer, Gang, Never, Placed, Preempts, Seat, Waits
from horae.traces.readers.hived_config import HivedConfig, read_hived
from horae.traces.readers.hived_pod import Pod, read_pod

FILE = "hived/cases.json"
HIVED = FOLDER / "hived"
DEFECT = "upstream-defect"
EXPECTED = {
    *("result", "victims", "victimsSubsetOf", "nodeNot", "groups", "lazyPreempted", "notLazyPreempted", "vcCells"),
    "cellsOfGroupBefore",
    # These are not part of conformance: which of several equal nodes, and the words of an error.
    *("node", "leafCellIsolation", "errorClass", "message"),
}


@cache
def scenarios() -> dict[str, dict[str, Any]]:
    found = read(FILE)
    return {} if found is None else {each["name"]: each for each in found["scenarios"]}


def check_expectation(expect: dict[str, Any]) -> None:
    assert expect.keys() <= EXPECTED, "these expectations are not known here"


def agrees(result: str, expected: str) -> bool:
    assert expected in ("bind", "wait", "preempt", "error", "not-bind"), f"unknown result {expected}"
    return result != "bind" if expected == "not-bind" else result == expected


@dataclass
class Group:
    gang: Gang
    taken: dict[str, int] = field(default_factory=dict)  # by pod: its member
    waiting: set[str] = field(default_factory=set)


class World:
    """What HiveD's extender does with a Hive: pods come one by one, gangs are placed whole."""

    def __init__(self, config: str) -> None:
        self.load(config)

    def load(self, config: str) -> None:
        self.config: HivedConfig = read_hived(HIVED / config)
        self.hive = Hive(self.config.territory)
        self.groups: dict[str, Group] = {}

    def schedule(self, step: dict[str, Any], *, recorded: bool) -> None:
        expect, observed = step.get("expect", {}), step.get("observed", {})
        name = step["pod"]
        try:
            pod = read_pod(name, json.dumps(step["spec"]))
            allowed = self.allowed(step, pod)
            commits = step["phase"] == "Preempting" and step.get("commitOnBind", True)
            before = self.whole()
            answer = self.hive.plan(pod.gang, allowed)
            assert self.whole() == before  # asking changes nothing
        except JobError:
            assert agrees("error", expect["result"])
            return
        result = "bind" if isinstance(answer, Placed) else "preempt" if isinstance(answer, Preempts) else "wait"
        if "result" in expect:
            assert agrees(result, expect["result"]), answer
        if isinstance(answer, Preempts):
            victims = [each for group in answer.victims for each in self.groups[group].taken]
            assert victims
            if "victims" in expect:
                assert sorted(victims) == sorted(expect["victims"])
            assert set(victims) <= set(expect.get("victimsSubsetOf", victims))
            if step["phase"] == "Preempting":
                self.hive.admit(pod.gang, allowed)
                self.forget(answer.cancelled)
                self.groups.setdefault(pod.gang.name, Group(pod.gang)).waiting.add(name)
        elif isinstance(answer, Placed):
            is_new = pod.gang.name not in self.hive.roster.number
            if recorded and is_new and "affinityGroupBindInfo" in observed:
                self.compare(pod, answer.seats, observed, expect)
            if commits:
                self.hive.admit(pod.gang, allowed)
                self.forget(answer.cancelled)
                group = self.groups.setdefault(pod.gang.name, Group(pod.gang))
                if recorded and is_new and "affinityGroupBindInfo" in observed:  # not where it differed by run
                    self.hive.end(pod.gang.name)
                    assert self.hive.restore(pod.gang, self.seats_of(pod.gang, observed))
                group.waiting.discard(name)
                self.take(group, name, pod.gpus)

    def take(self, group: Group, pod: str, gpus: int) -> None:
        taken = set(group.taken.values())
        members = enumerate(group.gang.members)
        group.taken[pod] = next(index for index, size in members if size == gpus and index not in taken)

    def forget(self, cancelled: Iterable[str]) -> None:
        for name in cancelled:
            del self.groups[name]

    def allowed(self, step: dict[str, Any], pod: Pod) -> list[str] | None:
        suggested = step["suggestedNodes"]
        if suggested == "*" or not pod.heeds_suggestions:
            return None
        addresses = {address for machines in self.config.machines for address in machines}
        if isinstance(suggested, dict):
            suggested = addresses - set(suggested["allExcept"])
        return [
            node
            for chain, machines in zip(self.config.territory.chains, self.config.machines, strict=True)
            for node, address in zip(chain.nodes, machines, strict=True)
            if address in suggested
        ]

    def compare(self, pod: Pod, seats: Sequence[Seat], observed: dict[str, Any], expect: dict[str, Any]) -> None:
        """As close together as recorded, on as many nodes; on the same ones where nothing else is possible."""
        theirs = self.seats_of(pod.gang, observed)
        assert all(seat is not None for seat in theirs)
        known = [seat for seat in theirs if seat is not None]
        assert len(self.machines(seats)) <= len(self.machines(known))
        mine = sorted(self.spread(seat) for seat in seats)
        assert mine <= sorted(self.spread(seat) for seat in known)
        if pod.gang.pin:
            assert self.machines(seats) == self.machines(known)
        if "nodeNot" in expect:
            assert expect["nodeNot"] not in self.machines(seats)

    def machines(self, seats: Iterable[Seat]) -> set[str]:
        return {self.config.machines[seat.chain][seat.node] for seat in seats}

    def spread(self, seat: Seat) -> tuple[int, int]:
        """GPUs of a member, and of the smallest cell that holds them."""
        chain = self.config.territory.chains[seat.chain]
        bits = [bit for bit in range(chain.node_gpus) if seat.mask >> bit & 1]
        sizes = [size for size in chain.gpus if len({bit // size for bit in bits}) == 1]
        return len(bits), min(sizes)

    def seats_of(self, gang: Gang, observed: dict[str, Any]) -> list[Seat | None]:
        """The recorded placement, by member."""
        left = [pod for group in observed["affinityGroupBindInfo"] for pod in group["podPlacements"]]
        seats = []
        for gpus in gang.members:
            found = next(pod for pod in left if len(pod["physicalLeafCellIndices"]) == gpus)
            left.remove(found)
            seats.append(self.seat_of(found, observed["cellChain"]))
        return seats

    def seat_of(self, pod: dict[str, Any], chain_name: str) -> Seat | None:
        chains = self.config.territory.chains
        for index in sorted(range(len(chains)), key=lambda index: chains[index].name != chain_name):
            for node, address in enumerate(self.config.machines[index]):
                gpus = self.config.gpu_addresses[index][node]
                wanted = [str(number) for number in pod["physicalLeafCellIndices"]]
                if address == pod["physicalNode"] and set(wanted) <= set(gpus):
                    mask = sum(1 << gpus.index(each) for each in wanted)
                    kind = pod["preassignedCellTypes"][0]
                    level = chains[index].types.index(kind) if kind in chains[index].types else -1
                    return Seat(index, node, mask, level)
        return None

    def delete(self, step: dict[str, Any]) -> None:
        name = step["pod"]
        groups = [each for each in self.groups.values() if name in each.taken or name in each.waiting]
        before = step.get("expect", {}).get("cellsOfGroupBefore")
        seats = self.hive.roster.standing[self.hive.roster.number[before["group"]]].seats if before else ()
        for group in groups:
            group.taken.pop(name, None)
            group.waiting.discard(name)
            if not group.taken and not group.waiting:
                self.hive.end(group.gang.name)
                del self.groups[group.gang.name]
        if before:
            self.check_cells(seats, before["each"])

    def check_cells(self, seats: Sequence[Seat], each: list[dict[str, Any]]) -> None:
        used = {rule["priority"] for rule in each if rule["state"] == "Used"}
        for seat in seats:
            ground = self.hive.estate.grounds[seat.chain]
            for bit in range(ground.chain.node_gpus):
                gpu = seat.node * ground.chain.node_gpus + bit
                assert ground.heir[gpu] < 0
                if ground.holder[gpu] >= 0:
                    assert self.hive.roster.standing[ground.holder[gpu]].gang.priority in used

    def set_health(self, address: str, *, bad: bool) -> None:
        for index, machines in enumerate(self.config.machines):
            for node, other in enumerate(machines):
                if other == address:
                    whole = self.hive.estate.grounds[index].whole
                    self.hive.set_bad(index, node, whole if bad else 0)

    def recover(self, step: dict[str, Any], steps: Sequence[dict[str, Any]]) -> None:
        records = {each["pod"]: each for each in steps if each["op"] == "schedule" and "spec" in each}
        for name in step["pods"]:
            pod = read_pod(name, json.dumps(records[name]["spec"]))
            if pod.gang.name not in self.groups:
                self.groups[pod.gang.name] = Group(pod.gang)
                self.hive.restore(pod.gang, self.seats_of(pod.gang, records[name]["observed"]))
            self.take(self.groups[pod.gang.name], name, pod.gpus)

    def check(self, expect: dict[str, Any]) -> None:
        for name, state in expect.get("groups", {}).items():
            assert self.state_of(name) == state, name
        for name in expect.get("lazyPreempted", ()):
            assert self.hive.roster.standing[self.hive.roster.number[name]].downgraded, name
        for name in expect.get("notLazyPreempted", ()):
            assert not self.hive.roster.standing[self.hive.roster.number[name]].downgraded, name
        for rule in expect.get("vcCells", ()):
            self.check_health(**rule)
        self.check_safety()

    def state_of(self, name: str) -> str:
        if name not in self.hive.roster.number:
            return "absent"
        if self.hive.is_being_preempted(name):
            return "BeingPreempted"
        waits = self.hive.roster.standing[self.hive.roster.number[name]].state is State.WAITS_FOR_VICTIMS
        return "Preempting" if waits else "Allocated"

    def check_health(self, vc: str, chain: str, level: int, rule: str) -> None:
        index = next(index for index, each in enumerate(self.config.territory.chains) if each.name == chain)
        compartment = self.hive.estate.compartments[self.hive.estate.tenants[vc]][index]
        doomed = self.hive.doomed(vc).get(CellKind(index, level - 1), 0)
        buddies = self.hive.estate.grounds[index].buddies
        used = [buddies.bad(*cell) > 0 for cell in compartment.bound if cell[0] == level - 1]
        unused = compartment.unbound[level - 1]
        match rule:
            case "all-healthy":
                assert (doomed, any(used)) == (0, False)
            case "free-implies-bad":
                assert doomed == unused
            case "all-bad":
                assert doomed == unused and all(used)
            case _:
                pytest.fail(f"unknown rule {rule}")

    def check_safety(self) -> None:
        for ground in self.hive.estate.grounds:
            assert all(there >= due for there, due in zip(ground.buddies.open, ground.promised, strict=True))

    def whole(self) -> object:
        estate = self.hive.estate
        return (
            dict(self.hive.roster.number),
            dict(self.hive.roster.standing),
            [
                [*map(list, (g.holder, g.heir, g.held, g.sworn, g.kept, g.promised, g.idle[0], g.idle[1]))]
                for g in estate.grounds
            ],
            [[list(map(list, g.buddies.free)), list(g.buddies.open), list(g.buddies.sound)] for g in estate.grounds],
            [
                [(dict(c.bound), dict(c.left), list(c.unbound)) for c in estate.of_tenant(t)]
                for t in estate.tenants.values()
            ],
        )


def named(*, defects: bool) -> pytest.MarkDecorator:
    """All recorded scenarios, either those that describe faults of HiveD or the others; skipped if there are none."""
    names = [name for name in scenarios() if name.startswith(DEFECT) == defects]
    if not names:
        reason = missing(FILE) or f"{FILE} holds no such scenario"
        return pytest.mark.parametrize("name", [pytest.param("", marks=pytest.mark.skip(reason=reason), id="none")])
    return pytest.mark.parametrize("name", names)


@named(defects=False)
def test_every_step_is_answered_as_recorded(name: str) -> None:
    run(name, recorded=True)


def run(name: str, *, recorded: bool) -> World:
    scenario = scenarios()[name]
    steps = scenario["steps"]
    if steps[0]["op"] == "init" and steps[0]["expect"]["result"] == "error":
        assert len(steps) == 1
        with pytest.raises(ClusterError):
            World(scenario["config"])
        return None  # type: ignore[return-value]
    world = World(scenario["config"])
    for step in steps:
        check_expectation(step.get("expect", {}))
        match step["op"]:
            case "init":
                assert step is steps[0]
            case "schedule":
                world.schedule(step, recorded=recorded)
            case "delete":
                world.delete(step)
            case "set-node-bad":
                world.set_health(step["node"], bad=True)
            case "set-healthy":
                world.set_health(step["node"], bad=False)
            case "reconfigure":
                world.load(step["config"])
            case "recover":
                world.recover(step, steps)
            case other:
                pytest.fail(f"unknown step {other}")
        world.check(step.get("expect", {}))
    if "sameNode" in scenario:
        seats = [world.hive.roster.standing[number].seats for number in world.hive.roster.number.values()]
        assert len(world.machines(seat for each in seats for seat in each)) == 1
    return world


class Asked(NamedTuple):
    """One question of a scenario: how its gang stood before, what we answered, and whether that was carried out."""

    state: str
    answer: Answer
    changed: bool


def answers(name: str) -> tuple[World, list[Asked]]:
    """HiveD errs here, so our own placements are gone on from."""
    scenario = scenarios()[name]
    world, found = World(scenario["config"]), []
    for step in scenario["steps"]:
        check_expectation(step.get("expect", {}))
        match step["op"]:
            case "schedule":
                pod = read_pod(step["pod"], json.dumps(step["spec"]))
                state, before = world.state_of(pod.gang.name), world.whole()
                answer = world.hive.plan(pod.gang, world.allowed(step, pod))
                world.schedule(step, recorded=False)
                found.append(Asked(state, answer, world.whole() != before))
            case "delete":
                world.delete(step)
            case "reconfigure":
                world.load(step["config"])
            case "recover":
                world.recover(step, scenario["steps"])
            case other:
                pytest.fail(f"unknown step {other}")
        world.check_safety()
    return world, found


def check_waits(world: World, asked: list[Asked]) -> None:
    """A further pod of a gang that must leave waits, or is bound to what is reserved for it."""
    late = [each.answer for each in asked if each.state == "BeingPreempted"]
    assert late
    assert all(isinstance(each, Waits | Placed) for each in late)
    assert any(isinstance(each.answer, Preempts) for each in asked)
    assert not any(isinstance(each.answer, Never) for each in asked)


def check_binds(world: World, asked: list[Asked]) -> None:
    """A gang that fits on nodes and parts of nodes is placed."""
    assert asked
    assert all(isinstance(each.answer, Placed) for each in asked)


def check_asking_changes_nothing(world: World, asked: list[Asked]) -> None:
    """A question that would downgrade a gang downgrades none until it is committed."""
    asked_only = [each.answer for each in asked if not each.changed]
    downgrading = [each for each in asked_only if isinstance(each, Placed) and each.downgraded]
    assert downgrading
    for name in (name for each in downgrading for name in each.downgraded):
        assert not world.hive.roster.standing[world.hive.roster.number[name]].downgraded, name


def check_recovery_is_safe(world: World, asked: list[Asked]) -> None:
    """A gang that breaks a promise is downgraded when it is recovered, and all others are placed."""
    assert not any(isinstance(each.answer, Waits | Never) for each in asked)
    assert any(standing.downgraded for standing in world.hive.roster.standing.values())


# By what is right according to the recorded scenario.
DEFECTS: dict[str, Callable[[World, list[Asked]], None]] = {
    "answer wait (or bind to the reserved placement); never crash": check_waits,
    "bind": check_binds,
    "no state change until commit": check_asking_changes_nothing,
    "at recover, lazy-preempt a group whenever num_splittable would become negative; then b and c bind": (
        check_recovery_is_safe
    ),
}


@named(defects=True)
def test_a_fault_of_hived_is_none_of_ours(name: str) -> None:
    desired = scenarios()[name]["upstreamBug"]["desired"]
    assert desired in DEFECTS, "this is not known here"
    DEFECTS[desired](*answers(name))


@pytest.mark.skipif(bool(missing(FILE)), reason=missing(FILE))
def test_there_is_a_scenario() -> None:
    assert scenarios(), f"{FILE} is empty"
