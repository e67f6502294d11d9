"""Gangs with members of several sizes and jobs for certain nodes: their demands, and where they go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from builders import ACCELERATOR, cluster, job

from horae.model.cluster import CLUSTER, NODE
from horae.model.errors import JobError
from horae.model.jobs import Job
from horae.model.plans import Contest, Riders, Turns
from horae.model.serialization import from_plain, to_plain
from horae.model.shapes import NO_NODE, Demand, Option, Shape, cut
from horae.placement import packing
from horae.placement.packing import Packing
from horae.scheduler import placer as placer_module
from horae.scheduler.gpu_ledger import GpuLedger
from horae.scheduler.placer import Placer


def gang(*members: int, level: str = CLUSTER, **fields: Any) -> Job:
    return job("gang", gpus=sum(members), level=level, members=members, **fields)


# Jobs and demands


@pytest.mark.parametrize(
    ("members", "want"),
    [
        pytest.param((4, 8, 4), (8, (8, 4, 4)), id="several sizes, largest first"),
        pytest.param((4, 4, 4), (4, ()), id="all alike"),
        pytest.param((2, 4, 4), (4, ()), id="alike but for a smaller last one"),
        pytest.param((3,), (3, ()), id="one alone"),
        pytest.param((8, 1), (8, ()), id="two"),
        pytest.param((8, 4, 4, 8), (8, (8, 8, 4, 4)), id="two of each"),
    ],
)
def test_what_is_the_same_to_placement_is_one_demand(members: tuple[int, ...], want: tuple[int, Any]) -> None:
    demand = gang(*members, member_gpus=3).demand
    assert cut(members) == (demand.member_gpus, demand.members) == want
    assert demand == gang(*reversed(members)).demand


def test_the_order_of_nodes_makes_no_other_demand_and_a_pinned_cell_does() -> None:
    first, second = (gang(4, 2, 2, nodes=nodes).demand for nodes in (("b", "a"), ("a", "b", "a")))
    assert first == second
    assert first.nodes == ("a", "b")
    assert gang(4, 2, 2, pinned="big").demand != gang(4, 2, 2).demand
    assert gang(4, 2, 2, lazy=True).demand == gang(4, 2, 2).demand


@pytest.mark.parametrize(
    ("fields", "field", "problem"),
    [
        ({"members": (2, 1)}, "members", "job 'a' asks for 4 GPUs, and its members have 3"),
        ({"members": (4, 0)}, "members", "job 'a' has a member of 0 GPUs"),
        ({"nodes": ("n0", "")}, "nodes", "job 'a' may run on a node without a name"),
    ],
)
def test_what_cannot_be_is_an_error_with_a_remedy(fields: dict[str, Any], field: str, problem: str) -> None:
    with pytest.raises(JobError) as error:
        job("a", gpus=4, **fields)
    assert (error.value.field, error.value.problem, bool(error.value.remedy)) == (field, problem, True)


def test_every_shape_must_hold_just_the_members() -> None:
    options = tuple(Option(Shape(ACCELERATOR, gpus, NODE), 1.0) for gpus in (4, 8))
    with pytest.raises(JobError, match="asks for 8 GPUs, and its members have 4"):
        replace(job("a", gpus=4), options=options, members=(3, 1))


def test_a_journal_keeps_all_of_it() -> None:
    made = gang(8, 4, 4, nodes=("n0", "n1"), pinned="big", lazy=True)
    assert from_plain(Job, to_plain(made)) == made
    assert from_plain(Demand, to_plain(made.demand)) == made.demand


# Pairs


def demand(gpus: int = 16, member_gpus: int = 1, *members: int, **fields: Any) -> Demand:
    return Demand((Shape(ACCELERATOR, gpus, CLUSTER),), member_gpus, 1.0, 2.0, members, **fields)


MIXED = demand(16, 8, 8, 4, 4)


@pytest.mark.parametrize(
    ("other", "want"),
    [
        pytest.param(demand(16, 1), (8, (8, 4, 4)), id="single GPUs go anywhere"),
        pytest.param(demand(16, 4), (8, (8, 4, 4)), id="a size that divides all members"),
        pytest.param(demand(16, 8), (16, ()), id="a size that does not: one member"),
        pytest.param(MIXED, (8, (8, 4, 4)), id="the same members"),
        pytest.param(demand(16, 8, 8, 6, 2), (16, ()), id="others: one member"),
    ],
)
def test_a_pair_is_cut_only_where_both_may_be(other: Demand, want: tuple[int, tuple[int, ...]]) -> None:
    together = MIXED.beside(other)
    assert together == other.beside(MIXED)
    assert (together.member_gpus, together.members) == want
    assert (together.cpus_per_gpu, together.memory_bytes_per_gpu) == (2.0, 4.0)


@pytest.mark.parametrize(
    ("one", "other", "want"),
    [
        pytest.param({}, {"nodes": ("a",)}, (("a",), ""), id="one does not mind"),
        pytest.param({"nodes": ("a", "b")}, {"nodes": ("b", "c")}, (("b",), ""), id="nodes that both accept"),
        pytest.param({"nodes": ("a",)}, {"nodes": ("b",)}, (NO_NODE, ""), id="no node in common"),
        pytest.param({"pinned": "x"}, {"pinned": "x"}, ((), "x"), id="the same pinned cell"),
    ],
)
def test_a_pair_goes_where_both_may(one: dict[str, Any], other: dict[str, Any], want: tuple[Any, str]) -> None:
    first, second = demand(**one), demand(**other)
    assert (first.beside(second).nodes, first.beside(second).pinned) == want
    assert first.beside(second) == second.beside(first)


def test_jobs_of_different_pinned_cells_never_share() -> None:
    first, second = demand(pinned="x"), demand()
    assert first.beside(second).nodes == second.beside(first).nodes == NO_NODE


# Packing


@pytest.mark.parametrize(
    ("rooms", "members", "want"),
    [
        pytest.param([8, 8, 8], (8, 4, 4), [8, 8, 0], id="as few nodes as possible"),
        pytest.param([4, 4, 8, 8], (8, 4, 4), [0, 0, 8, 8], id="fewer nodes rather than fuller ones"),
        pytest.param([8, 5, 6, 8], (4, 2), [0, 0, 6, 0], id="the fullest that holds all"),
        pytest.param([6, 7], (4, 3, 3, 3), [6, 7], id="where best fit decreasing fails"),
        pytest.param([8, 8], (5, 5, 4), None, id="enough GPUs, but not for each member"),
        pytest.param([4, 4, 4], (5, 1), None, id="a member larger than any node"),
        pytest.param([3, 3], (3, 3, 1), None, id="too few GPUs"),
        pytest.param([0, 0], (1,), None, id="no GPUs"),
    ],
)
def test_members_go_to_nodes(rooms: list[int], members: tuple[int, ...], want: list[int] | None) -> None:
    taken = Packing(members).into(np.array(rooms))
    assert (None if taken is None else taken.tolist()) == want


def test_a_search_that_reaches_its_bound_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "STEPS_MAX", 0)
    assert Packing((4, 3, 3, 3)).into(np.array([6, 7])) is None
    assert Packing((4, 4)).into(np.array([4, 4])) is not None  # best fit takes no steps


def test_gangs_of_many_members_are_packed_by_best_fit_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    many = (8, *[4] * 5000, *[2] * 1000)
    taken = Packing(many).into(np.full(4000, 8))
    assert taken is not None
    assert int((taken > 0).sum()) == (8 + 20_000 + 2000) // 8
    monkeypatch.setattr(packing, "MEMBERS_MAX", 3)
    assert Packing((4, 3, 3, 3)).into(np.array([6, 7])) is None


def test_a_gang_of_many_sizes_that_nearly_fits_is_refused_within_the_bound() -> None:
    members = (*[12] * 8, *[7] * 19, *[6] * 15, *[5] * 14, *[3] * 6)
    assert Packing(members).into(np.full(29, 15)) is None


# Placement


def placer_of(nodes: int, **fields: Any) -> tuple[Placer, Riders]:
    made = cluster(nodes, **fields)
    placer = Placer(GpuLedger(made, made))
    with patch.object(placer_module, "COMPILED_GPUS_MIN", 0):
        placer.hasten()
    return placer, Riders(np.zeros(made.gpu_count), np.zeros(made.gpu_count))


def test_each_member_has_cpus_on_its_node() -> None:
    placer, riders = placer_of(3, cpus=6.0)
    free = np.ones(24, dtype=bool)
    asked = gang(6, 3, 3, cpus_per_gpu=1.0).demand
    spot = placer.place(free, riders, asked, asked.shapes[0])
    assert spot is not None
    assert np.bincount(spot.gpus // 8).tolist() == [6, 6]
    asked = gang(6, 3, 3, cpus_per_gpu=1.2).demand
    assert placer.place(free, riders, asked, asked.shapes[0]) is None


def test_a_gang_in_one_node_needs_no_packing() -> None:
    placer, riders = placer_of(2, levels=[("socket", 4)])
    asked = gang(2, 1, 1, level="socket").demand
    spot = placer.place(np.ones(16, dtype=bool), riders, asked, asked.shapes[0])
    assert spot is not None
    assert spot.gpus.tolist() == [0, 1, 2, 3]


def test_a_shape_of_another_size_does_not_hold_the_members() -> None:
    placer, riders = placer_of(2)
    asked = gang(8, 4, 2).demand
    assert placer.place(np.ones(16, dtype=bool), riders, asked, Shape(ACCELERATOR, 13, CLUSTER)) is None
    assert placer.largest(np.ones(16, dtype=bool), gang(8, 8, 4).demand, Shape(ACCELERATOR, 20, CLUSTER)) == 16


@pytest.mark.parametrize("fields", [{}, {"cpus_per_gpu": 1.0}, {"members": (2, 1, 1)}], ids=str)
@pytest.mark.parametrize("level", [NODE, CLUSTER])
def test_a_job_runs_on_nodes_that_it_accepts_only(level: str, fields: dict[str, Any]) -> None:
    placer, riders = placer_of(4, gpus=4)
    asked = job("a", gpus=4, level=level, nodes=("n2", "n3", "gone"), **fields).demand
    (shape,) = asked.shapes
    free = np.ones(16, dtype=bool)
    free[8] = False
    spot = placer.place(free, riders, asked, shape)
    assert spot is not None
    assert spot.gpus.tolist() == [12, 13, 14, 15]
    held = np.repeat([0, 1, 2, 3], 4)
    over = placer.place_over(Contest(held < 0, held < 3, held, held), riders, asked, shape)
    assert over is not None
    assert (over.gpus.tolist(), over.leaving) == ([8, 9, 10, 11], (2,))
    assert placer.could_ever_fit(free, asked, shape)
    assert not placer.could_ever_fit(free, asked._replace(nodes=NO_NODE), shape)


@pytest.mark.parametrize(
    ("fields", "is_compiled"),
    [({}, True), ({"pinned": "x"}, False), ({"nodes": ("n0",)}, False), ({"members": (2, 1, 1)}, False)],
    ids=str,
)
def test_a_whole_pass_is_compiled_only_where_jobs_ask_for_gpus_alone(fields: dict[str, Any], is_compiled: bool) -> None:
    placer, _ = placer_of(1)
    asked = job("a", gpus=4, **fields).demand
    one, none = np.zeros(1, dtype=np.int64), np.full(8, -1)
    turns = Turns(one, one, np.ones(1, dtype=bool), one, np.full(1, -1), none, np.ones(8, dtype=bool), none)
    assert (placer.settle(turns, [asked]) is not None) == is_compiled
