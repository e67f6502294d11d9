"""How every command reads a workload: names in any spelling, rows that are left out or broken, and what is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import horae

HEAD = "JobID|User|Account|Submit|Start|End|State|AllocTRES|ReqTRES|ElapsedRaw|Timelimit"
CLUSTER = """
name: lab
nodes:
  - {name: "a[0-1]", gpu: H100, gpus: 8}
tenants:
  NLP: {nodes: ["a0"]}
  vision: {nodes: ["a1"]}
"""


def sacct(folder: Path, *kinds: str, account: str = "nlp") -> Path:
    """Jobs that ask for these types, one hour after the other."""
    lines = [
        f"{number}|ann|{account}|2026-01-01T{number:02}:00:00|2026-01-01T{number:02}:05:00|2026-01-01T{number:02}:35:00"
        f"|COMPLETED|billing=8,gres/gpu:{kind}=2,gres/gpu=2|gres/gpu:{kind}=2|1800|04:00:00"
        for number, kind in enumerate(kinds)
    ]
    path = folder / "sacct.txt"
    path.write_text("\n".join([HEAD, *lines]) + "\n")
    return path


def simulate(path: Path, *options: object) -> tuple[int, dict[str, dict[str, float]], str]:
    found = horae("simulate", "--jobs", path, "--policy", "fifo", "-o", "json", *options)
    return found.code, json.loads(found.out) if found.out else {}, found.err


def test_types_match_in_any_spelling(tmp_path: Path) -> None:
    path = sacct(tmp_path, "h100", "NVIDIA H100 80GB HBM3", "H100")
    code, found, told = simulate(path, "--nodes", "1x8:H100")
    assert (code, found["fifo"]["finished"]) == (0, 3)
    assert "1 row changed: GPU type 'h100' is H100 in the cluster" in told
    code, found, _ = simulate(path, "--nodes", "1x8")  # a cluster without types accepts any
    assert (code, found["fifo"]["finished"]) == (0, 3)


@pytest.mark.parametrize("command", ["simulate", "compare", "tenants plan"])
def test_more_than_a_few_broken_rows_are_an_error_of_every_command(tmp_path: Path, command: str) -> None:
    path = sacct(tmp_path, *["b200"] * 3, *["h100"] * 17)
    words = {
        "simulate": ("simulate", "--jobs", path, "--nodes", "1x8:H100", "--policy", "fifo"),
        "compare": ("compare", path, "--nodes", "1x8:H100", "--policy", "fifo", "--no-cache"),
        "tenants plan": ("tenants", "plan", path, "--nodes", "4x8:H100"),
    }[command]
    complaint = horae(*words).complaint
    assert f"{path}:2: gpu_type: GPU type 'b200' is not in the cluster; use H100; 3 of 20 rows are broken" in complaint
    assert complaint.endswith("--broken-max 0.15 allows it")
    allowed = horae(*words, "--broken-max", "0.15")
    assert allowed.code == 0, allowed
    assert "3 broken rows left out" in allowed.err
    assert horae(*words, "--types", "b200=H100").code == 0
    assert "--types: b200 is to be 'H200', which the cluster lacks" in horae(*words, "--types", "b200=H200").complaint


def test_tenants_match_in_any_case(tmp_path: Path) -> None:
    cluster = tmp_path / "lab.yaml"
    cluster.write_text(CLUSTER)
    code, found, told = simulate(sacct(tmp_path, "H100", "H100"), "--cluster", cluster)
    assert (code, found["fifo"]["finished"]) == (0, 2)
    assert "2 rows changed: tenant 'nlp' is 'NLP' in the cluster" in told
    assert "no jobs of tenant vision in the trace" in told
    _, _, told = simulate(sacct(tmp_path, "H100", account="robots"), "--cluster", cluster)
    assert "1 of the trace's tenants are not in the cluster: robots" in told


def test_one_default_everywhere(tmp_path: Path) -> None:
    """A gang larger than a node takes whole nodes, whichever command runs it."""
    path = tmp_path / "jobs.csv"
    path.write_text("submit,gpus,duration\n0,6,100\n1,2,100\n2,6,100\n")
    _, found, _ = simulate(path, "--nodes", "2x4")
    answer = json.loads(horae("compare", path, "--nodes", "2x4", "--policy", "fifo", "--no-cache", "-o", "json").out)
    other = answer["policies"][0]["estimate"]
    assert found["fifo"]["completion_mean_seconds"] == other["completion_mean_seconds"]


def test_every_command_reads_every_format(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("when;n;secs\n".replace(";", ",") + "0,1,60\n10,2,60\n")
    code, found, _ = simulate(path, "--nodes", "1x4", "--map", "submit=when,gpus=n,duration=secs")
    assert (code, found["fifo"]["finished"]) == (0, 2)
    found_ = horae("simulate", "--jobs", "poisson={jobs: 20}", "--nodes", "4x8", "--policy", "fifo", "-o", "json")
    assert json.loads(found_.out)["fifo"]["jobs"] == 20


def test_nothing_ran_is_not_a_success(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("submit,gpus,duration\n0,64,60\n")
    assert horae("simulate", "--jobs", path, "--nodes", "1x4", "--policy", "fifo").code == 1
    assert horae("compare", path, "--nodes", "1x4", "--policy", "fifo", "--no-cache").code == 1


def test_a_comparison_says_which_jobs_it_is_over(tmp_path: Path) -> None:
    """AlloX serves no gangs: the difference is over the other jobs, and says so."""
    path = tmp_path / "jobs.csv"
    path.write_text("submit,gpus,duration\n" + "".join(f"{60 * n},{1 + n % 2},600\n" for n in range(20)))
    words = ("compare", path, "--nodes", "1x4", "--policy", "fifo", "--policy", "allox", "--no-cache")
    assert " on 10 of 20 jobs" in horae(*words).out
    versus = json.loads(horae(*words, "-o", "json").out)["policies"][1]["versus_baseline"]
    assert (versus["jobs_paired"], versus["jobs_unpaired"]) == (10, 10)


def test_policies_that_know_run_times_are_marked(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("submit,gpus,duration\n0,1,60\n1,1,60\n")
    shown = horae("compare", path, "--nodes", "1x1", "--policy", "fifo", "--policy", "sjf", "--no-cache").out
    assert "sjf *" in shown
    assert "fifo *" not in shown
    assert "* knows run times in advance" in shown


SMALL = "submit,gpus,duration,deadline\n100,1,60,50\n100,1,60,500\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--policy", "max-min={sharing: true}"], "max-min: sharing changes nothing without a table of pairs"),
        (["--policy", "fifo"], "1 row changed: has a deadline before its submission, which it misses"),
    ],
)
def test_what_changes_nothing_is_said(tmp_path: Path, words: list[str], told: str) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(SMALL)
    for command in (("simulate", "--jobs", path), ("compare", path, "--no-cache")):
        found = horae(*command, "--nodes", "1x4", *words)
        assert found.code == 0, found
        assert told in found.err


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (["--search", "grid"], "--search: no app of the workload has several jobs; add a column app"),
        (["--days-between-failures", "0.0001"], "a node would fail every 9 s, and is away for 3,600 s"),
        (["--policy", "max_min"], "there is no policy 'max_min'; did you mean max-min"),
    ],
)
def test_what_cannot_be_meant_is_an_error(tmp_path: Path, words: list[str], want: str) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("submit,gpus,duration\n100,1,60\n100,1,60\n")
    assert want in horae("simulate", "--jobs", path, "--nodes", "1x4", *words).complaint


@pytest.mark.parametrize(
    ("text", "seconds"), [("01:00:00", 3600.0), ("1-02:03:04", 93784.0), ("90", 90.0), ("2h", 7200.0)]
)
def test_times_as_slurm_prints_them(tmp_path: Path, text: str, seconds: float) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(f"submit,gpus,duration\n0,1,{text}\n")
    _, found, _ = simulate(path, "--nodes", "1x1")
    assert found["fifo"]["completion_mean_seconds"] == seconds
