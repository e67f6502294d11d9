"""Gavel's simulations run again, on its own tables. The tables are not part of the repository.

A few early jobs on an empty cluster say nothing of the published means; they show that every step works on real data.
"""

from __future__ import annotations

import json
import shutil
from math import isnan
from pathlib import Path

import pytest
from command_line import horae
from horae_evaluation.gavel.published import AWARE_MAX_MIN, POLICIES, published_hours, read_published
from horae_evaluation.gavel.rows import RATES
from horae_evaluation.gavel.setup import read_tables

QUICK = ("--workload", "single", "--rate", "4.8", "--jobs-measured", 5, 15, "--seeds", 2, "--workers", 1, "--quiet")


def test_the_published_means_of_max_min_are_those_of_the_paper(data: Path) -> None:
    published = read_published(data)
    found = [published_hours(published, load, AWARE_MAX_MIN, rate) for load, rates in RATES.items() for rate in rates]
    assert found == [18.97, 28.96, 30.03, 36.44]


def test_every_policy_of_ours_was_published_somewhere(data: Path) -> None:
    published = read_published(data)
    points = [(load, rate) for load, rates in RATES.items() for rate in rates]
    assert {point.policy for point in published} == set(POLICIES)
    for policy in POLICIES:
        assert any(not isnan(published_hours(published, load, policy, rate)) for load, rate in points)


def test_two_jobs_together_keep_no_more_than_all_of_their_speeds(data: Path) -> None:
    tables = read_tables(data)
    assert len(tables.sharing) == 2706  # 3 GPU types; 26 models alone and 19 in gangs of 2, 4 and 8, paired
    assert all(0.0 <= part <= 1.0 + 1e-9 for row in tables.sharing for part in row.kept)


def test_fifo_gains_from_knowing_how_fast_types_are(data: Path, tmp_path: Path) -> None:
    words = ("--policy", "fifo", "--policy", "fifo_perf", "--data", data, "--cache", tmp_path, *QUICK)
    outcome = horae("reproduce", "gavel", *words, "-o", "json")
    assert (outcome.code, outcome.err) == (0, "")
    plain, aware = json.loads(outcome.out)["rows"]
    assert aware["mean_hours"] < plain["mean_hours"]
    assert (plain["published_hours"], aware["published_hours"]) == (99.19, 22.24)


def test_a_published_value_that_is_off_ends_with_an_error(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data / "gavel", tmp_path / "gavel", copy_function=shutil.copyfile)
    path = tmp_path / "gavel/published_by_rate.csv"
    text = path.read_text()
    assert text.count("single_gpu,avg_jct_h,fifo,4.8,99.19") == 1
    path.write_text(text.replace("fifo,4.8,99.19", "fifo,4.8,9.19"))
    words = ("--policy", "fifo", "--policy", "fifo_perf", "--data", tmp_path, "--cache", tmp_path / "kept", *QUICK)
    outcome = horae("reproduce", "gavel", *words)
    assert (outcome.code, outcome.err) == (1, "")
    assert "fifo was published below fifo_perf" in outcome.out


def test_without_a_folder_it_says_how_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HORAE_DATA", "")
    want = "--data: no data folder was named; use --data DIR or set HORAE_DATA"
    assert horae("reproduce", "gavel").complaint == want
