"""The simulator against reality: a short run of real jobs, and what the comparison makes of a run."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path
from random import Random

import pytest
from command_line import horae
from horae_evaluation.live.comparison import Comparison, arrival, compare, simulate_jobs
from horae_evaluation.live.paced_engine import PacedEngine
from horae_evaluation.live.paced_job import REPORT_SECONDS, startup_seconds, steps_seconds
from horae_evaluation.live.service_run import JobTimes, Overheads, run_service
from horae_evaluation.live.workload import MODELS, POLICIES, LiveJob, cluster_file, draw_jobs
from live_service import SOURCES
from patience import HANG_SECONDS

from horae.engines.simulated import SimulatedEngine
from horae.model.cluster import Cluster, Gpu, Node
from horae.model.commands import Start, Stop
from horae.model.events import Ending, Event, JobEnded, JobProgressed
from horae.model.jobs import Arrival
from horae.model.setup import PoolSpec, Setup
from horae.service.config import configure

NONE = Overheads((), (), ())


def test_real_jobs_and_simulated_ones_end_after_comparable_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy machine delays real jobs at will, so that the bound is loose; `horae reproduce live` has the tight one."""
    monkeypatch.setenv("PYTHONPATH", SOURCES)
    drawn = draw_jobs(12, seed=0)
    jobs = [replace(job, arrives_at=job.arrives_at / 4, steps=job.steps // 2) for job in drawn]
    told: list[str] = []
    run = run_service(cluster_file("max-min"), jobs, 0, tmp_path, told.append)
    found = compare("max-min", [run], simulations=2, other_draws=2)
    names = [job.name for job in jobs]
    assert told[-1] == "12 of 12 jobs ended"
    assert [job.name for job in found.real[0]] == names
    assert all([job.name for job in simulated] == names for simulated in (*found.all_simulated, *found.other_draws))
    # What the jobs have drawn is not taken for a delay: starting a process takes some time, and never less than none.
    starting, leaving, closing = found.overheads.means
    assert 0.0 < starting < HANG_SECONDS
    assert leaving > 0.0 or found.preemptions[0] == 0
    assert closing > 0.0
    assert all(job.leases == job.preemptions + 1 for job in found.real[0])
    assert 1 / 3 < 1 + found.completion_difference < 3


def test_draws_depend_on_the_seed_alone() -> None:
    assert draw_jobs(60, seed=3) == draw_jobs(60, seed=3)
    assert draw_jobs(60, seed=3) != draw_jobs(60, seed=4)
    assert draw_jobs(20, seed=3) == draw_jobs(60, seed=3)[:20]


@pytest.mark.parametrize("policy", POLICIES)
def test_queues_form_and_jobs_are_preempted(policy: str, tmp_path: Path) -> None:
    (tmp_path / "horae.yaml").write_text(cluster_file(policy))
    setup = configure(tmp_path, tmp_path / "horae.yaml", [], [], None, 0).setup
    jobs = {job.name: job for job in draw_jobs(60, seed=0)}
    arrives_at = {name: job.arrives_at for name, job in jobs.items()}
    found = simulate_jobs(setup, jobs, arrives_at, Overheads((0.5, 1.5), (0.5,), (0.5,)), seed=0)
    assert set(found) == set(jobs)
    assert sum(job.preemptions for job in found.values()) >= 20
    assert sum(job.started_at > job.submitted_at + 10.0 for job in found.values()) >= 10
    none = simulate_jobs(setup, jobs, arrives_at, NONE, seed=0)
    assert _mean(none) < _mean(found), "what the machine adds costs time"


def _mean(jobs: dict[str, JobTimes]) -> float:
    return sum(job.completion_seconds for job in jobs.values()) / len(jobs)


def test_the_figures_of_a_comparison() -> None:
    real = (JobTimes("a", 0.0, 0.0, 10.0, 1, 0), JobTimes("b", 5.0, 5.0, 25.0, 3, 2))
    slow = (JobTimes("a", 0.0, 0.0, 12.0, 1, 0), JobTimes("b", 5.0, 5.0, 27.0, 2, 1))
    fast = (JobTimes("a", 0.0, 0.0, 10.0, 1, 0), JobTimes("b", 5.0, 5.0, 21.0, 1, 0))
    found = Comparison("fifo", (real,), ((slow, fast),), (slow,), NONE)
    assert found.completion_mean_seconds == (15.0, 15.0)
    assert found.run_differences == (0.0,)
    assert found.chance == pytest.approx((2 / 15, 0.0))
    assert found.other_draws_mean_seconds == 17.0
    assert found.job_error_p90 == pytest.approx(0.05 + 0.9 * 0.05)  # 10% and 5%
    assert found.preemptions == (2, 0.5)
    assert found.makespan_seconds == (25.0, 24.0)
    assert found.holds
    assert not Comparison("fifo", (real,), ((slow,),), (slow,), NONE).holds
    twice = Comparison("fifo", (real, real), ((slow,), (fast,)), (slow,), NONE)
    assert twice.run_differences == pytest.approx((2 / 15, -2 / 15))
    assert twice.completion_difference == pytest.approx(0.0)
    assert twice.job_error_p90 > found.job_error_p90, "errors of single runs do not cancel each other"


SETUP = Setup(Cluster("lab", (Node("n0", "A100", 1), Node("n1", "V100", 1))), (PoolSpec("all"),))
ONE = LiveJob("one", 0.0, 1, "recurrent", 20)


def paced(overheads: Overheads) -> tuple[PacedEngine, Arrival, list[float]]:
    """An engine with one job, and when its steps end if it starts at 0."""
    (made,) = [arrival(SETUP, "1", ONE, 0.0)]
    engine = PacedEngine(SimulatedEngine(SETUP.cluster, ()), [made], {"1": ONE}, 7, overheads, Random(0))
    began_at = startup_seconds(7, "one", 0, resumes=False)
    seconds = [each / MODELS["recurrent"]["A100"] for each in steps_seconds(7, "one", 20)]
    return engine, made, [began_at + sum(seconds[: number + 1]) for number in range(20)]


def start(engine: PacedEngine, made: Arrival, epoch: int, steps: float = 0.0, lease_until: float = 0.0) -> None:
    engine.execute(
        (Start(epoch, ("1",), (Gpu("n0", 0),), made.job.options[0].shape, (steps,), (steps > 0,), lease_until),)
    )


def next_event(engine: PacedEngine) -> Event:
    while (moment := engine.wait(inf)) is not None:
        if moment.events:
            (event,) = moment.events
            return event
    raise AssertionError("nothing will ever happen")


def let_pass(engine: PacedEngine, until: float) -> None:
    while (moment := engine.wait(until)) is not None and moment.at < until:
        assert not moment.events


def test_a_simulated_job_ends_when_the_real_one_has_made_its_steps() -> None:
    engine, made, ends_at = paced(NONE)
    start(engine, made, 0)
    ended = next_event(engine)
    assert isinstance(ended, JobEnded)
    assert ended.ending is Ending.FINISHED
    assert ended.at == pytest.approx(ends_at[-1])


def test_a_simulated_job_that_is_told_to_stop_finishes_its_step() -> None:
    engine, made, ends_at = paced(NONE)
    start(engine, made, 0)
    let_pass(engine, (ends_at[4] + ends_at[5]) / 2)
    assert engine.execute((Stop(0, "1", 30.0),)) == []
    ended = next_event(engine)
    assert isinstance(ended, JobEnded)
    assert ended.ending is Ending.STOPPED
    assert ended.at == pytest.approx(ends_at[5])
    start(engine, made, 1, ended.steps)
    startup = startup_seconds(7, "one", 1, resumes=True)
    assert next_event(engine).at == pytest.approx(ends_at[5] + startup + ends_at[19] - ends_at[5])


def test_a_simulated_job_finishes_rather_than_stop_in_its_last_step() -> None:
    engine, made, ends_at = paced(NONE)
    start(engine, made, 0)
    let_pass(engine, (ends_at[18] + ends_at[19]) / 2)
    engine.execute((Stop(0, "1", 30.0),))
    ended = next_event(engine)
    assert isinstance(ended, JobEnded)
    assert ended.ending is Ending.FINISHED


def test_a_simulated_job_reports_the_save_in_the_middle_of_its_lease() -> None:
    engine, made, ends_at = paced(NONE)
    start(engine, made, 0, lease_until=2 * ends_at[7] + 0.001)
    reported = next_event(engine)
    assert isinstance(reported, JobProgressed)
    assert reported.steps == 9, "at the end of the step in which it is due"
    assert ends_at[8] - 1e-6 <= reported.at <= ends_at[8] + REPORT_SECONDS
    assert reported.done == sum(end <= reported.at for end in ends_at)


WRONG = {
    "--policy": (("--policy", "sjf"), "--policy: is 'sjf'; use tiresias, max-min, themis"),
    "--out": (("--out", "/no/such/folder/x.json"), "name a file in a folder that exists"),
}


@pytest.mark.parametrize("option", WRONG)
def test_bad_options_are_one_line(option: str) -> None:
    arguments, want = WRONG[option]
    assert horae("reproduce", "live", *arguments).complaint.endswith(want)
