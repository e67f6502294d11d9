"""The simulated engine on cases worked out by hand: speeds, restarts, checkpoints, faults."""

from __future__ import annotations

import pytest
from builders import arrival, cluster, simulate
from builders import gpus as named

from horae.engines.random_failures import fault_plan
from horae.engines.simulated import SimulatedEngine, speed_at
from horae.experiments.simulate import simulate as run_simulation
from horae.model.cluster import Gpu
from horae.model.commands import Start, Stop, Survey
from horae.model.errors import BrokenInvariant, InputError
from horae.model.events import Ending, Health, JobEnded, JobStarted, NodeChanged, Running, Surveyed
from horae.model.jobs import Arrival, Job, Truth
from horae.model.setup import PoolSpec, Setup
from horae.model.shapes import Option, Shape

LEVELS = ("gpu", "node", "rack", "cluster")


def test_the_locality_obtained_is_the_speed_obtained() -> None:
    """A gang of 2 with 50 steps: one a second in a node, one in two seconds across nodes."""
    options = (Option(Shape("v100", 2, "node"), 1.0), Option(Shape("v100", 2, "cluster"), 0.5))
    gang = Arrival(Job("gang", 0.0, options, steps_total=50.0), Truth(50.0, options))
    for gpus, seconds in ((2, 50.0), (1, 100.0)):
        (record,) = simulate(cluster(nodes=2, gpus=gpus), [gang]).records()
        assert record.ended_at == seconds


@pytest.mark.parametrize(("level", "speed"), [("gpu", 4.0), ("node", 4.0), ("rack", 2.0), ("cluster", 1.0)])
def test_a_finer_level_than_asked_for_has_the_speed_of_the_tightest_option_that_allows_it(
    level: str, speed: float
) -> None:
    options = [
        Option(Shape("v100", 4, name), steps) for name, steps in (("cluster", 1.0), ("node", 4.0), ("rack", 2.0))
    ]
    assert speed_at(options, Shape("v100", 4, level), LEVELS) == speed


def test_true_speed_is_known_to_the_engine_alone() -> None:
    """The owner believes in 100 s, the truth is half the speed: the job takes 200 s."""
    believed = (Option(Shape("v100", 1, "node"), 1.0),)
    true = (Option(Shape("v100", 1, "node"), 0.5),)
    job = Arrival(Job("j", 0.0, believed, steps_total=100.0), Truth(100.0, true))
    (record,) = simulate(cluster(nodes=1, gpus=1), [job]).records()
    assert record.ended_at == 200.0


@pytest.mark.parametrize(
    ("checkpoint_seconds", "ended_at"),
    [
        (0.0, 165.0),  # 70 s done, away until 130, 5 s restart, 30 s left
        (25.0, 185.0),  # the last checkpoint was at 50: 50 s left
        (1000.0, 235.0),  # all of it again
    ],
)
def test_a_failed_node_takes_with_it_what_was_not_saved(checkpoint_seconds: float, ended_at: float) -> None:
    machines = cluster(nodes=1, gpus=1)
    node = machines.nodes[0].name
    outside = [NodeChanged(70.0, node, Health.FAILED), NodeChanged(130.0, node, Health.HEALTHY)]
    run = run_simulation(
        Setup(machines, (PoolSpec("all"),)),
        [arrival("j", 0, 1, 100, restart_seconds=5.0)],
        outside,
        checkpoint_seconds=checkpoint_seconds,
    )
    (record,) = run.recorder.records()
    assert (record.ended_at, record.starts) == (ended_at, 2)


def _slow_starter(**truth: float) -> Arrival:
    options = (Option(Shape("v100", 1, "node"), 1.0),)
    return Arrival(Job("j", 0.0, options, steps_total=50.0, restart_seconds=5.0), Truth(50.0, options, **truth))


@pytest.mark.parametrize(
    ("truth", "ended_at"),
    [
        ({}, 50 + 5 + 30),  # 20 s done, then the restart that was declared
        ({"startup_seconds": 7.0}, 50 + 5 + 37),  # only 13 s were done
        ({"startup_seconds": 7.0, "resume_seconds": 9.0}, 50 + 9 + 37),
        ({"closing_seconds": 4.0}, 50 + 5 + 30 + 4),
    ],
)
def test_starting_resuming_and_closing_take_their_time(truth: dict[str, float], ended_at: float) -> None:
    """On a node that is away from 20 s to 50 s."""
    machines = cluster(nodes=1, gpus=1)
    node = machines.nodes[0].name
    outside = [NodeChanged(20.0, node, Health.FAILED), NodeChanged(50.0, node, Health.HEALTHY)]
    run = run_simulation(Setup(machines, (PoolSpec("all"),)), [_slow_starter(**truth)], outside)
    (record,) = run.recorder.records()
    assert record.ended_at == ended_at


def test_a_job_that_is_closing_finishes_though_it_is_told_to_stop() -> None:
    machines = cluster(nodes=1, gpus=1)
    (gpu,) = named(machines.nodes[0].name, 0)
    engine = SimulatedEngine(machines, [_slow_starter(closing_seconds=4.0)])
    engine.wait(0.0)
    engine.execute([Start(1, ("j",), (gpu,), Shape("v100", 1, "node"), (0.0,), (False,))])
    engine.wait(52.0)
    assert engine.execute([Stop(1, "j", 30.0)]) == []
    assert engine.wait(100.0) == (54.0, [JobEnded(54.0, "j", 1, Ending.FINISHED, 50.0)])


def test_the_clock_jumps_to_what_comes_next() -> None:
    engine = SimulatedEngine(cluster(nodes=1, gpus=1), [arrival("j", 1e6)])
    moment = engine.wait(float("inf"))
    assert moment is not None and moment.at == 1e6
    assert engine.wait(2e6) == (2e6, [])
    assert engine.wait(float("inf")) is None


# Leases


def start(epoch: int, job_id: str, on: tuple[Gpu, ...]) -> Start:
    return Start(epoch, (job_id,), on, Shape("v100", 1, "gpu"), (0.0,), (False,))


def engine_of_two() -> SimulatedEngine:
    """Jobs a and b have been submitted, to a node of two GPUs."""
    engine = SimulatedEngine(cluster(nodes=1, gpus=2), [arrival("a"), arrival("b")])
    engine.wait(0.0)
    return engine


def test_a_gpu_that_is_given_to_two_leases_is_an_error() -> None:
    engine = engine_of_two()
    engine.execute([start(0, "a", named("n0", 1))])
    with pytest.raises(BrokenInvariant, match="GPU n0/1 is given to lease 1 while lease 0 is on it"):
        engine.execute([start(1, "b", named("n0", 1))])


def test_a_gpu_may_be_given_away_when_its_lease_has_ended() -> None:
    engine = engine_of_two()
    engine.execute([start(0, "a", named("n0", 1)), Stop(0, "a", 0.0)])
    assert engine.execute([start(1, "b", named("n0", 1))]) == [JobStarted(0.0, "b", 1)]


def test_a_start_that_comes_after_its_stop_does_nothing() -> None:
    engine = engine_of_two()
    ended = JobEnded(0.0, "a", 2, Ending.STOPPED, 0.0)
    assert engine.execute([Stop(2, "a", 0.0)]) == [ended]
    assert engine.execute([start(2, "a", named("n0", 0))]) == [ended]
    assert engine.execute([Survey()]) == [Surveyed(0.0, ())]


def test_a_start_that_comes_after_its_stop_does_nothing_while_an_older_lease_runs() -> None:
    engine = engine_of_two()
    engine.execute([start(0, "a", named("n0", 0))])
    assert engine.execute([Stop(1, "a", 0.0)]) == [JobEnded(0.0, "a", 1, Ending.STOPPED, 0.0)]
    engine.execute([start(1, "a", named("n0", 1))])
    assert engine.execute([Survey()]) == [Surveyed(0.0, (Running("a", 0, named("n0", 0), 0.0),))]


def test_a_fault_plan_is_the_same_for_the_same_seed_and_each_failure_is_repaired() -> None:
    machines = cluster(nodes=20, gpus=1)
    plan = fault_plan(machines, 3, days_between_failures=10.0, repair_seconds=600.0, until=100 * 86400.0)
    assert plan == fault_plan(machines, 3, 10.0, 600.0, 100 * 86400.0)
    assert plan != fault_plan(machines, 4, 10.0, 600.0, 100 * 86400.0)
    failures = [event for event in plan if event.health is Health.FAILED]
    assert len(plan) == 2 * len(failures)
    assert 150 < len(failures) < 250  # 20 nodes x 100 days / 10 days
    fewer = fault_plan(cluster(nodes=10, gpus=1), 3, 10.0, 600.0, 100 * 86400.0)
    assert set(fewer) <= set(plan)


def test_a_fault_plan_needs_sensible_numbers() -> None:
    with pytest.raises(InputError, match="is 0"):
        fault_plan(cluster(nodes=1, gpus=1), 0, 0.0, 600.0, 1.0)


def test_all_jobs_end_in_spite_of_failing_nodes() -> None:
    machines = cluster(nodes=4, gpus=4)
    jobs = [arrival(f"j{i}", 50 * i, 1 + i % 8, 4000, level="cluster", restart_seconds=30.0) for i in range(60)]
    plan = fault_plan(machines, 1, days_between_failures=0.1, repair_seconds=1200.0, until=1e6)
    recorder = simulate(machines, jobs, "fifo", outside=plan)
    assert len(recorder.records()) == 60
    assert sum(record.starts for record in recorder.records()) > 60
