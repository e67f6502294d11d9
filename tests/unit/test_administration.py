"""What operators and hardware change under running jobs: no job is lost, and every refusal is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from builders import job

from horae.model.cluster import Cluster, Gpu, Node
from horae.model.commands import Command, Start, Stop
from horae.model.events import (
    ClusterChanged,
    Ending,
    Event,
    GpuChanged,
    GpuState,
    Health,
    JobEnded,
    JobStarted,
    JobSubmitted,
    NodeChanged,
    PolicyChanged,
    TenantChange,
    TenantsChanged,
    Tick,
)
from horae.model.notices import ChangeRefused, GuaranteeLost, NodeInUse, Notice
from horae.model.setup import PoolSpec, Setup
from horae.model.status import Status
from horae.scheduler import Scheduler

NODES = tuple(Node(f"n{index}", "a", 2) for index in range(3))


class Desk:
    def __init__(self, *pools: PoolSpec, nodes: tuple[Node, ...] = NODES) -> None:
        self.scheduler = Scheduler(Setup(Cluster("lab", nodes), pools or (PoolSpec("all"),)))
        self.notices: list[Notice] = []
        self.where: dict[str, tuple[Gpu, ...]] = {}

    def tell(self, *events: Event) -> list[Command]:
        """All commands; starts are confirmed at once."""
        commands: list[Command] = []
        for event in events:
            reaction = self.scheduler.handle(event)
            commands += reaction.commands
            self.notices += reaction.notices
            for start in reaction.commands:
                if isinstance(start, Start):
                    for name in start.job_ids:
                        self.where[name] = start.gpus
                        self.scheduler.handle(JobStarted(event.at, name, start.epoch))
        return commands

    def submit(self, at: float, *names: str, gpus: int = 2, **fields: Any) -> list[Command]:
        made = [job(name, at, gpus, 1e6, accelerator="a", **fields) for name in names]
        return self.tell(*(JobSubmitted(at, each) for each in made), Tick(at))

    def end(self, at: float, name: str, epoch: int) -> list[Command]:
        return self.tell(JobEnded(at, name, epoch, Ending.FINISHED, 1e6), Tick(at))

    def status(self, *names: str) -> list[Status | None]:
        return [self.scheduler.status(name) for name in names]


def test_a_node_that_joins_takes_waiting_jobs() -> None:
    desk = Desk()
    desk.submit(0.0, "a", "b", "c", "d")
    assert desk.status("d") == [Status.PENDING]
    desk.tell(ClusterChanged(1.0, (Node("m0", "a", 2),)), Tick(1.0))
    assert desk.where["d"] == (Gpu("m0", 0), Gpu("m0", 1))
    assert desk.status("a", "b", "c") == [Status.RUNNING] * 3


def test_a_gpu_type_that_joins_is_used() -> None:
    desk = Desk()
    desk.submit(0.0, "a")
    desk.tell(ClusterChanged(1.0, (Node("b0", "b", 4),)))
    desk.tell(JobSubmitted(2.0, job("x", 2.0, 4, 10.0, accelerator="b")), Tick(2.0))
    assert desk.where["x"][0].node == "b0"


def test_an_idle_node_goes_at_once_and_jobs_keep_their_gpus_by_name() -> None:
    desk = Desk()
    desk.submit(0.0, "a", "b")
    desk.tell(ClusterChanged(1.0, removed=("n2",)), Tick(1.0))
    assert desk.notices == []
    assert [node.name for node in desk.scheduler.ledger.real_cluster.nodes] == ["n0", "n1"]
    desk.end(2.0, "a", 0)
    desk.submit(3.0, "c", "d")
    assert desk.where["c"] == desk.where["a"]
    assert desk.status("d") == [Status.PENDING]


def test_a_node_in_use_goes_when_its_jobs_have_ended_and_the_operator_is_told() -> None:
    desk = Desk()
    desk.submit(0.0, "a", "b", "c")
    desk.tell(ClusterChanged(1.0, removed=("n0",)))
    assert desk.notices == [NodeInUse("n0", ("a",))]
    desk.submit(2.0, "d")
    assert desk.status("a", "d") == [Status.RUNNING, Status.PENDING]
    desk.end(3.0, "a", 0)
    assert desk.status("d") == [Status.PENDING]
    assert [node.name for node in desk.scheduler.ledger.real_cluster.nodes] == ["n1", "n2"]


def test_a_node_that_changes_under_a_job_keeps_what_the_job_uses() -> None:
    desk = Desk(nodes=(Node("n0", "a", 4),))
    desk.submit(0.0, "a", gpus=3)
    desk.tell(ClusterChanged(1.0, (Node("n0", "a", 2),)))
    assert desk.notices == [NodeInUse("n0", ("a",))]
    desk.tell(ClusterChanged(2.0, (Node("n0", "a", 8),)))
    desk.submit(3.0, "b", gpus=5)
    assert set(desk.where["a"]) | set(desk.where["b"]) == {Gpu("n0", number) for number in range(8)}


def test_jobs_run_on_where_a_node_shall_have_fewer_gpus_than_tenants_were_promised() -> None:
    desk = Desk(PoolSpec("t", tenants=("t",), cells={"a.gpu": 2}), PoolSpec("spare"), nodes=(Node("n0", "a", 2),))
    desk.submit(0.0, "a", "b", gpus=1, tenant="t")
    on_last = max(("a", "b"), key=lambda name: desk.where[name])
    stays = min(("a", "b"), key=lambda name: desk.where[name])
    desk.tell(ClusterChanged(1.0, (Node("n0", "a", 1),)))
    assert desk.notices == [NodeInUse("n0", (on_last,))]
    assert desk.end(2.0, on_last, ("a", "b").index(on_last)) == []
    assert desk.status(stays) == [Status.RUNNING]
    desk.end(3.0, stays, ("a", "b").index(stays))
    assert isinstance(desk.notices[-1], ChangeRefused)
    assert desk.scheduler.ledger.health_of("n0") is Health.FAILED


def test_a_removal_that_leaves_a_tenant_without_its_cells_is_refused_and_the_node_counts_as_failed() -> None:
    desk = Desk(PoolSpec("t", tenants=("t",), cells={"a.node": 3}), PoolSpec("spare"))
    desk.tell(ClusterChanged(1.0, removed=("n1",)))
    assert len(desk.notices) == 1
    assert isinstance(desk.notices[0], ChangeRefused)
    assert "removal of n1" in str(desk.notices[0])
    assert desk.scheduler.ledger.health_of("n1") is Health.FAILED
    desk.submit(2.0, "a", "b", "c", tenant="t")
    assert desk.status("a", "b", "c") == [Status.RUNNING, Status.RUNNING, Status.PENDING]
    desk.tell(TenantsChanged(3.0, {"t": TenantChange(cells={"a.node": 2})}))
    assert [node.name for node in desk.scheduler.ledger.real_cluster.nodes] == ["n0", "n2"]
    assert desk.status("a", "b") == [Status.RUNNING, Status.RUNNING]


def test_one_gpu_that_fails_stops_its_job_and_the_others_of_its_node_go_on() -> None:
    desk = Desk(nodes=(Node("n0", "a", 4),))
    desk.submit(0.0, "a", "b", gpus=2)
    broken = desk.where["a"][0]
    assert desk.tell(GpuChanged(1.0, broken, GpuState.FAILED)) == [Stop(0, "a", 0.0)]
    desk.tell(JobEnded(2.0, "a", 0, Ending.STOPPED, 1.0), Tick(2.0))
    assert desk.status("a", "b") == [Status.PENDING, Status.RUNNING]
    desk.tell(GpuChanged(3.0, broken, GpuState.USABLE), Tick(3.0))
    assert desk.status("a") == [Status.RUNNING]


def test_a_gpu_that_others_use_is_not_given_away_and_its_job_is_left_alone() -> None:
    desk = Desk(nodes=(Node("n0", "a", 2),))
    desk.tell(GpuChanged(0.0, Gpu("n0", 0), GpuState.FOREIGN, "alice"))
    desk.submit(1.0, "a", "b", gpus=1)
    assert desk.where["a"] == (Gpu("n0", 1),)
    assert desk.status("b") == [Status.PENDING]
    assert desk.tell(GpuChanged(2.0, Gpu("n0", 1), GpuState.FOREIGN, "bob")) == []
    assert desk.status("a") == [Status.RUNNING]


def test_a_failed_gpu_behind_a_tenants_cell_is_felt_there() -> None:
    desk = Desk(PoolSpec("t", tenants=("t",), cells={"a.node": 3}), PoolSpec("spare"))
    desk.tell(GpuChanged(0.0, Gpu("n1", 1), GpuState.FAILED))
    desk.submit(1.0, "a", "b", "c", tenant="t")
    assert desk.status("a", "b", "c") == [Status.RUNNING, Status.RUNNING, Status.PENDING]
    assert Gpu("n1", 1) not in (*desk.where["a"], *desk.where["b"])


def test_tenants_gain_and_lose_cells_while_their_jobs_run() -> None:
    desk = Desk(PoolSpec("t", tenants=("t",), cells={"a.node": 1}, borrow=False), PoolSpec("spare"))
    desk.submit(0.0, "a", "b", tenant="t")
    assert desk.status("a", "b") == [Status.RUNNING, Status.PENDING]
    desk.tell(TenantsChanged(1.0, {"t": TenantChange(cells={"a.node": 2})}), Tick(1.0))
    assert desk.status("a", "b") == [Status.RUNNING, Status.RUNNING]
    desk.tell(TenantsChanged(2.0, {"t": TenantChange(cells={})}), Tick(2.0))
    assert desk.notices == [GuaranteeLost(("a", "b"))]
    assert desk.status("a", "b") == [Status.RUNNING, Status.RUNNING]
    desk.submit(3.0, "c", tenant="t")  # it has no cells left: it runs on what is spare
    assert desk.status("c") == [Status.RUNNING]


def test_a_tenant_without_a_pool_gets_one_with_its_first_cells() -> None:
    desk = Desk()
    desk.submit(0.0, "a", "b", "c", tenant="guest")
    desk.submit(1.0, "d", tenant="u")
    desk.tell(TenantsChanged(2.0, {"u": TenantChange(cells={"a.node": 1}, weight=3.0)}), Tick(2.0))
    assert [type(command) for command in desk.tell(Tick(3.0))] == []
    assert desk.status("d") == [Status.HOLDING]
    assert Status.STOPPING in desk.status("a", "b", "c")
    assert desk.scheduler.interned.tenants.weights["u"] == 3.0


def test_changes_that_cannot_be_are_refused_and_change_nothing() -> None:
    desk = Desk(PoolSpec("t", tenants=("t",), cells={"a.node": 2}), PoolSpec("spare"))
    desk.submit(0.0, "a", tenant="t")
    before = desk.scheduler.dump()
    for event in (
        TenantsChanged(0.0, {"t": TenantChange(cells={"a.node": 4})}),
        TenantsChanged(0.0, {"t": TenantChange(cells={"b.node": 1})}),
        TenantsChanged(0.0, {"t": TenantChange(weight=-1.0)}),
        ClusterChanged(0.0, (Node("n9", "a", 0),)),
        ClusterChanged(0.0, removed=("n9",)),
        PolicyChanged(0.0, "t", "no-such-policy"),
        PolicyChanged(0.0, "nowhere", "fifo"),
    ):
        count = len(desk.notices)
        desk.tell(event)
        assert isinstance(desk.notices[count], ChangeRefused), event
    assert {**desk.scheduler.dump(), "ignored": 0} == {**before, "ignored": 0}


def test_a_failed_node_of_no_cluster_is_ignored() -> None:
    desk = Desk()
    assert desk.tell(NodeChanged(0.0, "nowhere", Health.FAILED), GpuChanged(0.0, Gpu("n0", 9), GpuState.FAILED)) == []
    assert desk.scheduler.ignored == 2


def test_a_dump_of_a_changed_cluster_restores_it() -> None:
    desk = Desk(PoolSpec("t", tenants=("t",), cells={"a.node": 1}), PoolSpec("spare"))
    desk.submit(0.0, "a", "b", tenant="t")
    desk.tell(
        ClusterChanged(1.0, (Node("m0", "b", 4),)),
        GpuChanged(1.0, Gpu("n1", 0), GpuState.FOREIGN),
        NodeChanged(1.0, "n2", Health.DRAINING),
        TenantsChanged(1.0, {"t": TenantChange(cells={"a.node": 2})}),
        PolicyChanged(1.0, "spare", "las"),
        ClusterChanged(1.0, removed=("n0",)),
    )
    dumped = desk.scheduler.dump()
    again = Scheduler.restore(dumped)
    assert again.dump() == dumped
    assert replace(again.setup, cluster=desk.scheduler.setup.cluster) != desk.scheduler.setup
    assert again.pools.all[1].policy.name == "las"


def test_a_node_that_had_to_stay_and_is_listed_again_takes_jobs_as_before() -> None:
    desk = Desk(PoolSpec("t", tenants=("t",), cells={"a.node": 3}), PoolSpec("spare"))
    desk.tell(ClusterChanged(1.0, (), ("n2",)))
    assert [type(notice) for notice in desk.notices] == [ChangeRefused]
    desk.tell(ClusterChanged(2.0, (NODES[2],)))
    desk.submit(3.0, "a", "b", "c", tenant="t")
    assert desk.status("a", "b", "c") == [Status.RUNNING] * 3


def test_cells_that_a_tenant_no_longer_has_keep_no_node_from_going() -> None:
    nodes = tuple(Node(f"n{index}", "a", 2, rack=f"r{int(index > 0)}") for index in range(3))
    desk = Desk(PoolSpec("t", tenants=("t",), cells={"ax2r1.rack": 1}), PoolSpec("spare"), nodes=nodes)
    desk.tell(TenantsChanged(1.0, {"t": TenantChange({"a.node": 1})}))
    desk.tell(ClusterChanged(2.0, (), ("n2",)))
    assert desk.notices == []
    assert [node.name for node in desk.scheduler.ledger.real_cluster.nodes] == ["n0", "n1"]
