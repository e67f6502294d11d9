"""Logs of production clusters (Slurm, Helios, Philly): what is taken from them, left out, changed, found wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trace_files import DAY, HELIOS, SACCT, column, complaint, faults, write

from horae.model.errors import InputError
from horae.traces.formats import read_trace
from horae.traces.trace import Trace

# Slurm


def job(
    name: str = "1",
    submit: str = f"{DAY}T00:00:00",
    start: str = f"{DAY}T00:01:00",
    end: str = f"{DAY}T00:11:00",
    state: str = "COMPLETED",
    alloc: str = "billing=8,cpu=8,gres/gpu=2,mem=1G,node=1",
    requested: str = "cpu=8,gres/gpu=2",
    elapsed: str = "600",
) -> str:
    return f"{name}|ann|nlp|gpu|{submit}|{start}|{end}|{state}|{alloc}|{requested}|{elapsed}|1-00:00:00"


def sacct(folder: Path, *rows: str) -> Trace:
    return read_trace(write(folder, "\n".join([SACCT, *rows]) + "\n"))


def test_sacct_gives_who_when_and_how_long(tmp_path: Path) -> None:
    trace = sacct(tmp_path, job("7", submit=f"{DAY}T00:00:30"), job("8_1"))
    assert column(trace, "limit") == [86400.0, 86400.0]
    assert trace.table.drop("line", "limit", "start", "start_type").rows(named=True) == [
        {"id": "8_1", "submit": 0.0, "gpus": 2, "duration": 600.0, "user": "ann", "tenant": "nlp", "gpu_type": None},
        {"id": "7", "submit": 30.0, "gpus": 2, "duration": 600.0, "user": "ann", "tenant": "nlp", "gpu_type": None},
    ]
    assert (column(trace, "line"), trace.origin) == ([3, 2], "2020-09-01 00:00:00")


@pytest.mark.parametrize(
    ("alloc", "requested", "want"),
    [
        ("cpu=1,gres/gpu=8", "", (8, None)),
        ("gres/gpu:a100=8", "", (8, "a100")),
        ("cpu=1,gres/gpu:a100=8,gres/gpu=8,node=1", "", (8, "a100")),
        ("gres/gpu=4,gres/gpu:1g.5gb=3", "", (4, "1g.5gb")),
        ("gres/gpumem=10,gres/gpu=2,gres/gpuutil=5", "", (2, None)),
        ("", "gres/gpu:v100=2", (2, "v100")),
        ("gres/gpu=1", "gres/gpu=2", (1, None)),
    ],
)
def test_sacct_counts_gpus_in_several_ways(
    tmp_path: Path, alloc: str, requested: str, want: tuple[int, str | None]
) -> None:
    trace = sacct(tmp_path, job(alloc=alloc, requested=requested))
    assert [(*column(trace, "gpus"), *column(trace, "gpu_type"))] == [want]


def test_sacct_leaves_out_what_is_no_job_of_ours(tmp_path: Path) -> None:
    trace = sacct(
        tmp_path,
        job("1", alloc="cpu=4", requested="cpu=4"),
        job("2", alloc="", requested=""),
        job("3", alloc="gres/gpu=0"),
        job("4", start="None", end="Unknown", state="PENDING", alloc="", elapsed="0"),
        job("5", start="Unknown", end=f"{DAY}T01:00:00", state="CANCELLED by 1000", alloc="", elapsed="0"),
        job("6", elapsed="0", end=f"{DAY}T00:01:00", state="FAILED"),
        job("7.batch"),
        job("8", state="CANCELLED by 1000"),
    )
    assert (column(trace, "id"), faults(trace)) == (["8"], [])
    assert trace.left_out == {
        "asks for no GPU": 3,
        "never ran": 2,
        "ran for no time": 1,
        "is a step of a job": 1,
    }


def test_a_job_that_still_runs_is_left_out(tmp_path: Path) -> None:
    trace = sacct(tmp_path, job("1"), job("2", end="Unknown", state="RUNNING", elapsed="90"))
    assert column(trace, "id") == ["1"]
    assert trace.left_out == {"still runs": 1}


def test_sacct_without_run_times_counts_from_start_to_end(tmp_path: Path) -> None:
    text = f"jobid|submit|start|end|alloctres\n1|{DAY}T00:00:00|{DAY}T00:00:05|{DAY}T00:00:09|gres/gpu=1\n"
    assert column(read_trace(write(tmp_path, text)), "duration") == [4.0]


def test_what_is_wrong_in_sacct_is_listed_with_line_and_field(tmp_path: Path) -> None:
    trace = sacct(
        tmp_path,
        job("good"),
        job("b", start="2020-08-31T00:00:00"),
        job("c", end=f"{DAY}T00:00:30"),
        job("d", alloc="gres/gpu=-1"),
        job("e", alloc="gres/gpu=1.5"),
        job("f", alloc="gres/gpu=two"),
        job("g", alloc="gres/gpu:a100=4,gres/gpu:v100=4,gres/gpu=8"),
        job("h", submit="yesterday"),
        job("i", submit="Unknown"),
        job("j", submit=""),
        job("k", elapsed="long"),
        job("l", elapsed="-5"),
        job("good"),
        job(""),
        "m|too|few",
        job("n") + "|more",
        job("o", submit="1970-01-01T00:00:00"),
        job("p", submit="12"),
        job("q", alloc="gres/gpu=99999999"),
        job("r", end="2020-02-30T00:00:00"),
    )
    assert (column(trace, "id"), column(trace, "line")) == (["good"], [2])
    assert faults(trace) == [
        (3, "Start", "'2020-08-31T00:00:00' is before the submission"),
        (4, "End", "'2020-09-01T00:00:30' is before the start"),
        (5, "AllocTRES", "is '-1'"),
        (6, "AllocTRES", "is '1.5'"),
        (7, "AllocTRES", "is 'two'"),
        (8, "AllocTRES", "'gres/gpu:a100=4,gres/gpu:v100=4,gres/gpu=8' has several GPU types"),
        (9, "Submit", "'yesterday' is no time"),
        (10, "Submit", "is 'Unknown'"),
        (11, "Submit", "is missing"),
        (12, "ElapsedRaw", "is 'long'"),
        (13, "ElapsedRaw", "is '-5'"),
        (14, "JobID", "'good' is taken (line 2)"),
        (15, "JobID", "is missing"),
        (16, "Partition", "3 cells under 12 columns"),
        (17, "Timelimit", "13 cells under 12 columns"),
        (18, "Submit", "'1970-01-01T00:00:00' is no time"),
        (19, "Submit", "'12' is a number of seconds, where most submissions are dates"),
        (20, "AllocTRES", "is '99999999'"),
        (21, "End", "'2020-02-30T00:00:00' is no time"),
    ]
    with pytest.raises(InputError, match=r"jobs\.txt:3: Start: '2020-08-31T00:00:00' is before the submission"):
        trace.strict()


@pytest.mark.parametrize(
    ("header", "want"),
    [
        ("JobID|Start|End|AllocTRES", "has no column Submit; make it with sacct -a -X -P -o JobID,User,Account,Submit"),
        ("JobID|Submit|Start|End", "has no column AllocTRES; make it with sacct"),
        ("JobID|Submit|Start|AllocTRES", "has no column ElapsedRaw; make it with sacct"),
        (
            "JobID|JobName|Partition|State",
            "has no column Submit and no AllocTRES and no ElapsedRaw; make it with sacct",
        ),
        ("JobID|Submit|Submit|AllocTRES", ":1: Submit: is a column twice; keep one of them"),
    ],
)
def test_sacct_without_a_column_that_is_needed_is_an_error(tmp_path: Path, header: str, want: str) -> None:
    assert want in complaint(lambda: read_trace(write(tmp_path, f"{header}\n1|2|3|4\n")))


def test_earlier_runs_of_requeued_jobs_are_left_out(tmp_path: Path) -> None:
    trace = sacct(
        tmp_path, job("1", state="REQUEUED", elapsed="5"), job("2"), job("1", state="NODE_FAIL", elapsed="7"), job("1")
    )
    assert column(trace, "id") == ["2", "1"]
    assert trace.left_out == {"is an earlier run of a requeued job": 2}
    assert not trace.fault_count


@pytest.mark.parametrize(
    ("alloc", "requested", "gpus", "kind"),
    [
        ("gres/gpu:h100=4,gres/gpu=4", "gres/gpu=4", 4, None),  # asked for any type
        ("gres/gpu:h100=4,gres/gpu=4", "gres/gpu:h100=4", 4, "h100"),
        ("gres/gpu:h100=4", "", 4, "h100"),
        ("billing=4,cpu=4", "gres/gpu=2,cpu=4", 2, None),
        ("", "gres/gpu:a100=2", 2, "a100"),
        ("cpu=4", "cpu=4,gres/gpu:a100=1", 1, "a100"),
    ],
)
def test_gpus_and_types_of_allocation_and_request(
    tmp_path: Path, alloc: str, requested: str, gpus: int, kind: str | None
) -> None:
    trace = sacct(tmp_path, job("1", alloc=alloc, requested=requested))
    assert column(trace, "gpus") == [gpus]
    assert column(trace, "gpu_type") == [kind]


@pytest.mark.parametrize(
    ("text", "gpus", "kind"), [("gpu:8", 8, None), ("gpu:a100:4", 4, "a100"), ("gres:gpu:2", 2, None)]
)
def test_older_versions_have_gres(tmp_path: Path, text: str, gpus: int, kind: str | None) -> None:
    line = f"JobID|Submit|Elapsed|ReqGRES\n1|{DAY}T00:00:00|1-00:00:01|{text}\n"
    trace = read_trace(write(tmp_path, line))
    assert (column(trace, "gpus"), column(trace, "gpu_type"), column(trace, "duration")) == ([gpus], [kind], [86401.0])


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("1-00:00:00", 86400.0),
        ("02:30:00", 9000.0),
        ("30:00", 1800.0),
        ("30", 1800.0),
        ("2-12", 216000.0),
        ("1-02:30", 95400.0),
        ("UNLIMITED", None),
        ("Partition_Limit", None),
        ("", None),
    ],
)
def test_time_limits(tmp_path: Path, text: str, limit: float | None) -> None:
    line = f"JobID|Submit|ElapsedRaw|AllocTRES|Timelimit\n1|{DAY}T00:00:00|60|gres/gpu=1|{text}\n"
    assert column(read_trace(write(tmp_path, line)), "limit") == [limit]


def test_a_time_limit_that_is_none_is_a_fault(tmp_path: Path) -> None:
    line = f"JobID|Submit|ElapsedRaw|AllocTRES|Timelimit\n1|{DAY}T00:00:00|60|gres/gpu=1|soon\n"
    assert faults(read_trace(write(tmp_path, line))) == [(2, "Timelimit", "is 'soon'")]


def test_a_quote_in_sacct_is_a_letter_like_others(tmp_path: Path) -> None:
    assert column(sacct(tmp_path, job('1"')), "id") == ['1"']


# Helios


def helios(folder: Path, *rows: str) -> Trace:
    return read_trace(write(folder, "\n".join([HELIOS, *rows]) + "\n"))


def helios_job(name: str = "1", gpus: str = "8", start: str = f"{DAY} 00:00:10", duration: str = "20") -> str:
    return f"{name},ann,vc1,x,{gpus},32,1,COMPLETED,{DAY} 00:00:00,{start},{DAY} 00:00:30,{duration},10"


def test_helios_gives_tenants_and_leaves_out_jobs_without_gpus(tmp_path: Path) -> None:
    trace = helios(
        tmp_path, helios_job(), helios_job("2", gpus="0"), helios_job("3", start=""), helios_job("4", duration="0")
    )
    assert trace.table.drop("line", "start").rows(named=True) == [
        {"id": "1", "submit": 0.0, "gpus": 8, "duration": 20.0, "user": "ann", "tenant": "vc1"}
    ]
    assert trace.left_out == {"asks for no GPU": 1, "never ran": 1, "ran for no time": 1}


def test_what_is_wrong_in_helios_is_listed(tmp_path: Path) -> None:
    trace = helios(
        tmp_path,
        helios_job("1", start=f"{DAY} 00:01:00"),
        helios_job("2", gpus="-8"),
        helios_job("3", start="2020-08-31 00:00:00"),
        helios_job("4", duration="x"),
    )
    assert faults(trace) == [
        (2, "end_time", "'2020-09-01 00:00:30' is before the start"),
        (3, "gpu_num", "is '-8'"),
        (4, "start_time", "'2020-08-31 00:00:00' is before the submission"),
        (5, "duration", "is 'x'"),
    ]
    assert trace.table.is_empty()


# Philly


def attempt(start: str | None, end: str | None, *gpus: int) -> dict[str, object]:
    detail = [
        {"ip": f"m{index}", "gpus": [f"gpu{number}" for number in range(count)]} for index, count in enumerate(gpus)
    ]
    return {"start_time": start and f"{DAY} {start}", "end_time": end and f"{DAY} {end}", "detail": detail}


def entry(name: str, *attempts: object, submitted: str | None = f"{DAY} 00:00:00") -> dict[str, object]:
    return {
        "status": "Pass",
        "vc": "6214e9",
        "jobid": name,
        "attempts": list(attempts),
        "submitted_time": submitted,
        "user": "ce2f4c",
    }


def philly(folder: Path, *entries: object) -> Trace:
    return read_trace(write(folder, "[\n" + ",\n".join(json.dumps(item) for item in entries) + "\n]\n"))


def test_philly_counts_all_gpus_of_an_attempt(tmp_path: Path) -> None:
    trace = philly(tmp_path, entry("a", attempt("00:00:10", "00:01:00", 8, 8)))
    assert trace.table.rows(named=True) == [
        {"id": "a", "submit": 0.0, "gpus": 16, "duration": 50.0, "user": "ce2f4c", "tenant": "6214e9", "line": 2}
    ]
    assert trace.origin == "2020-09-01 00:00:00"


def test_several_attempts_in_philly_are_one_run_with_the_gpus_of_the_last(tmp_path: Path) -> None:
    tried = (attempt("00:00:10", "00:00:20", 8), attempt("00:01:00", "00:01:05", 4), attempt("00:02:00", None, 2))
    trace = philly(tmp_path, entry("a", *tried))
    assert (column(trace, "gpus"), column(trace, "duration")) == ([4], [15.0])
    assert trace.changed == {
        "was tried several times: taken as one run": 1,
        "has attempts without a start or an end: these are not counted": 1,
    }


def test_philly_leaves_out_what_never_ran(tmp_path: Path) -> None:
    trace = philly(
        tmp_path,
        entry("a"),
        entry("b", attempt(None, None)),
        entry("c", attempt("00:00:01", "00:00:02")),
        entry("d", attempt("00:00:01", "00:00:01", 1)),
    )
    assert trace.table.is_empty()
    assert trace.left_out == {"never ran": 2, "asks for no GPU": 1, "ran for no time": 1}


def test_what_is_wrong_in_philly_is_listed(tmp_path: Path) -> None:
    ran = attempt("00:00:10", "00:01:00", 1)
    trace = philly(
        tmp_path,
        entry("a", ran),
        entry("b", ran, submitted=None),
        entry("c", ran, submitted="soon"),
        entry("d", attempt("00:01:10", "00:01:00", 1)),
        entry("e", ran, submitted=f"{DAY} 00:00:30"),
        7,
        {**entry("f"), "attempts": "none"},
        entry("g", "none"),
        {key: value for key, value in entry("h", ran).items() if key != "jobid"},
        entry("a", ran),
    )
    assert column(trace, "id") == ["a"]
    assert faults(trace) == [
        (3, "submitted_time", "is missing"),
        (4, "submitted_time", "is 'soon'"),
        (5, "end_time", "'2020-09-01 00:01:00' is before the start"),
        (6, "start_time", "'2020-09-01 00:00:10' is before the submission"),
        (7, "entry", "is 7"),
        (8, "attempts", "is 'none'"),
        (9, "attempts", "has 'none'"),
        (10, "jobid", "is missing"),
        (11, "jobid", "'a' is taken (line 2)"),
    ]


def test_jobs_on_one_line_of_json_are_told_apart_by_their_number(tmp_path: Path) -> None:
    ran = attempt("00:00:10", "00:01:00", 1)
    trace = read_trace(write(tmp_path, json.dumps([entry("a", ran), entry("b"), entry("c", ran)])))
    assert column(trace, "line") == [1, 3]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("[]", ": has no jobs; add one row a job"),
        (
            "[\n{},\n{]\n]",
            ":3: not JSON: Expecting property name enclosed in double quotes; fetch or copy the file again",
        ),
        ("[\n{}\n{}\n]", ":3: not JSON: the list goes on without a comma; fetch or copy the file again"),
        ("[\n{},\n{}\n", ":4: not JSON: cut short; fetch or copy the file again"),
        ("[\n{},\n", ":3: not JSON: Expecting value; fetch or copy the file again"),
        ("[" * 100_000, ":1: not JSON: too many brackets inside each other; fetch or copy the file again"),
    ],
)
def test_broken_json_is_an_error_with_its_line(tmp_path: Path, text: str, want: str) -> None:
    path = write(tmp_path, text)
    assert complaint(lambda: read_trace(path)) == f"{path}{want}"
