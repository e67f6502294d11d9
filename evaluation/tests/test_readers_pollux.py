"""Pollux's workloads: run times that are derived from the profiles beside them."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from math import sqrt
from pathlib import Path

import pytest
from trace_files import column, complaint, faults, write

from horae.traces.formats import detect, read_trace
from horae.traces.trace import Trace

HEADER = "set,workload,name,submit_s,model,num_gpu,batch_size"
PLACEMENTS = """\
model,placement,local_bsz,step_time,sync_time
toy,1,8,1.0,0.1
toy,1,16,2.0,0.1
toy,4,16,2.5,0.5
toy,4,8,1.5,0.3
toy,24,8,2.0,1.0
toy,33,8,70,1.0
toy,4444,8,3.0,1.0
"""
SCALABILITY = """\
model,num_nodes,num_replicas,local_bsz,step_time,sync_time
toy,6,24,8,5.0,2.0
toy,8,24,8,70,2.0
"""
VALIDATION = """\
model,batch_size,epoch,iteration,metric
toy,8,0,500,0.1
toy,8,1,1000,0.2
toy,32,1,400,0.2
toy,32,0,200,0.1
toy,48,1,200,0.2
toy,128,1,100,0.2
toy,160,1,50,0.2
toy,192,1,40,0.2
"""
PROFILES = {"placements": PLACEMENTS, "scalability": SCALABILITY, "validation": VALIDATION}


def write_profiles(folder: Path, **changed: str) -> None:
    for name, text in {**PROFILES, **changed}.items():
        write(folder, gzip.compress(text.encode()), f"profile_{name}.csv.gz")


def workloads(folder: Path, *rows: str) -> Path:
    return write(folder, "\n".join([HEADER, *rows]) + "\n", "workloads.csv")


def one_job(folder: Path, gpus: object, batch_size: object, model: str = "toy", **changed: str) -> Trace:
    write_profiles(folder, **changed)
    return read_trace(workloads(folder, f"1.0x,6,a,0,{model},{gpus},{batch_size}"))


def test_a_workload_gives_names_models_and_run_times(tmp_path: Path) -> None:
    write_profiles(tmp_path)
    trace = read_trace(workloads(tmp_path, "1.0x,6,toy-1,9,toy,4,32", "1.0x,6,toy-0,5.5,toy,1,8"))
    assert trace.table.rows(named=True) == [
        {"id": "toy-0", "submit": 5.5, "gpus": 1, "duration": 1000.0, "model": "toy (batch size 8)", "line": 3},
        {"id": "toy-1", "submit": 9.0, "gpus": 4, "duration": 600.0, "model": "toy (batch size 32)", "line": 2},
    ]
    assert (trace.fault_count, trace.left_out, trace.changed) == (0, {}, {})


@pytest.mark.parametrize(
    ("gpus", "batch_size", "want"),
    [
        pytest.param(1, 8, 1000 * 1.0, id="as profiled, to the last epoch"),
        pytest.param(1, 16, sqrt(1000 * 400) * 2.0, id="iterations are between batch sizes, as logarithms"),
        pytest.param(4, 48, 200 * 2.0, id="seconds are between shares"),
        pytest.param(6, 48, 200 * 2.0, id="full nodes come first"),
        pytest.param(24, 192, 40 * 5.0, id="large gangs are packed as well"),
        pytest.param(20, 160, 50 * 4.0, id="seconds are between gangs"),
        pytest.param(1, 48, 200 * (3 * 2.0 - 2 * 0.1), id="gradients are accumulated and synchronised once"),
        pytest.param(6, 128, 100 * (3 * 2.0 - 2 * 1.0), id="parts are equal and fit"),
        pytest.param(4, 8, 1000 * 1.5, id="less than the least share takes as long as it"),
    ],
)
def test_a_run_time_is_iterations_times_seconds_of_a_step(
    tmp_path: Path, gpus: int, batch_size: int, want: float
) -> None:
    assert column(one_job(tmp_path, gpus, batch_size), "duration") == [pytest.approx(want, rel=1e-12)]


def test_parts_of_an_accumulated_batch_are_of_one_size(tmp_path: Path) -> None:
    validation = VALIDATION + "toy,24,0,10,0.1\n"
    # Two parts of 12, which take 1.5 s each, of which 0.1 s synchronise.
    assert column(one_job(tmp_path, 1, 24, validation=validation), "duration") == [pytest.approx(10 * 2.9)]


def test_run_times_that_are_given_are_not_derived(tmp_path: Path) -> None:
    path = write(tmp_path, f"{HEADER},duration_s\n1.0x,6,a,0,toy,1,8,77\n")
    assert column(read_trace(path), "duration") == [77.0]


def test_profiles_may_be_unpacked(tmp_path: Path) -> None:
    for name, text in PROFILES.items():
        write(tmp_path, text, f"profile_{name}.csv")
    assert column(read_trace(workloads(tmp_path, "1.0x,6,a,0,toy,1,8")), "duration") == [1000.0]


# One of several


@pytest.mark.parametrize(
    ("where", "want"),
    [
        (None, "set, workload: holds several workloads (set 0.5x, 1.0x; workload 1, 6); choose one: --where {}"),
        ({"set": "0.5x"}, "workload: holds several workloads (1, 6); choose one: --where {}"),
        ({"workload": "1"}, "set: holds several workloads (0.5x, 1.0x); choose one: --where {}"),
    ],
)
def test_the_set_and_the_workload_must_be_chosen(tmp_path: Path, where: Mapping[str, str] | None, want: str) -> None:
    write_profiles(tmp_path)
    rows = [f"{name},{number},a,0,toy,{number},48" for name in ("0.5x", "1.0x") for number in (1, 6)]
    path = workloads(tmp_path, *rows)
    assert detect(path) == "pollux"
    choice = "set=0.5x,workload=1"
    assert complaint(lambda: read_trace(path, where=where)) == f"{path}: {want.format(choice)}"
    assert column(read_trace(path, where={"set": "1.0x", "workload": "6"}), "gpus") == [6]


# What is wrong


@pytest.mark.parametrize(
    ("cells", "field", "problem"),
    [
        ("toy,0,8", "num_gpu", "is '0'"),
        ("toy,-1,8", "num_gpu", "is '-1'"),
        ("toy,two,8", "num_gpu", "is 'two'"),
        ("toy,,8", "num_gpu", "is empty"),
        ("toy,25,192", "num_gpu", "is 25, outside of what was profiled"),
        ("toy,1,1.5", "batch_size", "is '1.5'"),
        ("toy,1,", "batch_size", "is empty"),
        ("toy,1,7", "batch_size", "is 7, outside of what was profiled"),
        ("toy,1,193", "batch_size", "is 193, outside of what was profiled"),
        ("toy,16,8", "batch_size", "8 leaves some of 16 GPUs idle"),
        ("vgg,1,8", "model", "is 'vgg', which has no profile"),
        (",1,8", "model", "is empty, which has no profile"),
    ],
)
def test_a_row_that_cannot_be_derived_is_a_fault(tmp_path: Path, cells: str, field: str, problem: str) -> None:
    write_profiles(tmp_path)
    trace = read_trace(workloads(tmp_path, f"1.0x,6,a,0,{cells}", "1.0x,6,b,0,toy,1,8"))
    assert (faults(trace), column(trace, "id")) == ([(2, field, problem)], ["b"])


def test_faults_say_what_would_be_right(tmp_path: Path) -> None:
    want = {
        (1, 9000, "toy"): "batch_size: is 9000, outside of what was profiled; give a number from 8 to 192",
        (64, 48, "toy"): "num_gpu: is 64, outside of what was profiled; give a number from 1 to 24",
        (1, 8, "vgg"): "model: is 'vgg', which has no profile; use a profiled model: toy",
    }
    for (gpus, batch_size, model), text in want.items():
        trace = one_job(tmp_path, gpus, batch_size, model)
        assert text in complaint(trace.strict)


def test_faults_of_all_kinds_are_counted_together(tmp_path: Path) -> None:
    write_profiles(tmp_path)
    rows = ["a,-5,toy,1,8", "b,0,toy,1,8", "b,0,toy,1,8", "c,0,vgg,1,8", "d,0,toy,1"]
    trace = read_trace(workloads(tmp_path, *(f"1.0x,6,{row}" for row in rows)))
    assert [fault[:2] for fault in faults(trace)] == [(2, "submit_s"), (4, "name"), (5, "model"), (6, "batch_size")]
    assert column(trace, "id") == ["b"]


@pytest.mark.parametrize("missing", PROFILES)
def test_a_profile_that_is_missing_is_named(tmp_path: Path, missing: str) -> None:
    write_profiles(tmp_path)
    (tmp_path / f"profile_{missing}.csv.gz").unlink()
    path = workloads(tmp_path, "1.0x,6,a,0,toy,1,8")
    assert complaint(lambda: read_trace(path)) == (
        f"{path}: duration_s: pollux workloads have no run times; "
        f"they are derived from profiles: put profile_{missing}.csv.gz into the same folder"
    )


def test_a_workload_without_names_says_so(tmp_path: Path) -> None:
    write_profiles(tmp_path)
    path = write(tmp_path, "set,workload,submit_s,model,num_gpu,batch_size\n1.0x,6,0,toy,1,8\n")
    assert f"{path}:1: name: is missing; add a column name" in complaint(lambda: read_trace(path))


@pytest.mark.parametrize(
    ("profile", "old", "new", "want"),
    [
        ("placements", "toy,1,8,", ",1,8,", ":2: model: is empty; give a name"),
        ("placements", "toy,24,", "toy,2x4,", ":6: placement: is '2x4'; give one digit a node"),
        ("placements", "toy,1,16,", "toy,1,8,", ":3: local_bsz: is '8'; keep one row of it with 1 GPUs"),
        ("placements", "toy,1,8,", "toy,1,0,", ":2: local_bsz: is '0'; give a whole number of at least 1"),
        ("placements", "8,1.0,0.1", "8,0,0.1", ":2: step_time: is '0'; give seconds above 0"),
        ("placements", "8,1.0,0.1", "8,nan,0.1", ":2: step_time: is 'nan'; give seconds of at least 0"),
        ("placements", "8,1.0,0.1", "8,1.0,1.5", ":2: sync_time: is '1.5'; give seconds from 0 to 1"),
        ("placements", "8,1.0,0.1", "8,1.0", ":2: sync_time: 4 cells under 5 columns; give each column a cell"),
        ("placements", "sync_time", "sync", ":1: sync_time: is missing; add a column sync_time"),
        ("scalability", "toy,6,24", "toy,6,many", ":2: num_replicas: is 'many'; give a whole number"),
        ("scalability", "toy,6,24", "toy,,24", ":2: num_nodes: is empty; give a whole number"),
        ("validation", "toy,8,0,500", "toy,8,-1,500", ":2: epoch: is '-1'; give a whole number of at least 0"),
        ("validation", "toy,8,0,500", "toy,8,0,0", ":2: iteration: is '0'; give a whole number of at least 1"),
    ],
)
def test_what_is_wrong_in_a_profile_is_an_error(tmp_path: Path, profile: str, old: str, new: str, want: str) -> None:
    text = PROFILES[profile].replace(old, new, 1)
    said = complaint(lambda: one_job(tmp_path, 1, 8, **{profile: text}))
    assert said.startswith(f"{tmp_path / f'profile_{profile}.csv.gz'}{want}")


# What is published


@pytest.mark.parametrize(("name", "want"), [("0.5x", 417), ("1.0x", 1135), ("1.5x", 1550), ("2.0x", 2072)])
def test_the_published_workloads_hold_as_many_gpu_hours_as_is_known(name: str, want: float, data: Path) -> None:
    path = data / "pollux" / "workloads.csv.gz"
    traces = [read_trace(path, where={"set": name, "workload": str(number)}).strict() for number in range(1, 9)]
    gpu_seconds = sum(float((trace.table["gpus"] * trace.table["duration"]).sum()) for trace in traces)
    # All are 2% below: a minute a job, as if the others had counted its start and whole rounds of the simulator.
    assert gpu_seconds / 3600 / len(traces) == pytest.approx(want, rel=0.03)
