"""The simulator against reality: a short run of real jobs, and what the comparison makes of a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from command_line import horae
from horae_evaluation.live.comparison import Comparison, compare, simulate_jobs
from horae_evaluation.live.service_run import JobTimes, Overheads, run_service
from horae_evaluation.live.workload import POLICIES, cluster_file, draw_jobs
from live_service import SOURCES

from horae.service.config import configure

NONE = Overheads(0.0, 0.0, 0.0, 0.0)


def test_real_jobs_and_simulated_ones_end_after_comparable_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy machine delays real jobs at will, so that the bound is loose; `horae reproduce live` has the tight one."""
    monkeypatch.setenv("PYTHONPATH", SOURCES)
    drawn = draw_jobs(12, seed=0)
    jobs = [replace(job, arrives_at=job.arrives_at / 4, steps=job.steps // 2) for job in drawn]
    told: list[str] = []
    run = run_service(cluster_file("max-min"), jobs, 0, tmp_path, told.append)
    found = compare("max-min", [run], simulations=2)
    names = [job.name for job in jobs]
    assert told[-1] == "12 of 12 jobs ended"
    assert [job.name for job in found.real[0]] == names
    assert all([job.name for job in simulated] == names for simulated in found.simulated)
    # Every start takes a second at least, and a resumption a second more.
    assert found.overheads.startup_seconds > 1.0
    assert found.preemptions[0] == 0 or found.overheads.resume_seconds > 2.0
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
    found = simulate_jobs(setup, jobs, arrives_at, Overheads(3.0, 4.0, 0.2, 0.1), seed=0)
    assert set(found) == set(jobs)
    assert sum(job.preemptions for job in found.values()) >= 20
    assert sum(job.started_at > job.submitted_at + 10.0 for job in found.values()) >= 10
    none = simulate_jobs(setup, jobs, arrives_at, NONE, seed=0)
    assert _mean(none) < _mean(found), "start-ups and restarts cost time"


def _mean(jobs: dict[str, JobTimes]) -> float:
    return sum(job.completion_seconds for job in jobs.values()) / len(jobs)


def test_the_figures_of_a_comparison() -> None:
    real = (JobTimes("a", 0.0, 0.0, 10.0, 1, 0), JobTimes("b", 5.0, 5.0, 25.0, 3, 2))
    slow = (JobTimes("a", 0.0, 0.0, 12.0, 1, 0), JobTimes("b", 5.0, 5.0, 27.0, 2, 1))
    fast = (JobTimes("a", 0.0, 0.0, 10.0, 1, 0), JobTimes("b", 5.0, 5.0, 21.0, 1, 0))
    found = Comparison("fifo", (real,), (slow, fast), NONE)
    assert found.completion_mean_seconds == (15.0, 15.0)
    assert found.completion_deviation == pytest.approx((0.0, 2 / 15))
    assert found.job_error_p90 == pytest.approx(0.05 + 0.9 * 0.05)  # 10% and 5%
    assert found.preemptions == (2, 0.5)
    assert found.makespan_seconds == (25.0, 24.0)
    assert found.holds
    assert not Comparison("fifo", (real,), (slow,), NONE).holds


WRONG = {
    "--policy": (("--policy", "sjf"), "--policy: is 'sjf'; use tiresias, max-min, themis"),
    "--out": (("--out", "/no/such/folder/x.json"), "name a file in a folder that exists"),
}


@pytest.mark.parametrize("option", WRONG)
def test_bad_options_are_one_line(option: str) -> None:
    arguments, want = WRONG[option]
    assert horae("reproduce", "live", *arguments).complaint.endswith(want)
