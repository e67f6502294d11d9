"""Published experiments run again, on tables of a few rows."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import islice
from math import inf, isnan, nan
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from command_line import horae
from horae_evaluation.gavel.ablation import ladder, rungs
from horae_evaluation.gavel.figures import ladder_figure, makespan_figure, rates_figure, save, sweep_figure
from horae_evaluation.gavel.published import PublishedPoint, published_hours, read_published
from horae_evaluation.gavel.results import case_key, run_cases
from horae_evaluation.gavel.rows import (
    GavelRow,
    Spread,
    by_case,
    holds,
    is_above,
    lines_by_rate,
    rows,
    swaps,
    too_slow,
    verdict,
    written,
)
from horae_evaluation.gavel.run import GavelResult, restarts, run_case
from horae_evaluation.gavel.setup import AT_ONCE, COMPATIBLE, OURS, GavelCase, Tables, arrivals_of, setup_of
from horae_evaluation.gavel.sweeps import SWEEPS, run_sweep, too_costly
from horae_evaluation.gavel.tables import sheet_of_rows, sheet_of_sweep
from horae_evaluation.progress import ReproductionLines

from horae.experiments.compare.run_spec import PolicyChoice
from horae.experiments.result_store import ResultStore
from horae.model.cluster import NODE
from horae.model.errors import InputError
from horae.model.setup import RoundRules
from horae.model.shapes import Shape
from horae.model.speeds import Measurement, PairMeasurement, Sharing
from horae.policies.registry import POLICIES
from horae.reports.run_log import LeaseLog
from horae.traces.sharing_table import sharing_rows

MODELS = {"slow": (1.0, 0.9, 0.8), "fast": (8.0, 4.0, 1.0)}  # steps/s on one V100, P100 and K80
TYPES = ("v100", "p100", "k80")
GANGS = (1, 2, 4, 8)
ROWS = tuple(
    Measurement(model, Shape(kind, gpus, NODE), gpus * speed, "a test")
    for model, speeds in MODELS.items()
    for kind, speed in zip(TYPES, speeds, strict=True)
    for gpus in GANGS
)
TABLES = Tables(ROWS, ())
SMALL = GavelCase("single", 4.8, "fifo", first=2, last=6)
SILENT = ReproductionLines(lambda line: None)


def row(policy: str, hours: float, published: float, error: float = 1.0, rate: float = 4.8) -> GavelRow:
    return GavelRow("single", rate, policy, policy, Spread(hours, error, 3), published)


# What was published.

PUBLISHED = """workload,metric,policy,rate_jobs_per_h,value
single_gpu,avg_jct_h,fifo,4.8,99.19
single_gpu,avg_jct_h,fifo_perf,4.8,22.24
single_gpu,avg_finish_time_ratio,fifo,4.8,1.00
multi_gpu,avg_jct_h,fifo,2.4,129.27
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder of our own, with everything that is needed."""
    folder = tmp_path / "data"
    (folder / "gavel").mkdir(parents=True)
    (folder / "gavel/published_by_rate.csv").write_text(PUBLISHED)
    isolated = ["table,gpu_type,consolidated,job_type,scale_factor,steps_per_s"]
    isolated += [f"simulation,{r.shape.accelerator},1,{r.model},{r.shape.gpus},{r.steps_per_second}" for r in ROWS]
    (folder / "gavel/throughputs_isolated.csv").write_text("\n".join(isolated) + "\n")
    pairs = "gpu_type,job_type_a,scale_a,job_type_b,scale_b,steps_per_s_a,steps_per_s_b\nv100,slow,1,fast,1,0.5,4.0\n"
    (folder / "gavel/throughputs_colocated.csv.gz").write_bytes(gzip.compress(pairs.encode()))
    return folder


def test_completion_times_are_read_and_ratios_are_not(data: Path) -> None:
    assert read_published(data) == {
        PublishedPoint("single", "fifo", 4.8): 99.19,
        PublishedPoint("single", "fifo_perf", 4.8): 22.24,
        PublishedPoint("multi", "fifo", 2.4): 129.27,
    }


def test_a_rate_is_found_as_it_is_written() -> None:
    published = {PublishedPoint("single", "fifo", 4.8): 99.0}
    assert published_hours(published, "single", "fifo", 1.6 + 3.2) == 99.0
    assert isnan(published_hours(published, "single", "fifo", 4.7))
    assert isnan(published_hours(published, "multi", "fifo", 4.8))


SPOILED = {
    "a value is a word": (
        PUBLISHED.replace("22.24", "soon"),
        ":3: value: is 'soon'; give a number above 0",
    ),
    "a rate is zero": (PUBLISHED.replace("fifo,2.4", "fifo,0"), ":5: rate_jobs_per_h: is '0'; give a number above 0"),
    "a workload is unknown": (
        PUBLISHED.replace("multi_gpu", "many_gpu"),
        ":5: workload: is 'many_gpu'; use single_gpu or multi_gpu",
    ),
    "a column is missing": (PUBLISHED.replace("value", "hours"), ":1: value: is missing; fetch the file again"),
    "nothing is there": (
        PUBLISHED.splitlines()[0] + "\n",
        ": metric: has no metric 'avg_jct_h'; fetch the file again",
    ),
}


@pytest.mark.parametrize(("text", "want"), SPOILED.values(), ids=SPOILED)
def test_a_spoiled_table_is_one_line_with_its_place(data: Path, text: str, want: str) -> None:
    path = data / "gavel/published_by_rate.csv"
    path.write_text(text)
    with pytest.raises(InputError) as raised:
        read_published(data)
    assert str(raised.value) == f"{path}{want}"


# The set-up.


def pair(first: str, second: str, speeds: tuple[float, float], gpus: int = 1) -> PairMeasurement:
    return PairMeasurement((first, second), Shape("v100", gpus, NODE), speeds, "a test")


SHARED = {
    "each keeps a part of its own speed": ([pair("slow", "fast", (0.5, 6.0))], [(("slow", "fast"), (0.5, 0.75))]),
    "by the speed of the same gang": ([pair("slow", "slow", (1.0, 1.0), 2)], [(("slow", "slow"), (0.5, 0.5))]),
    "both do not fit if one does not": ([pair("slow", "fast", (0.0, 6.0))], [(("slow", "fast"), (0.0, 0.0))]),
    "a pair in both orders counts once": (
        [pair("slow", "fast", (0.5, 6.0)), pair("fast", "slow", (6.0, 0.5))],
        [(("slow", "fast"), (0.5, 0.75))],
    ),
    "whoever does not run alone has no company": ([pair("slow", "nobody", (0.5, 1.0))], []),
}


@pytest.mark.parametrize(("pairs", "want"), SHARED.values(), ids=SHARED)
def test_what_two_jobs_keep_of_their_speeds(
    pairs: Sequence[PairMeasurement], want: Sequence[tuple[tuple[str, str], tuple[float, float]]]
) -> None:
    found = sharing_rows(pairs, ROWS)
    assert [(each.models, each.kept) for each in found] == want
    assert all(isinstance(each, Sharing) and each.accelerator == "v100" for each in found)


def test_the_cluster_is_that_of_the_paper() -> None:
    setup = setup_of(replace(SMALL, restart_seconds=30.0), TABLES)
    assert setup.cluster.accelerators == TYPES
    assert setup.cluster.gpu_count == 108
    assert {node.gpus for node in setup.cluster.nodes} == {4}
    assert setup.cluster.restart_seconds == 30.0
    assert setup.pools[0].round_seconds == 360.0


def test_the_first_jobs_do_not_depend_on_how_many_come_after_them() -> None:
    for workload in ("single", "multi"):
        case = replace(SMALL, workload=workload)
        cluster = setup_of(case, TABLES).cluster
        many = list(islice(arrivals_of(replace(case, last=3000), TABLES, cluster), 3000))
        few = list(islice(arrivals_of(case, TABLES, cluster), 3000))  # several batches
        assert few == many
        assert [each.job.id for each in few] == [str(number) for number in range(3000)]
        assert sorted({each.job.gpus for each in few}) == ([1] if workload == "single" else [1, 2, 4, 8])


def test_gangs_are_as_fast_anywhere_unless_asked_otherwise() -> None:
    spread = [
        r._replace(shape=r.shape._replace(level="cluster"), steps_per_second=r.steps_per_second / 2)
        for r in ROWS
        if r.shape.gpus > 1
    ]
    tables = Tables((*ROWS, *spread), ())
    case = replace(SMALL, workload="multi", last=100)
    for spread_is_slower, options in ((False, {3}), (True, {3, 6})):
        case = replace(case, spread_is_slower=spread_is_slower)
        made = list(islice(arrivals_of(case, tables, setup_of(case, tables).cluster), 100))
        assert {len(each.job.options) for each in made} == options  # by type, and by type and place


def test_all_at_once_is_at_the_beginning() -> None:
    case = replace(SMALL, jobs_per_hour=AT_ONCE, first=0, last=20)
    made = list(arrivals_of(case, TABLES, setup_of(case, TABLES).cluster))
    assert len(made) == 20
    assert {each.job.submitted_at for each in made} == {0.0}


# Runs.


def test_a_run_ends_with_the_jobs_that_are_measured() -> None:
    told: list[float] = []
    result = run_case(SMALL, TABLES, told.append)
    assert result.is_loaded
    assert 0 < result.completion_mean_seconds < result.last_end_seconds
    assert result.restarts_per_job == 0
    assert told


@pytest.mark.parametrize(
    "changed",
    [replace(SMALL, speed_noise=0.5), SWEEPS["profiling"].change(SMALL, 600.0)],
    ids=["wrong speeds", "speeds that are learned"],
)
def test_what_is_known_of_speeds_changes_a_run(changed: GavelCase) -> None:
    plain = run_case(replace(SMALL, last=60), TABLES)
    assert run_case(replace(changed, last=60), TABLES).completion_mean_seconds != plain.completion_mean_seconds


def values(results: Sequence[GavelResult]) -> list[GavelResult]:
    return [replace(result, processor_seconds=0.0) for result in results]


def test_neither_workers_nor_what_is_kept_changes_a_result(tmp_path: Path) -> None:
    cases = [replace(SMALL, seed=seed, policy=policy) for seed in (0, 1) for policy in ("fifo", "sjf")]
    alone = run_cases([*cases, cases[0]], TABLES, 1, ResultStore(tmp_path / "one", pytest.fail), SILENT)
    many = run_cases([*cases, cases[0]], TABLES, 2, ResultStore(tmp_path / "two", pytest.fail), SILENT)
    assert values(alone) == values(many)
    assert alone[0] == alone[-1]
    assert len(list((tmp_path / "two").iterdir())) == len(cases)
    again = run_cases(cases, TABLES, 1, ResultStore(tmp_path / "one", pytest.fail), SILENT)
    assert again == alone[:-1]  # to the processor time, as nothing was run


def test_whatever_a_run_depends_on_is_in_its_name() -> None:
    cases = [SMALL, *(sweep.change(SMALL, sweep.values[-1]) for sweep in SWEEPS.values()), *rungs(SMALL).values()]
    names = {case_key(case, TABLES) for case in cases}
    assert len({*names, case_key(SMALL, Tables(ROWS[:-1], ()))}) == len(set(map(str, cases))) + 1


def test_what_two_lose_to_restarts_on_the_same_gpus_counts_once() -> None:
    """Two leases of 100 seconds on 2 GPUs, begun by restarts of 10 and 20 seconds, shared for the first 80."""
    nought, two = np.zeros(2, dtype=np.int64), np.full(2, 100.0)
    leases = LeaseLog(
        job=np.arange(2), accelerator=nought, started_at=np.zeros(2), ended_at=two,
        restart_seconds=np.array([10.0, 20.0]), shared_seconds=np.full(2, 80.0), ending=nought,
        offset=np.array([0, 2, 4]), gpu=np.array([0, 1, 0, 1]),
    )  # fmt: skip
    log = SimpleNamespace(jobs=SimpleNamespace(id=("a", "b")), leases=leases, starts=np.array([1, 3]))
    assert restarts(log, ("a", "b")) == (1.0, (10 + 20) / 2 / (2 * 60.0))  # type: ignore[arg-type]


def test_a_part_of_a_file_is_no_result(tmp_path: Path) -> None:
    store = ResultStore(tmp_path, pytest.fail)
    result = run_case(SMALL, TABLES)
    store.save("name", result, about=str(SMALL))
    assert store.load("name", GavelResult) == result
    path = tmp_path / "name.json"
    path.write_text(path.read_text()[:-20])
    assert store.load("name", GavelResult) is None
    assert store.load("nothing", GavelResult) is None


def test_a_run_that_fails_says_which(tmp_path: Path) -> None:
    bad = replace(SMALL, policy="nobody")
    for workers in (1, 2):
        with pytest.raises(InputError, match="there is no policy 'nobody'"):
            run_cases([bad, replace(bad, seed=1)], TABLES, workers, ResultStore(tmp_path, pytest.fail), SILENT)


# Rows and verdicts.


def fixed(hours: float) -> GavelResult:
    return GavelResult(3600 * hours, 7200 * hours, 2.0, 0.1, True, 0.0)


def test_a_mean_has_an_error_from_two_seeds_on() -> None:
    assert isnan(Spread.of([3.0]).two_standard_errors)
    assert Spread.of([1.0, 3.0]) == Spread(2.0, 2.0, 2)


def test_seeds_come_one_after_the_other_for_all_cases() -> None:
    asked: list[tuple[str, int]] = []

    def solve(cases: Sequence[GavelCase]) -> list[GavelResult]:
        asked.extend((case.policy, case.seed) for case in cases)
        return [fixed(len(case.policy) + case.seed) for case in cases]

    found = by_case([SMALL, replace(SMALL, policy="las-2")], 2, solve)
    assert asked == [("fifo", 0), ("las-2", 0), ("fifo", 1), ("las-2", 1)]
    assert [[each.completion_mean_seconds / 3600 for each in results] for results in found] == [[4, 5], [5, 6]]


def test_policies_are_run_where_something_was_published_unless_they_were_named() -> None:
    published = {PublishedPoint("single", "fifo", 4.8): 99.0}
    choices = {"fifo": PolicyChoice("fifo", {}), "sjf": PolicyChoice("sjf", {"aware": False})}
    rates = {"single": (4.8, 5.6)}
    assert [line.policy for line in lines_by_rate(published, choices, rates, SMALL, named=False)] == ["fifo"]
    lines = lines_by_rate(published, choices, rates, SMALL, named=True)
    assert [(line.policy, line.case.jobs_per_hour) for line in lines] == [
        (policy, rate) for rate in (4.8, 5.6) for policy in choices
    ]
    made = rows(lines, 2, lambda cases: [fixed(10.0 + case.seed) for case in cases])
    assert (made[0].hours, made[0].published_hours) == (Spread(10.5, 1.0, 2), 99.0)
    assert not made[1].is_published
    assert made[1].ours == written(choices["sjf"]) == "sjf={aware: false}"


ABOVE = {
    "below": (18.0, 1.0, False),
    "within two standard errors": (19.9, 1.0, False),
    "beyond them": (20.1, 1.0, True),
    "one seed, at most": (19.0, nan, False),
    "one seed, above": (19.1, nan, True),
}


@pytest.mark.parametrize(("hours", "error", "want"), ABOVE.values(), ids=ABOVE)
def test_max_min_is_above_beyond_two_standard_errors(hours: float, error: float, want: bool) -> None:
    found = row("max_min_fairness_perf", hours, 19.0, error)
    assert is_above(found) == want
    assert bool(too_slow([found])) == want
    assert holds([found]) != want
    assert not too_slow([replace(found, policy="fifo")])  # of others only the order counts


ORDERS = {
    "kept": ([row("a", 10, 20.0), row("b", 11, 30.0)], 0),
    "broken": ([row("a", 11, 20.0), row("b", 10, 30.0)], 1),
    "equal": ([row("a", 10, 20.0), row("b", 10, 30.0)], 0),
    "too near to each other to count": ([row("a", 11, 20.0), row("b", 10, 22.9)], 0),
    "at different rates": ([row("a", 11, 20.0), row("b", 10, 30.0, rate=5.6)], 0),
    "not published": ([row("a", 11, 20.0), row("b", 10, nan)], 0),
    "each pair counts": ([row("a", 12, 20.0), row("b", 11, 30.0), row("c", 10, 40.0)], 3),
}


@pytest.mark.parametrize(("made", "want"), ORDERS.values(), ids=ORDERS)
def test_policies_published_apart_keep_their_order(made: Sequence[GavelRow], want: int) -> None:
    for order in (made, made[::-1]):
        found = swaps(order)
        assert len(found) == want
        assert all(swap.better.published_hours < swap.worse.published_hours for swap in found)
        assert holds(order) == (want == 0)


def test_a_verdict_says_what_is_wrong() -> None:
    made = [row("max_min_fairness_perf", 25.0, 19.0), row("fifo", 20.0, 99.0), row("mine", 1.0, nan)]
    assert [verdict(each, made) for each in made] == ["ABOVE, ORDER BROKEN (1)", "ORDER BROKEN (1)", "not published"]
    sheet = sheet_of_rows(made, "mean completion")
    assert sheet.failures == (
        "single, 4.8 jobs/h: max_min_fairness_perf takes 25.00 h, "
        "beyond two standard errors above the published 19.00 h",
        "single, 4.8 jobs/h: max_min_fairness_perf was published below fifo (19.0 and 99.0 h), "
        "and comes out above it (25.0 and 20.0 h)",
    )
    assert sheet.plain[2]["published_hours"] is None
    assert sheet.lines[0][5:9] == ("25.00", "1.00", "19.00", "+31.6%")


# Ladder and sweeps.


def test_each_rung_differs_from_the_first_in_what_its_name_says() -> None:
    found = list(rungs(replace(SMALL, workload="multi")).values())
    assert [case.rules for case in found] == [
        COMPATIBLE,
        replace(COMPATIBLE, type_order=()),
        replace(COMPATIBLE, reconsider_seconds=0.0),
        replace(COMPATIBLE, fill=False),
        replace(COMPATIBLE, turn_rounds=OURS.turn_rounds),
        *[OURS] * 3,
    ]
    assert [case.restart_seconds for case in found] == [0, 0, 0, 0, 0, 0, 60, 0]
    assert [case.spread_is_slower for case in found] == [*[False] * 7, True]
    assert len(rungs(SMALL)) == 7


def test_the_rules_that_a_rung_switches_off_are_all_that_there_are() -> None:
    """But for what restarts cost, as they cost nothing there."""
    names = {item.name for item in fields(RoundRules)} - {"restart_share_max"}
    assert all(getattr(COMPATIBLE, name) != getattr(OURS, name) for name in names)
    assert len(names) == len([case for case in rungs(SMALL).values() if case.rules not in (COMPATIBLE, OURS)])


def test_two_in_the_wrong_order_are_told_with_their_difference_seed_by_seed() -> None:
    one, other = row("allox", 21.0, 25.0), row("finish_time_fairness_perf", 20.0, 30.0)
    (swap,) = swaps([one, other])
    assert str(swap).endswith("comes out above it (21.0 and 20.0 h)")
    (swap,) = swaps([replace(one, by_seed=(20.0, 22.0)), replace(other, by_seed=(20.0, 20.0))])
    assert str(swap).endswith("(21.0 and 20.0 h); seed by seed +1.0 +- 2.0 h")


def test_changes_are_taken_seed_by_seed() -> None:
    def solve(cases: Sequence[GavelCase]) -> list[GavelResult]:
        return [fixed((1 + case.seed) * (0.9 if case.rules == OURS else 1.0)) for case in cases]

    found = ladder({"single": (4.8,)}, SMALL, 2, solve)
    assert found[0].change == Spread(0.0, 0.0, 2)
    assert found[5].change.mean == pytest.approx(-0.1)
    assert found[5].change.two_standard_errors == pytest.approx(0.0)


def test_a_sweep_has_a_step_for_each_value_and_load() -> None:
    asked: list[GavelCase] = []

    def solve(cases: Sequence[GavelCase]) -> list[GavelResult]:
        asked.extend(cases)
        return [fixed(10.0) for _ in cases]

    for sweep in SWEEPS.values():
        asked.clear()
        steps = run_sweep(sweep, {"single": (4.8,), "multi": (2.4,)}, SMALL, 1, solve)
        assert [step.value for step in steps] == [*sweep.values, *sweep.values]
        assert len({*map(str, asked)}) == 2 * (len(sweep.values) + (sweep.base is not None))


def test_what_not_knowing_speeds_costs_is_told_seed_by_seed_and_may_be_too_much() -> None:
    def solve(cases: Sequence[GavelCase]) -> list[GavelResult]:
        return [fixed((1 + case.seed) * (1.0 if case.learning is None else slower)) for case in cases]

    sweep = SWEEPS["profiling"]
    slower = 1.04
    steps = run_sweep(sweep, {"single": (4.8,)}, SMALL, 3, solve)
    assert [step.change.mean for step in steps] == pytest.approx([0.04] * len(sweep.values))
    assert not too_costly(steps)
    assert not sheet_of_sweep(steps, sweep).failures
    slower = 1.06
    steps = run_sweep(sweep, {"single": (4.8,)}, SMALL, 3, solve)
    assert [step.value for step in too_costly(steps)] == [60.0]
    assert "cost 6.0%" in sheet_of_sweep(steps, sweep).failures[0]


def test_figures_are_drawn(tmp_path: Path) -> None:
    made = [row("fifo", 900.0, 99.0), row("max_min_fairness_perf", 18.0, 19.0), row("mine", 15.0, nan, nan)]
    steps = run_sweep(SWEEPS["rounds"], {"single": (4.8,)}, SMALL, 2, lambda cases: [fixed(9.0) for _ in cases])
    found = ladder({"single": (4.8,), "multi": (2.4,)}, SMALL, 1, lambda cases: [fixed(9.0) for _ in cases])
    figures = {
        "rates": rates_figure(made, {PublishedPoint("single", "fifo", 4.4): 44.0}),
        "makespan": makespan_figure([replace(each, jobs_per_hour=inf) for each in made]),
        "ladder": ladder_figure(found),
        "sweep": sweep_figure(steps, SWEEPS["rounds"]),
    }
    for name, figure in figures.items():
        paths = save(figure, tmp_path / f"{name}.png")
        assert paths == [tmp_path / f"{name}.{form}" for form in ("pdf", "svg", "png")]
        assert all(path.stat().st_size for path in paths)


# The command.

QUICK = ("--workload", "single", "--rate", "4.8", "--jobs-measured", 5, 15, "--seeds", 1, "--workers", 1)


def test_the_order_that_was_published_comes_out(data: Path, tmp_path: Path) -> None:
    words = ("reproduce", "gavel", "--data", data, "--cache", tmp_path, "--policy", "fifo", "--policy", "fifo_perf")
    outcome = horae(*words, *QUICK, "--plot", tmp_path / "a.png")
    assert outcome.code == 0, outcome
    assert outcome.out.count("in order") == 2
    assert "one draw (seed 0)" in outcome.out
    assert "2/2: fifo-on-fastest, single, 4.8 jobs/h, seed 0" in outcome.err
    assert (tmp_path / "a.png").stat().st_size > 0
    again = horae(*words, *QUICK, "-o", "json")
    assert "2 of 2 runs are there already" in again.err
    found = json.loads(again.out)
    assert [each["published_hours"] for each in found["rows"]] == [99.19, 22.24]
    assert found["failures"] == []
    assert horae(*words, *QUICK, "-o", "csv", "--quiet").out.startswith("workload,jobs_per_hour,policy,ours,seeds,")


def test_another_published_value_ends_with_an_error(data: Path, tmp_path: Path) -> None:
    path = data / "gavel/published_by_rate.csv"
    path.write_text(PUBLISHED.replace("99.19", "9.19"))
    words = ("reproduce", "gavel", "--data", data, "--cache", tmp_path, "--policy", "fifo", "--policy", "fifo_perf")
    outcome = horae(*words, *QUICK)
    assert outcome.code == 1
    assert outcome.out.count("ORDER BROKEN (1)") == 2
    assert "FAILS: single, 4.8 jobs/h: fifo was published below fifo_perf (9.2 and 22.2 h)" in outcome.out


COMPLAINTS = {
    "two experiments": (
        ("--ladder", "--makespan"),
        "--makespan, --ladder and --sweep are experiments of their own; give one of them",
    ),
    "no jobs": (
        ("--jobs-measured", 5, 5),
        "--jobs-measured: is 5 5; give two numbers, the smaller first",
    ),
    "a rate of two workloads": (
        ("--rate", 3),
        "--rate: the same rate loads one workload twice as much as the other; "
        "add --workload single or --workload multi",
    ),
    "a rate of nothing": (("--rate", 0), "--rate: is 0; give a positive number"),
    "a makespan at a rate": (
        ("--makespan", "--rate", 3),
        "--makespan has one workload and no rate; leave out --workload and --rate",
    ),
    "a ladder of two policies": (
        ("--ladder", "--policy", "fifo", "--policy", "sjf"),
        "--policy: is of one policy; name one policy",
    ),
    "a picture that is none": (("--plot", "a.txt"), "--plot: is 'a.txt'; name a file that ends in .pdf, .svg or .png"),
    "an unknown option": (
        ("--policy", "sjf={best: 1}"),
        "--policy: policy 'sjf' has no option 'best'; it takes: backfill",
    ),
}


@pytest.mark.parametrize(("words", "want"), COMPLAINTS.values(), ids=COMPLAINTS)
def test_what_cannot_be_is_said_in_one_line(data: Path, words: tuple[object, ...], want: str) -> None:
    assert horae("reproduce", "gavel", "--data", data, *words).complaint == want


def test_policies_that_are_not_there_are_left_out_aloud(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(POLICIES, "fifo-on-fastest")
    outcome = horae("reproduce", "gavel", "--data", data, "--cache", tmp_path, *QUICK)
    assert "left out: fifo: there is no policy 'fifo-on-fastest'" in outcome.err
    assert outcome.code == 2  # nothing else was published in this folder
