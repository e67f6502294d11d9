"""Gangs with members of several sizes against brute force: every way to put members on nodes, on tiny clusters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import inf
from random import Random

import numpy as np
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from horae.model.cluster import CLUSTER, NODE, Cluster, Node
from horae.model.plans import Contest, Riders, Spot
from horae.model.shapes import Demand, Shape, cut
from horae.placement.evict import place_over
from horae.placement.fit import on_nodes, place
from horae.scheduler.gpu_ledger import GpuLedger
from horae.scheduler.placer import Placer

NONE = -1
thorough = settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
)


@dataclass(frozen=True)
class Scene:
    """Nodes in use, and a gang. A lease has a number; the higher, the later in rank. Each of its GPUs has one CPU."""

    nodes: tuple[Node, ...]
    holder: tuple[int, ...]  # by GPU: the lease, or NONE
    staying: frozenset[int]  # leases that yield to no claim
    members: tuple[int, ...]
    level: str
    cpus_per_gpu: int = 0
    accepted: tuple[str, ...] = ()  # names of nodes; empty: all

    @property
    def cluster(self) -> Cluster:
        return Cluster("test", self.nodes)

    @property
    def shape(self) -> Shape:
        return Shape("v100", sum(self.members), self.level)

    @property
    def demand(self) -> Demand:
        members = tuple(sorted(self.members, reverse=True))
        return Demand((self.shape,), members[0], float(self.cpus_per_gpu), 0.0, members, self.accepted)

    @property
    def riders(self) -> Riders:
        return Riders((np.array(self.holder) != NONE).astype(float), np.zeros(len(self.holder)))

    @property
    def yielding(self) -> list[int]:
        return sorted({*self.holder} - self.staying - {NONE})

    @property
    def contest(self) -> Contest:
        holder = np.array(self.holder)
        return Contest(holder == NONE, np.isin(holder, self.yielding), holder, holder)

    def place(self) -> Spot | None:
        placer = Placer(GpuLedger(self.cluster, self.cluster))
        placer.hasten()
        return placer.place(np.array(self.holder) == NONE, self.riders, self.demand, self.shape)

    def place_over(self) -> Spot | None:
        placer = Placer(GpuLedger(self.cluster, self.cluster))
        placer.hasten()
        return placer.place_over(self.contest, self.riders, self.demand, self.shape)


# The brute force


def rooms(scene: Scene, leaving: Collection[int] = ()) -> list[int]:
    """By node: the GPUs that the gang may have once these leases have ended, with a CPU for each that needs one."""
    found, first = [], 0
    for node in scene.cluster.nodes:
        leases = [lease for lease in scene.holder[first : first + node.gpus] if lease not in (NONE, *leaving)]
        room = node.gpus - len(leases)
        while room * scene.cpus_per_gpu > node.cpus - len(leases):
            room -= 1
        found.append(room if not scene.accepted or node.name in scene.accepted else 0)
        first += node.gpus
    return found


def ways(scene: Scene, rooms: list[int], cell: list[int]) -> Iterator[Counter[int]]:
    """Every way to put the members on nodes of a cell: the GPUs taken of each."""
    for chosen in product(cell, repeat=len(scene.members)):
        loads: Counter[int] = Counter()
        for node, gpus in zip(chosen, scene.members, strict=True):
            loads[node] += gpus
        if all(gpus <= rooms[node] for node, gpus in loads.items()):
            yield loads


def cells(scene: Scene, level: str) -> list[list[int]]:
    nodes = list(enumerate(scene.cluster.nodes))
    if level == CLUSTER:
        return [[index for index, _ in nodes]]
    if level == "rack":
        return [[index for index, node in nodes if node.rack == rack] for rack in sorted({n.rack for _, n in nodes})]
    return [[index] for index, _ in nodes]


def levels(scene: Scene) -> list[str]:
    """Those that hold several nodes or one, up to the level asked for."""
    names = scene.cluster.levels[scene.cluster.node_level :]
    return list(names[: names.index(scene.level) + 1])


def lowest_level(scene: Scene, leaving: Collection[int] = ()) -> str | None:
    there = rooms(scene, leaving)
    for level in levels(scene):
        if any(next(ways(scene, there, cell), None) is not None for cell in cells(scene, level)):
            return level
    return None


def loads_of(scene: Scene, spot: Spot) -> Counter[int]:
    return Counter(scene.cluster.node_of_gpu[spot.gpus].tolist())


def plain(spot: Spot | None) -> tuple[list[int], int, tuple[int, ...]] | None:
    return spot and (spot.gpus.tolist(), spot.level, spot.leaving)


def level_of(scene: Scene, spot: Spot | None) -> str | None:
    return None if spot is None else scene.cluster.levels[max(spot.level, scene.cluster.node_level)]


def assert_members_lie_in_nodes(scene: Scene, spot: Spot, leaving: Collection[int]) -> None:
    """GPUs that are free once these leases have ended, on nodes that can be cut into the members."""
    gpus = spot.gpus.tolist()
    assert len({*gpus}) == len(gpus) == sum(scene.members)
    assert all(scene.holder[gpu] in (NONE, *leaving) for gpu in gpus)
    level = level_of(scene, spot)
    assert level in levels(scene)
    (cell,) = [cell for cell in cells(scene, level) if {*loads_of(scene, spot)} <= {*cell}]
    assert loads_of(scene, spot) in ways(scene, rooms(scene, leaving), cell)


# What is tried


@st.composite
def scenes(draw: st.DrawFn, crowded: bool = False) -> Scene:
    sizes = draw(st.lists(st.integers(2, 6), min_size=1, max_size=4))
    racks = draw(st.sampled_from([[""], ["r0", "r1"]]))
    limited = draw(st.booleans())
    nodes = tuple(
        Node(
            f"n{index}", "v100", gpus, cpus=gpus + draw(st.integers(0, 3)) if limited else inf,
            rack=draw(st.sampled_from(racks)),
        )
        for index, gpus in enumerate(sizes)
    )  # fmt: skip
    lease = st.integers(0, 3)
    holder = lease | st.just(NONE) if crowded else lease | st.just(NONE) | st.just(NONE) | st.just(NONE)
    members = draw(st.lists(st.integers(1, 5), min_size=1, max_size=5).filter(lambda some: sum(some) <= sum(sizes)))
    return Scene(
        nodes,
        tuple(draw(st.lists(holder, min_size=sum(sizes), max_size=sum(sizes)))),
        draw(st.frozensets(lease, max_size=1)),
        tuple(members),
        draw(st.sampled_from([NODE, CLUSTER, CLUSTER, *(["rack"] if racks != [""] else [])])),
        draw(st.integers(0, 2)) if limited else 0,
        tuple(draw(st.sets(st.sampled_from([*(node.name for node in nodes), "gone"])) | st.just(()))),
    )


def idle(gpus: tuple[int, ...], members: tuple[int, ...]) -> Scene:
    nodes = tuple(Node(f"n{index}", "v100", each) for index, each in enumerate(gpus))
    return Scene(nodes, (NONE,) * sum(gpus), frozenset(), members, CLUSTER)


# Room that is free


@thorough
@given(scenes())
@example(idle((7, 6), (4, 3, 3, 3)))  # best fit decreasing puts the 4 into the 6
@example(idle((6, 4, 5), (3, 3, 2, 2, 2, 3)))
def test_members_are_placed_just_when_there_is_a_way_and_in_the_lowest_cell_that_has_one(scene: Scene) -> None:
    spot = scene.place()
    assert level_of(scene, spot) == lowest_level(scene)
    if spot is not None:
        assert_members_lie_in_nodes(scene, spot, ())


@thorough
@given(scenes())
@example(idle((2, 2, 2, 3, 6), (2, 2, 2)))
def test_members_take_as_few_nodes_as_possible(scene: Scene) -> None:
    spot = scene.place()
    assume(spot is not None)
    assert spot is not None
    taken = loads_of(scene, spot)
    (cell,) = [cell for cell in cells(scene, str(level_of(scene, spot))) if {*taken} <= {*cell}]
    assert len(taken) == min(len(loads) for loads in ways(scene, rooms(scene), cell))


@thorough
@given(scenes() | scenes(crowded=True), st.randoms())
def test_the_same_question_has_the_same_answer_in_whatever_order_members_come(scene: Scene, random: Random) -> None:
    ask = Scene.place_over if lowest_level(scene) is None else Scene.place
    shuffled = replace(scene, members=tuple(random.sample(scene.members, len(scene.members))))
    assert plain(ask(scene)) == plain(ask(scene)) == plain(ask(shuffled))


@thorough
@given(scenes())
def test_members_that_are_alike_fit_just_as_a_gang_that_is_cut_into_them(scene: Scene) -> None:
    """One form of demand stands for both."""
    member_gpus, members = cut(scene.members)
    assume(not members)
    free, cluster = np.array(scene.holder) == NONE, scene.cluster
    if scene.accepted:
        free &= on_nodes(cluster, scene.accepted)
    other = scene.demand._replace(member_gpus=member_gpus, members=())
    one, two = (place(cluster, free, scene.riders, demand, scene.shape) for demand in (scene.demand, other))
    assert level_of(scene, one) == level_of(scene, two)
    if one is not None and two is not None:
        assert len(loads_of(scene, one)) == len(loads_of(scene, two))


# Room that others must leave


@thorough
@given(scenes(crowded=True))
def test_room_is_made_just_when_there_is_a_way_once_all_who_yield_have_left(scene: Scene) -> None:
    assume(lowest_level(scene) is None)
    spot = scene.place_over()
    assert (spot is not None) == (lowest_level(scene, scene.yielding) is not None)
    if spot is not None:
        assert {*spot.leaving} <= {*scene.yielding}
        assert_members_lie_in_nodes(scene, spot, spot.leaving)


@thorough
@given(scenes(crowded=True))
def test_the_last_in_rank_leave_first_and_none_that_could_stay(scene: Scene) -> None:
    assume(lowest_level(scene) is None)
    spot = scene.place_over()
    assume(spot is not None)
    assert spot is not None
    best = min(spot.leaving)
    assert lowest_level(scene, [lease for lease in scene.yielding if lease > best]) is None
    for lease in spot.leaving:
        assert lowest_level(scene, [other for other in spot.leaving if other != lease]) is None


@thorough
@given(scenes(crowded=True))
def test_the_compiled_search_is_passed_over(scene: Scene) -> None:
    """It knows nothing of members of several sizes."""
    assume(not scene.accepted and lowest_level(scene) is None)
    assert plain(scene.place_over()) == plain(
        place_over(scene.cluster, scene.contest, scene.riders, scene.demand, scene.shape)
    )
