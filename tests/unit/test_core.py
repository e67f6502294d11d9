"""The scheduler, event by event: table tests of single rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders import arrival, handle
from builders import cluster as small_cluster
from builders import gpus as named

from horae.experiments.simulate import simulate
from horae.model.cluster import Cluster, Gpu, Node
from horae.model.commands import Command, Start, Stop, Survey
from horae.model.errors import ClusterError, InvalidTransition, JobError, PolicyError
from horae.model.events import (
    Ending,
    Event,
    Health,
    JobCancelled,
    JobEnded,
    JobProgressed,
    JobStarted,
    JobSubmitted,
    NodeChanged,
    PolicyChanged,
    Running,
    SpeedRevised,
    Surveyed,
    Tick,
)
from horae.model.jobs import Job
from horae.model.notices import DecisionRejected
from horae.model.reasons import AwaitsVictims, BehindHead, Never, NoPool, NoRoom, Unclaimed
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.model.shapes import Option, Shape
from horae.model.status import Signal, Status, after
from horae.policies import POLICIES
from horae.scheduler import Scheduler

N0, N1 = named("n0", 0, 1, 2, 3), named("n1", 0, 1, 2, 3)  # all GPUs of the lab


def lab(policy: str = "fifo", cadence: Cadence = Cadence.EVENTS, **spec: Any) -> Setup:
    nodes = tuple(Node(f"n{index}", "gpu", 4) for index in range(2))
    pool = PoolSpec("all", policy, cadence=cadence, round_seconds=10.0, **spec)
    return Setup(Cluster("lab", nodes), (pool,), acknowledge_seconds=30.0)


def job(name: str, gpus: int = 4, level: str = "node", at: float = 0.0, **fields: Any) -> Job:
    return Job(name, at, (Option(Shape("gpu", gpus, level), 1.0),), **fields)


def tell(scheduler: Scheduler, *events: Event) -> list[Command]:
    """Tell these, and a tick where one is due; all commands that come of it."""
    commands: list[Command] = []
    for event in events:
        commands.extend(handle(scheduler, event).commands)
        if scheduler.next_wakeup_at <= event.at:
            commands.extend(handle(scheduler, Tick(event.at)).commands)
    return commands


def submit(scheduler: Scheduler, *jobs: Job) -> list[Command]:
    commands: list[Command] = []
    for each in jobs:
        commands.extend(tell(scheduler, JobSubmitted(each.submitted_at, each)))
    for command in commands:
        if isinstance(command, Start):
            tell(scheduler, JobStarted(scheduler.now, command.job_ids[0], command.epoch))
    return commands


def starts(commands: list[Command]) -> list[tuple[str, tuple[Gpu, ...]]]:
    return [(command.job_ids[0], command.gpus) for command in commands if isinstance(command, Start)]


def test_a_job_starts_when_it_fits_and_is_running_once_confirmed() -> None:
    scheduler = Scheduler(lab())
    commands = tell(scheduler, JobSubmitted(0.0, job("a")))
    assert starts(commands) == [("a", N0)]
    assert scheduler.status("a") is Status.STARTING
    tell(scheduler, JobStarted(0.0, "a", 0))
    assert scheduler.status("a") is Status.RUNNING


def test_all_events_of_an_instant_are_heard_before_anybody_decides() -> None:
    scheduler = Scheduler(lab("sjf"))
    submit(scheduler, job("x", steps_total=5.0), job("y", steps_total=5.0))
    for each in (job("long", at=1.0, steps_total=100.0), job("short", at=1.0, steps_total=1.0)):
        assert handle(scheduler, JobSubmitted(1.0, each)).commands == ()
    assert handle(scheduler, JobEnded(1.0, "x", 0, Ending.FINISHED, 5.0)).commands == ()
    assert starts(list(handle(scheduler, Tick(1.0)).commands)) == [("short", N0)]


def test_nobody_passes_the_head_of_a_strict_queue_and_all_know_why_they_wait() -> None:
    scheduler = Scheduler(lab())
    commands = submit(scheduler, job("a", 3), job("big", 8, "cluster"), job("small", 1))
    assert starts(commands) == [("a", N0[:3])]
    assert scheduler.why("big") == NoRoom("all", Shape("gpu", 8, "cluster"), 5)
    assert scheduler.why("small") == BehindHead("big", NoRoom("all", Shape("gpu", 8, "cluster"), 5))


def test_backfilling_lets_others_pass() -> None:
    scheduler = Scheduler(lab(options={"backfill": True}))
    commands = submit(scheduler, job("a", 3), job("big", 8, "cluster"), job("small", 1))
    assert [name for name, _ in starts(commands)] == ["a", "small"]


def test_a_gang_that_can_never_fit_is_refused_with_the_largest_that_would() -> None:
    scheduler = Scheduler(lab())
    submit(scheduler, job("wide", 5, "node"), job("huge", 9, "cluster"))
    assert scheduler.status("wide") is Status.REFUSED
    assert scheduler.why("wide") == Never("all", Shape("gpu", 5, "node"), 4)
    assert scheduler.why("huge") == Never("all", Shape("gpu", 9, "cluster"), 8)


def test_a_failed_node_makes_nothing_impossible_for_ever() -> None:
    scheduler = Scheduler(lab())
    tell(scheduler, NodeChanged(0.0, "n0", Health.FAILED))
    submit(scheduler, job("big", 8, "cluster"))
    assert scheduler.status("big") is Status.PENDING
    assert starts(tell(scheduler, NodeChanged(5.0, "n0", Health.HEALTHY))) == [("big", N0 + N1)]


def test_a_tenant_without_a_pool_is_refused() -> None:
    setup = Setup(lab().cluster, (PoolSpec("theirs", tenants=("them",), nodes=("n0",)),))
    scheduler = Scheduler(setup)
    submit(scheduler, job("a", tenant="us"))
    assert scheduler.why("a") == NoPool("us")


def test_rounds_decide_at_boundaries_only() -> None:
    scheduler = Scheduler(lab(cadence=Cadence.ROUNDS))
    assert tell(scheduler, JobSubmitted(3.0, job("a", at=3.0))) == []
    assert scheduler.next_wakeup_at == 10.0
    assert starts(tell(scheduler, Tick(10.0))) == [("a", N0)]


def full_house(policy: str = "las", **fields: Any) -> Scheduler:
    """Two running jobs that fill the lab, and time enough for both to be preempted."""
    scheduler = Scheduler(lab(policy))
    submit(scheduler, job("a", grace_seconds=5.0, **fields), job("b", grace_seconds=5.0, **fields))
    return scheduler


def test_preemption_stops_the_fewest_and_starts_the_winner_when_they_have_left() -> None:
    scheduler = full_house()
    commands = tell(scheduler, JobSubmitted(100.0, job("c", at=100.0)))
    assert commands == [Stop(1, "b", 5.0)]
    assert scheduler.status("c") is Status.HOLDING
    assert scheduler.why("c") == AwaitsVictims(("b",))
    commands = tell(scheduler, JobEnded(104.0, "b", 1, Ending.STOPPED, 90.0))
    assert starts(commands) == [("c", N1)]


def test_a_hold_that_expires_is_undone_and_another_victim_is_found() -> None:
    scheduler = full_house()
    tell(scheduler, JobSubmitted(100.0, job("c", at=100.0)))
    assert tell(scheduler, Tick(134.0)) == []  # grace of 5 s and 30 s to answer are not over yet
    assert scheduler.why("c") == AwaitsVictims(("b",))
    assert tell(scheduler, Tick(135.0)) == [Stop(1, "b", 5.0), Survey(), Stop(0, "a", 5.0)]
    assert scheduler.why("c") == AwaitsVictims(("a",))
    tell(scheduler, JobEnded(136.0, "b", 1, Ending.STOPPED, 1.0))
    assert scheduler.status("c") is Status.HOLDING  # what b left is not what was promised


def test_a_job_within_its_minimum_run_time_is_not_preempted() -> None:
    scheduler = full_house(min_runtime_seconds=500.0)
    assert tell(scheduler, JobSubmitted(100.0, job("c", at=100.0))) == []
    assert isinstance(scheduler.why("c"), NoRoom)


def test_a_job_is_not_preempted_before_it_has_run_as_long_as_a_restart_costs() -> None:
    scheduler = full_house(restart_seconds=500.0)
    assert tell(scheduler, JobSubmitted(100.0, job("c", at=100.0))) == []


@pytest.mark.parametrize("cadence", list(Cadence))
def test_a_job_is_not_preempted_before_it_has_run_as_long_as_its_start_took(cadence: Cadence) -> None:
    scheduler = Scheduler(replace(lab("las", cadence), acknowledge_seconds=1000.0))
    for name in "ab":
        handle(scheduler, JobSubmitted(0.0, job(name, 8, "cluster")))
    handle(scheduler, Tick(0.0))
    tell(scheduler, JobStarted(60.0, "a", 0))
    stopped = {at for at in range(60, 150, 10) for each in tell(scheduler, Tick(float(at))) if isinstance(each, Stop)}
    assert min(stopped) == 120


@pytest.mark.parametrize("cadence", list(Cadence))
def test_a_job_does_not_move_under_shares_before_it_has_run_as_long_as_its_start_took(cadence: Cadence) -> None:
    nodes = (Node("fast", "a", 1), Node("slow", "b", 1))
    pool = PoolSpec("all", "max-min", cadence=cadence, round_seconds=10.0)
    scheduler = Scheduler(Setup(Cluster("lab", nodes), (pool,), acknowledge_seconds=1000.0))
    options = (Option(Shape("a", 1, "gpu"), 2.0), Option(Shape("b", 1, "gpu"), 1.0))
    for name in "xy":
        handle(scheduler, JobSubmitted(0.0, Job(name, 0.0, options, steps_total=1e6)))
    begun = [each for each in handle(scheduler, Tick(0.0)).commands if isinstance(each, Start)]
    fast, slow = sorted(begun, key=lambda start: start.shape.accelerator)
    tell(scheduler, JobStarted(20.0, fast.job_ids[0], fast.epoch))
    tell(scheduler, JobEnded(30.0, fast.job_ids[0], fast.epoch, Ending.FINISHED, 1e6))
    tell(scheduler, JobStarted(60.0, slow.job_ids[0], slow.epoch))
    stopped = {at for at in range(60, 150, 10) for each in tell(scheduler, Tick(float(at))) if isinstance(each, Stop)}
    assert min(stopped) == 120


def test_a_budget_of_preemptions_is_kept() -> None:
    scheduler = full_house(preemptions_max=0.0)
    assert tell(scheduler, JobSubmitted(100.0, job("c", at=100.0))) == []


def test_a_failed_node_stops_the_whole_gang_and_it_resumes_where_it_was_safe() -> None:
    scheduler = Scheduler(lab())
    submit(scheduler, job("big", 8, "cluster"))
    commands = tell(scheduler, NodeChanged(50.0, "n1", Health.FAILED))
    assert commands == [Stop(0, "big", 0.0)]
    tell(scheduler, JobEnded(50.0, "big", 0, Ending.LOST, 40.0))
    commands = tell(scheduler, NodeChanged(60.0, "n1", Health.HEALTHY))
    (start,) = commands
    assert isinstance(start, Start)
    assert start.steps_done == (40.0,)


def test_a_draining_node_lets_jobs_end_and_starts_none() -> None:
    scheduler = Scheduler(lab())
    submit(scheduler, job("a"))
    assert tell(scheduler, NodeChanged(1.0, "n0", Health.DRAINING)) == []
    submit(scheduler, job("b", at=2.0), job("c", at=2.0))
    assert scheduler.status("b") is Status.RUNNING
    tell(scheduler, JobEnded(9.0, "a", 0, Ending.FINISHED, 9.0))
    assert scheduler.status("c") is Status.PENDING


def test_cancelling_a_waiting_job_removes_it_and_a_running_one_stops_first() -> None:
    scheduler = full_house()
    submit(scheduler, job("c", at=0.0))
    tell(scheduler, JobCancelled(1.0, "c"))
    assert scheduler.status("c") is Status.CANCELLED
    assert tell(scheduler, JobCancelled(1.0, "a")) == [Stop(0, "a", 5.0)]
    assert scheduler.status("a") is Status.CANCELLING
    tell(scheduler, JobEnded(2.0, "a", 0, Ending.STOPPED, 1.0))
    assert scheduler.status("a") is Status.CANCELLED


def test_a_cancelled_job_has_at_most_the_grace_that_a_cancellation_gives() -> None:
    scheduler = full_house()
    assert tell(scheduler, JobCancelled(1.0, "a", grace_seconds=2.0)) == [Stop(0, "a", 2.0)]
    assert tell(scheduler, JobCancelled(1.0, "a")) == []
    assert tell(scheduler, JobCancelled(1.0, "a", grace_seconds=9.0)) == [], "its own is shorter"
    assert tell(scheduler, JobCancelled(2.0, "a", grace_seconds=0.0)) == [Stop(0, "a", 0.0)]
    assert tell(scheduler, JobCancelled(2.0, "b", grace_seconds=9.0)) == [Stop(1, "b", 5.0)]


def test_an_end_that_is_reported_late_is_charged_until_the_end() -> None:
    scheduler = Scheduler(lab())
    submit(scheduler, job("a", retries_max=1))
    scheduler.handle(Tick(1000.0))
    scheduler.handle(JobEnded(11.0, "a", 0, Ending.FAILED, 3.0))
    pool, serial = scheduler.jobs.live["a"]
    assert pool.table.run_base[pool.table.row[serial]] == 11.0
    assert scheduler.now == 1000.0


def test_a_job_that_fails_is_tried_again_as_often_as_it_may() -> None:
    scheduler = Scheduler(lab())
    submit(scheduler, job("a", retries_max=1))
    commands = tell(scheduler, JobEnded(5.0, "a", 0, Ending.FAILED, 3.0))
    assert starts(commands) == [("a", N0)]
    tell(scheduler, JobEnded(9.0, "a", 1, Ending.FAILED, 3.0))
    assert scheduler.status("a") is Status.FAILED


@pytest.mark.parametrize(
    "event",
    [
        JobStarted(1.0, "nobody", 0),
        JobStarted(1.0, "a", 7),
        JobEnded(1.0, "a", 7, Ending.FINISHED, 1.0),
        JobEnded(1.0, "nobody", 0, Ending.FINISHED, 1.0),
        JobCancelled(1.0, "nobody"),
        NodeChanged(1.0, "nowhere", Health.FAILED),
        NodeChanged(1.0, "n0", Health.HEALTHY),
        JobSubmitted(1.0, job("a")),
        PolicyChanged(1.0, "nowhere", "fifo"),
    ],
    ids=str,
)
def test_what_is_late_doubled_or_about_nobody_changes_nothing(event: Event) -> None:
    scheduler = Scheduler(lab())
    submit(scheduler, job("a"))
    before = scheduler.ignored
    assert tell(scheduler, event) == []
    assert scheduler.ignored == before + 1
    assert scheduler.status("a") is Status.RUNNING


def test_an_unanswered_command_is_sent_again_with_a_survey() -> None:
    scheduler = Scheduler(lab())
    (start,) = tell(scheduler, JobSubmitted(0.0, job("a")))
    assert scheduler.next_wakeup_at == 30.0
    assert tell(scheduler, Tick(30.0)) == [start, Survey()]


def test_a_survey_reveals_an_end_that_nobody_told() -> None:
    scheduler = Scheduler(lab())
    submit(scheduler, job("a"))
    tell(scheduler, JobProgressed(5.0, "a", 0, 5.0))
    commands = tell(scheduler, Surveyed(10.0, ()))
    (start,) = commands
    assert isinstance(start, Start) and start.epoch == 1 and start.steps_done == (5.0,)


def test_a_survey_ends_a_lease_that_nobody_knows() -> None:
    scheduler = Scheduler(lab())
    submit(scheduler, job("a"))
    tell(scheduler, JobEnded(1.0, "a", 0, Ending.FINISHED, 1.0))
    assert tell(scheduler, Surveyed(2.0, (Running("a", 0, N0, 1.0),))) == [Stop(0, "a", 0.0)]


def test_reported_progress_never_goes_back() -> None:
    scheduler = Scheduler(lab())
    submit(scheduler, job("a"))
    for steps in (7.0, float("nan"), -1.0, 3.0):
        tell(scheduler, JobProgressed(1.0, "a", 0, steps))
    (start,) = tell(scheduler, JobEnded(2.0, "a", 0, Ending.LOST, 0.0))
    assert isinstance(start, Start) and start.steps_done == (7.0,)


def test_saved_steps_do_not_hide_those_done_since() -> None:
    scheduler = Scheduler(lab())
    submit(scheduler, job("a", steps_total=100.0))

    def done(at: float) -> float:
        (pool,) = scheduler.pools
        return float(pool.table.view(at).steps_done[0])

    tell(scheduler, JobProgressed(10.0, "a", 0, 0.0))
    assert done(11.0) == 11.0, "that nothing was saved yet is no news"
    tell(scheduler, JobProgressed(20.0, "a", 0, 5.0, 12.0))
    assert done(21.0) == 13.0, "what was done counts, saved or not"
    tell(scheduler, JobProgressed(30.0, "a", 0, 5.0))
    assert done(31.0) == 23.0
    tell(scheduler, JobProgressed(40.0, "a", 0, 8.0))
    assert done(41.0) == 9.0, "saved steps are taken for those done where nothing else is told"
    (start,) = tell(scheduler, JobEnded(50.0, "a", 0, Ending.LOST, 0.0))
    assert isinstance(start, Start) and start.steps_done == (8.0,)


def test_a_policy_can_be_changed_while_jobs_run() -> None:
    scheduler = full_house("fifo")
    assert tell(scheduler, JobSubmitted(100.0, job("c", at=100.0))) == []
    assert tell(scheduler, PolicyChanged(100.0, "all", "las")) == [Stop(1, "b", 5.0)]


def test_a_policy_that_does_not_exist_changes_nothing() -> None:
    scheduler = full_house("las")
    assert tell(scheduler, PolicyChanged(1.0, "all", "magic")) == []
    assert scheduler.ignored == 1
    assert tell(scheduler, JobSubmitted(100.0, job("c", at=100.0))) == [Stop(1, "b", 5.0)]


def test_a_victim_whose_winner_was_cancelled_gets_its_gpus_back() -> None:
    scheduler = full_house()
    tell(scheduler, JobSubmitted(100.0, job("c", at=100.0)))
    tell(scheduler, JobCancelled(101.0, "c"))
    assert starts(tell(scheduler, JobEnded(104.0, "b", 1, Ending.STOPPED, 90.0))) == [("b", N1)]


def test_a_new_policy_begins_without_debts_and_at_once() -> None:
    scheduler = Scheduler(lab(cadence=Cadence.ROUNDS))
    submit(scheduler, job("a"))
    tell(scheduler, Tick(10.0))
    tell(scheduler, PolicyChanged(1003.0, "all", "equal-share"))
    assert scheduler.next_wakeup_at == 1010.0
    tell(scheduler, Tick(1010.0))
    deficit = scheduler.pools.all[0].table.deficit[0]
    assert abs(deficit).max() <= 10.0


def test_a_message_about_no_lease_at_all_is_ignored() -> None:
    scheduler = full_house("fifo")
    submit(scheduler, job("c"))
    assert tell(scheduler, JobEnded(1.0, "c", -1, Ending.FINISHED, 1.0)) == []
    assert scheduler.status("c") is Status.PENDING


def test_a_job_that_is_confirmed_late_may_be_contested_when_it_has_run_as_long_as_its_start_took() -> None:
    scheduler = Scheduler(lab("srtf"))
    for each in (job("a", 8, "cluster", steps_total=100.0), job("b", 8, "cluster", at=1.0, steps_total=10.0)):
        tell(scheduler, JobSubmitted(each.submitted_at, each))
    assert scheduler.status("b") is Status.PENDING
    assert tell(scheduler, JobStarted(5.0, "a", 0)) == []
    assert scheduler.next_wakeup_at == 10.0
    assert tell(scheduler, Tick(10.0)) == [Stop(0, "a", 0.0)]


def test_the_time_until_a_start_is_confirmed_is_not_charged() -> None:
    scheduler = Scheduler(lab("las"))
    for each in (job("a", 8, "cluster"), job("b", 8, "cluster", at=1.0)):
        tell(scheduler, JobSubmitted(each.submitted_at, each))
    assert tell(scheduler, JobStarted(5.0, "a", 0)) == []  # neither has had any service
    assert tell(scheduler, Tick(15.0)) == [Stop(0, "a", 0.0)]


def test_a_lease_of_a_round_that_was_a_moment_late_is_contested_at_the_next_boundary() -> None:
    scheduler = Scheduler(lab("themis", Cadence.ROUNDS, options={"lease_seconds": 10.0}))
    tell(scheduler, *(JobSubmitted(3.0, job(name, gpus=8, level="cluster", at=3.0)) for name in "ab"))
    (start,) = [each for each in tell(scheduler, Tick(10.02)) if isinstance(each, Start)]
    assert start.lease_until == pytest.approx(20.0)
    tell(scheduler, JobStarted(10.05, start.job_ids[0], start.epoch))
    assert scheduler.next_wakeup_at == 20.0
    assert [type(each) for each in tell(scheduler, Tick(20.01))] == [Stop]


def test_short_rounds_late_in_a_long_run_still_move_on() -> None:
    spec = PoolSpec("all", round_seconds=0.1)
    assert spec.boundary_after(2446096.4) > 2446096.4


def test_cpus_of_one_who_leaves_are_not_used_before_it_has_left() -> None:
    """A node of 4 GPUs and 4 CPUs: l (2 GPUs, all CPUs) leaves for a; b fits on a free GPU but needs a CPU of l's."""
    cluster = Cluster("lab", (Node("n0", "gpu", 4, cpus=4.0),))
    scheduler = Scheduler(Setup(cluster, (PoolSpec("all", "las", cadence=Cadence.ROUNDS, round_seconds=10.0),)))
    tell(scheduler, JobSubmitted(0.0, job("l", 2, cpus_per_gpu=2.0, grace_seconds=30.0)))
    tell(scheduler, JobStarted(0.0, "l", 0))
    for each in (job("a", 3, at=51.0, cpus_per_gpu=1.0), job("b", 1, at=52.0, cpus_per_gpu=1.0)):
        tell(scheduler, JobSubmitted(each.submitted_at, each))
    assert tell(scheduler, Tick(60.0)) == [Stop(0, "l", 30.0)]
    assert {scheduler.status(name) for name in "ab"} == {Status.HOLDING}


def test_an_impossible_transition_tells_its_story() -> None:
    with pytest.raises(InvalidTransition, match="job a is PENDING and got the signal ACKNOWLEDGE"):
        after("a", Status.PENDING, Signal.ACKNOWLEDGE)


def test_cpus_ride_along() -> None:
    cluster = Cluster("lab", (Node("n0", "gpu", 4, cpus=8.0), Node("n1", "gpu", 4, cpus=8.0)))
    scheduler = Scheduler(Setup(cluster, (PoolSpec("all"),)))
    commands = submit(scheduler, *(job(name, 1, cpus_per_gpu=5.0) for name in ("a", "b", "c")))
    assert starts(commands) == [("a", N0[:1]), ("b", N1[:1])]
    assert isinstance(scheduler.why("c"), NoRoom)


def test_cpus_are_kept_for_a_winner_while_others_leave() -> None:
    """A node of 2 GPUs and 4 CPUs: while w leaves for a, which needs all CPUs, nobody else may have them."""
    cluster = Cluster("lab", (Node("n0", "gpu", 2, cpus=4.0),))
    scheduler = Scheduler(Setup(cluster, (PoolSpec("all", "las", round_seconds=10.0),)))
    submit(scheduler, job("v", 1), job("w", 1, grace_seconds=20.0))
    assert tell(scheduler, JobSubmitted(50.0, job("a", 1, at=50.0, cpus_per_gpu=4.0))) == [Stop(1, "w", 20.0)]
    tell(scheduler, JobSubmitted(51.0, job("b", 1, at=51.0, cpus_per_gpu=4.0)))
    assert starts(tell(scheduler, JobEnded(55.0, "v", 0, Ending.FINISHED, 55.0))) == []
    left = tell(scheduler, JobEnded(60.0, "w", 1, Ending.STOPPED, 60.0))
    assert starts(left) == [("a", named("n0", 1)), ("w", named("n0", 0))]  # which needs no CPUs
    assert scheduler.status("b") is Status.PENDING


@pytest.mark.parametrize("field", ["restart_seconds", "grace_seconds", "cpus_per_gpu", "min_runtime_seconds"])
def test_a_job_has_no_negative_amounts(field: str) -> None:
    with pytest.raises(JobError, match=f"has {field} -1"):
        Job("a", 0.0, (Option(Shape("gpu", 1, "node"), 1.0),), **{field: -1.0})  # type: ignore[arg-type]


def test_a_node_may_have_only_some_of_the_levels_of_others() -> None:
    some = Node("a", "gpu", 8, levels=(("switch", 2), ("socket", 4)))
    cluster = Cluster("lab", (some, Node("b", "gpu", 8, levels=(("switch", 4),)), Node("c", "gpu", 8)))
    assert cluster.levels == ("gpu", "switch", "socket", "node", "cluster")
    switches, sockets = (cluster.first_gpu[level].tolist() for level in (1, 2))
    assert switches == [0, 2, 4, 6, 8, 12, 16, 24]
    assert sockets == [0, 4, 8, 16, 24]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("cadence", list(Cadence))
def test_a_run_ends_although_a_job_waits_for_a_node_that_never_comes_back(policy: str, cadence: Cadence) -> None:
    away = [NodeChanged(50.0, "n0", Health.FAILED)]
    pool = PoolSpec("all", policy, cadence=cadence)
    jobs = [arrival("lost", 0, 1, 100), arrival("late", 60, 1, 100)]
    run = simulate(Setup(small_cluster(nodes=1, gpus=4), (pool,)), jobs, away)
    assert set(run.unfinished) == {"lost", "late"}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("cadence", list(Cadence))
def test_a_run_ends_although_a_wide_job_waits_for_a_node_that_never_comes_back(policy: str, cadence: Cadence) -> None:
    away = [NodeChanged(50.0, "n0", Health.FAILED)]
    pool = PoolSpec("all", policy, cadence=cadence)
    jobs = [arrival("wide", 0, 8, 100, level="cluster"), arrival("a", 60, 1, 150), arrival("b", 61, 1, 170)]
    run = simulate(Setup(small_cluster(nodes=2, gpus=4), (pool,)), jobs, away)
    assert isinstance(run.unfinished["wide"], NoRoom | Unclaimed)


@pytest.mark.parametrize("cadence", list(Cadence))
def test_allox_tells_a_gang_that_it_has_no_share_and_serves_the_others(cadence: Cadence) -> None:
    pool = PoolSpec("all", "allox", cadence=cadence)
    jobs = [arrival("gang", 0, 2, 100), arrival("a", 10, 1, 100), arrival("b", 10, 1, 500)]
    run = simulate(Setup(small_cluster(nodes=1, gpus=4), (pool,)), jobs)
    assert run.unfinished == {"gang": Unclaimed("allox")}


def test_a_policy_that_fails_in_mid_run_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = Scheduler(Setup(small_cluster(nodes=1), (PoolSpec("all"),)))
    monkeypatch.setattr(type(scheduler.pools.all[0].policy), "decide", lambda policy, view: 1 / 0)
    handle(scheduler, JobSubmitted(0.0, arrival("a").job))
    with pytest.raises(PolicyError, match="policy 'fifo' failed at 0 s: ZeroDivisionError"):
        handle(scheduler, Tick(0.0))


def test_a_policy_that_fails_is_reported_and_asked_again_in_the_next_round(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = Scheduler(lab(cadence=Cadence.ROUNDS))
    scheduler.handle(JobSubmitted(0.0, job("a")))
    with monkeypatch.context() as broken:
        broken.setattr(type(scheduler.pools.all[0].policy), "decide", lambda policy, view: 1 / 0)
        reaction = scheduler.handle(Tick(0.0))
    (notice,) = reaction.notices
    assert isinstance(notice, DecisionRejected)
    assert (notice.pool, notice.policy, notice.is_bug) == ("all", "fifo", False)
    assert "policy 'fifo' failed at 0 s: ZeroDivisionError" in notice.error
    assert (reaction.commands, reaction.rounds, scheduler.status("a")) == ((), (), Status.PENDING)
    assert scheduler.next_wakeup_at == 10.0
    assert starts(tell(scheduler, Tick(10.0))) == [("a", N0)]


def test_two_pools_cannot_share_the_nodes_that_nobody_owns() -> None:
    with pytest.raises(ClusterError, match="have no nodes of their own"):
        Scheduler(Setup(small_cluster(nodes=2), (PoolSpec("a", tenants=("x",)), PoolSpec("b"))))


@pytest.mark.parametrize("policy", ["fifo", "max-min"])
def test_asking_why_of_every_job_works_out_the_claims_once_per_round(policy: str) -> None:
    scheduler = Scheduler(lab(policy))
    names = [f"j{index}" for index in range(6)]
    submit(scheduler, *map(job, names))
    pool, _ = scheduler.jobs.live[names[0]]
    claimants = pool.claimants()
    assert [scheduler.why(name) is not None for name in names] == [False, False, True, True, True, True]
    assert pool.claimants() is claimants  # not one set per question: with 8,000 jobs that took seconds
    submit(scheduler, job("late", at=20.0))
    assert len(pool.claimants()) == len(claimants) + 1


def test_a_speed_that_one_tenant_has_measured_is_not_believed_of_another_and_is_kept_by_a_dump() -> None:
    scheduler = Scheduler(lab())
    tell(scheduler, *(JobSubmitted(0.0, job(name, tenant=name, model="bert")) for name in ("nlp", "vision")))
    tell(scheduler, SpeedRevised(1.0, "bert", Shape("gpu", 4, "node"), 9.0, "nlp"))
    tell(scheduler, SpeedRevised(1.0, "bert", Shape("gpu", 4, "node"), 5.0, "unknown"))
    for each in (scheduler, Scheduler.restore(scheduler.dump())):
        (pool,) = each.pools
        assert dict(zip(pool.table.ids, pool.table.speed[:2, 0].tolist(), strict=True)) == {"nlp": 9.0, "vision": 1.0}
    tell(scheduler, SpeedRevised(2.0, "bert", Shape("gpu", 4, "node"), 3.0))
    (pool,) = scheduler.pools
    assert pool.table.speed[:2, 0].tolist() == [3.0, 3.0]
