"""Jobs of a tenant on GPUs outside its cells: borrowing, promotion, moves, and lazy preemption."""

from __future__ import annotations

from typing import Any

import pytest
from builders import arrival, job

from horae.experiments.simulate import simulate
from horae.model.cluster import Cluster, Gpu, Node
from horae.model.commands import Command, Start, Stop
from horae.model.events import (
    Ending,
    Event,
    GpuChanged,
    GpuState,
    JobCancelled,
    JobEnded,
    JobHeld,
    JobProgressed,
    JobReleased,
    JobStarted,
    JobSubmitted,
    LeaseAdopted,
    Surveyed,
    Tick,
)
from horae.model.jobs import Job
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.model.shapes import Option, Shape
from horae.model.status import Status
from horae.scheduler import Scheduler

NODES = tuple(Node(f"n{index}", "a", 2) for index in range(4))


class Desk:
    """A tenant with one node of four, and a spare pool; starts are confirmed at once."""

    def __init__(
        self, policy: str = "fifo", spare: str = "fifo", cells: int = 1, other: int = 0, **fields: Any
    ) -> None:
        tenant = PoolSpec("t", policy, {}, tenants=("t",), cells={"a.node": cells}, **fields)
        pools = [tenant, PoolSpec("u", tenants=("u",), cells={"a.node": other})] if other else [tenant]
        self.scheduler = Scheduler(Setup(Cluster("lab", NODES), (*pools, PoolSpec("spare"))))
        self.where: dict[str, tuple[Gpu, ...]] = {}
        self.epoch: dict[str, int] = {}
        self.now = 0.0

    def tell(self, *events: Event) -> list[Command]:
        commands: list[Command] = []
        for event in (*events, Tick(self.now)):
            told = self.scheduler.handle(event).commands
            commands += told
            for start in told:
                if isinstance(start, Start):
                    for name in start.job_ids:
                        self.where[name], self.epoch[name] = start.gpus, start.epoch
                        self.scheduler.handle(JobStarted(self.now, name, start.epoch))
        if self.scheduler.next_wakeup_at <= self.now:
            commands += self.tell()
        restored = Scheduler.restore(self.scheduler.dump())
        assert restored.dump() == self.scheduler.dump()
        self.scheduler = restored
        return commands

    def at(self, now: float) -> Desk:
        self.now = now
        return self

    def submit(self, *names: str, gpus: int = 2, tenant: str = "t", **fields: Any) -> list[Command]:
        made = [job(name, self.now, gpus, 1e6, accelerator="a", tenant=tenant, **fields) for name in names]
        return self.tell(*(JobSubmitted(self.now, each) for each in made))

    def end(self, name: str, ending: Ending = Ending.FINISHED, steps: float = 1e6) -> list[Command]:
        return self.tell(JobEnded(self.now, name, self.epoch[name], ending, steps))

    def status(self, *names: str) -> list[str]:
        return [Status(self.scheduler.status(name) or 0).name.lower() for name in names]

    def borrows(self, name: str) -> bool:
        found = self.scheduler.jobs.on_gpus(name)
        return found is not None and found[0].spec.name == "spare"


def test_a_job_without_room_in_its_tenants_cells_borrows_and_keeps_its_place_in_the_queue() -> None:
    desk = Desk()
    desk.submit("a", "b")
    assert desk.status("a", "b") == ["running", "running"]
    assert (desk.borrows("a"), desk.borrows("b")) == (False, True)
    home = desk.scheduler.pools.all[0]
    assert sorted(home.table.ids) == ["a", "b"]
    assert home.table.view(100.0).service_gpu_seconds.sum() == 200.0  # of the one in the cells only
    assert desk.scheduler.pools.all[-1].table.view(100.0).service_gpu_seconds.tolist() == [200.0]


def test_without_borrowing_it_waits() -> None:
    desk = Desk(borrow=False)
    desk.submit("a", "b")
    assert desk.status("a", "b") == ["running", "pending"]


def test_in_a_queue_without_overtaking_the_next_job_borrows_once_the_one_before_it_runs() -> None:
    desk = Desk()
    desk.submit("a", "b", "c", "d", "e")
    assert desk.status("a", "b", "c", "d", "e") == ["running"] * 4 + ["pending"]
    assert [desk.borrows(name) for name in "abcd"] == [False, True, True, True]
    assert "pool 'spare'" in str(desk.scheduler.why("e"))


def test_jobs_in_line_borrow_together_where_all_of_them_fit_and_the_spare_pool_decides_in_rounds() -> None:
    tenant = PoolSpec("t", tenants=("t",), cells={"a.gpu": 1})
    spare = PoolSpec("spare", "max-min", {}, Cadence.ROUNDS, 360.0)
    nodes = (Node("n0", "a", 8),)
    jobs = [arrival(f"j{number}", 0.0, 1, 3600, accelerator="a", tenant="t") for number in range(10)]
    log = simulate(Setup(Cluster("box", nodes), (tenant, spare)), jobs).log
    started = dict(zip(log.jobs.id, log.jobs.started_at.tolist(), strict=True))
    assert [started[f"j{number}"] for number in range(8)] == [0.0] * 8


def test_no_job_borrows_before_the_one_that_it_waits_behind() -> None:
    desk = Desk(cells=2)
    desk.submit("a", "b", gpus=2)
    desk.submit("guest", gpus=1, tenant="u")
    desk.submit("large", gpus=4, level="cluster")
    desk.submit("small", gpus=1)
    assert desk.status("large", "small") == ["pending", "pending"]
    assert str(desk.scheduler.why("small")).startswith("not now: waits behind large")
    desk.at(10.0).end("guest")
    assert desk.status("large", "small") == ["running", "pending"]
    reason = str(desk.scheduler.why("small"))
    assert "large" not in reason
    assert "pool 'spare'" in reason
    explanation = desk.scheduler.explain("small")
    assert explanation is not None
    assert explanation.ahead == ()
    desk.submit("last", gpus=1)
    assert str(desk.scheduler.why("last")).startswith("not now: waits behind small, for which there is no room")


def test_those_who_borrowed_behind_the_head_go_on_when_it_has_to_leave_and_it_comes_first_again() -> None:
    desk = Desk(other=2)
    desk.submit("a", "b", "c")
    assert [desk.borrows(name) for name in "bc"] == [True, True]
    commands = desk.at(10.0).submit("x", "y", tenant="u")
    stopped = [each.job_id for each in commands if isinstance(each, Stop)]
    assert len(stopped) == 1  # of four nodes, one is left
    (left,) = stopped
    (stays,) = {"b", "c"} - {left}
    desk.at(11.0).end(left, Ending.STOPPED, 11.0)
    desk.submit("d")
    assert desk.status("a", stays, left, "d") == ["running", "running", "pending", "pending"]
    assert str(desk.scheduler.why("d")).startswith(f"not now: waits behind {left}")
    desk.at(20.0).end("x")
    assert desk.status(left, "d") == ["running", "pending"]


def test_jobs_behind_a_pinned_head_do_not_borrow() -> None:
    desk = Desk(pinned={"mine": "n3"})
    desk.submit("a", gpus=2, pinned="mine")
    desk.submit("b", gpus=2, pinned="mine")
    desk.submit("c", gpus=2)
    assert desk.status("a", "b", "c") == ["running", "pending", "pending"]


def test_its_turn_comes_and_the_lease_moves_into_the_cells_where_it_is() -> None:
    desk = Desk()
    desk.submit("a", "b")
    desk.at(50.0).tell()
    assert desk.at(100.0).end("a") == []
    assert (desk.status("b"), desk.borrows("b")) == (["running"], False)
    assert desk.scheduler.pools.all[-1].table.count == 0
    home = desk.scheduler.pools.all[0].table.view(150.0)
    assert home.service_gpu_seconds.tolist() == [100.0]
    assert home.steps_done.tolist() == [150.0]
    assert desk.at(200.0).submit("guest", "more", "fourth", tenant="u") != []
    assert desk.status("b", "guest", "more", "fourth") == ["running"] * 4
    assert desk.at(300.0).end("b") == []
    assert desk.status("b") == ["finished"]


def test_another_tenant_takes_its_cells_back_and_the_job_returns_to_its_queue_with_its_progress() -> None:
    desk = Desk(other=3)
    desk.submit("a", "b")
    assert desk.borrows("b")
    commands = desk.at(10.0).submit("x", "y", "z", tenant="u")
    assert [each for each in commands if isinstance(each, Stop)] == [Stop(desk.epoch["b"], "b", 0.0)]
    desk.at(11.0).end("b", Ending.STOPPED, 11.0)
    assert desk.status("b", "x", "y", "z") == ["pending", "running", "running", "running"]
    again = desk.at(20.0).end("a")
    assert [(each.job_ids, each.steps_done, each.resumes) for each in again if isinstance(each, Start)] == [
        (("b",), (11.0,), (True,))
    ]


def test_a_job_that_ends_on_borrowed_gpus_has_ended() -> None:
    desk = Desk()
    desk.submit("a", "b")
    desk.at(9.0).tell(JobProgressed(9.0, "b", desk.epoch["b"], 9.0))
    assert desk.scheduler.pools.all[0].table.steps_base.max() == 9.0
    desk.at(10.0).end("b")
    assert desk.status("b") == ["finished"]
    assert [pool.table.count for pool in desk.scheduler.pools] == [1, 0]
    assert desk.scheduler.jobs.lent == {}


def test_a_job_that_fails_on_borrowed_gpus_is_tried_again_as_often_as_it_may() -> None:
    desk = Desk()
    desk.submit("a", "b", retries_max=1)
    desk.at(10.0).end("b", Ending.FAILED, 0.0)
    assert desk.status("b") == ["running"]
    desk.at(20.0).end("b", Ending.FAILED, 0.0)
    assert desk.status("b") == ["failed"]


def test_a_survey_that_does_not_find_it_ends_what_it_borrowed() -> None:
    desk = Desk()
    desk.submit("a", "b")
    desk.at(10.0).tell(Surveyed(10.0, ()))
    assert desk.status("a", "b") == ["running", "running"]  # both were started again
    assert desk.epoch["a"] > 1 or desk.epoch["b"] > 1


@pytest.mark.parametrize("how", ["cancel", "hold"])
def test_a_job_on_borrowed_gpus_may_be_cancelled_or_suspended(how: str) -> None:
    desk = Desk()
    desk.submit("a", "b")
    event = JobCancelled(5.0, "b") if how == "cancel" else JobHeld(5.0, "b")
    assert desk.at(5.0).tell(event) == [Stop(desk.epoch["b"], "b", 0.0)]
    desk.at(6.0).end("b", Ending.STOPPED, 6.0)
    assert desk.status("b") == ["cancelled" if how == "cancel" else "suspended"]
    assert desk.scheduler.jobs.lent == {}
    if how == "hold":
        desk.at(7.0).tell(JobReleased(7.0, "b"))
        assert (desk.status("b"), desk.borrows("b")) == (["running"], True)


def _spread(name: str, at: float, restart_seconds: float) -> Job:
    options = (Option(Shape("a", 2, "node"), 2.0), Option(Shape("a", 2, "cluster"), 1.0))
    return Job(name, at, options, tenant="t", steps_total=10_000.0, restart_seconds=restart_seconds)


def _on_two_nodes(restart_seconds: float) -> Desk:
    """A job that borrows one GPU of each of two nodes, which no node of its tenant's can cover."""
    desk = Desk()
    for name, node in (("g1", "n1"), ("g2", "n2"), ("g3", "n3"), ("g4", "n3")):
        guest = job(name, 0.0, 1, 1e6, accelerator="a", tenant="u")
        number = 0 if name == "g4" else 1
        epoch = int(name[1])
        desk.scheduler.handle(JobSubmitted(0.0, guest))
        desk.scheduler.handle(LeaseAdopted(0.0, epoch, (name,), (Gpu(node, number),), (0.0,)))
    desk.submit("a", restart_seconds=0.0)
    assert desk.where["a"][0].node == "n0"
    desk.at(1.0).tell(JobSubmitted(1.0, _spread("b", 1.0, restart_seconds)))
    assert desk.where["b"] == (Gpu("n1", 0), Gpu("n2", 0))
    return desk


def test_where_cells_cannot_cover_it_a_job_moves_if_that_is_worth_a_restart() -> None:
    desk = _on_two_nodes(restart_seconds=60.0)
    assert desk.at(10.0).end("a") == [Stop(desk.epoch["b"], "b", 0.0)]
    desk.at(11.0).end("b", Ending.STOPPED, 10.0)
    assert desk.status("b") == ["running"]
    assert desk.where["b"] == (Gpu("n0", 0), Gpu("n0", 1))
    assert not desk.borrows("b")


def test_where_it_is_not_the_job_stays_and_the_next_one_has_the_cells() -> None:
    desk = _on_two_nodes(restart_seconds=6000.0)
    assert desk.at(10.0).end("a") == []
    assert (desk.status("b"), desk.borrows("b")) == (["running"], True)
    desk.at(20.0).submit("c")
    assert desk.where["c"] == (Gpu("n0", 0), Gpu("n0", 1))
    desk.at(30.0).end("b", Ending.LOST, 5.0)
    assert desk.status("b", "c") == ["pending", "running"] or desk.borrows("b")


def test_cells_that_a_job_on_borrowed_gpus_declines_go_to_the_next_job() -> None:
    nodes = (Node("n0", "a", 1), Node("m0", "b", 1))
    tenant = PoolSpec("t", "max-min", {}, Cadence.ROUNDS, 10.0, tenants=("t",), cells={"a.node": 1})
    desk = Desk()
    desk.scheduler = Scheduler(Setup(Cluster("lab", nodes), (tenant, PoolSpec("spare"))))
    desk.submit("waits", gpus=1)
    options = (Option(Shape("b", 1, "gpu"), 1.0), Option(Shape("a", 1, "gpu"), 0.5))
    desk.at(1.0).tell(JobSubmitted(1.0, Job("declines", 1.0, options, tenant="t")))
    desk.at(10.0).tell()
    assert desk.where["declines"] == (Gpu("m0", 0),)
    desk.at(25.0).end("waits", Ending.LOST, 5.0)
    for at in (30.0, 40.0):
        desk.at(at).tell()
    assert desk.status("declines", "waits") == ["running", "running"]
    assert (desk.borrows("declines"), desk.borrows("waits")) == (True, False)


def test_a_job_on_borrowed_gpus_preempts_no_job_that_has_its_cells_until_it_has_left() -> None:
    desk = Desk(policy="priority")
    desk.submit("low", min_runtime_seconds=100.0)
    desk.at(10.0).submit("high", priority=5)
    assert desk.borrows("high")
    assert desk.at(100.0).tell() == []  # cells can be where the job runs only when the other one has left
    assert (desk.status("low", "high"), desk.borrows("high")) == (["running", "running"], True)


def test_a_job_on_borrowed_gpus_has_the_cells_of_a_lazy_job_at_once() -> None:
    desk = Desk(policy="priority")
    desk.submit("low", min_runtime_seconds=100.0, lazy=True)
    desk.at(10.0).submit("high", priority=5)
    assert desk.borrows("high")
    assert desk.at(100.0).tell() == []
    assert desk.status("low", "high") == ["running", "running"]
    assert (desk.borrows("low"), desk.borrows("high")) == (True, False)


# Lazy preemption


def test_a_lazy_job_that_is_preempted_goes_on_without_a_guarantee_while_other_gpus_are_idle() -> None:
    desk = Desk(policy="priority")
    desk.submit("low", lazy=True)
    before = desk.where["low"]
    assert not desk.borrows("low")
    commands = desk.at(10.0).submit("high", priority=5)
    assert [type(each) for each in commands] == [Start]
    assert set(desk.where["high"]).isdisjoint(before)
    assert (desk.status("low", "high"), desk.borrows("low")) == (["running", "running"], True)
    assert desk.at(20.0).end("high") == []  # its cells are free again: it has its guarantee back where it is
    assert not desk.borrows("low")


def test_a_lazy_job_is_stopped_when_its_gpus_are_needed() -> None:
    desk = Desk(policy="priority", cells=4)
    desk.submit("one", "two", "three", "four", lazy=True)
    commands = desk.at(10.0).submit("high", priority=5)
    assert [type(each) for each in commands] == [Stop]
    assert desk.status("high") == ["holding"]
    victim = next(each.job_id for each in commands if isinstance(each, Stop))
    desk.at(11.0).end(victim, Ending.STOPPED, 1.0)
    assert desk.status("high", victim) == ["running", "pending"]


def test_the_cells_of_a_lazy_job_are_had_on_what_good_hardware_there_is() -> None:
    desk = Desk(policy="priority", cells=4)
    desk.submit("low", gpus=1, lazy=True)
    assert desk.where["low"] == (Gpu("n0", 0),)
    bad = [Gpu(node.name, number) for node in NODES for number in range(2)][1:]
    desk.at(5.0).tell(*(GpuChanged(5.0, gpu, GpuState.FAILED) for gpu in bad))
    commands = desk.at(10.0).submit("high", gpus=1, priority=5)
    assert [each.job_id for each in commands if isinstance(each, Stop)] == ["low"]
    assert desk.status("high") == ["holding"]


def test_a_job_that_is_not_lazy_is_stopped() -> None:
    desk = Desk(policy="priority")
    desk.submit("low")
    commands = desk.at(10.0).submit("high", priority=5)
    assert [each.job_id for each in commands if isinstance(each, Stop)] == ["low"]


def test_a_lower_priority_preempts_nothing() -> None:
    desk = Desk(policy="priority", borrow=False)
    desk.submit("first", priority=1)
    assert desk.at(1.0).submit("second", priority=1) == []
    assert desk.at(2.0).submit("third") == []
    assert desk.status("first", "second", "third") == ["running", "pending", "pending"]


# Would this job start now?


def _job(name: str, gpus: int = 2, **fields: Any) -> Job:
    return job(name, 0.0, gpus, 1e6, accelerator="a", **{"tenant": "t", **fields})


def test_a_prospect_tells_where_a_job_would_start_and_changes_nothing() -> None:
    desk = Desk(policy="priority", borrow=False)
    before = desk.scheduler.dump()
    prospect = desk.scheduler.prospect(_job("x"))
    assert (prospect.starts, prospect.guaranteed, prospect.victims) == (True, True, ())
    assert len(prospect.gpus) == 2
    assert desk.scheduler.dump() == before


def test_a_prospect_tells_at_whose_cost() -> None:
    desk = Desk(policy="priority", borrow=False)
    desk.submit("low")
    prospect = desk.scheduler.prospect(_job("x", priority=3))
    assert (prospect.starts, prospect.victims, prospect.downgraded) == (False, ("low",), ())
    assert prospect.gpus == desk.where["low"]
    desk = Desk(policy="priority", borrow=False)
    desk.submit("low", lazy=True)
    prospect = desk.scheduler.prospect(_job("x", priority=3))
    assert (prospect.starts, prospect.victims, prospect.downgraded) == (True, (), ("low",))


def test_a_prospect_tells_why_a_job_would_wait_borrow_or_be_refused() -> None:
    desk = Desk(borrow=False)
    desk.submit("a")
    assert "no room" in str(desk.scheduler.prospect(_job("x")).reason)
    assert "never" in str(desk.scheduler.prospect(_job("y", gpus=3)).reason)
    desk = Desk()
    desk.submit("a")
    prospect = desk.scheduler.prospect(_job("x"))
    assert (prospect.starts, prospect.guaranteed) == (True, False)
    assert desk.scheduler.prospect(_job("a")).starts
