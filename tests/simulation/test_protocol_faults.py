"""Short histories in which promises were once broken, found by random ones and cut down by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf
from typing import Any

from builders import ACCELERATOR, cluster

from horae.model.cluster import Cluster, Gpu, Node
from horae.model.commands import Command, Start, Stop, Survey
from horae.model.events import (
    ClusterChanged,
    Ending,
    Event,
    GpuChanged,
    GpuState,
    Health,
    JobCancelled,
    JobEnded,
    JobHeld,
    JobPhase,
    JobStarted,
    JobSubmitted,
    LeaseAdopted,
    NodeChanged,
    Phase,
    Running,
    Surveyed,
    TenantChange,
    TenantsChanged,
    Tick,
)
from horae.model.jobs import Job
from horae.model.notices import ChangeRefused, DecisionRejected, Notice
from horae.model.setup import PoolSpec, Setup
from horae.model.shapes import Option, Shape
from horae.model.status import Status
from horae.scheduler import Scheduler

GPU0, GPU1, GPU2 = (Gpu("n0", number) for number in range(3))


class Desk:
    """A scheduler, with what it said so far."""

    def __init__(self, setup: Setup) -> None:
        self.scheduler = Scheduler(setup)
        self.notices: list[Notice] = []

    def tell(self, *events: Event) -> list[Command]:
        commands: list[Command] = []
        for event in events:
            reaction = self.scheduler.handle(event)
            commands += reaction.commands
            self.notices += reaction.notices
        return commands

    def starts(self, *events: Event) -> list[Start]:
        return [command for command in self.tell(*events) if isinstance(command, Start)]

    def status(self, job_id: str) -> Status | None:
        return self.scheduler.status(job_id)

    def restored(self) -> Scheduler:
        return Scheduler.restore(json.loads(json.dumps(self.scheduler.dump(), allow_nan=False)))


def one_pool(gpus: int = 1, policy: str = "fifo", nodes: int = 1, **setup: Any) -> Desk:
    return Desk(replace(Setup(cluster(nodes=nodes, gpus=gpus), (PoolSpec("all", policy),)), **setup))


def leased(desk: Desk, epoch: int) -> Any:
    return desk.scheduler.leases.by_epoch[epoch].gpus


def submitted(
    name: str, at: float = 0.0, gpus: int = 1, level: str = "node", kind: str = ACCELERATOR, **fields: Any
) -> JobSubmitted:
    options = (Option(Shape(kind, gpus, level), 1.0),)
    return JobSubmitted(at, Job(name, at, options, **{"steps_total": 1000.0, **fields}))


# Runs that are not ours


def test_an_older_survey_does_not_undo_what_a_newer_one_found() -> None:
    desk = one_pool(gpus=2)
    desk.tell(Surveyed(10.0, (Running("stranger", 99, (GPU0,), 0.0),)))
    desk.tell(Surveyed(5.0, ()))  # taken before, but delayed
    assert [start.gpus for start in desk.starts(submitted("a", 20.0), Tick(20.0))] == [(GPU1,)]


def test_a_run_that_should_be_over_is_asked_for_until_it_is_gone() -> None:
    desk = one_pool(survey_seconds=60.0)
    desk.tell(Surveyed(10.0, (Running("stranger", 99, (GPU0,), 0.0),)))
    desk.tell(submitted("a", 20.0), Tick(20.0))  # the stranger ends, and the message of that is lost
    assert desk.scheduler.next_wakeup_at < inf
    assert Survey() in desk.tell(Tick(desk.scheduler.next_wakeup_at))


def test_a_stop_for_a_run_that_should_be_over_is_sent_again() -> None:
    desk = one_pool(gpus=2)
    desk.tell(submitted("a"))
    lease = LeaseAdopted(1.0, 99, ("a",), (GPU0, GPU1), (0.0,))  # two GPUs, and it accepts one
    assert Stop(99, "a", 0.0) in desk.tell(lease)  # lost on its way
    desk.tell(Tick(1.0))
    assert desk.scheduler.next_wakeup_at < inf
    assert Stop(99, "a", 0.0) in desk.tell(Tick(max(desk.scheduler.next_wakeup_at, 31.0)))


def test_a_job_does_not_start_while_a_run_of_it_is_still_there() -> None:
    desk = one_pool(gpus=3)
    desk.tell(submitted("a"), LeaseAdopted(1.0, 99, ("a",), (GPU0, GPU1), (0.0,)))
    assert desk.starts(Tick(1.0)) == []
    assert len(desk.starts(JobEnded(2.0, "a", 99, Ending.STOPPED, 0.0), Tick(2.0))) == 1


def test_no_job_is_evicted_for_one_of_which_a_run_is_still_there() -> None:
    desk = one_pool(gpus=3, policy="srtf")
    desk.tell(submitted("a", gpus=2), Tick(0.0), JobStarted(0.0, "a", 0), submitted("b", 1.0, gpus=2, steps_total=10.0))
    free = next(gpu for gpu in (GPU0, GPU1, GPU2) if gpu not in desk.scheduler.ledger.names(leased(desk, 0)))
    desk.tell(LeaseAdopted(2.0, 99, ("b",), (free,), (0.0,)))  # one GPU, and it accepts two
    assert desk.tell(Tick(2.0)) == []
    desk.tell(JobEnded(3.0, "b", 99, Ending.STOPPED, 0.0))
    assert desk.tell(Tick(3.0)) == [Stop(0, "a", 0.0)]


def test_no_job_is_evicted_for_one_that_must_not_be_tried_again_yet() -> None:
    desk = one_pool(policy="srtf", acknowledge_seconds=20.0)
    desk.tell(submitted("b", steps_total=10.0), Tick(0.0), JobEnded(1.0, "b", 0, Ending.LOST, 0.0))
    assert [start.job_ids for start in desk.starts(submitted("a", 1.0), Tick(1.0))] == [("a",)]
    desk.tell(JobStarted(1.0, "a", 1))
    assert desk.tell(Tick(2.0)) == []
    assert desk.scheduler.next_wakeup_at == 21.0
    assert desk.tell(Tick(21.0)) == [Stop(1, "a", 0.0)]


def test_a_job_starts_when_a_run_of_it_on_gpus_of_another_pool_is_gone() -> None:
    nodes = (Node("n0", "a", 2), Node("n1", "a", 2))
    pools = (PoolSpec("rest"), PoolSpec("own", tenants=("t",), nodes=("n0",)))
    desk = Desk(Setup(Cluster("c", nodes), pools))
    desk.tell(submitted("a", kind="a", tenant="u"), LeaseAdopted(1.0, 99, ("a",), (GPU0, GPU1), (0.0,)))
    assert desk.starts(Tick(1.0)) == []
    desk.tell(JobEnded(2.0, "a", 99, Ending.STOPPED, 0.0))
    assert desk.scheduler.next_wakeup_at <= 2.0
    assert len(desk.starts(Tick(2.0))) == 1


def test_a_survey_that_frees_gpus_for_a_job_is_read_to_its_end_before_the_job_starts() -> None:
    desk = one_pool(policy="srtf")
    desk.tell(submitted("a"), Tick(0.0), JobStarted(0.0, "a", 0))
    desk.tell(submitted("b", 5.0, steps_total=10.0), Tick(5.0))
    assert desk.status("b") is Status.HOLDING
    starts = desk.starts(Surveyed(6.0, (Running("stranger", 99, (GPU0,), 0.0),)))  # a is gone, and another is there
    assert starts == []


def test_a_survey_taken_before_a_job_was_suspended_does_not_bring_it_back() -> None:
    desk = one_pool()
    desk.tell(submitted("a"), Tick(0.0), JobStarted(0.0, "a", 0))
    desk.tell(JobHeld(5.0, "a"), JobEnded(10.0, "a", 0, Ending.STOPPED, 3.0))
    assert desk.tell(Surveyed(4.0, (Running("a", 0, (GPU0,), 0.0),))) == []
    assert desk.notices == []
    assert len(desk.starts(submitted("b", 11.0), Tick(11.0))) == 1


def test_a_lease_that_has_ended_is_not_adopted_again() -> None:
    desk = one_pool()
    lease = LeaseAdopted(1.0, 99, ("a",), (GPU0,), (0.0,))
    desk.tell(submitted("a"), lease, JobEnded(5.0, "a", 99, Ending.LOST, 0.0))
    desk.tell(lease)  # doubled on its way
    assert desk.status("a") is Status.PENDING


def test_a_survey_adopts_all_runs_that_are_not_known() -> None:
    desk = one_pool(gpus=2)
    desk.tell(submitted("a"), submitted("b"))
    runs = Running("a", 200, (GPU0,), 0.0), Running("b", 100, (GPU1,), 0.0)
    assert not [each for each in desk.tell(Surveyed(1.0, runs)) if isinstance(each, Stop)]
    assert (desk.status("a"), desk.status("b")) == (Status.RUNNING, Status.RUNNING)


def test_two_jobs_that_share_gpus_are_adopted_together() -> None:
    desk = one_pool()
    desk.tell(submitted("a"), submitted("b"))
    runs = Running("a", 100, (GPU0,), 0.0), Running("b", 100, (GPU0,), 0.0)
    assert not [each for each in desk.tell(Surveyed(1.0, runs)) if isinstance(each, Stop)]
    assert (desk.status("a"), desk.status("b")) == (Status.RUNNING, Status.RUNNING)


def test_a_refused_adoption_stops_no_lease_of_ours() -> None:
    desk = one_pool(gpus=2)
    desk.tell(submitted("a"), Tick(0.0), JobStarted(0.0, "a", 0), submitted("b"))
    commands = desk.tell(LeaseAdopted(1.0, 0, ("a", "b"), (GPU0,), (0.0, 0.0)))
    assert Stop(0, "a", 0.0) not in commands


def test_a_lease_is_not_adopted_on_gpus_of_a_run_that_is_not_ours() -> None:
    desk = one_pool(gpus=2)
    desk.tell(submitted("a"), Surveyed(1.0, (Running("stranger", 99, (GPU0,), 0.0),)))
    assert desk.tell(LeaseAdopted(2.0, 100, ("a",), (GPU0,), (0.0,))) == [Stop(100, "a", 0.0)]
    assert desk.status("a") is Status.PENDING


def test_a_survey_from_before_a_restart_does_not_tell_what_runs_now() -> None:
    desk = one_pool(gpus=2)
    desk.tell(submitted("a"), Tick(50.0))
    restored = Scheduler.restore(desk.scheduler.dump(), incarnation=1)
    restored.handle(Surveyed(30.0, ()))  # taken before the moment at which the scheduler was dumped
    restored.handle(Surveyed(60.0, ()))  # taken before the restart, as far as is known
    assert restored.awaits_survey
    restored.handle(Tick(100.0))
    restored.handle(Surveyed(90.0, ()))
    assert restored.awaits_survey
    restored.handle(Surveyed(100.0, ()))
    assert not restored.awaits_survey


def test_after_a_restart_no_start_is_sent_again_before_it_is_known_what_runs() -> None:
    desk = one_pool()
    start = desk.starts(submitted("a"), Tick(0.0))
    restored = Scheduler.restore(desk.scheduler.dump(), incarnation=1)
    assert restored.handle(Tick(100.0)).commands == (Survey(),)
    restored.handle(Surveyed(100.0, ()))
    assert start[0] in restored.handle(Tick(100.0)).commands  # the engine has never confirmed it


def test_after_a_restart_no_job_starts_when_another_leaves_before_it_is_known_what_runs() -> None:
    desk = one_pool(policy="srtf")
    desk.tell(submitted("a"), Tick(0.0), JobStarted(0.0, "a", 0), submitted("b", 5.0, steps_total=10.0), Tick(5.0))
    assert desk.status("b") is Status.HOLDING
    restored = Scheduler.restore(desk.scheduler.dump(), incarnation=1)
    assert restored.handle(JobEnded(6.0, "a", 0, Ending.STOPPED, 0.0)).commands == ()


def test_a_scheduler_that_awaits_a_survey_does_not_ask_for_it_all_the_time() -> None:
    desk = one_pool()
    desk.tell(submitted("a"))
    restored = Scheduler.restore(desk.scheduler.dump(), incarnation=1)
    assert restored.handle(Tick(0.0)).commands == (Survey(),)
    assert restored.next_wakeup_at > 0.0


def test_a_tenants_cell_stays_bound_when_a_lease_is_adopted_where_gpus_were_held() -> None:
    desk = cells()
    starts = desk.starts(*(submitted(f"g{i}", kind="a", tenant="u", grace_seconds=50.0) for i in range(4)), Tick(0.0))
    desk.tell(*(JobStarted(0.0, start.job_ids[0], start.epoch) for start in starts))
    desk.tell(submitted("x", 1.0, kind="a", tenant="t", gpus=2, level="cluster"), Tick(1.0))
    desk.tell(submitted("y", 1.0, kind="a", tenant="t"))
    assert desk.status("x") is Status.HOLDING  # until both guests have left
    left = next(start for start in starts if desk.status(start.job_ids[0]) is Status.STOPPING)
    desk.tell(JobEnded(2.0, left.job_ids[0], left.epoch, Ending.STOPPED, 0.0))
    desk.tell(LeaseAdopted(3.0, 99, ("y",), left.gpus, (0.0,)))
    assert desk.status("y") is Status.RUNNING
    assert desk.scheduler.ledger.names(desk.scheduler.leases.by_epoch[99].gpus) == left.gpus
    desk.restored()


# Hardware and the cluster


def test_a_change_of_a_node_in_use_waits_for_its_jobs_and_is_made_then() -> None:
    desk = one_pool(gpus=2)
    desk.tell(submitted("a", gpus=2), Tick(0.0), JobStarted(0.0, "a", 0))
    desk.tell(ClusterChanged(1.0, (Node("n0", ACCELERATOR, 1),)))
    desk.tell(JobEnded(2.0, "a", 0, Ending.FINISHED, 1.0))
    assert desk.starts(submitted("b", 3.0, gpus=2), Tick(3.0)) == []
    assert desk.status("b") is Status.REFUSED


def test_a_node_that_waits_to_be_changed_takes_no_new_jobs() -> None:
    desk = one_pool(gpus=2)
    desk.tell(submitted("a"), submitted("c"), Tick(0.0), JobStarted(0.0, "a", 0), JobStarted(0.0, "c", 1))
    desk.tell(ClusterChanged(1.0, (Node("n0", ACCELERATOR, 1),)), JobEnded(2.0, "a", 0, Ending.FINISHED, 1.0))
    assert desk.starts(submitted("b", 3.0), Tick(3.0)) == []


def test_a_node_that_shall_go_takes_no_new_jobs_though_it_is_healthy() -> None:
    desk = one_pool(gpus=2, nodes=2)
    desk.tell(submitted("a"), Tick(0.0), JobStarted(0.0, "a", 0))
    there = desk.starts(submitted("x", 0.5), Tick(0.5))[0].gpus[0].node
    desk.tell(JobEnded(0.6, "x", 1, Ending.FINISHED, 1.0))
    desk.tell(ClusterChanged(1.0, (), (there,)), NodeChanged(2.0, there, Health.HEALTHY))
    starts = desk.starts(submitted("b", 3.0, gpus=1), submitted("c", 3.0, gpus=1), submitted("d", 3.0), Tick(3.0))
    assert there not in {gpu.node for start in starts for gpu in start.gpus}


def test_a_node_that_shrinks_where_a_run_of_others_is() -> None:
    desk = one_pool(gpus=2)
    desk.tell(Surveyed(1.0, (Running("stranger", 99, (GPU1,), 0.0),)))
    desk.tell(ClusterChanged(2.0, (Node("n0", ACCELERATOR, 1),)))
    assert len(desk.starts(submitted("a", 3.0), Tick(3.0))) == 1


def test_a_scheduler_can_be_dumped_after_its_cluster_has_shrunk() -> None:
    desk = one_pool(gpus=2, nodes=2)
    gone = desk.starts(submitted("a", gpus=2), submitted("b", gpus=2), Tick(0.0))
    desk.tell(*(JobEnded(1.0, start.job_ids[0], start.epoch, Ending.FINISHED, 1.0) for start in gone))
    desk.tell(ClusterChanged(2.0, (), ("n0",)))
    desk.restored()


def test_cells_for_a_tenant_leave_other_pools_their_nodes() -> None:
    nodes = (Node("n0", "a", 2), Node("n1", "a", 2))
    pools = (PoolSpec("rest"), PoolSpec("own", tenants=("t",), nodes=("n1",)))
    desk = Desk(Setup(Cluster("c", nodes), pools))
    desk.tell(TenantsChanged(0.0, {"v": TenantChange(cells={"a.gpu": 1})}))
    starts = desk.starts(*(submitted(name, gpus=2, tenant="t", kind="a") for name in "xy"), Tick(0.0))
    assert {gpu.node for start in starts for gpu in start.gpus} <= {"n1"}


def test_a_change_that_is_refused_opens_no_node_that_was_told_to_go() -> None:
    nodes = (Node("n0", "a", 2), Node("n1", "b", 1))
    pools = (PoolSpec("own", tenants=("t",), cells={"a.node": 1}), PoolSpec("rest"))
    desk = Desk(Setup(Cluster("c", nodes), pools))
    desk.tell(ClusterChanged(0.0, (), ("n0",)), NodeChanged(1.0, "n0", Health.HEALTHY))  # the tenant's cell needs it
    desk.tell(ClusterChanged(2.0, (Node("n0", "b", 2),)))
    assert isinstance(desk.notices[-1], ChangeRefused)
    assert desk.starts(submitted("a", 3.0, kind="a", tenant="t"), Tick(3.0)) == []


def test_a_reservation_of_no_cells_keeps_no_node() -> None:
    nodes = (Node("n0", "a", 2), Node("n1", "b", 1))
    pools = (PoolSpec("own", tenants=("t",), cells={"a.node": 1, "b.node": 1}), PoolSpec("rest"))
    desk = Desk(Setup(Cluster("c", nodes), pools))
    desk.tell(TenantsChanged(0.0, {"t": TenantChange(cells={"a.node": 1})}), ClusterChanged(1.0, (), ("n1",)))
    assert desk.notices == []
    assert [node.name for node in desk.scheduler.ledger.real_cluster.nodes] == ["n0"]


def test_a_node_that_comes_back_is_its_pools_again() -> None:
    nodes = (Node("n0", "a", 2), Node("n1", "a", 2), Node("n2", "a", 2))
    pools = (PoolSpec("rest"), PoolSpec("own", tenants=("t",), nodes=("n1", "n2")))
    desk = Desk(Setup(Cluster("c", nodes), pools))
    desk.tell(ClusterChanged(0.0, (), ("n1",)), ClusterChanged(1.0, (nodes[1],)))
    starts = desk.starts(*(submitted(name, 2.0, gpus=2, tenant="u", kind="a") for name in "xy"), Tick(2.0))
    assert {gpu.node for start in starts for gpu in start.gpus} == {"n0"}


# Pools


def test_a_job_that_exceeds_its_quota_can_never_run() -> None:
    pools = (PoolSpec("all"), PoolSpec("own", tenants=("t",), quota={ACCELERATOR: 1}))
    desk = Desk(Setup(cluster(gpus=4), pools))
    desk.tell(submitted("a", gpus=2, tenant="t"), Tick(0.0))
    assert desk.status("a") is Status.REFUSED


def test_a_pool_with_a_quota_hears_of_gpus_that_another_pool_leaves() -> None:
    pools = (PoolSpec("all"), PoolSpec("own", tenants=("t",), quota={ACCELERATOR: 1}))
    desk = Desk(Setup(cluster(gpus=1), pools))
    desk.tell(
        submitted("a", tenant="u"), Tick(0.0), JobStarted(0.0, "a", 0), submitted("b", 1.0, tenant="t"), Tick(1.0)
    )
    desk.tell(JobEnded(2.0, "a", 0, Ending.FINISHED, 1.0))
    assert desk.scheduler.next_wakeup_at <= 2.0
    assert len(desk.starts(Tick(2.0))) == 1


def test_a_job_that_takes_its_place_within_a_quota_does_not_get_a_gpu_that_others_use() -> None:
    pools = (PoolSpec("all"), PoolSpec("own", "srtf", tenants=("t",), quota={ACCELERATOR: 2}))
    desk = Desk(Setup(cluster(gpus=2), pools))
    desk.tell(submitted("a", gpus=2, tenant="t"), Tick(0.0), JobStarted(0.0, "a", 0))
    desk.tell(GpuChanged(1.0, GPU0, GpuState.FOREIGN), submitted("b", 2.0, tenant="t", steps_total=1.0), Tick(2.0))
    assert not [notice for notice in desk.notices if isinstance(notice, DecisionRejected)]
    assert [start.gpus for start in desk.starts(JobEnded(3.0, "a", 0, Ending.STOPPED, 0.0))] == [(GPU1,)]


def test_a_job_does_not_start_on_free_gpus_before_another_has_left_it_its_part_of_the_quota() -> None:
    pools = (PoolSpec("all"), PoolSpec("own", "srtf", tenants=("t",), quota={ACCELERATOR: 2}))
    desk = Desk(Setup(cluster(nodes=2, gpus=2), pools))
    there = desk.starts(submitted("a", gpus=2, tenant="t"), Tick(0.0))[0].gpus[0].node
    other = {"n0": "n1", "n1": "n0"}[there]
    desk.tell(JobStarted(0.0, "a", 0), submitted("b", 1.0, tenant="t", steps_total=10.0, nodes=(there,)))
    desk.tell(submitted("c", 1.0, tenant="t", steps_total=20.0, nodes=(other,)))
    assert desk.tell(Tick(1.0)) == [Stop(0, "a", 0.0)]
    assert [start.job_ids for start in desk.starts(JobEnded(2.0, "a", 0, Ending.STOPPED, 0.0))] == [("b",), ("c",)]


def test_gangs_that_are_spread_over_nodes_leave_each_node_its_cpus() -> None:
    nodes = (Node("n0", "a", 4, cpus=4.0), Node("n1", "a", 2, cpus=8.0))
    desk = Desk(Setup(Cluster("c", nodes), (PoolSpec("all", spreads=True),)))
    starts = desk.starts(submitted("a", gpus=2, kind="a", cpus_per_gpu=4.0), Tick(0.0))
    assert not [notice for notice in desk.notices if isinstance(notice, DecisionRejected)]
    assert [start.gpus[0].node for start in starts] == ["n1"]


def test_a_job_moves_to_no_pool_that_would_not_take_it_if_it_came_anew() -> None:
    nodes = (Node("n0", "a", 4), Node("n1", "a", 2), Node("n2", "a", 1))
    pools = (PoolSpec("rest"), PoolSpec("own", tenants=("t",), nodes=("n1", "n2")))
    desk = Desk(Setup(Cluster("c", nodes), pools))
    desk.tell(NodeChanged(0.0, "n1", Health.DRAINING), submitted("a", gpus=2, kind="a", tenant="t"), Tick(0.0))
    starts = desk.starts(ClusterChanged(1.0, (), ("n1",)), Tick(1.0))
    assert starts == []
    desk.tell(submitted("b", 2.0, gpus=2, kind="a", tenant="t"))
    assert desk.status("a") is desk.status("b")


# Leases


def test_a_job_with_progress_loads_its_checkpoint_though_its_start_was_never_confirmed() -> None:
    desk = one_pool()
    desk.tell(submitted("a"), Tick(0.0))
    desk.tell(JobEnded(50.0, "a", 0, Ending.LOST, 40.0))  # that it had started was lost on its way
    start = desk.starts(Tick(50.0))[0]
    assert (start.steps_done, start.resumes) == ((40.0,), (True,))


def test_a_lease_outlasts_the_guarantee_under_which_it_was_given() -> None:
    rest = PoolSpec("rest", "srtf")
    pools = (PoolSpec("own", "highest-rho", {"lease_seconds": 40.0}, tenants=("t",), cells={"a.node": 1}), rest)
    desk = Desk(Setup(Cluster("c", (Node("n0", "a", 2),)), pools))
    desk.tell(submitted("a", kind="a", gpus=2, tenant="t"), Tick(0.0), JobStarted(0.0, "a", 0))
    desk.tell(TenantsChanged(1.0, {"t": TenantChange(cells={"a.node": 0})}))
    desk.tell(submitted("b", 1.0, kind="a", gpus=2, tenant="u", steps_total=10.0))
    assert desk.tell(Tick(1.0)) == []
    assert desk.scheduler.next_wakeup_at <= 40.0
    assert Stop(0, "a", 0.0) in desk.tell(Tick(40.0))


def test_one_of_two_jobs_that_start_together_has_a_time_by_which_it_must_run_when_the_other_has_left_or_runs() -> None:
    for begun in (JobEnded(2.0, "a", 99, Ending.LOST, 0.0), JobStarted(2.0, "a", 99)):
        desk = one_pool(start_seconds=60.0)
        desk.tell(submitted("a"), submitted("b"), LeaseAdopted(0.0, 99, ("a", "b"), (GPU0,), (0.0, 0.0)))
        pool = desk.scheduler.pools.all[0]
        pool.table.status[:2] = Status.STARTING  # as if they had been started here
        desk.tell(JobPhase(1.0, "b", 99, Phase.PULLING), begun, Tick(2.0))
        assert Stop(99, "b", 0.0) in desk.tell(Tick(61.0))


# Dumps


def cells(policy: str = "fifo") -> Desk:
    nodes = (Node("n0", "a", 2), Node("n1", "a", 2))
    pools = (PoolSpec("own", policy, tenants=("t",), cells={"a.gpu": 2}), PoolSpec("rest", options={"backfill": True}))
    return Desk(Setup(Cluster("c", nodes), pools))


def test_a_scheduler_that_has_heard_nothing_yet_can_be_dumped() -> None:
    desk = cells()
    restored = desk.restored()
    for event in (submitted("a", kind="a"), Tick(0.0)):
        assert len(restored.handle(event).rounds) == len(desk.scheduler.handle(event).rounds)


def test_jobs_that_start_late_are_stopped_in_the_same_order_after_a_restart() -> None:
    desk = one_pool(gpus=2, start_seconds=60.0)
    desk.tell(submitted("a"), submitted("b"), Tick(0.0))
    desk.tell(JobPhase(1.0, "b", 1, Phase.PULLING), JobPhase(1.0, "a", 0, Phase.PULLING))
    assert desk.restored().handle(Tick(61.0)).commands == tuple(desk.tell(Tick(61.0)))


def test_cells_on_bad_hardware_are_the_same_after_a_restart() -> None:
    nodes = (Node("n0", "a", 4), Node("n1", "a", 4))
    pools = (PoolSpec("own", tenants=("t",), cells={"a.node": 2}), PoolSpec("rest"))
    desk = Desk(Setup(Cluster("c", nodes), pools))
    desk.tell(submitted("guest", kind="a", tenant="u"), Tick(0.0), submitted("a", 1.0, kind="a", tenant="t", gpus=3))
    desk.tell(Tick(1.0), NodeChanged(1.0, "n0", Health.DRAINING), NodeChanged(1.0, "n1", Health.DRAINING))
    desk.tell(TenantsChanged(2.0, {"t": TenantChange(cells={"a.node": 2, "a.gpu": 0})}))
    assert desk.restored().dump()["cells"] == desk.scheduler.dump()["cells"]


def test_a_cell_that_is_adopted_with_bad_hardware_in_it_counts_the_same_after_a_restart() -> None:
    nodes = (Node("n0", "a", 4), Node("n1", "a", 4))
    pools = (PoolSpec("own", tenants=("t",), cells={"a.node": 1}), PoolSpec("rest"))
    desk = Desk(Setup(Cluster("c", nodes), pools))
    desk.tell(GpuChanged(0.0, Gpu("n0", 3), GpuState.FAILED), submitted("a", kind="a", tenant="t"))
    desk.tell(LeaseAdopted(1.0, 99, ("a",), (GPU0,), (0.0,)))
    assert [pool.capacity.tolist() for pool in desk.scheduler.pools] == [[3], [6]]
    assert [pool.capacity.tolist() for pool in desk.restored().pools] == [[3], [6]]


def test_jobs_borrow_in_the_same_order_after_a_restart() -> None:
    desk = cells("las")
    desk.tell(*(submitted(name, kind="a", tenant="t") for name in "abcde"), JobCancelled(1.0, "a"))
    restored = desk.restored()
    assert len(desk.starts(Tick(1.0))) == 4
    restored.handle(Tick(1.0))
    assert restored.dump() == desk.scheduler.dump()
