"""A file as `sacct -P` prints it, with all that such files have, by one command to a comparison."""

from __future__ import annotations

import csv
import io
import re
import shlex
from datetime import datetime
from pathlib import Path

import make_sacct_sample
import pytest
from command_line import Outcome, horae

from horae import samples

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CLUSTER = ("--nodes", "2x8:H100", "--nodes", "2x8:A100")
POLICIES = ("slurm", "tiresias", "max-min", "themis")


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, Path]:
    plots = tmp_path_factory.mktemp("plots")
    (command,) = re.findall(
        r"^\.venv/bin/horae (compare src/horae/samples/sacct.*) --plots plots$", README, re.MULTILINE
    )
    words = [ROOT / word if word.startswith("src/") else word for word in shlex.split(command)]
    return horae(*words, "--plots", plots, "-o", "csv", "--no-cache", "--workers", "1"), plots


def test_the_record_and_the_policies_are_compared_by_team_with_plots(outcome: tuple[Outcome, Path]) -> None:
    found, plots = outcome
    assert found.code == 0
    rows = list(csv.DictReader(io.StringIO(found.out)))
    assert [row["policy"] for row in rows if not row["tenant"]] == ["as recorded", *POLICIES]
    assert {row["tenant"] for row in rows if row["tenant"]} == {"nlp", "vision", "speech"}
    assert {row["finished"] for row in rows if not row["tenant"]} == {"281"}
    assert any(plots.iterdir())
    assert "slurm beside the record: mean completion +" in found.err


def test_every_row_is_a_job_or_is_accounted_for(outcome: tuple[Outcome, Path]) -> None:
    lines = samples.ACCOUNTING.read_text().splitlines()
    left_out = {
        reason: int(count.replace(",", ""))
        for count, reason in re.findall(r": ([0-9,]+) rows? left out: (.*)", outcome[0].err)
    }
    assert left_out == {
        "is a step of a job": 562,
        "is an earlier run of a requeued job": 2,
        "asks for no GPU": 6,
        "never ran": 2,
        "still runs (2 GPU-h so far)": 1,
    }
    assert len(lines) - 1 == 281 + sum(left_out.values())


def test_the_record_is_what_the_file_says(outcome: tuple[Outcome, Path]) -> None:
    rows = list(csv.DictReader(samples.ACCOUNTING.read_text().splitlines(), delimiter="|"))
    last = {
        row["JobID"]: row
        for row in rows
        if "gres/gpu" in row["ReqTRES"] and "Unknown" not in (row["Start"], row["End"])
    }
    waits = [seconds(row["Start"]) - seconds(row["Submit"]) for row in last.values()]
    (record,) = [
        row
        for row in csv.DictReader(io.StringIO(outcome[0].out))
        if (row["policy"], row["tenant"]) == ("as recorded", "")
    ]
    assert float(record["waiting_mean_seconds"]) == pytest.approx(sum(waits) / len(waits))
    hours = sum(float(row["ElapsedRaw"]) * gpus(row["ReqTRES"]) for row in last.values()) / 3600
    assert float(record["gpu_hours"]) == pytest.approx(hours)


def test_time_limits_are_known_so_that_slurm_knows_no_lengths() -> None:
    words = ("compare", samples.ACCOUNTING, *CLUSTER, "--policy", "slurm", "--policy", "sjf", "-o", "md", "--no-cache")
    lines = horae(*words, "--workers", "1").out.splitlines()
    assert [line.split(" | ")[0] for line in lines[2:5]] == ["| as recorded", "| slurm", "| sjf *"]


def test_the_sample_is_what_its_script_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_sacct_sample, "TARGET", tmp_path / "sacct.txt")
    make_sacct_sample.main()
    assert (tmp_path / "sacct.txt").read_text() == samples.ACCOUNTING.read_text()


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def gpus(tres: str) -> int:
    return int(re.findall(r"gres/gpu(?::[a-z0-9]+)?=(\d+)", tres)[0])


HEADER = "JobID|User|Account|Submit|Start|End|State|AllocTRES|ElapsedRaw\n"


def test_running_jobs_are_left_out_with_their_gpu_hours(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    ended = "1|a|b|2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-01T01:00:00|COMPLETED|gres/gpu=8|3600\n"
    path.write_text(HEADER + ended + ended.replace("1|a", "2|a").replace("2026-01-01T01:00:00|COM", "Unknown|RUN"))
    told = horae("trace", "info", path)
    assert told.err == f"{path}: 1 row left out: still runs (8 GPU-h so far)\n"


@pytest.mark.parametrize(("text", "want"), [("", "has no jobs"), (HEADER, "has no rows under its header")])
def test_a_file_without_rows_is_one_line(tmp_path: Path, text: str, want: str) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(text)
    for command in (("trace", "info", path), ("compare", path, "--nodes", "1x8")):
        assert want in horae(*command).complaint
