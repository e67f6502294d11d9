"""Pollux's comparison: how steps and speeds are read, on a toy folder, and the published figures beside ours."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from command_line import horae, horae_process
from horae_evaluation.pollux.experiment import PolluxCase, read_source, run_case
from horae_evaluation.pollux.rows import AS_READ, FOUND, TOGETHER, rows
from horae_evaluation.pollux.speeds import read_noise_steps, read_steps

FILES = {
    "workloads.csv.gz": """\
set,workload,name,submit_s,model,num_gpu,batch_size
1.0x,6,a,30,toy,4,64
1.0x,6,b,0,toy,1,16
""",
    "profile_placements.csv.gz": """\
model,placement,local_bsz,step_time,sync_time
toy,1,8,0.5,0.1
toy,1,16,1.0,0.1
toy,4,8,0.75,0.25
toy,4,16,1.0,0.5
toy,22,16,2.0,1.5
toy,13,16,4.0,1.5
toy,31,16,6.0,1.5
""",
    "profile_scalability.csv.gz": "model,num_nodes,num_replicas,local_bsz,step_time,sync_time\ntoy,6,6,16,9.0,2.0\n",
    "profile_validation.csv.gz": """\
model,batch_size,epoch,progress,iteration,metric,grad_sqr,grad_var
toy,16,0,100,100,0.1,1,1
toy,64,1,200,90,0.1,1,3
toy,64,0,100,60,0.1,0,3
""",
    "published_sim_results.csv": """\
set,policy,workload,jobs,avg_jct_s,p50_jct_s,p99_jct_s
1.0x,tiresias,6,2,150,150,150
1.0x,optimus,6,2,150,150,150
""",
}


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    (tmp_path / "pollux").mkdir()
    for name, text in FILES.items():
        spoil(tmp_path, name, text)
    return tmp_path


def spoil(folder: Path, name: str, text: str) -> None:
    (folder / "pollux" / name).write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())


def test_a_step_takes_what_was_profiled_for_the_nodes(toy: Path) -> None:
    steps = read_steps(toy / "pollux/workloads.csv.gz")["toy"]
    assert steps.seconds((4,), 64) == 1.0
    assert steps.seconds((2, 2), 64) == 2.0
    assert steps.seconds((3, 1), 64) == 5.0  # the mean of two rows that differ in their order only
    # Four GPUs on two nodes take 4 s on average, and six nodes take 9: linear between them.
    assert steps.seconds((2, 1, 1), 64) == pytest.approx(4 + 5 / 4)


def test_a_smaller_part_of_a_batch_at_once_is_accumulated(toy: Path) -> None:
    steps = read_steps(toy / "pollux/workloads.csv.gz")["toy"].in_parts_of(8)
    assert steps.seconds((4,), 64) == 2 * 0.75 - 0.25  # the first of two parts is not synchronised
    assert steps.seconds((1,), 8) == 0.5


def test_parts_smaller_than_any_that_was_profiled_leave_a_gang_out(toy: Path) -> None:
    steps = read_steps(toy / "pollux/workloads.csv.gz")["toy"].in_parts_of(8)
    assert (2, 2) not in steps.exact
    assert set(steps.by_nodes) == {1}


def test_steps_by_noise_are_progress_over_what_a_step_is_worth(toy: Path) -> None:
    steps = read_noise_steps(toy / "pollux/workloads.csv.gz")
    # Four times the least batch: all of it counts where there is only noise, and 4 / 1.75 in the second epoch.
    assert steps == {("toy", 16): 100.0, ("toy", 64): pytest.approx(100 / 4 + 100 * 1.75 / 4)}


def test_jobs_run_at_their_speeds_from_the_round_after_they_came(toy: Path) -> None:
    source = read_source(toy)
    result = run_case(PolluxCase("tiresias"), source)
    assert result.completion_seconds == {"b": 100.0, "a": 30 + 90.0}
    late = run_case(PolluxCase("tiresias", start_seconds=30), source)
    assert late.completion_seconds == pytest.approx({"b": 130.0, "a": 30 + 120.0})
    by_noise = run_case(PolluxCase("tiresias", by_noise=True), source)
    assert by_noise.completion_seconds == pytest.approx({"b": 100.0, "a": 30 + 68.75})


def test_elastic_jobs_take_the_gang_that_is_fastest(toy: Path) -> None:
    elastic = run_case(PolluxCase("optimus"), read_source(toy)).completion_seconds
    assert elastic["a"] <= 30 + 90.0
    assert elastic["b"] <= 100.0


def test_the_command_prints_ours_beside_the_published(toy: Path) -> None:
    outcome = horae_process("reproduce", "pollux", "--data", toy, "--no-variants", "--policy", "tiresias", "--quiet")
    assert (outcome.code, outcome.err) == (0, "")
    (line,) = [line for line in outcome.out.splitlines() if AS_READ in line]
    assert "-26.7%" in line
    assert "150" in line
    found = json.loads(horae("reproduce", "pollux", "--data", toy, "--no-variants", "--quiet", "-o", "json").out)
    assert [(row["policy"], row["change"]) for row in found] == [
        (policy, change) for policy in ("tiresias", "optimus") for change in (AS_READ, TOGETHER)
    ]
    assert found[0]["result"]["mean_seconds"] == 110.0


WRONG = {
    "--policy": (["--policy", "sjf"], "--policy: is 'sjf'; use tiresias, optimus"),
    "--workload": (["--workload", "9"], "workload: has no workload 9 in set '1.0x'; use 1.0x 6"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_there_is_named(toy: Path, name: str) -> None:
    arguments, want = WRONG[name]
    assert horae("reproduce", "pollux", "--data", toy, "--quiet", *arguments).complaint.endswith(want)


SPOILED = {
    "published_sim_results.csv": ("150,150,150\n1.0x,optimus", "soon,1,1\n1.0x,optimus", "avg_jct_s: is 'soon'"),
    "profile_validation.csv.gz": (",1,3\n", ",-1,3\n", "grad_sqr: is '-1'; give a number of at least 0"),
    "workloads.csv.gz": ("toy,1,16", "other,1,16", "job 'b' trains 'other', which has no profile"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_spoiled_file_is_told_in_one_line(toy: Path, name: str) -> None:
    old, new, want = SPOILED[name]
    assert FILES[name].count(old) == 1
    spoil(toy, name, FILES[name].replace(old, new))
    outcome = horae("reproduce", "pollux", "--data", toy, "--no-variants", "--quiet")
    assert want in outcome.complaint
    assert name in outcome.complaint


def test_workload_six_is_as_far_from_the_published_figures_as_the_docs_say(data: Path) -> None:
    source = read_source(data)
    found = {
        (row.policy, row.change): row
        for row in rows(source, ["tiresias", "optimus"], PolluxCase(""), with_variants=False)
    }
    off = {key: round(row.difference, 3) for key, row in found.items() if row.difference is not None}
    assert off == {
        ("tiresias", AS_READ): -0.138,
        ("tiresias", TOGETHER): -0.017,
        ("optimus", AS_READ): -0.112,
        ("optimus", TOGETHER): -0.057,
    }


def test_light_load_is_where_the_three_reasons_were_found(data: Path) -> None:
    """Hardly anybody waits there, so that the slowest jobs show how long training takes by itself."""
    source = read_source(data)
    changes = {key: value for change in FOUND.values() for key, value in change.items()}
    for workload in (1, 3, 4, 5, 8):
        result = run_case(PolluxCase("tiresias", "0.5x", workload, **changes), source)
        assert result.p99_seconds == pytest.approx(source.published["0.5x", "tiresias", workload].p99_seconds, abs=2)
