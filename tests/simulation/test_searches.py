"""Apps that search: what is promoted, what is killed, and that nothing hangs on it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from horae_evaluation.ideal_time import rho_measured, shadow_of

from horae.engines.search.engine import first_jobs
from horae.experiments.replay import replay_file
from horae.experiments.simulate import Run, simulate
from horae.model.cluster import Cluster, Node
from horae.model.errors import JobError, PolicyError
from horae.model.events import CurveRevised, Event, JobSubmitted
from horae.model.jobs import Arrival, Curve, Job, Truth
from horae.model.plans import Reaction
from horae.model.searches import Bracket, Method, Search, Trial, searches_of, synthetic_curve
from horae.model.setup import PoolSpec, Setup
from horae.model.shapes import Option, Shape
from horae.policies.registry import make_policy
from horae.reports.rho import apps

OPTIONS = (Option(Shape("V100", 1, "node"), 1.0),)


def arrival(name: str, app: str = "search", at: float = 0.0, seconds: float = 700.0) -> Arrival:
    return Arrival(Job(name, at, OPTIONS, app=app, steps_total=seconds, restart_seconds=5.0), Truth(seconds, OPTIONS))


def trial(number: int, floor: float, seconds: float = 700.0) -> Trial:
    """The lower the floor, the better at every moment."""
    return Trial(arrival(f"t{number}", seconds=seconds), Curve(1.0, 1.0, floor))


def cluster(gpus: int) -> Cluster:
    return Cluster("one", (Node("n", "V100", gpus),))


def run(search: Search, gpus: int = 8, policy: str = "fifo", journal: Path | None = None) -> Run:
    setup = Setup(cluster(gpus), (PoolSpec("all", policy),))
    return simulate(setup, first_jobs(search), searches=[search], journal=journal)


def seconds_of(run: Run) -> dict[str, float]:
    jobs = run.log.jobs
    return {
        name: float(ended - began) for name, began, ended in zip(jobs.id, jobs.started_at, jobs.ended_at, strict=True)
    }


def test_the_better_half_goes_on_for_twice_as_long_until_one_is_left() -> None:
    trials = tuple(trial(number, floor) for number, floor in enumerate([0.5, 0.2, 0.9, 0.3]))
    done = run(Search("search", 0.0, Method.HALVING, trials))
    assert not done.unfinished
    # Seven units of 100 s: 1, 2 and 4 of them.
    assert seconds_of(done) == pytest.approx(
        {"t0": 100.0, "t1": 100.0, "t2": 100.0, "t3": 100.0, "t1.1": 200.0, "t3.1": 200.0, "t1.2": 400.0}
    )
    assert done.log.jobs.ended_at.max() == pytest.approx(700.0)


def test_an_app_that_halves_is_one_app_from_its_first_job_to_its_last() -> None:
    trials = tuple(trial(number, 0.1 * number) for number in range(5))
    done = run(Search("search", 0.0, Method.HALVING, trials), gpus=2)
    columns = apps(done.log)
    assert len(columns.gpus) == 1
    assert columns.gpus.tolist() == [5]  # the first rung asks for most
    assert columns.gpu_seconds[0] == pytest.approx(Search("s", 0.0, Method.HALVING, trials).gpu_seconds)


@pytest.mark.parametrize("policy", ["fifo", "tiresias", "themis", "max-min"])
def test_what_is_done_does_not_depend_on_the_policy_and_can_be_replayed(policy: str, tmp_path: Path) -> None:
    made = [arrival(f"a{app}-{number}", f"a{app}", 50.0 * app) for app in range(4) for number in range(3 + 2 * app)]
    searches = searches_of(made, Method.HALVING, seed=3)
    jobs = sorted((job for each in searches for job in first_jobs(each)), key=lambda each: each.job.submitted_at)
    setup = Setup(cluster(4), (PoolSpec("all", policy, round_seconds=60.0),))
    done = simulate(setup, jobs, searches=searches, journal=tmp_path / "journal")
    assert not done.unfinished
    assert float(apps(done.log).gpu_seconds.sum()) == pytest.approx(sum(each.gpu_seconds for each in searches))
    assert replay_file(tmp_path / "journal").difference == ""


def test_hyperband_begins_with_brackets_of_fewer_trials_and_longer_runs() -> None:
    search = Search("search", 0.0, Method.HYPERBAND, tuple(trial(number, 0.1) for number in range(12)))
    assert [len(bracket.trials) for bracket in search.brackets] == [6, 3, 2, 1]
    assert [bracket.part_until(0) for bracket in search.brackets] == sorted(
        bracket.part_until(0) for bracket in search.brackets
    )
    assert not run(search).unfinished


def test_a_curve_based_search_kills_what_is_hopeless_as_soon_as_it_shows() -> None:
    trials = (trial(0, 0.2), trial(1, 0.9), trial(2, 0.21))
    search = Search("search", 0.0, Method.CURVES, trials, look_seconds=100.0)
    took = seconds_of(run(search))
    assert took["t1"] == pytest.approx(100.0)  # a tenth of 700 s is over by then
    assert took["t0"] == took["t2"] == pytest.approx(700.0)


def test_an_optimiser_that_kills_all_that_is_left_of_its_app_has_ended_it() -> None:
    """The best has finished; nothing that still runs can come near it."""
    trials = (trial(0, 0.1, seconds=150.0), trial(1, 0.9), trial(2, 0.8))
    search = Search("search", 0.0, Method.CURVES, trials, look_seconds=200.0, patience=0.25)
    done = run(search, policy="themis")
    assert not done.unfinished
    assert done.log.jobs.ended_at.max() == pytest.approx(200.0)


def end(trial: Trial) -> float:
    """The true end of its curve."""
    assert trial.curve is not None
    return 1 / (trial.curve.rate * trial.steps_total + trial.curve.start) + trial.curve.floor


def seeded(seed: int, method: Method) -> Search:
    made = [arrival(f"t{number}", seconds=3600.0 * (2 + number % 5)) for number in range(16)]
    return searches_of(made, method, seed)[0]


def test_forecasts_save_most_of_the_work_and_hardly_ever_cost_the_best_trial() -> None:
    """Twenty searches of sixteen trials: no result is worse than the best there was by more than the margin."""
    kept, saved = [], []
    for seed in range(20):
        search = seeded(seed, Method.CURVES)
        done = run(search, gpus=16)
        assert not done.unfinished
        finished = {name for name, is_done in zip(done.log.jobs.id, done.log.finished, strict=True) if is_done}
        best = min(search.trials, key=end)
        result = min(end(each) for each in search.trials if each.arrival.job.id in finished)
        assert result <= end(best) * (1 + search.margin)
        kept.append(best.arrival.job.id in finished)
        saved.append(1 - float(done.log.leases.gpu_seconds.sum()) / search.gpu_seconds)
    assert sum(kept) >= 19
    assert min(saved) > 0.6
    assert sum(saved) / len(saved) > 0.75


def test_beside_a_grid_a_curve_based_search_ends_no_later_with_less_work() -> None:
    grid, curves = (run(seeded(3, method), gpus=4) for method in (Method.GRID, Method.CURVES))
    assert curves.log.leases.gpu_seconds.sum() < 0.5 * grid.log.leases.gpu_seconds.sum()
    assert curves.log.jobs.ended_at.max() < grid.log.jobs.ended_at.max()


def test_whoever_is_no_worse_than_the_margin_is_left_alone() -> None:
    trials = tuple(trial(number, floor, seconds=7000.0) for number, floor in enumerate([0.5, 0.52, 0.54, 0.7]))
    done = run(Search("search", 0.0, Method.CURVES, trials))
    assert done.log.finished.sum() == 3
    assert seconds_of(done)["t3"] == pytest.approx(1200.0)  # the first look after a tenth of 7,000 s


@dataclass
class Listener:
    """What the scheduler is told of curves."""

    submitted: dict[str, Curve | None] = field(default_factory=dict)
    revised: list[CurveRevised] = field(default_factory=list)

    def reacted(self, event: Event, reaction: Reaction) -> None:
        if isinstance(event, JobSubmitted):
            self.submitted[event.job.id] = event.job.curve
        elif isinstance(event, CurveRevised):
            self.revised.append(event)


@pytest.mark.parametrize("policy", ["slaq", "optimus", "themis"])
def test_the_scheduler_hears_of_fitted_curves_only_and_the_journal_has_them(policy: str, tmp_path: Path) -> None:
    search, heard = seeded(5, Method.CURVES), Listener()
    setup = Setup(cluster(6), (PoolSpec("all", policy),))
    done = simulate(
        setup, first_jobs(search), searches=[search], observers=[heard], journal=tmp_path / "journal"
    )  # fmt: skip
    assert not done.unfinished
    assert set(heard.submitted.values()) == {None}
    true = {each.arrival.job.id: each for each in search.trials}
    assert heard.revised
    assert all(event.curve != true[event.job_id].curve for event in heard.revised)
    # The last that is told of the one that won is near the truth.
    best = min(search.trials, key=end)
    last = [event.curve for event in heard.revised if event.job_id == best.arrival.job.id][-1]
    assert end(Trial(best.arrival, last)) == pytest.approx(end(best), rel=0.1)
    assert replay_file(tmp_path / "journal").difference == ""


def test_a_curve_is_told_again_only_if_it_has_changed() -> None:
    search, heard = seeded(5, Method.CURVES), Listener()
    simulate(Setup(cluster(16), (PoolSpec("all", "fifo"),)), first_jobs(search), searches=[search], observers=[heard])
    told: dict[str, Curve] = {}
    for event in heard.revised:
        before = told.get(event.job_id)
        if before is not None:
            bends = event.curve.rate / event.curve.start, before.rate / before.start
            total = next(each.steps_total for each in search.trials if each.arrival.job.id == event.job_id)
            ends = (1 / (each.rate * total + each.start) + each.floor for each in (event.curve, before))
            assert any(new != pytest.approx(old, rel=0.099) for new, old in (bends, tuple(ends)))
        told[event.job_id] = event.curve


def test_a_search_with_a_trial_that_can_never_run_ends_all_the_same() -> None:
    """Nobody looks at curves for ever of which nothing comes any more."""
    large = (Option(Shape("V100", 64, "node"), 1.0),)
    never = Trial(Arrival(Job("never", 0.0, large, app="search", steps_total=9.0), Truth(9.0, large)), Curve(1, 1, 0))
    search = Search("search", 0.0, Method.CURVES, (trial(0, 0.2), never), look_seconds=100.0)
    patience = iter(range(1000))
    setup = Setup(cluster(2), (PoolSpec("all", "fifo"),))
    done = simulate(setup, first_jobs(search), searches=[search], enough=lambda: next(patience, None) is None)
    assert next(patience, None) is not None
    assert set(done.refused) == {"never"}
    assert done.log.finished.sum() == 1


def test_alone_on_its_share_a_curve_based_search_kills_as_it_does_elsewhere() -> None:
    search = seeded(2, Method.CURVES)
    done = run(search, gpus=16)
    shadow = shadow_of(first_jobs(search), [search])
    assert rho_measured(done.log, apps(done.log), shadow) == pytest.approx([1.0])
    assert shadow.ideal_seconds("search", 4.0) > shadow.ideal_seconds("search", 16.0)


def test_halving_grids_and_hyperband_tell_the_curves_of_their_trials() -> None:
    trials = (trial(0, 0.1), trial(1, 0.2))
    for method in (Method.GRID, Method.HALVING, Method.HYPERBAND):
        jobs = first_jobs(Search("search", 0.0, method, trials))
        assert [each.job.curve for each in jobs] == [each.curve for each in trials]


def test_a_grid_runs_everything_to_its_end() -> None:
    took = seconds_of(run(Search("search", 0.0, Method.GRID, (trial(0, 0.2), trial(1, 0.9)))))
    assert took == pytest.approx({"t0": 700.0, "t1": 700.0})


def test_curves_are_the_same_in_every_process_and_fall() -> None:
    curve = synthetic_curve("some trial", 1000.0)
    assert curve == synthetic_curve("some trial", 1000.0)
    losses = [1 / (curve.rate * step + curve.start) + curve.floor for step in (0, 10, 100, 1000)]
    assert losses == sorted(losses, reverse=True)


def test_what_comes_later_is_reckoned_by_the_median_trial() -> None:
    trials = tuple(trial(number, 0.1, seconds) for number, seconds in enumerate([70.0, 700.0, 7000.0, 700.0]))
    work, seconds = Bracket(trials).later(0, trials)
    assert seconds == pytest.approx(600.0)
    assert work == pytest.approx(2 * 200.0 + 400.0)


@pytest.mark.parametrize("wrong", [{"report_part": 0.0}, {"report_part": 1.5}, {"confidence": 1.0}, {"patience": 0.0}])
def test_a_search_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(JobError, match="app 'search'"):
        replace(Search("search", 0.0, Method.CURVES, (trial(0, 0.1),)), **wrong)


def test_an_app_without_jobs_is_refused() -> None:
    with pytest.raises(JobError, match="has no jobs"):
        Search("empty", 0.0, Method.HALVING, ())


@pytest.mark.parametrize(
    "options",
    [{"f": 1.5}, {"f": -0.1}, {"lease_seconds": 0.0}, {"aim": "mine"}, {"window_leases": 0.5}],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(PolicyError):
        make_policy("themis", options)


def test_alone_on_all_it_can_use_an_app_is_as_well_off_as_it_can_be() -> None:
    trials = tuple(trial(number, 0.1 * number) for number in range(4))
    search = Search("search", 0.0, Method.HALVING, trials)
    done = run(search, gpus=4)
    shadow = shadow_of(first_jobs(search), [search])
    assert rho_measured(done.log, apps(done.log), shadow) == pytest.approx([1.0])
    assert shadow.ideal_seconds("search", 4.0) == pytest.approx(700.0)
    assert shadow.ideal_seconds("search", 0.5) == pytest.approx(2 * shadow.ideal_seconds("search", 1.0))


def test_a_search_on_one_node_is_told_to_the_scheduler_as_jobs_of_one_app() -> None:
    jobs = first_jobs(Search("search", 5.0, Method.HALVING, (trial(0, 0.1), trial(1, 0.2))))
    assert {each.job.app for each in jobs} == {"search"}
    assert all(each.job.later_gpu_seconds > 0 for each in jobs)
