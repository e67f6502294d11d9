"""Cells in the scheduler: shapes that cells can never hold, and preemption where hardware is scarce."""

from __future__ import annotations

import pytest
from builders import handle, job

from horae.model.cluster import Cluster, Gpu, Node
from horae.model.commands import Start, Stop
from horae.model.events import (
    ClusterChanged,
    Ending,
    Event,
    Health,
    JobEnded,
    JobStarted,
    JobSubmitted,
    NodeChanged,
    TenantChange,
    TenantsChanged,
    Tick,
)
from horae.model.jobs import Job
from horae.model.plans import Reaction
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.model.shapes import Option, Shape
from horae.model.status import Status
from horae.policies.registry import POLICIES
from horae.scheduler import Scheduler

ONE, TWO = Option(Shape("a", 1, "gpu"), 1.0), Option(Shape("a", 2, "node"), 2.0)


@pytest.mark.parametrize("options", [(ONE, TWO), (TWO, ONE)], ids=["one or two", "two or one"])
@pytest.mark.parametrize("cadence", Cadence)
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_no_time_is_set_aside_for_a_shape_that_the_cells_can_never_hold(
    policy: str, cadence: Cadence, options: tuple[Option, ...]
) -> None:
    cluster = Cluster("lab", tuple(Node(f"n{index}", "a", 4) for index in range(2)))
    tenant = PoolSpec("t", policy, {}, cadence, 60.0, tenants=("t",), cells={"a.gpu": 2})
    scheduler = Scheduler(Setup(cluster, (tenant, PoolSpec("spare"))))
    submitted = Job("j", 0.0, options, tenant="t", steps_total=1000.0)
    handle(scheduler, JobSubmitted(0.0, submitted))
    for at in range(0, 3600, 60):
        handle(scheduler, Tick(float(at)))
    assert scheduler.status("j") is Status.STARTING


@pytest.mark.parametrize("cadence", Cadence)
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_no_time_is_set_aside_for_a_shape_whose_cpus_no_node_has(policy: str, cadence: Cadence) -> None:
    cluster = Cluster("lab", tuple(Node(f"n{index}", "a", 2, cpus=4) for index in range(2)))
    scheduler = Scheduler(Setup(cluster, (PoolSpec("all", policy, {}, cadence, 60.0),)))
    submitted = Job("j", 0.0, (TWO, ONE), steps_total=1000.0, cpus_per_gpu=4.0)
    handle(scheduler, JobSubmitted(0.0, submitted))
    for at in range(0, 3600, 60):
        handle(scheduler, Tick(float(at)))
    assert scheduler.status("j") is Status.STARTING


def _told(scheduler: Scheduler, *events: Event) -> list[object]:
    """All commands; starts are confirmed at once."""
    commands: list[object] = []
    for event in events:
        reaction: Reaction = handle(scheduler, event)
        commands += reaction.commands
        for command in reaction.commands:
            if isinstance(command, Start):
                for job_id in command.job_ids:
                    handle(scheduler, JobStarted(event.at, job_id, command.epoch))
    return commands


def test_no_guest_is_preempted_while_healthy_cells_are_idle_though_hardware_is_scarce() -> None:
    cluster = Cluster("lab", tuple(Node(f"n{index}", "a", 4) for index in range(4)))
    tenant = PoolSpec("t", tenants=("t",), cells={"a.node": 4})
    scheduler = Scheduler(Setup(cluster, (tenant, PoolSpec("spare"))))
    guest = job("guest", 0.0, 4, accelerator="a", tenant="u", seconds=1e6)
    first = _told(scheduler, JobSubmitted(0.0, guest), Tick(0.0))
    assert [type(command) for command in first] == [Start]
    mine = job("mine", 10.0, 4, accelerator="a", tenant="t")
    second = _told(scheduler, NodeChanged(5.0, "n1", Health.FAILED), Tick(5.0), JobSubmitted(10.0, mine), Tick(10.0))
    assert [type(command) for command in second] == [Start]
    again = job("more", 20.0, 4, accelerator="a", tenant="t")
    third = _told(scheduler, JobSubmitted(20.0, again), Tick(20.0))
    assert [type(command) for command in third] == [Start]
    last = job("last", 30.0, 4, accelerator="a", tenant="t")
    assert [type(command) for command in _told(scheduler, JobSubmitted(30.0, last), Tick(30.0))] == [Stop]


def test_no_guest_starts_where_a_tenant_needs_the_gpus_at_the_same_instant() -> None:
    cluster = Cluster("lab", (Node("n0", "a", 1),))
    tenant = PoolSpec("t", tenants=("t",), cells={"a.node": 1})
    scheduler = Scheduler(Setup(cluster, (PoolSpec("spare"), tenant)))
    mine = job("mine", 0.0, 1, accelerator="a", tenant="t")
    guest = job("guest", 0.0, 1, accelerator="a", tenant="u")
    commands = _told(scheduler, JobSubmitted(0.0, guest), JobSubmitted(0.0, mine), Tick(0.0))
    assert [each.job_ids for each in commands if isinstance(each, Start)] == [("mine",)]
    assert not any(isinstance(each, Stop) for each in commands)


def test_nothing_starts_on_a_node_that_shall_go_though_cells_there_are_kept_through_a_change() -> None:
    cluster = Cluster("lab", tuple(Node(f"n{index}", "a", 2) for index in range(3)))
    tenant = PoolSpec("t", tenants=("t",), cells={"a.node": 2}, borrow=False)
    scheduler = Scheduler(Setup(cluster, (tenant, PoolSpec("spare"))))
    _told(scheduler, JobSubmitted(0.0, job("first", 0.0, 1, accelerator="a", tenant="t")), Tick(0.0))
    change = TenantsChanged(1.0, {"t": TenantChange({"a.node": 1})})
    _told(scheduler, ClusterChanged(1.0, (), ("n0",)), change, Tick(1.0))
    assert _told(scheduler, JobSubmitted(2.0, job("second", 2.0, 1, accelerator="a", tenant="t")), Tick(2.0)) == []


def test_a_job_that_names_nodes_does_not_follow_another_one_into_a_cell_elsewhere() -> None:
    cluster = Cluster("lab", tuple(Node(f"n{index}", "a", 2, rack=f"r{index // 2}") for index in range(4)))
    tenant = PoolSpec("t", tenants=("t",), cells={"a.rack": 1}, borrow=False)
    scheduler = Scheduler(Setup(cluster, (tenant, PoolSpec("spare"))))
    anywhere = job("anywhere", 0.0, 2, accelerator="a", tenant="t")
    there = job("there", 0.0, 2, accelerator="a", tenant="t", nodes=("n3",))
    commands = _told(scheduler, JobSubmitted(0.0, anywhere), JobSubmitted(0.0, there), Tick(0.0))
    assert [each.job_ids for each in commands if isinstance(each, Start)] == [("anywhere",)]


def test_cells_of_a_lazy_job_are_bound_elsewhere_on_good_hardware_only() -> None:
    cluster = Cluster("lab", tuple(Node(f"n{index}", "a", 1) for index in range(4)))
    tenant = PoolSpec("t", "priority", tenants=("t",), cells={"a.gpu": 2}, borrow=False)
    scheduler = Scheduler(Setup(cluster, (tenant, PoolSpec("spare"))))
    low = job("low", 0.0, 2, accelerator="a", level="cluster", tenant="t", lazy=True)
    _told(scheduler, JobSubmitted(0.0, low), Tick(0.0))
    bad = [(node, Health.FAILED) for node in ("n2", "n3")] + [("n0", Health.DRAINING)]
    _told(scheduler, *(NodeChanged(1.0, *each) for each in bad), Tick(1.0))
    high = job("high", 2.0, 1, accelerator="a", tenant="t", priority=1)
    assert [type(each) for each in _told(scheduler, JobSubmitted(2.0, high), Tick(2.0))] == [Stop]
    commands = _told(scheduler, JobEnded(3.0, "low", 0, Ending.STOPPED, 1.0), Tick(3.0))
    assert [each.gpus for each in commands if isinstance(each, Start)] == [(Gpu("n1", 0),)]
