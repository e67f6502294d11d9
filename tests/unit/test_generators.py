"""Made-up workloads: their distributions, their determinism, and what is said about wrong parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from horae.model.arrays import Floats
from horae.model.errors import InputError
from horae.model.searches import Method, searches_of
from horae.model.shapes import Shape
from horae.model.speeds import Measurement
from horae.traces.generators import (
    GENERATORS,
    Diurnal,
    GavelWorkload,
    HeavyTail,
    Poisson,
    ThemisWorkload,
    make_generator,
)
from horae.traces.generators.base import Generator
from horae.traces.generators.gavel import reference_speeds
from horae.traces.generators.themis import COMPUTE_INTENSIVE, NETWORK_INTENSIVE, themis_cluster
from horae.traces.jobs import arrivals
from horae.traces.speed_tables import read_gavel_csv
from horae.traces.trace import SCHEMA

HOUR, DAY = 3600.0, 86400.0
REFERENCE: Mapping[tuple[str, int], float] = {
    **{("wide", gpus): 2.0 * gpus for gpus in (1, 2, 4, 8)},
    **{("broad", gpus): 3.0 * gpus for gpus in (1, 2, 4, 8)},
    ("narrow", 1): 5.0,
    ("too large", 1): 0.0,
}


def made(name: str) -> Generator:
    return make_generator(name, {"reference": REFERENCE, "jobs": 50} if name == "gavel" else {})


def column(table: pl.DataFrame, name: str) -> Floats:
    return table[name].to_numpy().astype(float)


# All generators


@pytest.mark.parametrize("name", GENERATORS)
def test_the_same_seed_gives_the_same_table(name: str) -> None:
    first, second = made(name).trace(3), made(name).trace(3)
    assert first.table.write_csv() == second.table.write_csv()
    assert first.source == second.source


@pytest.mark.parametrize("name", GENERATORS)
def test_another_seed_gives_another_table(name: str) -> None:
    assert not made(name).trace(3).table.equals(made(name).trace(4).table)


@pytest.mark.parametrize("name", GENERATORS)
def test_a_table_has_known_columns_in_order_of_submission_and_numbered_rows(name: str) -> None:
    table = made(name).trace(0).table
    assert {key: table.schema[key] for key in table.columns} == {
        key: kind for key, kind in SCHEMA.items() if key in table.columns
    }
    assert table["submit"].is_sorted()
    assert table["line"].to_list() == list(range(1, table.height + 1))
    assert table["id"].is_unique().all()
    work = "duration" if "duration" in table.columns else "steps"
    assert (column(table, work) > 0).all()


def test_another_column_does_not_shift_the_others() -> None:
    plain = GavelWorkload(REFERENCE, jobs=100).trace(1).table
    rich = GavelWorkload(REFERENCE, jobs=100, weighted_share=0.2, slo_factors=(1.2, 2.0, 10.0)).trace(1).table
    assert rich.select(plain.columns).equals(plain)


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        (
            "posson",
            {},
            "generator: there is no generator 'posson'; choose one of poisson, gavel, themis, diurnal, heavy-tail",
        ),
        (
            "themis",
            {"aps": 3},
            "generator: generator 'themis' has no option 'aps'; "
            "it takes: workload, apps, cluster_gpus, load, network_intensive",
        ),
        ("poisson", {"jobs": 1.5}, "generator: option 'jobs' of generator 'poisson' is 1.5; give a whole number"),
        ("poisson", {"jobs": True}, "generator: option 'jobs' of generator 'poisson' is True; give a whole number"),
        ("poisson", {"load": "high"}, "generator: option 'load' of generator 'poisson' is 'high'; give a number"),
        (
            "poisson",
            {"gangs": [1, 2.5]},
            "generator: option 'gangs' of generator 'poisson' is [1, 2.5]; give a list of",
        ),
        ("gavel", {"multi_gpu": 1}, "generator: option 'multi_gpu' of generator 'gavel' is 1; give true or false"),
        ("gavel", {"reference": "v100"}, "generator: option 'reference' of generator 'gavel' is 'v100'; give a table"),
        ("gavel", {}, "reference: is 'without 1 GPUs'; give steps a second by job type and GPUs, for every gang size"),
        ("poisson", {"jobs": 0}, "jobs: is 0; give 1 to 100,000,000"),
        ("poisson", {"jobs": 5_000_000_000}, "jobs: is 5000000000; give 1 to 100,000,000"),
        ("poisson", {"sigma": 1000.0}, "sigma: is 1000.0; give at most 20"),
        ("poisson", {"load": 0}, "load: is 0.0; give a number above 0"),
        ("poisson", {"load": float("nan")}, "load: is nan; give a number above 0"),
        ("poisson", {"gangs": [1, 0]}, "gangs: is (1, 0); give sizes of 1 or more"),
        ("poisson", {"gangs": [1, 2]}, "gang_probabilities: is (0.7, 0.1, 0.15, 0.05); give one probability a gang"),
        ("themis", {"workload": "w3"}, "workload: is 'w3'; choose one of w1, w2"),
        ("themis", {"apps": 1}, "apps: is 1; give 2 or more: with one there is no span of arrivals"),
        ("diurnal", {"amplitude": 1.5}, "amplitude: is 1.5; give a number from 0 to 1"),
        ("diurnal", {"peak_hour": 24}, "peak_hour: is 24.0; give an hour from 0 to below 24"),
        ("heavy-tail", {"distribution": "zipf"}, "distribution: is 'zipf'; choose one of pareto, lognormal"),
        ("heavy-tail", {"seconds_max": 60}, "seconds_max: is 60.0; give more than seconds_min, which is 60.0"),
    ],
)
def test_a_wrong_option_is_one_line(name: str, options: dict[str, object], complaint: str) -> None:
    with pytest.raises(InputError) as error:
        make_generator(name, options)
    assert str(error.value).startswith(complaint)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", GENERATORS)
def test_a_negative_seed_is_one_line(name: str) -> None:
    with pytest.raises(InputError, match="seed: is -1; give a whole number of at least 0"):
        made(name).trace(-1)


def test_options_are_taken_in_the_type_of_their_default() -> None:
    assert make_generator("poisson", {"load": 1, "gangs": [1], "gang_probabilities": [1]}) == Poisson(
        load=1.0, gangs=(1,), gang_probabilities=(1.0,)
    )


# Poisson


def test_a_poisson_trace_holds_the_jobs_of_the_lazy_arrivals() -> None:
    generator = Poisson(jobs=25_000, cluster_gpus=64, load=0.7)
    table = generator.trace(5).table
    jobs = [arrival.job for arrival in generator.arrivals(5)]
    assert table["submit"].to_list() == [job.submitted_at for job in jobs]
    assert table["gpus"].to_list() == [job.gpus for job in jobs]
    assert table["duration"].to_list() == [job.steps_total for job in jobs]


def test_a_poisson_trace_has_the_load_that_was_asked_for() -> None:
    table = Poisson(jobs=100_000, cluster_gpus=64, load=0.7).trace(0).table
    gpu_seconds = float((column(table, "gpus") * column(table, "duration")).sum())
    assert gpu_seconds / (64 * column(table, "submit")[-1]) == pytest.approx(0.7, rel=0.03)


# Gavel


def test_gavel_run_times_are_as_the_paper_draws_them() -> None:
    table = GavelWorkload({("a", 1): 2.0}, jobs=40_000).trace(0).table
    minutes = column(table, "steps") / 2.0 / 60.0
    exponent = np.log10(minutes)
    assert minutes.min() >= 10**1.5
    assert minutes.max() <= 10**4
    assert (exponent > 3).mean() == pytest.approx(0.2, abs=0.01)
    assert np.quantile(exponent[exponent <= 3], [0.25, 0.5, 0.75]) == pytest.approx([1.875, 2.25, 2.625], abs=0.02)
    assert np.quantile(exponent[exponent > 3], [0.25, 0.5, 0.75]) == pytest.approx([3.25, 3.5, 3.75], abs=0.02)
    assert minutes.mean() / 60 == pytest.approx(16.8, rel=0.03)  # hours, as the authors' generator has


def test_gavel_arrivals_are_poisson_at_the_given_rate() -> None:
    gaps = np.diff(column(GavelWorkload(REFERENCE, jobs=40_000, jobs_per_hour=4.8).trace(0).table, "submit"))
    assert gaps.mean() == pytest.approx(HOUR / 4.8, rel=0.02)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.02)


def test_gavel_gangs_have_their_shares_and_types_exist_at_their_size() -> None:
    table = GavelWorkload(REFERENCE, jobs=40_000, multi_gpu=True).trace(0).table
    shares = {gpus: float((column(table, "gpus") == gpus).mean()) for gpus in (1, 2, 4, 8)}
    assert shares == pytest.approx({1: 0.7, 2: 0.1, 4: 0.15, 8: 0.05}, abs=0.01)
    one, many = table.filter(pl.col("gpus") == 1), table.filter(pl.col("gpus") > 1)
    assert set(many["model"]) == {"wide", "broad"}
    assert Counter(one["model"])["narrow"] / one.height == pytest.approx(1 / 3, abs=0.01)
    assert Counter(many["model"])["wide"] / many.height == pytest.approx(1 / 2, abs=0.02)


def test_gavel_steps_are_the_run_time_at_the_reference_speed_of_the_gang() -> None:
    slow = GavelWorkload({("a", gpus): 1.0 for gpus in (1, 2, 4, 8)}, jobs=200, multi_gpu=True).trace(0).table
    fast = GavelWorkload({("a", gpus): 1.5 * gpus for gpus in (1, 2, 4, 8)}, jobs=200, multi_gpu=True).trace(0).table
    assert column(fast, "steps") == pytest.approx(column(slow, "steps") * 1.5 * column(slow, "gpus"))


def test_gavel_weights_and_deadlines_are_drawn_where_asked_for() -> None:
    table = GavelWorkload({("a", 1): 2.0}, jobs=20_000, weighted_share=0.2, slo_factors=(1.2, 2.0, 10.0)).trace(0).table
    assert set(table["weight"]) == {1.0, 5.0}
    assert (column(table, "weight") == 5).mean() == pytest.approx(0.2, abs=0.01)
    factor = (column(table, "deadline") - column(table, "submit")) / (column(table, "steps") / 2.0)
    assert {round(value, 6) for value in factor.tolist()} == {1.2, 2.0, 10.0}


def test_the_reference_is_what_was_measured_in_one_node_of_the_type() -> None:
    rows = [
        Measurement("a", Shape("v100", 1, "node"), 2.0, "test"),
        Measurement("a", Shape("v100", 2, "node"), 0.0, "test"),
        Measurement("a", Shape("v100", 4, "cluster"), 5.0, "test"),
        Measurement("a", Shape("k80", 1, "node"), 1.0, "test"),
    ]
    assert reference_speeds(rows) == {("a", 1): 2.0}


def test_with_the_published_table_gavel_draws_26_types_of_which_7_have_no_gangs(data: Path) -> None:
    reference = reference_speeds(read_gavel_csv(data))
    table = GavelWorkload(reference, jobs=20_000, multi_gpu=True).trace(0).table
    assert table["model"].n_unique() == 26
    assert table.filter(pl.col("gpus") > 1)["model"].n_unique() == 19


# Themis


@pytest.mark.parametrize("workload", ["w1", "w2"])
@pytest.mark.parametrize("seed", range(10))
def test_the_load_of_themis_is_exactly_four_fifths(workload: str, seed: int) -> None:
    """Of the work that will be done: of W2's trials most are ended long before."""
    trace = ThemisWorkload(workload).trace(seed)
    table = trace.table
    gpu_seconds = float((column(table, "gpus") * column(table, "duration")).sum())
    if workload == "w2":
        made, _ = arrivals(trace, themis_cluster())
        whole, gpu_seconds = gpu_seconds, sum(each.gpu_seconds for each in searches_of(made, Method.HALVING, seed))
        assert gpu_seconds < whole / 3
    span = column(table, "submit")[-1] - column(table, "submit")[0]
    assert gpu_seconds / (256 * span) == pytest.approx(0.8, rel=1e-9)


def test_themis_jobs_of_an_app_arrive_with_it_and_share_its_slowdown() -> None:
    table = ThemisWorkload("w2").trace(0).table
    assert table["app"].n_unique() == 85
    by_app = table.group_by("app").agg(pl.col("submit").n_unique(), pl.col("slowdown").drop_nulls().n_unique())
    assert by_app["submit"].to_list() == [1] * 85
    assert by_app["slowdown"].max() == 1


def test_themis_counts_jobs_and_gpu_hours_as_defined() -> None:
    tables = [ThemisWorkload("w1", apps=2000).trace(seed).table for seed in range(2)]
    sizes = np.concatenate([column(table.group_by("app").len(), "len") for table in tables])
    assert sizes.max() == 98
    # One job: 0.1 + 0.9 x the chance that the lognormal rounds to 1 (below 1.5, that is 0.32%).
    assert (sizes == 1).mean() == pytest.approx(0.103, abs=0.015)
    assert np.median(sizes[sizes > 1]) == pytest.approx(23, abs=1)
    hours = np.concatenate([column(table, "gpus") * column(table, "duration") / HOUR for table in tables])
    assert np.median(hours) == pytest.approx(3.75, rel=0.02)
    assert np.log(hours).std() == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize(("workload", "want"), [("w1", {1: 0.5, 2: 0.5}), ("w2", {1: 0.4, 2: 0.25, 4: 0.25, 8: 0.1})])
def test_themis_gangs_have_their_shares(workload: str, want: dict[int, float]) -> None:
    gpus = column(ThemisWorkload(workload, apps=1000).trace(0).table, "gpus")
    assert {size: float((gpus == size).mean()) for size in want} == pytest.approx(want, abs=0.01)


def test_two_fifths_of_the_themis_apps_are_network_intensive() -> None:
    # The kind of an app shows in its gangs; apps that have none are left out.
    table = ThemisWorkload("w2", apps=1000).trace(0).table.drop_nulls("slowdown")
    kinds = Counter(dict(table.select("app", "slowdown").iter_rows()).values())
    assert set(kinds) == {NETWORK_INTENSIVE, COMPUTE_INTENSIVE}
    assert kinds[NETWORK_INTENSIVE] / kinds.total() == pytest.approx(0.4, abs=0.01)
    assert ThemisWorkload()._is_network_intensive(0).sum() == 34


def test_themis_gangs_may_be_spread_anywhere_and_single_gpus_have_no_level() -> None:
    table = ThemisWorkload("w2").trace(0).table
    assert set(table.filter(pl.col("gpus") > 1)["level"]) == {"cluster"}
    assert table.filter(pl.col("gpus") == 1)["level"].null_count() == table.filter(pl.col("gpus") == 1).height


def test_the_themis_cluster_has_256_gpus_in_six_racks_and_all_levels_of_the_slowdowns() -> None:
    cluster = themis_cluster()
    assert Counter(node.gpus for node in cluster.nodes) == {8: 16, 4: 16, 1: 64}
    assert cluster.gpu_count == 256
    assert set(Counter(node.rack for node in cluster.nodes).values()) == {16}
    assert cluster.levels == ("gpu", "node", "rack", "cluster")
    assert cluster.restart_seconds == 45.0


# Diurnal


def test_diurnal_arrivals_follow_the_rate_by_hour_and_weekend() -> None:
    generator = Diurnal(jobs=200_000, jobs_per_hour=20, amplitude=0.6, peak_hour=15, weekend_factor=0.4)
    submit = column(generator.trace(0).table, "submit")
    weeks = int(submit[-1] // (7 * DAY))
    submit = submit[submit < weeks * 7 * DAY]
    counts = np.histogram(submit % (7 * DAY), bins=np.arange(0, 7 * 24 + 1) * HOUR)[0] / weeks
    middle = np.arange(0.5, 7 * 24, dtype=np.float64) * HOUR
    assert counts == pytest.approx(generator.rate_per_hour(middle), rel=0.25)
    assert counts[: 5 * 24].mean() == pytest.approx(20, rel=0.02)
    assert counts[5 * 24 :].mean() == pytest.approx(8, rel=0.03)


def test_without_amplitude_and_weekends_diurnal_arrivals_are_poisson() -> None:
    gaps = np.diff(column(Diurnal(jobs=50_000, amplitude=0, weekend_factor=1).trace(0).table, "submit"))
    assert gaps.mean() == pytest.approx(HOUR / 20, rel=0.02)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.02)


def test_a_weekend_may_be_busier_than_the_week() -> None:
    submit = column(Diurnal(jobs=50_000, weekend_factor=2.0).trace(0).table, "submit")
    is_weekend = submit // DAY % 7 >= 5
    assert is_weekend.mean() == pytest.approx(2 * 2 / (2 * 2 + 5), abs=0.02)


# Heavy tail


@pytest.mark.parametrize("index", [0.7, 1.0, 1.5])
def test_a_bounded_pareto_has_its_tail_index_and_its_mean(index: float) -> None:
    generator = HeavyTail(jobs=200_000, tail_index=index, seconds_min=60, seconds_max=600_000)
    seconds = column(generator.trace(0).table, "duration")
    assert seconds.min() >= 60
    assert seconds.max() <= 600_000
    assert seconds.mean() == pytest.approx(generator.mean_seconds, rel=0.05)
    # Far below the upper bound the chance to run longer falls as x^-index.
    beyond = [float((seconds > limit).mean()) for limit in (120, 480, 1920)]
    slopes = [np.log(later / sooner) / np.log(4) for sooner, later in pairwise(beyond)]
    assert slopes == pytest.approx([-index, -index], abs=0.05)


def test_a_heavy_tailed_trace_has_the_load_that_was_asked_for() -> None:
    table = HeavyTail(jobs=200_000, tail_index=1.5, cluster_gpus=64, load=0.8).trace(0).table
    gpu_seconds = float((column(table, "gpus") * column(table, "duration")).sum())
    assert gpu_seconds / (64 * column(table, "submit")[-1]) == pytest.approx(0.8, rel=0.05)


def test_lognormal_run_times_have_their_median_and_sigma() -> None:
    table = HeavyTail(jobs=50_000, distribution="lognormal", median_seconds=1000, sigma=2).trace(0).table
    seconds = column(table, "duration")
    assert np.median(seconds) == pytest.approx(1000, rel=0.04)
    assert np.log(seconds).std() == pytest.approx(2, rel=0.02)
