"""Placement against brute force on small clusters: nothing that fits is refused, and nothing is promised that does not.

The brute force asks every cell, and packs the members of a gang into nodes in every way there is. It reads a cluster's
nodes only; that GPUs are numbered in the order of `Cluster.nodes` is all it takes over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache, cached_property
from itertools import combinations
from math import inf
from typing import NamedTuple, TypeAlias

import numpy as np
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from horae.model.cluster import CLUSTER, GPU, NODE, Cluster, Node
from horae.model.plans import Contest, Riders, Spot
from horae.model.shapes import Demand, Shape
from horae.placement.evict import place_over
from horae.placement.fit import place
from horae.scheduler.gpu_ledger import GpuLedger
from horae.scheduler.placer import Placer

NONE = -1
TAKEN, FREE = -1, 10**9  # ranks of GPUs that nobody gives up, and of those that nobody holds

thorough = settings(suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])


@dataclass(frozen=True)
class Scene:
    """A cluster in use and a gang that asks for room. A lease has a number; the higher, the later in rank."""

    nodes: tuple[Node, ...]
    holder: tuple[int, ...]  # by GPU: the lease, or NONE
    cpus: tuple[int, ...]  # by lease: for each of its GPUs
    memory_bytes: tuple[int, ...]
    staying: frozenset[int]  # leases that yield to nobody
    shape: Shape
    member_gpus: int = 1
    cpus_per_gpu: int = 0
    memory_bytes_per_gpu: int = 0

    @cached_property
    def cluster(self) -> Cluster:
        return Cluster("test", self.nodes)

    @cached_property
    def demand(self) -> Demand:
        return Demand((self.shape,), self.member_gpus, self.cpus_per_gpu, self.memory_bytes_per_gpu)

    @cached_property
    def riders(self) -> Riders:
        cpus, memory = (
            np.array([0.0 if lease == NONE else float(per_gpu[lease]) for lease in self.holder])
            for per_gpu in (self.cpus, self.memory_bytes)
        )
        return Riders(cpus, memory)

    @cached_property
    def yielding(self) -> list[int]:
        return sorted(set(self.holder) - self.staying - {NONE})

    def free(self, without: Collection[int] = ()) -> frozenset[int]:
        """The GPUs that are free once these leases have ended."""
        return frozenset(gpu for gpu, lease in enumerate(self.holder) if lease == NONE or lease in without)

    def place(self) -> Spot | None:
        return place(self.cluster, np.array(self.holder) == NONE, self.riders, self.demand, self.shape)

    @cached_property
    def contest(self) -> Contest:
        holder = np.array(self.holder)
        free, yielding = holder == NONE, np.isin(holder, self.yielding)
        return Contest(free, yielding, holder, np.where(free, FREE, np.where(yielding, holder, TAKEN)))

    def place_over(self) -> Spot | None:
        return place_over(self.cluster, self.contest, self.riders, self.demand, self.shape)

    def victims(self, spot: Spot) -> set[int]:
        return {self.holder[gpu] for gpu in spot.gpus} - {NONE} | set(spot.leaving)


# The brute force


class Place(NamedTuple):
    """A node with the numbers of its GPUs."""

    node: Node
    gpus: range


def places(scene: Scene) -> list[Place]:
    found: list[Place] = []
    first = 0
    for node in scene.cluster.nodes:
        found.append(Place(node, range(first, first + node.gpus)))
        first += node.gpus
    return found


def cells(scene: Scene, level: str) -> Iterator[list[range]]:
    """Each cell of a level, of the type asked for, as the GPUs that it has on each of its nodes."""
    chain = [place for place in places(scene) if place.node.accelerator == scene.shape.accelerator]
    if level == CLUSTER:
        yield [gpus for _, gpus in chain]
    elif level == "rack":
        racks = [node.rack or f"of {node.name} alone" for node, _ in chain]
        for name in dict.fromkeys(racks):
            yield [gpus for rack, (_, gpus) in zip(racks, chain, strict=True) if rack == name]
    else:
        for node, gpus in chain:
            inside = {GPU: 1, **dict(node.levels)}.get(level, node.gpus)
            for first in gpus[::inside]:
                yield [range(first, first + inside)]


def room(scene: Scene, available: frozenset[int], gpus: range) -> int:
    """How many of these GPUs of one node the gang may have: available ones, with CPUs and memory for each."""
    node, inside = next(place for place in places(scene) if gpus.start in place.gpus)
    leases = [scene.holder[gpu] for gpu in inside if gpu not in available]
    cpus = node.cpus - sum(scene.cpus[lease] for lease in leases)
    memory_bytes = node.memory_bytes - sum(scene.memory_bytes[lease] for lease in leases)
    count = len(available & set(gpus))
    while count * scene.cpus_per_gpu > cpus or count * scene.memory_bytes_per_gpu > memory_bytes:
        count -= 1
    return count


def members(scene: Scene) -> list[int]:
    whole, rest = divmod(scene.shape.gpus, scene.member_gpus)
    return [scene.member_gpus] * whole + [rest] * bool(rest)


def packs(members: Sequence[int], rooms: Sequence[int]) -> bool:
    """Whether every member finds a node, whichever way."""
    return _packs(tuple(members), tuple(sorted(rooms)))


@cache
def _packs(members: tuple[int, ...], rooms: tuple[int, ...]) -> bool:
    if not members:
        return True
    first, *others = members
    return any(
        packs(others, [*rooms[:node], size - first, *rooms[node + 1 :]])
        for node, size in enumerate(rooms)
        if size >= first
    )


def lowest_level(scene: Scene, available: frozenset[int]) -> int | None:
    """The lowest level, up to the one asked for, with a cell that has room for all members."""
    levels = scene.cluster.levels
    for level in range(levels.index(scene.shape.level) + 1):
        for cell in cells(scene, levels[level]):
            if packs(members(scene), [room(scene, available, gpus) for gpus in cell]) and (
                len(cell) > 1 or room(scene, available, cell[0]) >= scene.shape.gpus
            ):
                return level
    return None


def enough(scene: Scene, leaving: Collection[int]) -> bool:
    """Whether there is room once these leases have ended."""
    return lowest_level(scene, scene.free(without=leaving)) is not None


def cell_around(scene: Scene, spot: Spot) -> list[range] | None:
    """The cell of the spot's level that holds all of its GPUs."""
    gpus = set(spot.gpus.tolist())
    for cell in cells(scene, scene.cluster.levels[spot.level]):
        if gpus <= {gpu for part in cell for gpu in part}:
            return cell
    return None


def fewest_nodes(scene: Scene, available: frozenset[int], cell: list[range]) -> int:
    rooms = [room(scene, available, gpus) for gpus in cell]
    counts = range(1, len(rooms) + 1)
    return next(n for n in counts if any(packs(members(scene), some) for some in combinations(rooms, n)))


def assert_it_has_what_it_needs(scene: Scene, spot: Spot, available: frozenset[int]) -> None:
    """Available GPUs of the type, as many as asked for, in one cell of the level told; CPUs and memory for all."""
    gpus = set(spot.gpus.tolist())
    assert len(gpus) == len(spot.gpus) == scene.shape.gpus
    assert gpus <= available
    assert spot.level <= scene.cluster.levels.index(scene.shape.level)
    cell = cell_around(scene, spot)
    assert cell is not None
    parts = [len(gpus & set(part)) for part in cell]
    assert all(taken <= room(scene, available, part) for taken, part in zip(parts, cell, strict=True))
    assert packs(members(scene), parts)


# What is tried

Levels: TypeAlias = tuple[tuple[str, int], ...]
INNER_LEVELS: dict[int, list[Levels]] = {
    1: [()],
    2: [(), (("switch", 2),)],
    3: [()],
    4: [(), (("switch", 2),), (("switch", 2), ("socket", 4))],
    8: [(), (("switch", 2),), (("switch", 2), ("socket", 4))],
}


class Wish(Enum):
    """What a gang may ask for."""

    ANYTHING = "any level"
    NODE = "one node"
    PART = "a part of one node"


@st.composite
def nodes(draw: st.DrawFn) -> tuple[Node, ...]:
    """Up to four nodes of one or two types, some in racks, with levels inside."""
    types = draw(st.sampled_from([["v100"], ["v100", "k80"]]))
    racks = draw(st.sampled_from([[""], ["", "r0", "r1"], ["r0", "r1"]]))
    found: list[Node] = []
    for index in range(draw(st.integers(1, 4))):
        gpus = draw(st.sampled_from(list(INNER_LEVELS)))
        inner = draw(st.sampled_from(INNER_LEVELS[gpus]))
        accelerator, rack = draw(st.sampled_from(types)), draw(st.sampled_from(racks))
        found.append(Node(f"n{index}", accelerator, gpus, levels=inner, rack=rack))
    return tuple(found)


@st.composite
def shapes(draw: st.DrawFn, cluster: Cluster, wish: Wish) -> Shape:
    accelerator = draw(st.sampled_from(cluster.accelerators))
    chain = [node for node in cluster.nodes if node.accelerator == accelerator]
    largest, total = max(node.gpus for node in chain), sum(node.gpus for node in chain)
    node = cluster.node_level
    if wish is Wish.PART:
        level = draw(st.sampled_from(cluster.levels[1:node] or [NODE]))
        return Shape(
            accelerator, draw(st.integers(1, cluster.largest_cell[cluster.levels.index(level)][accelerator])), level
        )
    if wish is Wish.NODE:
        return Shape(accelerator, draw(st.integers(1, largest)), NODE)
    gpus = draw(st.integers(1, largest) | st.integers(1, total))
    return Shape(accelerator, gpus, draw(st.sampled_from(cluster.levels[gpus > 1 :])))


@st.composite
def scenes(draw: st.DrawFn, wish: Wish = Wish.ANYTHING, limited: bool = False, crowded: bool = False) -> Scene:
    """`limited`: CPUs and memory count; `crowded`: few GPUs are free."""
    drawn = draw(nodes())
    cluster = Cluster("test", drawn)
    shape = draw(shapes(cluster, wish))
    leases = draw(st.integers(1, 6))
    somebody, nobody = st.integers(0, leases - 1), st.just(NONE)
    holders = somebody | somebody | nobody if crowded else somebody | nobody | nobody | nobody
    per_gpu = st.integers(0, 3) if limited else st.just(0)
    scene = Scene(
        nodes=drawn,
        holder=tuple(draw(st.lists(holders, min_size=cluster.gpu_count, max_size=cluster.gpu_count))),
        cpus=tuple(draw(st.lists(per_gpu, min_size=leases, max_size=leases))),
        memory_bytes=tuple(draw(st.lists(per_gpu, min_size=leases, max_size=leases))),
        staying=draw(st.frozensets(somebody, max_size=1)),
        shape=shape,
        member_gpus=draw(st.integers(1, shape.gpus)),
        cpus_per_gpu=draw(per_gpu),
        memory_bytes_per_gpu=draw(per_gpu),
    )
    return draw(with_limits(scene)) if limited else scene


@st.composite
def with_limits(draw: st.DrawFn, scene: Scene) -> Scene:
    """Every node has the CPUs and the memory that its leases hold, and a little more or no limit."""
    spare = st.integers(0, 8) | st.just(inf)
    limited: dict[str, Node] = {}
    for node, gpus in places(scene):
        inside = slice(gpus.start, gpus.stop)
        cpus = float(scene.riders.cpus[inside].sum()) + draw(spare)
        memory_bytes = float(scene.riders.memory_bytes[inside].sum()) + draw(spare)
        limited[node.name] = replace(node, cpus=cpus, memory_bytes=memory_bytes)
    return replace(scene, nodes=tuple(limited[node.name] for node in scene.nodes))


NO_LEASES: frozenset[int] = frozenset()


def eights(*inner_levels: Levels) -> tuple[Node, ...]:
    return tuple(Node(f"n{index}", "v100", 8, levels=levels) for index, levels in enumerate(inner_levels))


@st.composite
def spanning(draw: st.DrawFn, *inner_levels: Levels) -> Scene:
    """A gang for which there are GPUs enough in all, but not on one node; nodes have 8, some of them in use."""
    drawn = eights(*draw(st.lists(st.sampled_from(inner_levels), min_size=2, max_size=4)))
    busy = [draw(st.sets(st.integers(0, 7), max_size=6)) for _ in drawn]
    holder = [0 if gpu in some else NONE for some in busy for gpu in range(8)]
    free = [8 - len(some) for some in busy]
    gpus = draw(st.integers(max(free) + 1, sum(free)))
    shape = Shape("v100", gpus, CLUSTER)
    return Scene(drawn, tuple(holder), (0,), (0,), NO_LEASES, shape, draw(st.integers(1, 4)))


@given(drawn=st.lists(st.tuples(st.sampled_from(["v100", "k80"]), st.sampled_from(["", "r0", "r1"])), min_size=4))
@example(drawn=[("v100", "r0"), ("k80", "r1"), ("v100", ""), ("k80", "")])
def test_a_cluster_made_of_the_nodes_of_a_cluster_numbers_its_gpus_alike(drawn: list[tuple[str, str]]) -> None:
    nodes = (Node(f"n{index}", accelerator, 1, rack=rack) for index, (accelerator, rack) in enumerate(drawn))
    once = Cluster("test", tuple(nodes))
    assert Cluster("test", once.nodes).nodes == once.nodes


# Room that is free


@thorough
@given(scene=scenes(limited=True))
def test_a_gang_is_placed_just_when_there_is_room_and_in_the_lowest_cell_that_has_it(scene: Scene) -> None:
    spot = scene.place()
    assert (None if spot is None else spot.level) == lowest_level(scene, scene.free())


@thorough
@given(scene=scenes(limited=True))
def test_a_gang_gets_available_gpus_of_its_type_with_cpus_and_memory_for_all_members(scene: Scene) -> None:
    spot = scene.place()
    assume(spot is not None)
    assert spot is not None
    assert_it_has_what_it_needs(scene, spot, scene.free())


@thorough
@given(scene=scenes(Wish.NODE) | scenes(Wish.PART))
def test_a_gang_goes_into_the_fullest_cell_that_holds_it(scene: Scene) -> None:
    spot = scene.place()
    assume(spot is not None and scene.shape.gpus > 1)
    assert spot is not None
    available = scene.free()
    fitting = [
        len(available & set(gpus))
        for (gpus,) in cells(scene, scene.cluster.levels[spot.level])
        if len(available & set(gpus)) >= scene.shape.gpus
    ]
    cell = cell_around(scene, spot)
    assert cell is not None
    assert len(available & set(cell[0])) == min(fitting)


@thorough
@given(scene=spanning(()))
@example(
    scene=Scene(
        eights((), (), ()), (*[NONE] * 16, 0, 0, 0, *[NONE] * 5), (0,), (0,), NO_LEASES, Shape("v100", 14, CLUSTER), 4
    )
)
def test_a_gang_that_must_span_nodes_takes_as_few_as_it_can(scene: Scene) -> None:
    spot = scene.place()
    assume(spot is not None and spot.level > scene.cluster.node_level)
    assert spot is not None
    cell = cell_around(scene, spot)
    assert cell is not None
    taken = sum(bool(set(spot.gpus.tolist()) & set(part)) for part in cell)
    assert taken == fewest_nodes(scene, scene.free(), cell)


@thorough
@given(scene=spanning((("socket", 4),), (("switch", 2), ("socket", 4))))
@example(
    scene=Scene(
        eights((("socket", 4),), (("switch", 2), ("socket", 4))),
        (*[0] * 4, *[NONE] * 12),
        (0,),
        (0,),
        NO_LEASES,
        Shape("v100", 9, CLUSTER),
    )
)
def test_a_node_may_lack_a_level_that_is_finer_than_those_it_has(scene: Scene) -> None:
    spot = scene.place()
    assert (None if spot is None else spot.level) == lowest_level(scene, scene.free())
    if spot is not None:
        assert_it_has_what_it_needs(scene, spot, scene.free())


@given(gpus=st.integers(2, 8))
def test_several_gpus_never_fit_into_one_gpu(gpus: int) -> None:
    scene = Scene((Node("n0", "v100", 8),), (NONE,) * 8, (), (), NO_LEASES, Shape("v100", gpus, GPU))
    assert scene.place() is None


# Room that others must leave


@thorough
@given(scene=scenes(limited=True, crowded=True))
def test_room_is_made_just_when_it_would_be_enough_if_all_who_yield_left(scene: Scene) -> None:
    assume(not enough(scene, ()))
    assert (scene.place_over() is not None) == enough(scene, scene.yielding)


def crowded_out(scene: Scene) -> Spot:
    """The GPUs for a gang that others must leave."""
    assume(not enough(scene, ()))
    spot = scene.place_over()
    assume(spot is not None)
    assert spot is not None
    return spot


@thorough
@given(scene=scenes(crowded=True))
def test_once_its_victims_have_left_a_gang_has_its_gpus(scene: Scene) -> None:
    spot = crowded_out(scene)
    victims = scene.victims(spot)
    assert victims <= set(scene.yielding)
    assert_it_has_what_it_needs(scene, spot, scene.free(without=victims))


@thorough
@given(scene=scenes(limited=True, crowded=True))
@example(scene=Scene((Node("n0", "v100", 2, cpus=1),), (NONE, 0), (1,), (0,), NO_LEASES, Shape("v100", 1, NODE), 1, 1))
def test_once_its_victims_have_left_a_gang_has_its_cpus_and_memory(scene: Scene) -> None:
    spot = crowded_out(scene)
    assert_it_has_what_it_needs(scene, spot, scene.free(without=scene.victims(spot)))


@thorough
@given(scene=scenes(limited=True, crowded=True))
def test_the_last_in_rank_go_first(scene: Scene) -> None:
    """No choice of victims would spare the best of those who leave and take only worse ones instead."""
    best = min(scene.victims(crowded_out(scene)), default=inf)
    assert not enough(scene, [lease for lease in scene.yielding if lease > best])


@thorough
@given(scene=scenes(Wish.NODE, crowded=True) | scenes(Wish.PART, crowded=True))
@example(
    scene=Scene(
        (Node("n0", "v100", 4, levels=(("switch", 2),)),),
        (0, 1, 0, 0),
        (0, 0),
        (0, 0),
        NO_LEASES,
        Shape("v100", 2, "switch"),
    )
)
def test_no_victim_of_a_gang_in_one_node_could_have_stayed(scene: Scene) -> None:
    victims = scene.victims(crowded_out(scene))
    assert not any(enough(scene, victims - {victim}) for victim in victims)


@thorough
@given(scene=scenes(Wish.NODE, limited=True, crowded=True))
def test_no_victim_of_a_gang_that_needs_cpus_and_memory_could_have_stayed(scene: Scene) -> None:
    victims = scene.victims(crowded_out(scene))
    assert not any(enough(scene, victims - {victim}) for victim in victims)


# Compiled


def flat(scene: Scene) -> Scene:
    """The same without any levels inside nodes or above them."""
    bare = tuple(replace(node, levels=(), rack="") for node in scene.cluster.nodes)
    level = scene.shape.level if scene.shape.level in (GPU, NODE) else CLUSTER
    return replace(scene, nodes=bare, shape=scene.shape._replace(level=level))


@thorough
@example(
    Scene(
        eights((), (), ()),
        (0, 0, 1, 1, 2, 2, NONE, 3) * 3,
        (0,) * 4,
        (0,) * 4,
        NO_LEASES,
        Shape("v100", 11, CLUSTER),
        4,
    )
)
@given((scenes() | scenes(crowded=True) | scenes(Wish.NODE, crowded=True) | spanning(())).map(flat))
def test_the_compiled_search_finds_the_same_gpus_and_asks_the_same_to_leave(scene: Scene) -> None:
    placer = Placer(GpuLedger(scene.cluster, scene.cluster))
    placer.hasten()
    found = placer.place(np.array(scene.holder) == NONE, scene.riders, scene.demand, scene.shape)
    assert _plain(found) == _plain(scene.place())
    if found is not None:
        return  # then nobody is asked to leave
    over = placer.place_over(scene.contest, scene.riders, scene.demand, scene.shape)
    assert _plain(over) == _plain(scene.place_over())


def _plain(spot: Spot | None) -> tuple[list[int], int, tuple[int, ...]] | None:
    return spot and (spot.gpus.tolist(), spot.level, spot.leaving)


def test_a_level_that_does_not_exist_fits_nowhere_compiled_or_not() -> None:
    scene = Scene(eights((), ()), (NONE, 0) * 8, (0,), (0,), NO_LEASES, Shape("v100", 2, "moon"))
    placer = Placer(GpuLedger(scene.cluster, scene.cluster))
    placer.hasten()
    assert placer.place(np.array(scene.holder) == NONE, scene.riders, scene.demand, scene.shape) is None
    assert placer.place_over(scene.contest, scene.riders, scene.demand, scene.shape) is None
