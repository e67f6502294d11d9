"""Replays random histories recorded from HiveD's own code through any allocator of cells.

An allocator takes part through `Allocator`, which knows gangs, nodes and GPUs by name only. The replay keeps both
systems in the same state: a decision is asked for without effect and compared, then what was recorded is carried out.
A record leaves three things open, and the replay settles them as follows.

* The type of the tenant's cell that a member counts against is not recorded. Every assignment of types that the
  allocator accepts is a *reading*; where a reading leads to a difference, others are tried (`best_replay`).
* Where a member of a gang was never bound, its GPUs are guessed: GPUs that no record uses while the gang lives.
* The GPUs reserved for a preempting gang are never recorded. The allocator reserves its own, if it has the same
  victims; otherwise both states part here and the replay ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice, product
from typing import Any

from conformance.hived_protocol import Decision, Kind, MakeAllocator, Member, Request, Suggested
from conformance.hived_records import Cell, Geometry, Gpu, config_of, lives, member_of, request_of
from conformance.hived_validity import Validity

READINGS_MAX = 8  # of one placement
REPLAYS_MAX = 30  # of one history

# What is found


class Class(Enum):
    MORE_COMPLETE = "more complete"  # ours finds room where theirs waits
    FEWER_VICTIMS = "fewer victims"  # ours disturbs fewer gangs
    EQUIVALENT = "different but equivalent"  # as good: other nodes, other victims, another name for a state
    LESS_LOCAL = "less local"  # both bind, ours on more nodes or on GPUs farther apart
    WORSE = "worse"  # ours waits, preempts or disturbs more gangs


@dataclass(frozen=True)
class Difference:
    history: str
    step: int
    found: Class
    what: str

    def __str__(self) -> str:
        return f"{self.history} step {self.step}: {self.found.value}: {self.what}"


@dataclass
class Replay:
    """How far a history was followed, and what differed on the way."""

    history: str
    steps: int  # of the history
    compared: int = 0
    differences: list[Difference] = field(default_factory=list)
    ended: str = ""  # why it could not be followed to its end
    is_artefact: bool = False  # whether only the record's gaps ended it
    ways: list[int] = field(default_factory=list)  # by commit: readings that were possible
    readings: tuple[int, ...] = ()  # by commit: the one that was chosen; the first if not given
    agreed: int = 0  # decisions that were the same
    proved: int = 0  # better decisions that were carried out and found safe

    def of(self, *classes: Class) -> list[Difference]:
        return [each for each in self.differences if each.found in classes]


# The replay


class _Parted(Exception):
    """Both states can no longer be kept alike."""

    def __init__(self, why: str, *, is_artefact: bool) -> None:
        super().__init__(why)
        self.is_artefact = is_artefact


class Replayer:
    """One history, one allocator, one choice of readings."""

    def __init__(
        self, history: Mapping[str, Any], make: MakeAllocator, readings: Sequence[int] = (), *, checks: bool = True
    ) -> None:
        self.history = history
        self.checks = checks  # whether the allocator's state is verified after each step
        config = config_of(history["config"])
        self.geometry = Geometry(config)
        self.allocator = make(config)
        self.readings = readings
        self.lives = lives(history["steps"])
        self.pods: dict[str, dict[str, Member]] = {}  # by gang and pod
        self.placed: dict[str, tuple[Request, tuple[Member, ...]]] = {}  # by running gang
        self.reserved: dict[str, tuple[Request, tuple[Member, ...]]] = {}  # by preempting gang: our own choice
        self.bad: set[str] = set()  # nodes
        self.downgraded: set[str] = set()
        self.stale: set[str] = set()  # gangs recorded as being preempted by a gang that has given up
        self.known: dict[str, Request] = {}  # every gang that ever asked
        self.before: dict[str, str] = {}  # recorded states before this step
        self.index = 0
        self.replay = Replay(history["name"], len(history["steps"]), readings=tuple(readings))

    def run(self) -> Replay:
        for index, step in enumerate(self.history["steps"]):
            self.index = index
            try:
                self.apply(step)
                if self.checks:
                    self.allocator.check()
                self.compare_states(step["expect"]["groupStates"])
            except _Parted as parted:
                self.replay.ended, self.replay.is_artefact = str(parted), parted.is_artefact
                return self.replay
            self.before = step["expect"]["groupStates"]
            self.replay.compared += 1
        return self.replay

    def apply(self, step: Mapping[str, Any]) -> None:
        expect = step["expect"]
        match step["op"]:
            case "schedule":
                self.schedule(step, request_of(step["spec"]))
            case "delete":
                pods = expect["deleted"] or () if step["kind"] == "being-preempted" else (step["pod"],)
                for pod in pods if expect.get("result") != "skipped" else ():
                    self.delete(pod)
            case "set-node-bad" | "set-healthy":
                (self.bad.discard if step["op"] == "set-healthy" else self.bad.add)(step["node"])
                self.allocator.set_health(step["node"], is_healthy=step["op"] == "set-healthy")
            case other:
                raise ValueError(f"history {self.history['name']} has an unknown step {other!r}")

    def delete(self, pod: str) -> None:
        """The cells of a gang are released when its last pod has left."""
        gang = next(gang for gang, pods in self.pods.items() if pod in pods)
        del self.pods[gang][pod]
        if not self.pods[gang]:
            del self.pods[gang]
            self.forget(gang)

    def forget(self, gang: str) -> None:
        self.placed.pop(gang, None)
        self.reserved.pop(gang, None)
        self.downgraded.discard(gang)
        self.allocator.delete(gang)

    def schedule(self, step: Mapping[str, Any], request: Request) -> None:
        expect, after = step["expect"], step["expect"]["groupStates"]
        self.known[request.name] = request
        ours = self.allocator.schedule(request, self.suggested(step))
        theirs = self.theirs(step, request)
        self.check_valid(request, ours)
        self.compare(step, request, ours, theirs)
        if expect["result"] == "error":
            return
        for gang in theirs.cancelled:
            self.forget(gang)
        for gang in theirs.downgraded:
            self.downgraded.add(gang)
            self.allocator.downgrade(gang)
        if expect["result"] == "bind":
            if request.name not in self.placed:
                self.commit(request)
            self.pods.setdefault(request.name, {})[step["pod"]] = member_of(expect)
        elif after.get(request.name) == "Preempting" and request.name not in self.before:
            self.reserve(request, self.suggested(step), ours, theirs)

    def suggested(self, step: Mapping[str, Any]) -> Suggested:
        nodes = step["suggestedNodes"]
        if step["spec"]["ignoreK8sSuggestedNodes"] or nodes == "*":
            return None
        machines = {node for chain in self.geometry.config.machines for node in chain}
        return frozenset(machines - set(nodes["allExcept"]) if isinstance(nodes, dict) else nodes)

    def theirs(self, step: Mapping[str, Any], request: Request) -> Decision:
        """The recorded decision; who is disturbed by it is seen from the states before and after."""
        expect, after = step["expect"], step["expect"]["groupStates"]
        victims = {self.gang_of(pod) for pod in self.victim_pods(request.name)}
        victims |= {gang for gang in _with(after, "BeingPreempted") if gang not in _with(self.before, "BeingPreempted")}
        return Decision(
            Kind(expect["result"]),
            victims=frozenset(victims),
            downgraded=frozenset(set(_with(after, "lazyPreempted")) - set(_with(self.before, "lazyPreempted"))),
            cancelled=frozenset(set(_with(self.before, "Preempting")) - set(after) - {request.name}),
        )

    def victim_pods(self, gang: str) -> set[str]:
        """Of a record that names the victims on one random node only: those of all calls for the gang in a row."""
        steps, found = self.history["steps"], set()
        for direction in (1, -1):
            index = self.index
            while 0 <= index < len(steps) and steps[index]["expect"].get("result") == "preempt":
                if steps[index]["spec"]["affinityGroup"]["name"] != gang:
                    break
                found.update(steps[index]["expect"]["victimsSubsetOf"])
                index += direction
        return found

    def gang_of(self, pod: str) -> str:
        return next(gang for gang, pods in self.pods.items() if pod in pods)

    # Carrying out what was recorded

    def commit(self, request: Request) -> None:
        placement = self.recorded(request)
        readings = list(islice(self.accepted(request, placement), READINGS_MAX))
        self.replay.ways.append(len(readings))
        position = len(self.replay.ways) - 1
        choice = self.readings[position] if position < len(self.readings) else 0
        if choice >= len(readings):
            raise _Parted(f"the recorded placement of {request.name} is refused", is_artefact=True)
        assert self.allocator.commit(request, readings[choice])
        self.placed[request.name] = request, readings[choice]
        self.reserved.pop(request.name, None)

    def accepted(self, request: Request, placement: Sequence[Member]) -> Iterator[tuple[Member, ...]]:
        was_reserved = self.before.get(request.name) == "Preempting"
        for reading in self.read(request, placement):
            if was_reserved:  # a trial would lose the reservation
                yield reading
            elif self.allocator.commit(request, reading):
                self.allocator.delete(request.name)
                yield reading

    def read(self, request: Request, placement: Sequence[Member]) -> Iterator[tuple[Member, ...]]:
        """The placement with every assignment of the tenant's types of cells that its quota and other cells leave."""
        if request.priority < 0:
            yield tuple(placement)
            return
        types = [self.geometry.types_of(request.tenant, member, request.pinned_cell) for member in placement]
        mine, others = self.bound(request.tenant)
        for assignment in product(*types):
            members = tuple(member._replace(cell_type=name) for member, name in zip(placement, assignment, strict=True))
            cells = {cell for member in members for cell in self.geometry.cells(member, member.cell_type)}
            if request.pinned_cell or self.fits(request.tenant, mine | cells, others):
                yield members

    def bound(self, tenant: str) -> tuple[set[Cell], set[Cell]]:
        """The cells in use by guaranteed gangs: the tenant's, and the others'."""
        found: tuple[set[Cell], set[Cell]] = (set(), set())
        for name, (request, members) in self.placed.items():
            if request.priority >= 0 and name not in self.downgraded:
                is_other = request.tenant != tenant or bool(request.pinned_cell)
                for member in members:
                    found[is_other].update(self.geometry.cells(member, member.cell_type))
        return found

    def fits(self, tenant: str, mine: Iterable[Cell], others: Iterable[Cell]) -> bool:
        counts: dict[tuple[int, int], int] = {}
        used: set[Gpu] = set()
        for cell in others:
            used |= self.geometry.cell_gpus(cell)
        for cell in mine:
            gpus = self.geometry.cell_gpus(cell)
            if used & gpus:
                return False
            used |= gpus
            counts[cell[:2]] = counts.get(cell[:2], 0) + 1
        chains = self.geometry.config.territory.chains
        return all(
            count <= self.geometry.quota(tenant, chains[chain].name, chains[chain].types[level])
            for (chain, level), count in counts.items()
        )

    def recorded(self, request: Request) -> list[Member]:
        """All members of a gang, by request; those that were never bound are guessed."""
        life = next(each for each in self.lives if each.gang == request.name and each.first <= self.index < each.last)
        left = list(life.members)
        placement: list[Member | None] = []
        for gpus in request.members:
            found = next((each for each in left if len(each.gpus) == gpus), None)
            if found is not None:
                left.remove(found)
            placement.append(found)
        at_once = [each for each in self.lives if each.first < life.last and self.index < each.last]
        taken = {gpu for each in at_once for member in each.members for gpu in self.geometry.gpus(member)}
        taken |= {gpu for _, members in self.placed.values() for each in members for gpu in self.geometry.gpus(each)}
        complete = []
        for gpus, member in zip(request.members, placement, strict=True):
            guess = member or self.geometry.guess(gpus, life.members, frozenset(taken))
            if guess is None:
                raise _Parted(f"a member of {request.name} was never bound", is_artefact=True)
            taken |= self.geometry.gpus(guess)
            complete.append(guess)
        return complete

    def reserve(self, request: Request, suggested: Suggested, ours: Decision, theirs: Decision) -> None:
        if ours.kind is not Kind.PREEMPT or ours.victims != theirs.victims:
            raise _Parted(f"{request.name} preempts other gangs than recorded", is_artefact=False)
        again = self.allocator.schedule(request, suggested)  # what was recorded of others is already carried out
        if again.kind is not Kind.PREEMPT or again.victims != theirs.victims:
            raise _Parted(f"{request.name} preempts other gangs once the record is carried out", is_artefact=True)
        self.allocator.reserve(request, suggested)
        self.reserved[request.name] = request, again.members

    # Comparing

    def check_valid(self, request: Request, ours: Decision) -> None:
        if ours.kind in (Kind.BIND, Kind.PREEMPT) and request.name not in self.before:
            validity = Validity(self.geometry, self.placed, self.downgraded, self.bad)
            problem = validity.problem(request, ours, self.reserved)
            assert not problem, f"{self.history['name']} step {self.index}: {request.name}: {problem}: {ours}"

    def differs(self, found: Class, what: str) -> None:
        self.replay.differences.append(Difference(self.history["name"], self.index, found, what))

    def compare(self, step: Mapping[str, Any], request: Request, ours: Decision, theirs: Decision) -> None:
        what = f"{step['pod']} ({step['phase']}): theirs {_shown(theirs)}, ours {_shown(ours)}"
        found = _class_of(ours, theirs, is_known=request.name in self.before)
        if ours.kind is theirs.kind is Kind.BIND:
            if request.name in self.placed:
                if member_of(step["expect"])[:3] not in [each[:3] for each in ours.members]:
                    found = Class.WORSE
                    what = f"{step['pod']} is bound elsewhere than its gang: {ours.members}"
            elif found is None:
                found, what = self.compare_places(request, ours, what)
        if found is None:
            self.replay.agreed += 1
            return
        self.differs(found, what)
        if found in (Class.MORE_COMPLETE, Class.FEWER_VICTIMS):
            self.prove(request, ours)

    def prove(self, request: Request, ours: Decision) -> None:
        """A better decision is a real one: it can be carried out, and every reservation is still covered."""
        if ours.kind is Kind.BIND and not ours.downgraded | ours.cancelled and request.name not in self.before:
            assert self.allocator.commit(request, ours.members), ours
            self.allocator.check()
            self.allocator.delete(request.name)
            self.replay.proved += 1

    def compare_places(self, request: Request, ours: Decision, what: str) -> tuple[Class | None, str]:
        recorded, geometry = self.recorded(request), self.geometry
        mine = len({each.node for each in ours.members}), sorted(geometry.span(each) for each in ours.members)
        other = len({each.node for each in recorded}), sorted(geometry.span(each) for each in recorded)
        what = f"{what}: theirs on {_places(recorded)}, ours on {_places(ours.members)}"
        if mine[0] > other[0] or (mine[0] == other[0] and sum(mine[1]) > sum(other[1])):
            return Class.LESS_LOCAL, what
        same = {gpu for each in recorded for gpu in geometry.gpus(each)} == {
            gpu for each in ours.members for gpu in geometry.gpus(each)
        }
        return (None if same else Class.EQUIVALENT), what

    def compare_states(self, recorded: Mapping[str, str]) -> None:
        ours = self.allocator.states()
        if ours == recorded:
            return
        for gang in sorted({*ours, *recorded}):
            mine, other = ours.get(gang, "absent"), recorded.get(gang, "absent")
            if mine == other:
                continue
            if other != mine.replace("Allocated", "BeingPreempted"):
                raise _Parted(f"{gang} is {mine} and was recorded {other}", is_artefact=False)
            if gang not in self.stale:
                self.stale.add(gang)
                self.differs(Class.EQUIVALENT, f"{gang} stays {other} though nothing is reserved there any more")


def _with(states: Mapping[str, str], word: str) -> list[str]:
    return [gang for gang, state in states.items() if word in state.split("+")]


def _shown(decision: Decision) -> str:
    parts = [("victims", decision.victims), ("downgrades", decision.downgraded), ("cancels", decision.cancelled)]
    return " ".join([decision.kind.value, *(f"{name} {','.join(sorted(each))}" for name, each in parts if each)])


def _places(members: Iterable[Member]) -> str:
    return " ".join(f"{each.node}[{','.join(each.gpus)}]" for each in members)


_RANK = {Kind.BIND: 2, Kind.PREEMPT: 1, Kind.WAIT: 0}


def _class_of(ours: Decision, theirs: Decision, *, is_known: bool) -> Class | None:
    """None if both decide the same; where GPUs are is compared elsewhere."""
    if ours.kind is not theirs.kind:
        if Kind.ERROR in (ours.kind, theirs.kind):
            return Class.WORSE
        if theirs.kind is Kind.WAIT:
            return Class.MORE_COMPLETE
        return Class.FEWER_VICTIMS if _RANK[ours.kind] > _RANK[theirs.kind] else Class.WORSE
    if is_known or ours.kind not in (Kind.BIND, Kind.PREEMPT):
        return None
    for mine, other in ((ours.victims, theirs.victims), (_lighter(ours), _lighter(theirs))):
        if len(mine) != len(other):
            return Class.FEWER_VICTIMS if len(mine) < len(other) else Class.WORSE
    same = ours.victims == theirs.victims and _lighter(ours) == _lighter(theirs)
    return None if same else Class.EQUIVALENT


def _lighter(decision: Decision) -> frozenset[str]:
    """Gangs that lose something but their GPUs."""
    return (decision.downgraded | decision.cancelled) - decision.victims


def best_replay(history: Mapping[str, Any], make: MakeAllocator) -> Replay:
    """The replay with the reading of placements that carries farthest and under which ours is least often worse."""

    def rank(replay: Replay) -> tuple[bool, int, int, int]:
        worse, less_local = len(replay.of(Class.WORSE)), len(replay.of(Class.LESS_LOCAL))
        return replay.is_artefact, worse, -replay.compared, less_local

    best = Replayer(history, make).run()
    tried: set[tuple[int, ...]] = {()}
    waiting: list[tuple[int, ...]] = [()]
    while waiting and len(tried) < REPLAYS_MAX and (best.of(Class.WORSE) or best.is_artefact):
        readings = waiting.pop(0)
        replay = Replayer(history, make, readings, checks=False).run() if readings else best
        best = min(best, replay, key=rank)
        for position in reversed(range(len(readings), len(replay.ways))):
            for choice in range(1, replay.ways[position]):
                further = (*readings, *[0] * (position - len(readings)), choice)
                if further not in tried:
                    tried.add(further)
                    waiting.append(further)
    return best


def table(replays: Iterable[Replay]) -> str:
    """How many steps were compared, and how many decisions fell into each class."""
    all_of = list(replays)
    rows = [
        ("steps recorded", sum(each.steps for each in all_of)),
        ("steps compared", sum(each.compared for each in all_of)),
        ("histories followed to their end", sum(not each.ended for each in all_of)),
        ("ended where the record leaves the state open", sum(each.is_artefact for each in all_of)),
        ("decisions that agree", sum(each.agreed for each in all_of)),
        *((found.value, sum(len(each.of(found)) for each in all_of)) for found in Class),
        ("better decisions carried out and found safe", sum(each.proved for each in all_of)),
    ]
    return "\n".join(f"{count:6,} {name}" for name, count in rows)


# Beyond the record


def after_the_end(history: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Every kind of step that could follow: each pod deleted or asked for again, each node bad or healthy."""
    last = history["steps"][-1]["expect"]["groupStates"]
    for step in {step["pod"]: step for step in history["steps"] if step["op"] == "schedule"}.values():
        if step["spec"]["affinityGroup"]["name"] in last:
            yield {"op": "delete", "kind": "allocated", "pod": step["pod"]}
            yield step
    yield {"op": "delete", "kind": "being-preempted"}
    for machine in sorted({node for nodes in config_of(history["config"]).machines for node in nodes}):
        yield {"op": "set-node-bad", "node": machine}
        yield {"op": "set-healthy", "node": machine}


def go_on(replayer: Replayer, step: Mapping[str, Any]) -> None:
    """Carry out a step as the allocator itself decides, whatever was recorded."""
    allocator = replayer.allocator
    match step["op"]:
        case "schedule":
            _go_on_with(replayer, step)
        case "delete":
            leaving = [step["pod"]] if "pod" in step else []
            if step["kind"] == "being-preempted":
                being = _with(allocator.states(), "BeingPreempted")
                leaving = [pod for gang in being for pod in replayer.pods.get(gang, ())]
            for pod in leaving:
                if any(pod in pods for pods in replayer.pods.values()):
                    replayer.delete(pod)
        case _:
            allocator.set_health(step["node"], is_healthy=step["op"] == "set-healthy")
    allocator.check()


def _go_on_with(replayer: Replayer, step: Mapping[str, Any]) -> None:
    allocator, request, suggested = replayer.allocator, request_of(step["spec"]), replayer.suggested(step)
    decision = allocator.schedule(request, suggested)
    if decision.kind is Kind.PREEMPT and step["phase"] == "Preempting":
        allocator.reserve(request, suggested)
    if decision.kind is not Kind.BIND:
        return
    if not allocator.states().get(request.name, "").startswith(("Allocated", "BeingPreempted")):
        for gang in decision.cancelled:
            replayer.forget(gang)
        for gang in decision.downgraded:
            allocator.downgrade(gang)
        assert allocator.commit(request, decision.members), decision
    pods = replayer.pods.setdefault(request.name, {})
    size = step["spec"]["leafCellNumber"]
    left = [each for each in decision.members if len(each.gpus) == size and each not in pods.values()]
    if left:
        pods[step["pod"]] = left[0]
