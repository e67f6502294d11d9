"""`horae compare`, from the outside: every format, what is told beside it, how it ends."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import Outcome, horae, horae_process
from patience import HANG_SECONDS, wait_until
from rich.console import Console

from horae import samples
from horae.experiments.compare import run
from horae.experiments.compare.run_spec import PolicyChoice, run_specs
from horae.experiments.compare.table import tabulate
from horae.experiments.compare.terminal import print_tables
from horae.experiments.compare.workload import Recorded
from horae.model.errors import InputError
from horae.traces.clusters.shorthand import parse_cluster
from horae.traces.formats import read_trace
from horae.traces.jobs import arrivals

TWO = ("--policy", "fifo", "--policy", "sjf")


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    rows = "".join(
        f"j{index},{index * 600},{1 + index % 4},{400 + 3000 * (index % 3)},team{index % 2}\n" for index in range(40)
    )
    return write(tmp_path / "jobs.csv", f"id,submit,gpus,duration,tenant\n{rows}")


def compare(jobs: Path, *options: object, keep: bool = False) -> Outcome:
    """In this process, on four GPUs."""
    cache = ("--cache", jobs.parent / "cache") if keep else ("--no-cache",)
    return horae("compare", jobs, "--nodes", "1x4", "--workers", 1, *cache, *options)


def answer(outcome: Outcome) -> Any:
    assert (outcome.code, outcome.err) == (0, ""), outcome
    return json.loads(outcome.out)


# What is printed


def test_seven_policies_are_compared_with_slurm_and_with_what_nobody_can_beat(jobs: Path) -> None:
    outcome = compare(jobs)
    assert (outcome.code, outcome.err) == (0, "")
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in outcome.out.splitlines() if line[0] == "│"]
    names = ["slurm *", "fifo", "sjf *", "srtf *", "las", "tiresias", "drf"]
    assert [row[0] for row in rows] == [*names, "lower bound"]
    assert all(row[1] == "40/40" for row in rows[:-1])
    assert rows[0][3] == ""
    assert all("%" in row[3] for row in rows[1:-1])
    hours = [float(row[2].removesuffix(" h")) for row in rows]
    assert hours[-1] <= min(hours)
    assert "95% interval over 10 tenths of the trace" in outcome.out


def test_json_agrees_with_a_plain_simulation(jobs: Path, tmp_path: Path) -> None:
    found = answer(compare(jobs, *TWO, "-o", "json"))
    cluster = write(tmp_path / "lab.yaml", "nodes: [{name: n, gpu: gpu, gpus: 4}]\n")
    plain = json.loads(horae("simulate", "--cluster", cluster, "--jobs", jobs, *TWO, "-o", "json").out)
    for row in found["policies"]:
        one = plain[row["policy"]]
        for name in ("jobs", "finished", "completion_mean_seconds", "makespan_seconds", "utilisation", "restarts"):
            assert row["estimate"][name] == row["seeds"][0][name] == one[name]
    assert found["parameters"]["trace"]["jobs"] == 40
    assert [each["label"] for each in found["parameters"]["policies"]] == ["fifo", "sjf"]
    versus = found["policies"][1]["versus_baseline"]
    assert versus["jobs_paired"] == 40
    difference = found["policies"][1]["estimate"]["completion_mean_seconds"] - versus["baseline_mean_seconds"]
    assert versus["difference_seconds"]["mean"] == pytest.approx(difference)
    assert found["policies"][0]["versus_baseline"] is None


def test_csv_has_a_row_for_each_policy_and_seed(jobs: Path) -> None:
    outcome = compare(jobs, *TWO, "--seeds", 3, "-o", "csv")
    rows = list(csv.DictReader(io.StringIO(outcome.out)))
    assert [(row["policy"], row["seed"]) for row in rows] == [
        (policy, str(seed)) for policy in ("fifo", "sjf") for seed in range(3)
    ]
    found = answer(compare(jobs, *TWO, "--seeds", 3, "-o", "json"))
    for row in rows:
        seeds = next(each for each in found["policies"] if each["policy"] == row["policy"])["seeds"]
        assert float(row["completion_mean_seconds"]) == seeds[int(row["seed"])]["completion_mean_seconds"]
        assert float(row["rho_paper.max"]) == seeds[int(row["seed"])]["rho_paper.max"]
    assert found["policies"][1]["versus_baseline"]["interval_over"] == "draws of the trace"
    assert found["policies"][1]["versus_baseline"]["samples"] == 2


def test_draws_of_a_trace_give_the_interval_and_nothing_else(jobs: Path) -> None:
    one, many = (answer(compare(jobs, *TWO, "--seeds", seeds, "-o", "json")) for seeds in (1, 5))
    for alone, among in zip(one["policies"], many["policies"], strict=True):
        assert alone["estimate"] == among["estimate"]
    assert one["lower_bound"] == many["lower_bound"]
    assert many["estimates_are"] == "of seed 0"
    legend = compare(jobs, *TWO, "--seeds", 5).out.splitlines()[-1]
    assert "95% interval over 4 draws of the trace" in legend
    assert "; all numbers are of the trace as it is, seed 0; resuming takes" in legend


def test_markdown_can_be_pasted(jobs: Path) -> None:
    lines = compare(jobs, *TWO, "-o", "md").out.splitlines()
    assert lines[0].startswith("| policy | finished | completion: mean | vs fifo |")
    assert [line.split(" | ")[0] for line in lines[1:]] == ["| :---", "| fifo", "| sjf *", "| lower bound"]
    assert len({line.count("|") for line in lines}) == 1


def test_names_that_would_break_a_table_do_not(jobs: Path) -> None:
    names = {"team0": '"a|b"', "team1": '"two\nlines\\"'}
    for old, new in names.items():
        write(jobs, jobs.read_text().replace(old, new))
    lines = compare(jobs, *TWO, "--by", "tenant", "-o", "md").out.split("\n\n")[1].splitlines()
    assert [line.split(" | ")[1] for line in lines[2:4]] == ["a\\|b", "two lines\\\\"]
    assert len({len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in lines}) == 1


LONG = [f"tiresias={{limits: [3600, 36000], promote_after: {number}}}" for number in (0, 8)]


def test_a_narrow_terminal_shortens_names_before_it_leaves_out_columns(jobs: Path) -> None:
    setup = parse_cluster(["1x4"])
    workload = Recorded(tuple(arrivals(read_trace(jobs), setup.cluster)[0]))
    choices = {label: PolicyChoice("tiresias", {"promote_after": index}) for index, label in enumerate(LONG)}
    table = tabulate(run.outcomes(run_specs(setup, choices, 1), workload), LONG, LONG[0], is_recorded=True)
    text = io.StringIO()
    print_tables(table, console=Console(file=text, width=80, force_terminal=True, color_system=None))
    lines = text.getvalue().splitlines()
    assert all(len(line) <= 80 for line in lines if line[0] in "┃│")
    names = [line.split("│")[1].strip() for line in lines if line[0] == "│"]
    assert names == ["tiresias=…fter: 0}", "tiresias=…fter: 8}", "lower bound"]
    assert all("40/40" in line for line in lines if "tiresias" in line and line[0] == "│")


def test_by_tenant_adds_the_numbers_of_each(jobs: Path) -> None:
    found = answer(compare(jobs, *TWO, "--by", "tenant", "-o", "json"))
    tenants = found["policies"][0]["seeds"][0]["tenants"]
    assert {name: numbers["finished"] for name, numbers in tenants.items()} == {"team0": 20, "team1": 20}
    assert compare(jobs, *TWO, "--by", "tenant").out.count("team1") == 2
    rows = list(csv.DictReader(io.StringIO(compare(jobs, *TWO, "--by", "tenant", "-o", "csv").out)))
    assert [row["tenant"] for row in rows] == ["", "team0", "team1"] * 2
    assert "| team1 |" in compare(jobs, *TWO, "--by", "tenant", "-o", "md").out


def test_another_baseline_is_compared_with(jobs: Path) -> None:
    found = answer(compare(jobs, *TWO, "--baseline", "sjf", "-o", "json"))
    assert found["parameters"]["baseline"] == "sjf"
    assert [row["versus_baseline"] is None for row in found["policies"]] == [False, True]


@pytest.mark.parametrize("form", ["json", "table"])
def test_bytes_depend_neither_on_workers_nor_on_the_process(jobs: Path, form: str) -> None:
    options = ("compare", jobs, "--nodes", "1x4", *TWO, "--seeds", 2, "--no-cache", "-o", form)
    one = horae_process(*options, "--workers", 1, PYTHONHASHSEED="1")
    two = horae_process(*options, "--workers", 2, PYTHONHASHSEED="2")
    assert (one.code, one.err) == (0, "")
    assert one == two


def test_a_generator_is_drawn_anew_for_each_seed() -> None:
    found = answer(
        horae(
            *("compare", "poisson={jobs: 30, cluster_gpus: 4}", "--nodes", "1x8", *TWO, "--seeds", 2),
            *("--no-cache", "--workers", 1, "-o", "json"),
        )
    )
    means = [seed["completion_mean_seconds"] for seed in found["policies"][0]["seeds"]]
    assert means[0] != means[1]


def test_plots_are_drawn_where_they_are_asked_for(jobs: Path, tmp_path: Path) -> None:
    outcome = compare(jobs, *TWO, "--plots", tmp_path / "plots", "-o", "csv")
    drawn = [Path(path) for line in outcome.err.splitlines() for path in line.removeprefix("drew ").split(", ")]
    assert {path.suffix for path in drawn} == {".pdf", ".svg", ".png"}
    assert sorted(drawn) == sorted((tmp_path / "plots").iterdir())
    assert all(path.stat().st_size for path in drawn)


def test_a_folder_for_plots_that_cannot_be_made_is_found_before_anything_is_run(jobs: Path) -> None:
    outcome = compare(jobs, *TWO, "--plots", jobs / "plots", "--verbose")
    assert outcome.complaint == f"{jobs}/plots: --plots: cannot be written: Not a directory; name a folder of yours"


def test_hardware_that_fails_makes_a_difference(jobs: Path) -> None:
    still, failing = (
        answer(compare(jobs, "--policy", "fifo", *options, "-o", "json"))["policies"][0]["estimate"]
        for options in ((), ("--days-between-failures", "0.1", "--repair-seconds", "600"))
    )
    assert failing["restarts"] > still["restarts"] == 0


# The cache


def test_the_second_time_nothing_is_run_and_all_is_the_same(jobs: Path) -> None:
    options = (*TWO, "--verbose", "-o", "json")
    first, second = (compare(jobs, *options, keep=True) for _ in range(2))
    assert first.err.splitlines() == ["1/2: fifo, seed 0: 40 jobs", "2/2: sjf, seed 0: 40 jobs"]
    assert (second.out, second.err) == (first.out, "2 of 2 runs are there already\n")
    third = compare(jobs, *options, "--policy", "las", keep=True)
    assert third.err.splitlines() == ["2 of 3 runs are there already", "1/1: las, seed 0: 40 jobs"]


def test_a_cache_that_cannot_be_written_does_not_stop_it(jobs: Path) -> None:
    outcome = horae("compare", jobs, "--nodes", "1x4", *TWO, "--workers", 1, "--cache", jobs / "cache", "-o", "csv")
    assert outcome.code == 0
    remedy = "results are not kept; name another folder with --cache, or use --no-cache"
    assert outcome.err == f"{jobs}/cache: cannot be written: Not a directory; {remedy}\n"


def started(tmp_path: Path, *options: str, jobs: int) -> subprocess.Popen[str]:
    long = f"poisson={{jobs: {jobs}, cluster_gpus: 64, load: 0.95}}"
    command = [sys.executable, "-m", "horae.cli.main", "compare", long, "--nodes", "8x8", "--verbose", *TWO]
    command += ["--cache", str(tmp_path / "cache"), *options]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0, env=environment
    )


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_stops_at_once_and_the_next_time_goes_on(tmp_path: Path, workers: int) -> None:
    process = started(tmp_path, "--workers", str(workers), "--seeds", "200", jobs=1000)
    assert process.stderr is not None
    assert process.stderr.readline().startswith("1/400: ")
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: everybody in the foreground hears it
    out, err = process.communicate(timeout=HANG_SECONDS)
    assert (process.returncode, out) == (130, "")
    want = f"interrupted; finished runs are kept in {tmp_path}/cache, and the same command goes on from there"
    assert [line for line in err.splitlines() if "/400: " not in line] == [want]
    kept = list((tmp_path / "cache").iterdir())
    assert 1 <= len(kept) < 100  # the others would have taken minutes
    assert all(path.suffix == ".npz" and not path.name.startswith(".") for path in kept)


def test_termination_clears_away_what_ctrl_c_does(tmp_path: Path) -> None:
    process = started(tmp_path, "--workers", "2", "--seeds", "200", jobs=1000)
    assert process.stderr is not None
    process.stderr.readline()
    assert list(tmp_path.glob("horae-*"))
    process.terminate()
    out, err = process.communicate(timeout=HANG_SECONDS)
    assert (process.returncode, out) == (143, "")
    assert err.splitlines()[-1].startswith(f"terminated; finished runs are kept in {tmp_path}/cache")
    assert not list(tmp_path.glob("horae-*"))


@pytest.mark.parametrize("wait_seconds", [0.0, 0.05, 0.2, 0.5])
def test_ctrl_c_while_workers_are_born_is_one_line(tmp_path: Path, wait_seconds: float) -> None:
    """From the moment on in which there is a folder for them."""
    process = started(tmp_path, "--workers", "4", "--seeds", "6", jobs=20_000)
    wait_until(lambda: bool(list(tmp_path.glob("horae-*"))), poll_seconds=0.001)
    time.sleep(wait_seconds)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=HANG_SECONDS)
    assert (process.returncode, out, err) == (130, "", "interrupted; no run had finished\n")
    assert not list(tmp_path.glob("horae-*"))


# Rows that are no jobs


def test_broken_rows_are_counted_and_listed(jobs: Path) -> None:
    write(jobs, jobs.read_text() + "".join(f"bad{index},5,two,60,team0\n" for index in range(12)) + "a,0,1,60,team0\n")
    assert "12 of 53 rows are broken, --broken-max 0.23 allows it" in compare(jobs, *TWO).complaint
    allowed = (*TWO, "--broken-max", "0.3")
    outcome = compare(jobs, *allowed, "-o", "json")
    lines = outcome.err.splitlines()
    assert lines[0] == f"{jobs}: 12 broken rows left out; --strict stops there"
    assert len(lines) == 12
    assert lines[1].startswith(f"{jobs}:42: gpus: ")
    assert lines[-1] == "and 2 more"
    found = json.loads(outcome.out)
    assert (found["parameters"]["trace"]["jobs"], found["parameters"]["trace"]["rows_broken"]) == (41, 12)
    assert "12 broken rows left out" in compare(jobs, *allowed, "-o", "json", "--quiet").err


def test_with_strict_the_first_broken_row_is_the_end(jobs: Path) -> None:
    write(jobs, jobs.read_text() + "bad,5,two,60,team0\n")
    assert compare(jobs, "--strict").complaint.startswith(f"{jobs}:42: gpus: ")


def test_jobs_that_can_never_run_are_counted_with_the_reason(jobs: Path) -> None:
    write(jobs, jobs.read_text() + "huge,5,64,60,team0\n")
    outcome = compare(jobs, *TWO, "-o", "csv")
    assert outcome.code == 0
    lines = outcome.err.splitlines()
    assert lines[0] == "1 job can never run here"
    assert lines[1].startswith("refused huge: never: ")
    assert len(lines) == 2


# Wrong options

CLUSTER_REMEDY = "give --cluster FILE or --nodes 20x8, one of the two"
NODES_REMEDY = "write 20x8, 20x8:V100 or tenant=20x8 (nodes x GPUs)"
WRONG = {
    "the baseline is not compared": (
        ["--nodes", "1x4", *TWO, "--baseline", "las"],
        "--baseline: 'las' is not compared; choose one of fifo, sjf",
    ),
    "there is no cluster": ([], f"there is no cluster; {CLUSTER_REMEDY}"),
    "there are two clusters": (
        ["--nodes", "1x4", "--cluster", samples.CLUSTER],
        f"there are both --cluster and --nodes; {CLUSTER_REMEDY}",
    ),
    "nodes are no nodes": (["--nodes", "many"], f"--nodes: 'many' is no group of nodes; {NODES_REMEDY}"),
    "a node has no GPUs": (["--nodes", "4x0"], "--nodes: '4x0' has 0 GPUs a node; give 1 to 1024"),
    "failures have no interval": (
        ["--nodes", "1x4", "--days-between-failures", "0"],
        "--days-between-failures: is 0; give a positive number",
    ),
    "a repair takes less than no time": (
        ["--nodes", "1x4", "--repair-seconds", "-1"],
        "--repair-seconds: is -1; give 0 or more",
    ),
    "a restart takes less than no time": (
        ["--nodes", "1x4", "--restart-seconds", "-1"],
        "--restart-seconds: is -1; give 0 or more",
    ),
    "rounds have no length": (
        ["--nodes", "1x4", "--round-seconds", "0"],
        "--round-seconds: is 0; give a positive number",
    ),
    "options of a policy are none": (
        ["--nodes", "1x4", "--policy", "las=fast"],
        "--policy: 'fast' are no options; write {limits: [1, 3]}",
    ),
    "there is no such table of speeds": (
        ["--nodes", "1x4", "--speeds", "nope"],
        "--speeds: there is no table 'nope'; use shipped, gavel, itp, pollux, or a .json file of Gavel's",
    ),
    "a mapping names nothing": (
        ["--nodes", "1x4", "--map", "submit"],
        "--map: 'submit' names no column; write submit=COLUMN,gpus=COLUMN",
    ),
}


@pytest.mark.parametrize(("options", "want"), WRONG.values(), ids=WRONG)
def test_a_wrong_option_is_one_line_with_a_remedy(jobs: Path, options: list[str], want: str) -> None:
    assert horae("compare", jobs, "--no-cache", *options).complaint == want


@pytest.mark.parametrize(("option", "value"), [("--map", "submit=a"), ("--where", "vc=b"), ("--format", "philly")])
def test_what_a_file_is_read_with_is_nothing_for_a_generator(option: str, value: str) -> None:
    outcome = horae("compare", "poisson={jobs: 9}", "--nodes", "1x4", "--no-cache", option, value)
    assert outcome.complaint == f"{option}: is for files, and poisson is a generator; leave it out"


@pytest.mark.parametrize("options", [["--policy", "lottery"], ["--seeds", "0"], ["--workers", "0"], ["-o", "xml"]])
def test_other_wrong_options_are_one_line_too(jobs: Path, options: list[str]) -> None:
    assert horae("compare", jobs, "--nodes", "1x4", *options).complaint


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert str(tmp_path / "none.csv") in horae("compare", tmp_path / "none.csv", "--nodes", "1x4").complaint


# Quick clusters


def test_a_quick_cluster_has_a_pool_for_everybody() -> None:
    setup = parse_cluster(["2x8", "3x4:V100"])
    assert [(node.accelerator, node.gpus) for node in setup.cluster.nodes] == [("gpu", 8)] * 2 + [("V100", 4)] * 3
    assert [(pool.name, pool.tenants, pool.nodes) for pool in setup.pools] == [("all", (), ())]


def test_tenants_own_nodes_and_the_rest_is_spare() -> None:
    setup = parse_cluster(["nlp=2x8", "vision=1x4:A100", "1x2", "nlp=1x8:A100"])
    assert [pool.name for pool in setup.pools] == ["nlp", "vision", "spare"]
    assert setup.pools[0].nodes == ("nlp-000", "nlp-001", "nlp-002")
    assert setup.pools[0].tenants == ("nlp",)
    assert setup.cluster.gpu_count == 16 + 4 + 2 + 8


@pytest.mark.parametrize("text", ["8", "0x8", "2x", "2x8:", "=2x8", "spare=2x8", "2x8x2", "-1x8", "1x99999999999"])
def test_what_is_no_quick_cluster_is_an_error_with_a_remedy(text: str) -> None:
    with pytest.raises(InputError, match=r"--nodes: .*; "):
        parse_cluster([text])


def test_a_tenant_that_takes_the_names_of_others_is_told() -> None:
    with pytest.raises(InputError, match="give the tenant another name"):
        parse_cluster(["n=1x8", "1x8"])
