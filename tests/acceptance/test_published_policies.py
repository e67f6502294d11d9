"""Policies do what the systems that they are named after do: small cases, through the command line."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from command_line import horae


def ends(folder: Path, policy: str, jobs: str, *cluster: str) -> dict[str, float]:
    """By job: when it ended, in hours."""
    trace, results = folder / "jobs.csv", folder / "results.csv"
    trace.write_text(jobs, encoding="utf-8")
    words = ("--policy", policy, "--cadence", "rounds", "--restart-seconds", "0", "--jobs-out", results)
    outcome = horae("compare", trace, *cluster, *words, "--no-cache", "--workers", "1", "--quiet")
    assert outcome.code == 0, outcome
    frame = pl.read_csv(results, schema_overrides={"id": pl.String})
    return {job_id: ended_at / 3600 for job_id, ended_at in frame.select("id", "ended_at").iter_rows()}


def test_shockwave_does_not_let_a_short_job_wait_for_a_long_one(tmp_path: Path) -> None:
    jobs = "id,submit,gpus,duration\nlong,0,1,21600\nshort,0,1,240\n"
    found = ends(tmp_path, "shockwave", jobs, "--nodes", "1x1")
    assert found["short"] < 0.5
    assert found["long"] == pytest.approx(6.0, abs=0.2)


def test_one_job_that_needs_one_type_leaves_the_others_spread(tmp_path: Path) -> None:
    """Two V100 and two K80: five equal jobs, one of which runs on V100 only. Without spreading, the others are given
    one type each for good, and the slow half ends last."""
    header = "id,submit,gpus,duration,gpu_type,speed\n"
    rows = "only,0,1,36000,V100,V100=1\n" + "".join(
        f"j{number},0,1,36000,V100|K80,V100=1;K80=0.25\n" for number in range(4)
    )
    cluster = ("--nodes", "1x2:V100", "--nodes", "1x2:K80")
    found = ends(tmp_path, "max-min={aware: false}", header + rows, *cluster)
    others = [found[f"j{number}"] for number in range(4)]
    assert max(others) < 1.2 * min(others)


def test_fifo_on_fastest_passes_over_a_head_that_cannot_use_what_is_free(tmp_path: Path) -> None:
    """As in Gavel: the second V100 job waits, and the K80 is free for the job behind it."""
    jobs = "id,submit,gpus,duration,gpu_type\na,0,1,36000,V100\nb,60,1,36000,V100\nc,120,1,3600,K80\n"
    found = ends(tmp_path, "fifo-on-fastest", jobs, "--nodes", "1x1:V100", "--nodes", "1x1:K80")
    assert found["c"] < 2.0
    assert found["b"] >= 20.0
