"""Comparisons: what a run is known by, the cache, processes, other draws of a trace."""

from __future__ import annotations

import functools
import importlib
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from random import Random

import numpy as np
import pytest
from builders import arrival, cluster

from horae.experiments.compare.baseline_difference import Versus, common, over_days, over_draws, over_seeds
from horae.experiments.compare.generated_workload import GeneratedWorkload
from horae.experiments.compare.run import ComparedRun, compare, outcomes
from horae.experiments.compare.run_spec import NO_FAILURES, Failures, PolicyChoice, RunSpec, run_specs
from horae.experiments.compare.table import tabulate
from horae.experiments.compare.workload import DAY_SECONDS, Recorded, Workload, block_seconds, resample
from horae.experiments.progress import Silent
from horae.experiments.result_store import ResultStore, arrivals_digest, default_folder, key, policy_digest
from horae.experiments.simulate import simulate
from horae.model.errors import InputError
from horae.model.jobs import Arrival
from horae.model.setup import PoolSpec, Setup
from horae.policies.registry import POLICIES
from horae.reports.run_log import RunLog
from horae.speed.published_speeds import SHIPPED
from horae.speed.table import SpeedBook
from horae.traces.generators import HeavyTail, Poisson
from horae.traces.jobs import JobRules

SETUP = Setup(cluster(2), (PoolSpec("all"),))
FAILURES = Failures(days_between_failures=0.2, repair_seconds=600.0)


def drawn(seed: int, count: int = 60) -> tuple[Arrival, ...]:
    random = Random(seed)
    times = sorted(random.uniform(0, 40_000) for _ in range(count))
    return tuple(
        arrival(f"j{index}", at, random.choice([1, 1, 2, 4, 8]), random.expovariate(1 / 3000) + 1)
        for index, at in enumerate(times)
    )


JOBS = Recorded(drawn(0))
POISSON = GeneratedWorkload(Poisson(jobs=30, cluster_gpus=8), SETUP.cluster)


def some_tasks(*policies: str, seeds: int = 1, failures: Failures = NO_FAILURES, setup: Setup = SETUP) -> list[RunSpec]:
    return run_specs(setup, {name: PolicyChoice(name, {}) for name in policies}, seeds, failures)


class Counted(Silent):
    """How many runs were made."""

    def __init__(self) -> None:
        self.runs: list[int] = []

    def started(self, index: int) -> None:
        self.runs.append(index)


def runs_made(todo: Sequence[RunSpec], workload: Workload, cache: ResultStore) -> int:
    counted = Counted()
    compare(todo, workload, 1, cache, counted)
    return len(counted.runs)


def completion(log: RunLog) -> dict[str, float]:
    return dict(zip(log.jobs.id, (log.jobs.ended_at - log.jobs.submitted_at).tolist(), strict=True))


def same(one: Sequence[ComparedRun], other: Sequence[ComparedRun], folder: Path) -> bool:
    """To the last byte."""
    for index, (a, b) in enumerate(zip(one, other, strict=True)):
        paths = folder / f"{index}a.npz", folder / f"{index}b.npz"
        a.log.save(paths[0])
        b.log.save(paths[1])
        if a.task != b.task or paths[0].read_bytes() != paths[1].read_bytes():
            return False
    return True


@pytest.fixture
def cache(tmp_path: Path) -> ResultStore:
    return ResultStore(tmp_path / "cache", pytest.fail)


# Runs


def test_a_task_is_a_plain_simulation() -> None:
    (outcome,) = compare(some_tasks("sjf"), JOBS)
    setup = replace(SETUP, pools=(PoolSpec("all", "sjf"),))
    assert completion(outcome.log) == completion(simulate(setup, JOBS.arrivals).log)


def test_the_seed_draws_the_failures_and_every_policy_has_the_same() -> None:
    todo = some_tasks("fifo", "sjf", seeds=2, failures=FAILURES)
    plans = [task.failures.plan(task.setup, task.seed, JOBS.arrivals) for task in todo]
    assert plans[0] == plans[1]
    assert plans[2] == plans[3]
    assert plans[0] != plans[2]
    assert [task.setup.seed for task in todo] == [0, 0, 1, 1]
    harmed, unharmed = compare([todo[0], *some_tasks("fifo")], JOBS)
    assert completion(harmed.log) != completion(unharmed.log)


def test_neither_results_nor_their_order_depend_on_the_number_of_workers(tmp_path: Path) -> None:
    todo = some_tasks("las", "fifo", "sjf", seeds=2, failures=FAILURES)
    here, there = (compare(todo, JOBS, workers) for workers in (1, 2))
    assert [str(outcome.task) for outcome in here] == [
        f"{name}, seed {seed}" for seed in (0, 1) for name in ("las", "fifo", "sjf")
    ]
    assert same(here, there, tmp_path)


def test_the_same_run_under_two_labels_is_made_once(cache: ResultStore) -> None:
    (task,) = some_tasks("fifo")
    assert runs_made([task, replace(task, label="again")], JOBS, cache) == 1


def test_a_worker_imports_nothing_that_is_slow() -> None:
    heavy = {"polars", "typer", "rich", "matplotlib", "pydantic", "yaml"}
    script = f"import sys, horae.experiments.compare.run; print({heavy!r} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout == "set()\n"


# Other draws


def test_what_a_generator_draws_is_another_workload_for_each_seed(cache: ResultStore) -> None:
    assert len({arrivals_digest(POISSON(seed)) for seed in range(3)}) == 3
    compare(some_tasks("fifo", seeds=2), POISSON, 1, cache)
    again = compare(some_tasks("fifo", seeds=3), POISSON, 1, cache)
    assert [outcome.cached for outcome in again] == [True, True, False]


def test_a_generator_travels_as_its_recipe_and_workers_draw_the_same(tmp_path: Path) -> None:
    assert len(pickle.dumps(replace(POISSON, generator=Poisson(jobs=1_000_000)))) < 10_000
    here, there = (compare(some_tasks("fifo", seeds=3), POISSON, workers) for workers in (1, 2))
    assert same(here, there, tmp_path)


RECIPES = {
    "other options": replace(POISSON, generator=Poisson(jobs=31, cluster_gpus=8)),
    "another generator": replace(POISSON, generator=HeavyTail(jobs=30)),
    "another cluster": replace(POISSON, cluster=cluster(3)),
    "speeds": replace(POISSON, rules=JobRules(speeds=SpeedBook.of(SHIPPED))),
    "gangs of any nodes": replace(POISSON, rules=JobRules(whole_nodes=False)),
}


@pytest.mark.parametrize("other", RECIPES.values(), ids=RECIPES)
def test_another_recipe_is_another_workload(other: GeneratedWorkload) -> None:
    assert other.digest(0) != POISSON.digest(0)


def by_day(arrivals: Sequence[Arrival], first: float) -> list[list[float]]:
    """For each day, when in it jobs arrived."""
    days: dict[int, list[float]] = {}
    for item in arrivals:
        days.setdefault(int((item.job.submitted_at - first) // DAY_SECONDS), []).append(
            round((item.job.submitted_at - first) % DAY_SECONDS, 3)
        )
    return [days.get(day, []) for day in range(max(days) + 1)]


MONTH = [arrival(f"j{index}", at=500.0 + 7000.0 * index) for index in range(370)]


def test_seed_0_is_the_trace_as_it_is() -> None:
    assert Recorded(tuple(MONTH))(0) == MONTH


def test_another_seed_is_made_of_whole_days_of_the_trace() -> None:
    drawn = resample(MONTH, 1)
    was, now = by_day(MONTH, 500.0), by_day(drawn, 500.0)
    assert len(was) == len(now) == 30
    assert all(day in was for day in now)
    assert now != was
    assert 0.8 < len(drawn) / len(MONTH) < 1.2


def test_a_draw_is_the_same_every_time_and_another_for_another_seed() -> None:
    assert resample(MONTH, 1) == resample(MONTH, 1)
    assert resample(MONTH, 1) != resample(MONTH, 2)


def test_jobs_drawn_twice_have_names_of_their_own_and_come_in_order() -> None:
    drawn = resample(MONTH, 1)
    assert len({item.job.id for item in drawn}) == len(drawn)
    assert len({item.job.id.split("@")[0] for item in drawn}) < len(drawn)
    times = [item.job.submitted_at for item in drawn]
    assert times == sorted(times)
    assert times[0] >= 500.0


def test_a_deadline_moves_with_its_job_and_an_app_is_drawn_as_another() -> None:
    trace = [arrival(f"j{index}", at=9000.0 * index, deadline_at=9000.0 * index + 50.0, app="a") for index in range(20)]
    drawn = [item.job for item in resample([*trace, arrival("last", at=200_000.0)], 1)]
    assert {round(job.deadline_at - job.submitted_at, 3) for job in drawn} <= {50.0, inf}
    for job in drawn:
        assert job.app in ("", f"a@{job.id.rpartition('@')[2]}")


def test_a_short_trace_is_drawn_in_tenths() -> None:
    short = [arrival(f"j{index}", at=60.0 * index) for index in range(101)]
    assert block_seconds(6000.0) == 600.0
    assert 80 <= len(resample(short, 1)) <= 120
    together = [arrival("a"), arrival("b")]
    assert resample(together, 1) == together


# Differences


def test_a_policy_that_takes_twice_as_long_everywhere_does_so_beyond_doubt() -> None:
    """The ratio is the same in every block, so its interval is a point, however much the blocks differ."""
    once = [arrival(f"j{index}", 9000.0 * index, 1, 100.0 * (1 + index % 7)) for index in range(200)]
    twice = [arrival(f"j{index}", 9000.0 * index, 1, 200.0 * (1 + index % 7)) for index in range(200)]
    logs = [compare(some_tasks("fifo"), Recorded(tuple(each)))[0].log for each in (once, twice)]
    pair = common(*logs)
    for found in (over_days(pair), over_seeds([pair.means] * 3), over_draws([pair.means] * 3)):
        assert found.relative[:3] == pytest.approx((1.0, 1.0, 1.0))
        assert found.seconds.mean == pytest.approx(found.baseline_mean_seconds)
        assert found.jobs in (200, 600)


def test_only_jobs_that_finished_under_both_are_compared() -> None:
    few, all_ = (compare(some_tasks("fifo"), Recorded(JOBS.arrivals[:count]))[0].log for count in (45, 60))
    assert common(all_, few).means.jobs == common(few, all_).means.jobs == 45


def test_where_nothing_finished_there_is_no_difference() -> None:
    never = compare(some_tasks("fifo"), Recorded((arrival("huge", gpus=99),)))[0].log
    pair = common(never, never)
    for found in (over_days(pair), over_seeds([pair.means] * 2), over_draws([pair.means] * 3)):
        assert np.isnan(found.relative.mean)


@functools.cache
def outcomes_of(seed: int) -> list[ComparedRun]:
    """The runs of one draw of the jobs; several tests look at the same."""
    todo = [task for task in some_tasks("fifo", "las", seeds=seed + 1) if task.seed == seed]
    return list(outcomes(todo, JOBS))


def found_with(seeds: int) -> Versus:
    runs = [outcome for seed in range(seeds) for outcome in outcomes_of(seed)]
    table = tabulate(runs, ["fifo", "las"], "fifo", is_recorded=True)
    assert table.rows[1].versus is not None
    return table.rows[1].versus


@pytest.mark.parametrize("draws", [15, pytest.param(40, marks=pytest.mark.nightly)])
def test_more_draws_of_a_trace_make_its_interval_no_smaller(draws: int) -> None:
    """They tell it better, but how much days differ is in the trace, and no number of draws changes that."""
    some, many = (found_with(1 + times * draws) for times in (1, 3))
    widths = [found.relative.high - found.relative.low for found in (some, many)]
    assert widths[1] == pytest.approx(widths[0], rel=0.35)
    for found in (some, many):
        assert found.relative.low < found.relative.mean < found.relative.high


def test_of_a_trace_the_estimate_is_the_trace_as_it_is() -> None:
    one, few, many = (found_with(seeds) for seeds in (1, 4, 16))
    assert one.relative.mean == pytest.approx(few.relative.mean) == pytest.approx(many.relative.mean)
    assert [(found.over, found.seconds.samples) for found in (few, many)] == [
        ("draws of the trace", 3),
        ("draws of the trace", 15),
    ]
    assert one.jobs == few.jobs == 60


def test_one_draw_of_a_trace_says_less_than_its_own_days() -> None:
    assert found_with(2) == found_with(1)


def test_of_a_generator_the_estimate_is_the_mean_over_seeds() -> None:
    todo = some_tasks("fifo", "las", seeds=5)
    row = tabulate(outcomes(todo, POISSON), ["fifo", "las"], "fifo", is_recorded=False).rows[1]
    assert row.versus is not None
    assert (row.versus.over, row.versus.seconds.samples, row.versus.jobs) == ("seeds", 5, 150)
    means = [numbers["completion_mean_seconds"] for numbers in row.by_seed]
    assert row.estimate["completion_mean_seconds"] == pytest.approx(np.mean(means))
    assert row.versus.seconds.mean + row.versus.baseline_mean_seconds == pytest.approx(np.mean(means))


def test_a_table_keeps_the_logs_of_seed_0_alone() -> None:
    todo = some_tasks("fifo", "las", seeds=3)
    found = list(outcomes(todo, JOBS))
    table = tabulate(reversed(found), ["fifo", "las"], "fifo", is_recorded=True)
    assert list(table.logs) == ["fifo", "las"]
    assert table.logs["las"] is found[1].log
    assert table.rows[1].estimate == table.rows[1].by_seed[0] != table.rows[1].by_seed[1]


def test_what_is_there_comes_with_the_runs_of_its_draw(cache: ResultStore) -> None:
    compare(some_tasks("fifo", seeds=3), JOBS, 1, cache)
    seen = [
        (outcome.task.seed, outcome.cached) for outcome in outcomes(some_tasks("fifo", "las", seeds=3), JOBS, 1, cache)
    ]
    assert seen == [(seed, cached) for seed in range(3) for cached in (True, False)]


# What a run is known by


def test_the_key_does_not_depend_on_the_process() -> None:
    script = (
        "import sys; sys.path.insert(0, 'tests'); import test_comparison as t;"
        "print([t.key(task, t.JOBS.digest(0)) for task in t.some_tasks('fifo', 'las', seeds=2, failures=t.FAILURES)])"
    )
    search = os.pathsep.join([str(Path(__file__).parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    other = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    answer = subprocess.run(
        [sys.executable, "-c", script.replace("'tests'", f"{str(Path(__file__).parent.parent)!r}")],
        env={**os.environ, "PYTHONHASHSEED": other, "PYTHONPATH": search},
        capture_output=True,
        text=True,
        check=True,
    )
    want = [key(task, JOBS.digest(0)) for task in some_tasks("fifo", "las", seeds=2, failures=FAILURES)]
    assert answer.stdout == f"{want}\n"


def changed(index: int, **fields: object) -> Recorded:
    items = list(JOBS.arrivals)
    items[index] = replace(items[index], job=replace(items[index].job, **fields))  # type: ignore[arg-type]
    return Recorded(tuple(items))


OTHERS: dict[str, Callable[[], tuple[list[RunSpec], Recorded]]] = {
    "another policy": lambda: (some_tasks("sjf"), JOBS),
    "another option": lambda: (run_specs(SETUP, {"las": PolicyChoice("tiresias", {"limits": [1, 2]})}, 1), JOBS),
    "another seed": lambda: (some_tasks("tiresias", seeds=2)[1:], JOBS),
    "another cluster": lambda: (some_tasks("tiresias", setup=replace(SETUP, cluster=cluster(3))), JOBS),
    "failures": lambda: (some_tasks("tiresias", failures=FAILURES), JOBS),
    "another job": lambda: (some_tasks("tiresias"), changed(7, weight=2.0)),
    "another time": lambda: (some_tasks("tiresias"), changed(59, submitted_at=JOBS.arrivals[59].job.submitted_at + 1)),
    "a job less": lambda: (some_tasks("tiresias"), Recorded(JOBS.arrivals[:-1])),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_what_changes_the_result_is_another_run(other: Callable[[], tuple[list[RunSpec], Recorded]]) -> None:
    (task,), workload = other()
    (usual,) = some_tasks("tiresias")
    assert key(task, workload.digest(0)) != key(usual, JOBS.digest(0))


def test_equal_values_have_equal_digests_whoever_made_them() -> None:
    again = [replace(item, job=replace(item.job, id="".join(list(item.job.id)))) for item in JOBS.arrivals]
    assert arrivals_digest(again) == JOBS.digest(0)


def foreign_policy(folder: Path, helper: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The digest of a policy whose package has a helper with this text."""
    package = folder / "strangers"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "inner" / "__init__.py").write_text("")
    (package / "helper.py").write_text(helper)
    (package / "inner" / "policy.py").write_text(
        "from horae.policies.queue_orders import Fifo\nimport strangers.helper\n"
        "class Strange(Fifo):\n    name = 'strange'\n"
    )
    with monkeypatch.context() as patch:
        for name in [name for name in sys.modules if name.startswith("strangers")]:
            patch.delitem(sys.modules, name)
        patch.syspath_prepend(str(folder))
        patch.setitem(POLICIES, "strange", importlib.import_module("strangers.inner.policy").Strange)
        return policy_digest("strange")


def test_a_helper_of_somebody_elses_policy_is_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"one": "SPEED = 1\n", "same": "SPEED = 1\n", "two": "SPEED = 2\n"}
    found = {name: foreign_policy(tmp_path / name, text, monkeypatch) for name, text in texts.items()}
    assert found["one"] == found["same"] != found["two"]
    assert policy_digest("fifo") == ""


# The cache


def test_what_was_run_once_is_not_run_again(cache: ResultStore, tmp_path: Path) -> None:
    todo = some_tasks("fifo", "las")
    first, second = (compare(todo, JOBS, 1, cache) for _ in range(2))
    assert [outcome.cached for outcome in first] == [False, False]
    assert [outcome.cached for outcome in second] == [True, True]
    assert same(first, second, tmp_path)
    assert runs_made(some_tasks("fifo", "las", "sjf"), JOBS, cache) == 1


@pytest.mark.parametrize("spoil", ["cut", "empty", "changed", "a folder"])
def test_a_damaged_file_is_run_again_and_written_anew(cache: ResultStore, spoil: str) -> None:
    todo = some_tasks("fifo")
    compare(todo, JOBS, 1, cache)
    (path,) = cache.folder.iterdir()
    whole = path.read_bytes()
    match spoil:
        case "cut":
            path.write_bytes(whole[: len(whole) // 2])
        case "empty":
            path.write_bytes(b"")
        case "changed":
            middle = len(whole) // 2
            path.write_bytes(whole[:middle] + bytes(40) + whole[middle + 40 :])
        case "a folder":
            path.unlink()
            path.mkdir()
    told: list[str] = []
    assert runs_made(todo, JOBS, ResultStore(cache.folder, told.append)) == 1
    if spoil != "a folder":
        assert (path.read_bytes(), told) == (whole, [])
        assert runs_made(todo, JOBS, cache) == 0
    else:
        assert len(told) == 1


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    told: list[str] = []
    outcomes = compare(some_tasks("fifo", "sjf"), JOBS, 1, ResultStore(tmp_path / "file" / "cache", told.append))
    assert len(outcomes) == 2
    remedy = "results are not kept; name another folder with --cache, or use --no-cache"
    assert told == [f"{tmp_path}/file/cache: cannot be written: Not a directory; {remedy}"]


def test_the_default_cache_is_where_caches_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert default_folder() == Path("/somewhere/horae")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert default_folder() == Path("/home/me/.cache/horae")


class Stops(Silent):
    """Somebody who ends the comparison after so many results."""

    def __init__(self, after: int, error: BaseException) -> None:
        self._left = after
        self._error = error

    def finished(self, index: int, jobs: int) -> None:
        self._left -= 1
        if not self._left:
            raise self._error


@pytest.mark.parametrize("workers", [1, 2])
def test_after_an_interrupt_only_what_is_missing_is_run(cache: ResultStore, workers: int) -> None:
    todo = some_tasks("fifo", "sjf", "las")
    with pytest.raises(KeyboardInterrupt):
        compare(todo, JOBS, workers, cache, Stops(1, KeyboardInterrupt()))
    assert len(list(cache.folder.iterdir())) == 1
    assert runs_made(todo, JOBS, cache) == 2


# Workers that fail


class Deadly:
    """A workload that kills the process which draws it: seed 0 lives."""

    is_recorded = True

    def digest(self, seed: int) -> str:
        return "deadly"

    def __call__(self, seed: int) -> list[Arrival]:
        if seed == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if seed == 2:
            os._exit(3)
        if seed == 3:
            raise InputError("is wrong", file="jobs.csv", line=7, field="gpus", remedy="mend it")
        if seed == 4:
            raise Peculiar(1, 2)
        if seed == 5:
            raise MemoryError
        return list(JOBS.arrivals)


class Peculiar(Exception):
    """It cannot be pickled."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


FEWER = "if memory is short, use fewer --workers"
DEATHS = {
    1: (InputError, f"the run of fifo, seed 1 was killed (SIGKILL); {FEWER}"),
    2: (InputError, f"the run of fifo, seed 2 ended before its time (exit code 3); {FEWER}"),
    3: (InputError, "jobs.csv:7: gpus: is wrong; mend it"),
    4: (Exception, "Peculiar: 1 and 2"),
    5: (InputError, f"the run of fifo, seed 5 ran out of memory; {FEWER}"),
}


@pytest.mark.parametrize("seed", DEATHS)
def test_a_worker_that_fails_is_one_error_that_names_the_run(seed: int) -> None:
    kind, want = DEATHS[seed]
    alive, other = some_tasks("fifo", seeds=seed + 1)[0], some_tasks("fifo", seeds=seed + 1)[seed]
    with pytest.raises(kind) as caught:
        compare([other, replace(alive, label="sjf"), alive], Deadly(), 2)
    assert str(caught.value) == want


def test_a_worker_is_deaf_to_ctrl_c_from_the_first_on() -> None:
    """The very first as well, whose start also starts the tracker of resources, which hears it again."""
    script = (
        "import signal, sys; from horae.experiments import workers; from pathlib import Path\n"
        "with workers._undisturbed(): worker = workers.Worker(Path('/nothing'))\n"
        "masks = Path(f'/proc/{worker._process.pid}/status').read_text().split()\n"
        "print(int(masks[masks.index('SigBlk:') + 1], 16) >> (signal.SIGINT - 1) & 1)\n"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout == "1\n"
