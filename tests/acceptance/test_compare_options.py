"""What a platform engineer asks of a comparison: my configuration, another cluster, single jobs, teams, dates."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import polars as pl
import pytest
import yaml
from command_line import horae, horae_process

from horae import samples

CLUSTER = """
name: lab
nodes: [{name: "a[0-1]", gpu: A100, gpus: 4}]
tenants: {nlp: {weight: 3}, vision: {}}
spare: {policy: las}
"""
FIFO = CLUSTER.replace("las", "fifo")
JOBS = "id,submit,gpus,duration,tenant,user\n" + "".join(
    f"j{number},{300 * number},{2 ** (number % 3)},{900 + 700 * (number % 5)},{('nlp', 'vision')[number % 2]},u\n"
    for number in range(40)
)
DATED = "id,submit,gpus,duration\na,2026-03-01 08:00:00,8,7200\nb,2026-03-01 08:30:00,8,600\n"


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    return write(tmp_path / "jobs.csv", JOBS)


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    return write(tmp_path / "lab.yaml", CLUSTER)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def labels(text: str) -> list[str]:
    return [row["policy"] for row in csv.DictReader(io.StringIO(text))]


def compare(*words: object) -> str:
    outcome = horae("compare", *words, "--no-cache", "--workers", "1")
    assert outcome.code == 0, outcome
    return outcome.out


# The cluster file as it is


def test_the_cluster_file_as_configured_is_a_row(jobs: Path, lab: Path) -> None:
    text = compare(jobs, "--cluster", lab, "--policy", "fifo", "--policy", "las", "-o", "csv")
    assert labels(text) == ["fifo", "las", "as configured"]
    rows = [row.split(",", 1)[1] for row in text.splitlines()[1:]]
    assert rows[2] == rows[1] != rows[0]


def test_a_file_that_chooses_no_policy_has_no_row_of_its_own(jobs: Path, tmp_path: Path) -> None:
    plain = write(tmp_path / "plain.yaml", FIFO)
    assert labels(compare(jobs, "--cluster", plain, "--policy", "fifo", "-o", "csv")) == ["fifo"]


def test_the_configuration_may_be_the_baseline(jobs: Path, lab: Path) -> None:
    words = ("--cluster", lab, "--policy", "fifo", "--baseline", "as configured", "-o", "json")
    fifo, configured = json.loads(compare(jobs, *words))["policies"]
    assert configured["versus_baseline"] is None
    assert fifo["versus_baseline"]["jobs_paired"] == 40


# Another cluster


def test_the_same_policies_on_another_cluster(jobs: Path, lab: Path, tmp_path: Path) -> None:
    bigger = write(tmp_path / "bigger.yaml", FIFO.replace("a[0-1]", "a[0-7]"))
    found = json.loads(compare(jobs, "--cluster", lab, "--vs", bigger, "--policy", "fifo", "-o", "json"))
    rows = {row["policy"]: row for row in found["policies"]}
    assert list(rows) == ["fifo", "as configured", "fifo on bigger"]
    assert rows["fifo on bigger"]["versus_baseline"]["difference_relative"]["mean"] < -0.1
    assert rows["fifo on bigger"]["estimate"]["utilisation"] < rows["fifo"]["estimate"]["utilisation"]
    assert set(found["lower_bounds_elsewhere"]) == {"bigger"}
    table = compare(jobs, "--cluster", lab, "--vs", bigger, "--policy", "fifo")
    assert "lower bound on bigger" in table


def test_two_clusters_of_one_name_are_an_error(jobs: Path, lab: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    twin = write(other / "bigger.yaml", FIFO)
    words = ("--cluster", lab, "--vs", twin, "--vs", twin)
    assert horae("compare", jobs, *words).complaint == "--vs: two clusters are called 'bigger'; rename one of the files"


# Single jobs


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_the_results_of_every_job_are_written(jobs: Path, lab: Path, tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"out.{suffix}"
    words = ("--cluster", lab, "--policy", "fifo", "--policy", "srtf", "--jobs-out", file, "-o", "csv", "--seeds", "2")
    text = compare(jobs, *words)
    frame = pl.read_csv(file) if suffix == "csv" else pl.read_parquet(file)
    assert frame.select("policy", "seed").unique(maintain_order=True).rows() == [
        (policy, seed) for policy in ("fifo", "srtf", "as configured") for seed in (0, 1)
    ]
    first = frame.filter((pl.col("policy") == "srtf") & (pl.col("seed") == 0))
    (row,) = [row for row in csv.DictReader(io.StringIO(text)) if (row["policy"], row["seed"]) == ("srtf", "0")]
    assert first["completion_seconds"].mean() == pytest.approx(float(row["completion_mean_seconds"]))
    assert first["waiting_seconds"].mean() == pytest.approx(float(row["waiting_mean_seconds"]))
    assert first["preemptions"].sum() == int(float(row["preemptions"]))
    assert first["rho_paper"].max() == pytest.approx(float(row["rho_paper.max"]))
    assert set(first["accelerator"]) == {"A100"}
    assert first["rho_private"].max() == pytest.approx(float(row["rho_private.max"]))


def test_the_file_does_not_depend_on_the_number_of_processes(jobs: Path, lab: Path, tmp_path: Path) -> None:
    words = (jobs, "--cluster", lab, "--policy", "fifo", "--policy", "srtf", "--seeds", "2", "--no-cache", "--quiet")
    for workers in (1, 2):
        file = tmp_path / f"{workers}.csv"
        assert horae("compare", *words, "--jobs-out", file, "--workers", workers).code == 0
    assert (tmp_path / "1.csv").read_bytes() == (tmp_path / "2.csv").read_bytes()


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("out.txt", "is neither CSV nor Parquet; name it .csv or .parquet"),
        ("nowhere/out.csv", "cannot be written: No such file or directory; name a file in a folder of yours"),
    ],
)
def test_a_file_that_cannot_be_written_is_said_first(
    jobs: Path, lab: Path, tmp_path: Path, name: str, problem: str
) -> None:
    file = tmp_path / name
    assert horae("compare", jobs, "--cluster", lab, "--jobs-out", file).complaint == f"{file}: --jobs-out: {problem}"


# Tenants and fairness


def test_tenants_are_shown_with_their_share_of_the_hours_and_of_the_weights(jobs: Path, lab: Path) -> None:
    words = ("--cluster", lab, "--policy", "fifo", "--by", "tenant")
    rows = list(csv.DictReader(io.StringIO(compare(jobs, *words, "-o", "csv"))))
    whole, *teams = [row for row in rows if row["policy"] == "fifo"]
    assert {row["tenant"]: float(row["weight_share"]) for row in teams} == {"nlp": 0.75, "vision": 0.25}
    hours = {row["tenant"]: float(row["gpu_hours"]) for row in teams}
    assert sum(hours.values()) == pytest.approx(float(whole["gpu_hours"]))
    for row in teams:
        assert float(row["gpu_hours_share"]) == pytest.approx(hours[row["tenant"]] / sum(hours.values()))
    heading = compare(jobs, *words, "-o", "md").split("\n\n")[1].splitlines()[0]
    assert "| GPU-hours | share | by weight |" in heading
    assert "by weight" not in compare(jobs, "--cluster", lab, "--policy", "fifo", "--by", "user", "-o", "md")


def test_the_threshold_of_unfair_is_an_option_and_rho_has_its_name(jobs: Path, lab: Path) -> None:
    words = (jobs, "--cluster", lab, "--policy", "fifo", "-o", "json")
    strict, lenient = (
        json.loads(compare(*words, "--unfair-above", limit))["policies"][0]["estimate"] for limit in (0.01, 1000)
    )
    assert strict["rho_paper.unfair_share"] == strict["rho_private.unfair_share"] == 1
    assert lenient["rho_paper.unfair_share"] == lenient["rho_private.unfair_share"] == 0
    assert strict["rho_paper.max"] == lenient["rho_paper.max"]
    heading = compare(*words[:-2], "--unfair-above", "1.5", "-o", "md").splitlines()[0]
    names = ["rho_paper max", "rho_paper > 1.5", "rho_private max", "rho_private > 1.5"]
    assert " | ".join(names) in heading


# What is assumed


def test_preemption_costs_something_unless_it_is_said_otherwise_and_the_table_says_what(jobs: Path) -> None:
    words = ("compare", jobs, "--nodes", "2x4", "--policy", "las", "--no-cache", "--workers", "1")
    costly, free = (horae(*words, *more) for more in ((), ("--restart-seconds", "0")))
    assert "resuming takes 45 s unless a job says otherwise" in costly.out
    assert "resuming takes 0 s unless a job says otherwise" in free.out
    assert costly.out != free.out


# One table for every command


@pytest.mark.parametrize("command", [("demo", "--simulated"), ("simulate", "--policy", "fifo", "--policy", "tiresias")])
def test_eighty_columns_cut_no_number(command: tuple[str, ...]) -> None:
    outcome = horae_process(*command, COLUMNS="80", FORCE_COLOR="1", NO_COLOR="1", TERM="dumb", TTY_COMPATIBLE="1")
    lines = [line for line in outcome.out.splitlines() if "│" in line or "┃" in line]
    cells = [cell.strip() for line in lines for cell in line.replace("┃", "│").split("│")[1:-1]]
    assert cells
    assert all(len(line) <= 80 for line in lines)
    assert not any("…" in cell for cell in cells)
    assert "completion: mean" in cells


def test_simulate_and_compare_show_the_same_columns(jobs: Path, lab: Path) -> None:
    one = horae("simulate", "--jobs", jobs, "--cluster", lab, "--policy", "fifo").out.splitlines()[1]
    two = compare(jobs, "--cluster", lab, "--policy", "fifo").splitlines()[1]
    first, second = ([cell.strip() for cell in line.split("┃")[1:-1]] for line in (one, two))
    assert first == [cell for cell in second if not cell.startswith("vs ")]


# Clusters from tables


def test_alibabas_nodes_are_a_cluster(tmp_path: Path) -> None:
    nodes = write(tmp_path / "nodes.csv", "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\nn1,96000,1,0,\n")
    shown = horae("cluster", "show", nodes)
    assert shown.code == 0
    assert "P100" in shown.out
    assert "n1" not in shown.out
    trace = write(tmp_path / "jobs.csv", "id,submit,gpus,duration\na,0,2,100\nb,0,1,50\n")
    assert horae("compare", trace, "--cluster", nodes, "--policy", "fifo", "--no-cache", "--workers", "1").code == 0


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name,gpus,gpu\nn0,two,A100\n", ":2: gpus: is 'two'; give a number of 0 or more"),
        ("name,gpus,gpu\nn0,1.5,A100\n", ":2: gpus: is '1.5'; give a whole number up to 1024"),
        ("name,gpus,gpu\nn0,2,\n", ":2: gpu: is missing; fill it in"),
        ("name,gpus\nn0,2\n", ":1: gpu: is missing; add a column gpu; there are name, gpus"),
        ("name,gpus,gpu,memory\nn0,2,A100,many\n", ":2: memory: is 'many'; give a number of 0 or more"),
        ("name,gpus,gpu\nn0,0,A100\n", ": has no node with GPUs; name a table with one row per node"),
    ],
)
def test_a_wrong_table_of_nodes_is_one_line(tmp_path: Path, text: str, problem: str) -> None:
    file = write(tmp_path / "nodes.csv", text)
    assert horae("cluster", "show", file).complaint == f"{file}{problem}"


# Dates


def test_dates_of_the_trace_are_understood_and_told(tmp_path: Path) -> None:
    trace, journal = write(tmp_path / "dated.csv", DATED), tmp_path / "run.jsonl"
    assert horae("simulate", "--jobs", trace, "--nodes", "1x8", "--journal", journal).code == 0
    said = horae("why", "b", "--journal", journal, "--at", "2026-03-01 09:00").out
    assert said.splitlines()[0] == "b waits at 2026-03-01 09:00:00 (3,600 s), in pool all under fifo"
    assert "2026-03-01 08:30:00 submitted" in said
    assert "believed at 2026-03-01 10:00:00" in said
    assert horae("why", "b", "--journal", journal, "--at", "1h").out == said
    assert (
        json.loads(horae("why", "b", "--journal", journal, "--at", "2026-03-01T09:00Z", "-o", "json").out)["at"] == 3600
    )
    assert "all the same" in horae("replay", journal).out


def test_a_date_without_dates_in_the_trace_is_an_error(tmp_path: Path) -> None:
    journal = tmp_path / "run.jsonl"
    assert horae("simulate", "--jobs", samples.JOBS, "--journal", journal).code == 0
    complaint = horae("why", "j1", "--journal", journal, "--at", "2026-03-01").complaint
    assert complaint.startswith("--at: '2026-03-01' is a date, and this log counts from second 0")
    complaint = horae("why", "j1", "--journal", journal, "--at", "soon").complaint
    assert complaint.endswith("or a date such as 2026-03-01 14:30")


# Plans with several GPU types


def test_cells_of_several_gpu_types_are_planned_each_by_itself(tmp_path: Path) -> None:
    rows = [
        f"j{number},{1800 * number},{1 + number % 4},{3600 + 600 * (number % 7)},{('a', 'b')[number % 2]},{kind}"
        for number, kind in ((number, ("A100", "V100")[number % 3 == 0]) for number in range(300))
    ]
    trace = write(tmp_path / "jobs.csv", "id,submit,gpus,duration,tenant,gpu_type\n" + "\n".join(rows) + "\n")
    target = tmp_path / "planned.yaml"
    words = ("--nodes", "3x8:A100", "--nodes", "4x4:V100", "-o", "json", "--write", target)
    outcome = horae("tenants", "plan", trace, *words)
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)["types"]
    assert list(found) == ["A100", "V100"]
    assert sum(share["gpus"] for share in found["A100"]["shares"]) <= 24
    assert sum(share["gpus"] for share in found["V100"]["shares"]) <= 16
    cells = yaml.safe_load(target.read_text())["tenants"]["a"]["cells"]
    assert {name.partition(".")[0] for name in cells} == {"A100", "V100"}
    assert horae("simulate", "--jobs", trace, "--cluster", target).code == 0


def test_jobs_that_accept_several_types_are_told(tmp_path: Path) -> None:
    rows = "".join(f"j{number},{1800 * number},1,3600,a\n" for number in range(50))
    trace = write(tmp_path / "jobs.csv", "id,submit,gpus,duration,tenant\n" + rows)
    outcome = horae("tenants", "plan", trace, "--nodes", "1x8:A100", "--nodes", "1x8:V100")
    assert outcome.code == 0
    assert "50 jobs accept several GPU types, and count for the first" in outcome.err
    assert "V100: no jobs to plan from, so no cells are reserved" in outcome.err


def test_nodes_of_one_type_must_be_alike(tmp_path: Path) -> None:
    trace = write(tmp_path / "jobs.csv", JOBS)
    complaint = horae("tenants", "plan", trace, "--nodes", "1x8:A100", "--nodes", "1x4:A100").complaint
    assert complaint.startswith("--nodes: nodes of A100 have different numbers of GPUs, or different cells; ")


def test_quiet_does_not_hide_what_is_lost(tmp_path: Path) -> None:
    rows = "".join(f"j{number},{number},1,60\n" for number in range(40))
    trace = write(tmp_path / "jobs.csv", f"id,submit,gpus,duration\n{rows}wide,0,64,60\nbroken,0,one,60\n")
    words = ("--nodes", "1x4", "--policy", "fifo", "--quiet", "--no-cache", "--workers", "1")
    told = horae("compare", trace, *words).err
    assert "1 broken row left out" in told
    assert "1 job can never run here" in told


# Runs of more than a week: the scheduler forgets ended jobs after seven days


@pytest.fixture
def weeks(tmp_path: Path) -> Path:
    rows = "".join(f"j{number},{7200 * number},1,3600\n" for number in range(150))
    return write(tmp_path / "weeks.csv", f"id,submit,gpus,duration\nwide,0,64,60\n{rows}")


def test_a_job_that_ended_long_ago_can_be_asked_about(weeks: Path, tmp_path: Path) -> None:
    journal = tmp_path / "run.jsonl"
    assert horae("simulate", "--jobs", weeks, "--nodes", "1x4", "--journal", journal).code == 0
    assert "j0 has finished" in horae("why", "j0", "--journal", journal).out
    assert "wide was refused" in horae("why", "wide", "--journal", journal, "--at", "11d").out
    complaint = horae("why", "j149", "--journal", journal, "--at", "1h").complaint
    assert complaint == f"{journal}: --at: 'j149' was submitted after 1.00 h (3,600 s); ask for a later moment"


def test_refused_jobs_are_counted_however_long_the_run(weeks: Path) -> None:
    one = horae("simulate", "--jobs", weeks, "--nodes", "1x4", "-o", "json")
    assert (json.loads(one.out)["fifo"]["refused"], json.loads(one.out)["fifo"]["unfinished"]) == (1, 0)
    assert one.err.startswith("refused wide: never: ")
    words = (weeks, "--nodes", "1x4", "--policy", "fifo", "--no-cache", "--workers", "1")
    assert "1 job can never run here\nrefused wide: never" in horae("compare", *words).err


def test_a_moment_before_the_log_is_one_line(tmp_path: Path) -> None:
    trace, journal = write(tmp_path / "dated.csv", DATED), tmp_path / "run.jsonl"
    assert horae("simulate", "--jobs", trace, "--nodes", "1x8", "--journal", journal).code == 0
    complaint = horae("why", "a", "--journal", journal, "--at", "2025-01-01").complaint
    assert complaint == (
        "--at: 2025-01-01 00:00:00 is before the log begins; ask for a moment from 2026-03-01 08:00:00 on"
    )


def test_jobs_without_a_tenant_are_told(tmp_path: Path) -> None:
    trace = write(tmp_path / "jobs.csv", "id,submit,gpus,duration,tenant\na,0,1,60,nlp\nb,0,1,60,\n")
    told = horae("compare", trace, "--nodes", "1x4", "--policy", "fifo", "--no-cache", "--workers", "1").err
    assert "1 of 2 jobs name no tenant, and are those of tenant 'default'" in told
