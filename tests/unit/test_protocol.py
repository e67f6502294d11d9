"""The protocol between scheduler and engine: lost and late messages, phases, adoption, suspension, and tombstones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders import ACCELERATOR, cluster, job

from horae.engines.simulated import SimulatedEngine
from horae.model.cluster import Gpu
from horae.model.commands import Command, Extend, Start, Stop, Survey
from horae.model.effects import effects_of
from horae.model.errors import BrokenInvariant
from horae.model.events import (
    Ending,
    Event,
    JobCancelled,
    JobEnded,
    JobHeld,
    JobPhase,
    JobReleased,
    JobStarted,
    JobSubmitted,
    LeaseAdopted,
    Phase,
    Running,
    Surveyed,
    Tick,
)
from horae.model.jobs import Arrival, Truth
from horae.model.notices import AdoptionRefused, Notice, StartOverdue, UnknownRun
from horae.model.reasons import Suspended
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.model.shapes import Shape
from horae.model.status import Status
from horae.scheduler import Scheduler

GPU0, GPU1 = Gpu("n0", 0), Gpu("n0", 1)


class Desk:
    """A scheduler, with what it said last."""

    def __init__(self, gpus: int = 1, policy: str = "fifo", **setup: Any) -> None:
        self.scheduler = Scheduler(replace(Setup(cluster(gpus=gpus), (PoolSpec("all", policy),)), **setup))
        self.notices: list[Notice] = []

    def tell(self, *events: Event) -> list[Command]:
        commands: list[Command] = []
        for event in events:
            reaction = self.scheduler.handle(event)
            commands += reaction.commands
            self.notices += reaction.notices
        return commands

    def submit(self, at: float, *names: str, **fields: Any) -> list[Command]:
        return self.tell(*(JobSubmitted(at, job(name, at, **fields)) for name in names), Tick(at))

    def status(self, job_id: str) -> Status | None:
        return self.scheduler.status(job_id)


def test_a_survey_says_nothing_of_a_start_that_was_heard_after_it_was_taken() -> None:
    desk = Desk(acknowledge_seconds=30.0)
    assert [type(each) for each in desk.submit(0.0, "a", seconds=1000.0)] == [Start]  # lost on its way
    assert [type(each) for each in desk.tell(Tick(30.0))] == [Start, Survey]  # the start is lost again
    survey = Surveyed(30.0, ())  # answered, but delayed
    assert [type(each) for each in desk.tell(Tick(90.0))] == [Start, Survey]
    desk.tell(JobStarted(90.0, "a", 0))
    desk.submit(95.0, "b")
    assert desk.tell(survey, Tick(100.0)) == []
    assert (desk.status("a"), desk.status("b")) == (Status.RUNNING, Status.PENDING)


def test_a_survey_ends_a_job_that_began_before_it_and_is_not_in_it() -> None:
    desk = Desk()
    desk.submit(0.0, "a")
    desk.tell(JobStarted(1.0, "a", 0))
    assert desk.tell(Surveyed(1.0, ())) == []
    assert desk.status("a") is Status.RUNNING
    desk.tell(Surveyed(2.0, ()))
    assert desk.status("a") is Status.PENDING


def test_a_survey_confirms_a_start_and_brings_progress() -> None:
    desk = Desk()
    desk.submit(0.0, "a")
    desk.tell(Surveyed(5.0, (Running("a", 0, (GPU0,), 3.0),)))
    assert desk.status("a") is Status.RUNNING
    desk.tell(JobEnded(9.0, "a", 0, Ending.LOST, 0.0))
    start = desk.tell(Tick(9.0))[0]
    assert isinstance(start, Start)
    assert (start.steps_done, start.resumes) == ((3.0,), (True,))


def test_a_run_that_should_be_over_is_stopped_with_its_grace_and_its_gpus_stay_unused_until_it_is_gone() -> None:
    desk = Desk(gpus=1)
    desk.submit(0.0, "a", grace_seconds=7.0, seconds=1000.0)
    desk.tell(JobStarted(0.0, "a", 0), JobEnded(10.0, "a", 0, Ending.LOST, 0.0))
    commands = desk.tell(Surveyed(11.0, (Running("a", 0, (GPU0,), 0.0),)), Tick(11.0))
    assert commands == [Stop(0, "a", 7.0)]
    assert desk.notices == [UnknownRun("a", 0, (GPU0,))]
    assert desk.status("a") is Status.PENDING
    assert [type(each) for each in desk.tell(JobEnded(20.0, "a", 0, Ending.STOPPED, 0.0), Tick(20.0))] == [Start]


def test_a_survey_taken_before_a_job_left_does_not_bring_it_back() -> None:
    desk = Desk(gpus=1)
    desk.submit(0.0, "a", seconds=1000.0)
    desk.tell(JobStarted(0.0, "a", 0), JobEnded(10.0, "a", 0, Ending.LOST, 0.0))
    assert [type(each) for each in desk.tell(Surveyed(9.0, (Running("a", 0, (GPU0,), 0.0),)), Tick(10.0))] == [Start]
    assert desk.notices == []


def test_what_runs_and_was_never_submitted_keeps_its_gpus_and_is_left_alone() -> None:
    desk = Desk(gpus=2)
    assert desk.tell(Surveyed(1.0, (Running("stranger", 3, (GPU0,), 0.0),)), Tick(1.0)) == []
    start = desk.submit(2.0, "a")[0]
    assert isinstance(start, Start)
    assert start.gpus == (GPU1,)
    assert desk.notices == [UnknownRun("stranger", 3, (GPU0,))]
    desk.tell(JobStarted(2.0, "a", start.epoch), Surveyed(3.0, (Running("a", start.epoch, (GPU1,), 0.0),)))
    assert [type(each) for each in desk.submit(4.0, "b")] == [Start]


# Phases


def test_start_up_is_not_charged_to_the_lease() -> None:
    desk = Desk(policy="las")
    desk.submit(0.0, "a", seconds=1000.0)
    assert desk.tell(JobPhase(5.0, "a", 0, Phase.PULLING), Tick(100.0)) == []  # the start is acknowledged
    assert desk.status("a") is Status.STARTING
    desk.tell(JobPhase(400.0, "a", 0, Phase.RUNNING))
    assert desk.status("a") is Status.RUNNING
    jobs = desk.scheduler.pools.all[0].table.view(500.0)
    assert (jobs.service_gpu_seconds.tolist(), jobs.steps_done.tolist()) == ([100.0], [100.0])


def test_a_job_that_does_not_begin_to_run_in_time_is_stopped_and_waits_again() -> None:
    desk = Desk(start_seconds=60.0)
    desk.submit(0.0, "a")
    desk.tell(JobPhase(1.0, "a", 0, Phase.STARTING))
    assert desk.scheduler.next_wakeup_at == 61.0
    assert desk.tell(Tick(61.0)) == [Stop(0, "a", 0.0)]
    assert desk.notices == [StartOverdue("a", 0)]
    assert [type(each) for each in desk.tell(JobEnded(62.0, "a", 0, Ending.STOPPED, 0.0), Tick(62.0))] == [Start]


# Suspension


def test_a_suspended_job_leaves_its_gpus_and_no_policy_plans_for_it_until_it_is_released() -> None:
    desk = Desk(policy="max-min")
    desk.submit(0.0, "a", seconds=1000.0)
    desk.tell(JobStarted(0.0, "a", 0))
    assert desk.tell(JobHeld(10.0, "a")) == [Stop(0, "a", 0.0)]
    assert desk.tell(JobHeld(11.0, "a")) == []
    desk.tell(JobEnded(12.0, "a", 0, Ending.STOPPED, 12.0))
    assert desk.status("a") is Status.SUSPENDED
    assert desk.scheduler.why("a") == Suspended()
    assert [type(each) for each in desk.submit(13.0, "b", seconds=50.0)] == [Start]
    assert desk.scheduler.pools.all[0].table.count == 1
    desk.tell(JobStarted(13.0, "b", 1), JobReleased(20.0, "a"))
    assert desk.status("a") is Status.PENDING
    again = desk.tell(JobEnded(63.0, "b", 1, Ending.FINISHED, 50.0), Tick(360.0))
    assert [(each.job_ids, each.steps_done, each.resumes) for each in again if isinstance(each, Start)] == [
        (("a",), (12.0,), (True,))
    ]


@pytest.mark.parametrize("at", ["pending", "suspended", "leaving"])
def test_a_job_may_be_cancelled_or_released_at_any_point_of_its_suspension(at: str) -> None:
    desk = Desk()
    desk.submit(0.0, "a", "b")
    desk.tell(JobStarted(0.0, "a", 0))
    if at == "pending":
        desk.tell(JobHeld(1.0, "b"), JobCancelled(2.0, "b"))
        assert desk.status("b") is Status.CANCELLED
    elif at == "suspended":
        desk.tell(JobHeld(1.0, "b"), JobReleased(2.0, "b"))
        assert desk.status("b") is Status.PENDING
    else:
        desk.tell(JobHeld(1.0, "a"), JobReleased(2.0, "a"), JobEnded(3.0, "a", 0, Ending.STOPPED, 3.0))
        assert desk.status("a") is Status.PENDING


# Adoption


def test_a_lease_that_is_found_running_is_adopted_where_it_is() -> None:
    desk = Desk(gpus=2)
    desk.tell(JobSubmitted(0.0, job("a", 0.0, seconds=1000.0)), LeaseAdopted(1.0, 41, ("a",), (GPU1,), (7.0,)))
    assert desk.status("a") is Status.RUNNING
    start = desk.submit(2.0, "b")[0]
    assert isinstance(start, Start)
    assert (start.epoch, start.gpus) == (42, (GPU0,))
    assert desk.tell(LeaseAdopted(3.0, 41, ("a",), (GPU1,), (7.0,))) == []
    desk.tell(JobEnded(4.0, "a", 41, Ending.FINISHED, 1000.0))
    assert desk.status("a") is Status.FINISHED


@pytest.mark.parametrize(
    ("adopted", "problem"),
    [
        (LeaseAdopted(1.0, 9, ("nobody",), (GPU1,), (0.0,)), "job nobody was not submitted, or has ended"),
        (LeaseAdopted(1.0, 9, ("a",), (Gpu("n7", 0),), (0.0,)), "there is no GPU n7/0"),
        (LeaseAdopted(1.0, 9, ("a",), (GPU0, GPU1), (0.0,)), "lease 0 is on its GPUs"),
        (LeaseAdopted(1.0, 9, ("a",), (), (0.0,)), "its GPUs are none, or named twice"),
        (LeaseAdopted(1.0, 9, ("b",), (GPU1,), (0.0,)), "job b has lease 0"),
    ],
)
def test_what_cannot_be_adopted_is_told_and_its_gpus_are_left_alone(adopted: LeaseAdopted, problem: str) -> None:
    desk = Desk(gpus=2)
    desk.submit(0.0, "b", seconds=1000.0)
    desk.tell(JobStarted(0.0, "b", 0), JobSubmitted(0.5, job("a", 0.5, gpus=2)))
    desk.tell(adopted)
    assert AdoptionRefused(9, adopted.job_ids, problem) in desk.notices
    assert desk.status("b") is Status.RUNNING


def test_after_an_old_backup_nothing_starts_before_a_survey_has_told_what_runs() -> None:
    desk = Desk(gpus=2)
    desk.tell(JobSubmitted(0.0, job("a", 0.0, seconds=1000.0)), JobSubmitted(0.0, job("b", 0.0, seconds=1000.0)))
    backup = desk.scheduler.dump()
    desk.tell(Tick(0.0))
    desk.scheduler = Scheduler.restore(backup, incarnation=1)
    assert desk.tell(Tick(5.0)) == [Survey()]
    desk.tell(Surveyed(5.0, (Running("a", 0, (GPU1,), 4.0),)))
    assert desk.status("a") is Status.RUNNING
    start = desk.tell(Tick(6.0))[0]
    assert isinstance(start, Start)
    assert (start.job_ids, start.gpus, start.epoch) == (("b",), (GPU0,), 1 << 40)


def test_a_scheduler_that_begins_without_a_record_adopts_leases_of_former_incarnations() -> None:
    desk = Desk(incarnation=1)
    desk.tell(JobSubmitted(0.0, job("a", 0.0)), LeaseAdopted(0.0, 0, ("a",), (GPU0,), (4.0,)))
    assert desk.status("a") is Status.RUNNING
    assert desk.submit(1.0, "b") == []


# Leases, and the engine


def test_leases_are_told_with_their_ends_and_their_extensions() -> None:
    options = {"lease_seconds": 100.0}
    scheduler = Scheduler(Setup(cluster(gpus=1), (PoolSpec("all", "highest-rho", options, round_seconds=50.0),)))
    scheduler.handle(JobSubmitted(0.0, job("a", 0.0, seconds=1000.0)))
    start = scheduler.handle(Tick(0.0)).commands[0]
    assert isinstance(start, Start)
    assert start.lease_until == 100.0
    scheduler.handle(JobStarted(0.0, "a", 0))
    assert scheduler.handle(Tick(100.0)).commands == (Extend(0, 200.0),)


def _engine() -> SimulatedEngine:
    engine = SimulatedEngine(cluster(gpus=2), ())
    for name in ("a", "b"):
        submitted = job(name, 0.0)
        engine.expect(Arrival(submitted, Truth(100.0, submitted.options)))
    return engine


def _start(epoch: int, name: str, gpu: Gpu = GPU0) -> Start:
    return Start(epoch, (name,), (gpu,), Shape(ACCELERATOR, 1, "gpu"), (0.0,), (False,))


def test_the_simulated_engine_refuses_to_give_a_gpu_to_two_leases() -> None:
    engine = _engine()
    engine.execute([_start(0, "a")])
    with pytest.raises(BrokenInvariant, match="GPU n0/0 is given to lease 1 while lease 0 is on it"):
        engine.execute([_start(1, "b")])


def test_a_stop_that_overtakes_its_start_leaves_a_tombstone() -> None:
    engine = _engine()
    ended = JobEnded(0.0, "a", 3, Ending.STOPPED, 0.0)
    assert engine.execute([Stop(3, "a", 0.0)]) == [ended]
    assert engine.execute([_start(3, "a")]) == [ended]
    assert engine.execute([_start(4, "a")]) == [JobStarted(0.0, "a", 4)]
    assert engine.execute([_start(3, "a")]) == []


def test_ended_jobs_are_forgotten_after_the_time_of_retention() -> None:
    desk = Desk(retention_seconds=100.0)
    desk.submit(0.0, "a")
    desk.tell(JobStarted(0.0, "a", 0), JobEnded(10.0, "a", 0, Ending.FINISHED, 100.0), Tick(50.0))
    assert desk.status("a") is Status.FINISHED
    desk.tell(Tick(111.0))
    assert desk.status("a") is None
    assert desk.scheduler.dump()["jobs"]["ended"] == []


def test_between_rounds_newcomers_start_on_free_gpus_where_the_pool_admits_them() -> None:
    for admits in (False, True):
        pool = PoolSpec("all", "max-min", {}, Cadence.ROUNDS, 300.0, admits_between_rounds=admits)
        desk = Desk()
        desk.scheduler = Scheduler(Setup(cluster(gpus=2), (pool,)))
        desk.submit(0.0, "a", seconds=1e6)
        assert desk.scheduler.next_wakeup_at > 0.0
        desk.tell(JobStarted(0.0, "a", 0))
        commands = desk.submit(10.0, "b", "c", seconds=1e6)
        assert [each.job_ids for each in commands if isinstance(each, Start)] == ([("b",)] if admits else [])
        for start in commands:
            assert isinstance(start, Start)
            desk.tell(JobStarted(10.0, "b", start.epoch))
        assert desk.scheduler.next_wakeup_at == 300.0


def test_the_record_of_newcomers_names_those_that_start() -> None:
    """Not all that wait: there may be thousands, and a record is written each time that a job arrives."""
    pool = PoolSpec("all", "max-min", {}, Cadence.ROUNDS, 300.0, admits_between_rounds=True)
    scheduler, copy = (Scheduler(Setup(cluster(gpus=2), (pool,))) for _ in range(2))
    history: list[Event] = [
        JobSubmitted(0.0, job("a")), Tick(0.0), JobStarted(0.0, "a", 0),
        JobSubmitted(10.0, job("b")), JobSubmitted(10.0, job("c")), JobSubmitted(10.0, job("d")), Tick(10.0),
    ]  # fmt: skip
    for event in history:
        reaction = scheduler.handle(event)
        copy.handle(event, effects_of(reaction))
    (round_,) = reaction.rounds
    assert round_.job_ids == ("b",)
    assert round_.plan.blocked, "the record says why the others wait"
    assert copy.dump() == scheduler.dump()
