"""Workloads as tables, published or of one's own: what is taken from them, left out, changed, and found wrong."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest
from trace_files import DAY, HELIOS, OPENB, SACCT, column, complaint, faults, write

from horae.traces.clusters.hived import is_hived, read_hived
from horae.traces.formats import FORMATS, detect, known_formats, parse_mapping, read_trace, write_trace
from horae.traces.readers import published_table
from horae.traces.readers.text_file import HEAD_BYTES
from horae.traces.trace import Trace

# Gavel


def gavel(folder: Path, *rows: tuple[object, ...]) -> Trace:
    return read_trace(write(folder, "".join("\t".join(str(cell) for cell in row) + "\n" for row in rows)))


def gavel_job(
    steps: object = 100, gpus: object = 1, weight: object = 1.0, slo: object = -1, arrival: object = 0.0
) -> tuple[object, ...]:
    return "ResNet-50 (batch size 64)", "python main.py", "cv", "--steps", 1, steps, gpus, weight, slo, arrival


def test_gavel_gives_models_and_steps(tmp_path: Path) -> None:
    trace = gavel(tmp_path, gavel_job(arrival=7.5, slo=1.2, gpus=2), gavel_job(weight=2))
    assert trace.table.rows(named=True) == [
        {
            "id": "2",
            "submit": 0.0,
            "gpus": 1,
            "steps": 100.0,
            "model": "ResNet-50 (batch size 64)",
            "weight": 2.0,
            "line": 2,
        },
        {
            "id": "1",
            "submit": 7.5,
            "gpus": 2,
            "steps": 100.0,
            "model": "ResNet-50 (batch size 64)",
            "weight": 1.0,
            "line": 1,
        },
    ]
    assert trace.changed == {"has an SLO, a factor of a run time that the file does not tell: no deadline": 1}


def test_shockwave_gives_run_times(tmp_path: Path) -> None:
    one = (*gavel_job(gpus=2)[:7], "accordion", 1, -1, 1418, 55)
    two = (*gavel_job()[:7], "static", 2, 1.5, 200, 60)
    wrong = (*gavel_job()[:7], "dynamic", 1, -1, 200, 61)
    path = tmp_path / "jobs.trace"
    path.write_text("".join("\t".join(map(str, job)) + "\n" for job in (one, two, wrong)))
    trace = read_trace(path)
    columns = ("submit", "gpus", "duration", "weight", "deadline")
    assert trace.table.select(columns).rows() == [(55.0, 2, 1418.0, 1.0, None), (60.0, 1, 200.0, 2.0, 360.0)]
    assert trace.changed == {"changes its batch size as it runs: at a constant speed, for the same run time": 1}
    assert [fault[:2] for fault in faults(trace)] == [(3, "mode")]
    write_trace(trace, tmp_path / "own.csv")
    again = read_trace(tmp_path / "own.csv")
    assert (len(again.table), again.fault_count) == (2, 0)


def test_what_is_wrong_in_gavel_is_listed(tmp_path: Path) -> None:
    trace = gavel(
        tmp_path,
        gavel_job(),
        gavel_job(steps=0),
        gavel_job(gpus=0),
        gavel_job(gpus=1.5),
        gavel_job(weight="heavy"),
        gavel_job(slo=-2),
        gavel_job(arrival=-1),
        gavel_job()[:9],
    )
    assert [fault[:2] for fault in faults(trace)] == [
        (2, "total_steps"),
        (3, "scale_factor"),
        (4, "scale_factor"),
        (5, "priority_weight"),
        (6, "slo"),
        (7, "arrival_time"),
        (8, "arrival_time"),
    ]


# Alibaba


def test_openb_rounds_parts_of_gpus_up_and_divides_the_rest(tmp_path: Path) -> None:
    rows = [
        "a,12000,16384,2,1000,V100M32|G2,LS,Running,5,105,15",
        "b,1000,1024,1,460,,BE,Running,6,106,",
        "c,1000,1024,0,0,,BE,Running,7,107,7",
        "d,1000,1024,1,1000,,BE,Pending,8,,",
        "e,-1,1024,1,1000,,BE,Running,8,9,8",
    ]
    trace = read_trace(write(tmp_path, "\n".join([OPENB, *rows])))
    assert trace.table.drop("line", "start").rows(named=True) == [
        {
            "id": "a",
            "submit": 5.0,
            "gpus": 2,
            "duration": 90.0,
            "gpu_type": "V100M32|G2",
            "cpus_per_gpu": 6.0,
            "memory_per_gpu": 2.0**33,
        },
        {
            "id": "b",
            "submit": 6.0,
            "gpus": 1,
            "duration": 100.0,
            "gpu_type": None,
            "cpus_per_gpu": 1.0,
            "memory_per_gpu": 2.0**30,
        },
    ]
    assert trace.left_out == {"asks for no GPU": 1, "has neither an end nor a run time": 1}
    assert trace.changed == {
        "asks for a part of a GPU: given a whole one": 1,
        "has no time of scheduling: runs from its creation": 1,
    }
    assert faults(trace) == [(6, "cpu_milli", "is '-1'")]


def test_openb_without_times_says_so(tmp_path: Path) -> None:
    path = write(tmp_path, "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,1,1000\n")
    assert ":1: creation_time: is missing; add a column creation_time" in complaint(lambda: read_trace(path))


# Published tables, and tables of any kind


def test_a_published_table_gives_tenants_models_and_deadlines(tmp_path: Path) -> None:
    header = "cluster,job_id,submit_s,num_gpu,duration_s,model,batch_size,iterations,deadline_s"
    trace = read_trace(write(tmp_path, f"{header}\nc7,x,9,2,60,vgg16,128,5,99\n"))
    assert trace.table.drop("line").rows(named=True) == [
        {
            "id": "x",
            "submit": 9.0,
            "gpus": 2,
            "duration": 60.0,
            "tenant": "c7",
            "model": "vgg16 (batch size 128)",
            "deadline": 99.0,
        }
    ]


def test_of_several_workloads_one_must_be_chosen(tmp_path: Path) -> None:
    text = "seed,vc,arrival_s,job_type,total_steps,scale_factor\n0,a,0,LM,10,1\n1,a,0,LM,20,1\n"
    path = write(tmp_path, text)
    want = f"{path}: seed: holds several workloads (0, 1); choose one: --where seed=0"
    assert complaint(lambda: read_trace(path)) == want
    assert column(read_trace(path, where={"seed": "1"}), "steps") == [20.0]


def test_a_table_without_run_times_says_so(tmp_path: Path) -> None:
    path = write(tmp_path, "set,workload,name,submit_s,model,num_gpu,batch_size\n1.0x,6,a,0,bert,1,12\n")
    said = "duration_s: is missing; add a column duration_s, total_steps or iterations"
    assert said in complaint(lambda: published_table.read(path))


def test_what_is_wrong_in_a_published_table_is_listed(tmp_path: Path) -> None:
    text = "submit_s,num_gpu,duration_s\n0,1,5\n0,0,5\n0,1,0\n0,-1,5\n-3,1,5\n0,1.5,5\n0,one,5\n,1,5\n0,1,\n"
    trace = read_trace(write(tmp_path, text))
    assert [(line, field) for line, field, _ in faults(trace)] == [
        (3, "num_gpu"),
        (4, "duration_s"),
        (5, "num_gpu"),
        (6, "submit_s"),
        (7, "num_gpu"),
        (8, "num_gpu"),
        (9, "submit_s"),
        (10, "duration_s"),
    ]


MAPPING = parse_mapping("submit=When,gpus=n,duration=secs,user=who")


@pytest.mark.parametrize(
    ("cells", "origin"),
    [
        (("0", "90"), ""),
        (("0s", "1.5m"), ""),
        (("1600000000", "1600000090"), "2020-09-13 12:26:40"),
        (("2020-09-01 00:00:00", "2020-09-01 00:01:30"), "2020-09-01 00:00:00"),
        (("2020-09-01T00:00:00", "2020-09-01T00:01:30"), "2020-09-01 00:00:00"),
        (("2020-09-01T00:00:00.25", "2020-09-01T00:01:30.25"), "2020-09-01 00:00:00.250000"),
        (("2020-09-01T00:00:00Z", "2020-09-01T02:01:30+02:00"), "2020-09-01 00:00:00"),
    ],
)
def test_times_are_seconds_or_dates_and_count_from_the_first_submission(
    tmp_path: Path, cells: tuple[str, str], origin: str
) -> None:
    path = write(tmp_path, f"who,When,n,secs\nann,{cells[0]},1,10m\nbob,{cells[1]},2,5\n")
    trace = read_trace(path, mapping=MAPPING)
    assert (column(trace, "submit"), trace.origin) == ([0.0, 90.0], origin)
    assert (column(trace, "duration"), column(trace, "user")) == ([600.0, 5.0], ["ann", "bob"])


def test_deadlines_are_dates_where_submissions_are(tmp_path: Path) -> None:
    rows = f"{DAY} 00:00:10,1,5,{DAY} 00:01:10\n{DAY} 00:00:20,1,5,70\n{DAY} 00:00:30,1,5,\n"
    mapping = {"submit": "at", "gpus": "n", "duration": "secs", "deadline": "due"}
    trace = read_trace(write(tmp_path, f"at,n,secs,due\n{rows}"), mapping=mapping)
    assert (column(trace, "submit"), column(trace, "deadline")) == ([0.0, 20.0], [60.0, None])
    assert faults(trace) == [(3, "due", "'70' is a number of seconds, where most submissions are dates")]


DATE, STAMP, NUMBER = "2024-03-31 01:59:59", "1711850000", "5"
# Cells of one column; what second 0 is, and what is said of the others.
MIXED: dict[str, tuple[list[str], str, list[tuple[int, str]]]] = {
    "of equally many, dates count": (
        [DATE, STAMP, NUMBER],
        "2024-03-31 01:59:59",
        [(3, f"'{STAMP}' is a number of seconds since 1970"), (4, "'5' is a number of seconds")],
    ),
    "most are seconds since 1970": (
        [STAMP, NUMBER, STAMP, DATE],
        "2024-03-31 01:53:20",
        [(3, "'5' is a number of seconds"), (5, f"'{DATE}' is a date")],
    ),
    "most are seconds": (
        [DATE, "10m", STAMP, NUMBER],
        "",
        [(2, f"'{DATE}' is a date"), (4, f"'{STAMP}' is a number of seconds since 1970")],
    ),
}


@pytest.mark.parametrize(("cells", "origin", "want"), MIXED.values(), ids=MIXED)
def test_times_are_what_most_of_them_are(
    tmp_path: Path, cells: list[str], origin: str, want: list[tuple[int, str]]
) -> None:
    rows = "".join(f"ann,{cell},1,5\n" for cell in cells)
    trace = read_trace(write(tmp_path, f"who,When,n,secs\n{rows}"), mapping=MAPPING)
    kind = {"": "seconds since the start", "2024-03-31 01:53:20": "seconds since 1970"}.get(origin, "dates")
    assert trace.origin == origin
    assert faults(trace) == [(line, "When", f"{said}, where most submissions are {kind}") for line, said in want]
    assert {fault.remedy for fault in trace.faults} == {f"make all times of the file {kind}"}


def test_one_date_among_the_seconds_of_accounts_is_a_fault(tmp_path: Path) -> None:
    rows = f"a,u,v,j,1,1,1,s,0,1,9,8,q\nb,u,v,j,4.0,1,1,s,{DATE},1,9,8,q\nc,u,v,j,4.0,1,1,s,2,3,9,6,q\n"
    trace = read_trace(write(tmp_path, f"{HELIOS}\n{rows}"))
    said = f"'{DATE}' is a date, where most submissions are seconds since the start"
    assert faults(trace) == [(3, "submit_time", said)]
    assert (column(trace, "id"), column(trace, "gpus"), trace.origin) == (["a", "c"], [1, 4], "")


def test_a_day_that_does_not_exist_is_told_in_words_of_dates(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "who,When,n,secs\nann,2024-02-30,1,5\nbob,1970-01-01,1,5\n"), mapping=MAPPING)
    assert faults(trace) == [(2, "When", "'2024-02-30' is no time"), (3, "When", "'1970-01-01' is no time")]
    assert trace.faults[0].remedy == "give a date that exists, after 1979, such as 2020-09-01 00:00:12"


@pytest.mark.parametrize("name", ["x.csv", "x.yaml", "x.parquet"])
def test_our_own_format_may_have_dates(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    first, second = datetime(2024, 3, 31, 1, 59, 59), datetime(2024, 3, 31, 2, 0, 9)
    if name == "x.parquet":
        pl.DataFrame({"submit": [first, second], "gpus": 1, "duration": 5}).write_parquet(path)
    elif name == "x.yaml":
        write(
            tmp_path, "jobs:\n" + "".join(f"- {{submit: {at}, gpus: 1, duration: 5}}\n" for at in (first, second)), name
        )
    else:
        write(tmp_path, f"submit,gpus,duration\n{first},1,5\n{second},1,5\n", name)
    trace = read_trace(path)
    assert (column(trace, "submit"), trace.origin, trace.faults) == ([0.0, 10.0], "2024-03-31 01:59:59", ())


def test_our_own_format_takes_large_numbers_as_seconds_since_the_start(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "submit,gpus,duration\n5,1,5\n1711850000,1,5\n"))
    assert (column(trace, "submit"), trace.origin, trace.faults) == ([5.0, 1711850000.0], "", ())


def test_a_row_of_yaml_that_is_wrong_is_only_one(tmp_path: Path) -> None:
    rows = "  - {submit: 0, gpus: 1, duration: 5}\n  - submit: 0\n    gpus: -1\n    duration: 5\n  - 7\n"
    trace = read_trace(write(tmp_path, f"jobs:\n{rows}", "x.yaml"))
    assert faults(trace) == [(4, "jobs.1.gpus", "is -1"), (6, "jobs.2", "is 7")]
    assert column(trace, "id") == ["1"]


def test_yaml_of_wrong_rows_only_is_counted_too(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "jobs:\n  - {submit: 0}\n", "x.yaml"))
    assert faults(trace) == [(2, "jobs.0.gpus", "is missing")]


def test_a_file_of_ours_that_is_cut_off_has_a_row_of_too_few_cells(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "id,submit,gpus,duration,user\nj1,0,8,3600,ann\nj2,5,8,36"))
    assert faults(trace) == [(3, "user", "4 cells under 5 columns")]
    assert column(trace, "id") == ["j1"]


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
@pytest.mark.parametrize("quote", ["", '"'], ids=["plain", "quotes"])
def test_the_separator_of_a_mapped_file_is_told_by_its_header(tmp_path: Path, mark: str, quote: str) -> None:
    rows = [["who", "When", "n", "secs"], ["ann", "0", "1", "10m"]]
    text = "".join(mark.join(f"{quote}{cell}{quote}" for cell in row) + "\n" for row in rows)
    assert column(read_trace(write(tmp_path, text, "x.csv"), mapping=MAPPING), "duration") == [600.0]


@pytest.mark.parametrize(("mark", "name"), [(";", "semicolons"), ("\t", "tabs")])
def test_other_separators_than_ours_are_named(tmp_path: Path, mark: str, name: str) -> None:
    path = write(tmp_path, mark.join(("submit", "gpus", "duration")) + "\n")
    assert complaint(lambda: read_trace(path)) == (
        f"{path}:1: has {name} between its cells; "
        "put commas there, or name the columns with --map submit=COLUMN,gpus=COLUMN,duration=COLUMN"
    )


def test_a_parquet_column_of_ours_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pl.DataFrame({"submit": [0], "gpus": [[1, 2]], "duration": [5.0]}).write_parquet(path)
    said = f"{path}: gpus: is a column of List(Int64); make it numbers, text or dates"
    assert complaint(lambda: read_trace(path)) == said
    mapping = {"submit": "submit", "gpus": "gpus", "duration": "duration"}
    assert complaint(lambda: read_trace(path, mapping=mapping)) == said


def test_columns_may_have_the_names_of_other_fields(tmp_path: Path) -> None:
    path = write(tmp_path, "gpus,submit,duration\n5,2,9\n")
    trace = read_trace(path, mapping={"submit": "gpus", "gpus": "submit", "duration": "duration", "steps": "gpus"})
    assert faults(trace) == [(2, "duration", "there are both a duration and steps")]
    trace = read_trace(path, mapping={"submit": "gpus", "gpus": "submit", "duration": "duration"})
    assert trace.table.drop("id", "line").rows() == [(5.0, 2, 9.0)]


@pytest.mark.parametrize(
    ("mapping", "want"),
    [
        ("gpus=n,duration=secs", "submit: has no column; map it: submit=COLUMN"),
        ("submit=When,gpus=n", "duration: has no column; map it: duration=COLUMN, or steps=COLUMN"),
        ("submit=When,gpus=n,duration=secs,color=red", "color: is no field of a job; map one of id, submit"),
        ("submit=Then,gpus=n,duration=secs", ":1: Then: is missing; add a column Then; there are who, When"),
        ("submit", "map: 'submit' names no column; write submit=COLUMN,gpus=COLUMN"),
        ("gpus=n,gpus=m", "map: 'gpus' is given twice; give it once"),
    ],
)
def test_a_mapping_that_is_wrong_says_why(tmp_path: Path, mapping: str, want: str) -> None:
    path = write(tmp_path, "who,When,n,secs\nann,0,1,5\n")
    assert want in complaint(lambda: read_trace(path, mapping=parse_mapping(mapping)))


# Telling formats apart


@pytest.mark.parametrize(
    ("text", "name", "want"),
    [
        ("submit,gpus,duration\n", "x.csv", "horae"),
        ("jobs: []\n", "x.yaml", "horae"),
        (SACCT, "x.txt", "slurm"),
        (SACCT.lower(), "x.txt", "slurm"),
        (" \n [{}]", "x.json", "philly"),
        (f'"{HELIOS.replace(",", chr(34) + "," + chr(34))}"', "x.csv", "helios"),
        (OPENB, "x.csv", "openb"),
        ("\t".join("abcdefghij"), "x.trace", "gavel"),
        ("vc,submit_s,num_gpu,duration_s", "x.csv", "table"),
        ("seed,vc,arrival_s,job_type,total_steps,scale_factor", "x.csv", "table"),
    ],
)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
def test_formats_are_told_by_what_is_in_them(tmp_path: Path, text: str, name: str, want: str, packed: bool) -> None:
    assert detect(write(tmp_path, gzip.compress(text.encode()) if packed else text, name)) == want


def test_parquet_is_told_by_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "x"
    pl.DataFrame({"submit": [0], "gpus": [1], "duration": [5.0]}).write_parquet(path)
    assert column(read_trace(path), "duration") == [5.0]


def test_an_unknown_file_says_what_was_found_and_what_to_do(tmp_path: Path) -> None:
    path = write(tmp_path, "Name,Started,n_gpu\n")
    assert complaint(lambda: read_trace(path)) == (
        f"{path}: is of no format that is known; its columns are Name, Started, n_gpu; "
        f"name them with --map submit=...,gpus=...,duration=..., or use --format {'|'.join(known_formats())}"
    )
    assert "there is no format 'pbs'; use horae, slurm" in complaint(lambda: read_trace(path, format="pbs"))
    assert complaint(lambda: read_trace(write(tmp_path, "\n\n"))).endswith(": has no jobs; add one row a job")


@pytest.mark.parametrize(
    ("data", "want"),
    [
        ("submit,gpus\n".encode("utf-16"), ":1: is UTF-16, not UTF-8 text"),
        ("submit,gpus\n".encode("utf-16-le"), ":1: has a NUL byte, so it is no text"),
        (b"submit,gpus\n\0\n", ":2: has a NUL byte, so it is no text"),
        (b"\0" * 100_000, ":1: has a NUL byte, so it is no text"),
        ("caf\xe9,gpus\n".encode("latin-1"), ":1: is not UTF-8 text"),
    ],
    ids=["UTF-16", "UTF-16 without its mark", "NUL", "nothing but NUL", "Latin-1"],
)
def test_a_file_that_is_no_text_says_so_before_its_format_is_looked_for(tmp_path: Path, data: bytes, want: str) -> None:
    path = write(tmp_path, data)
    assert complaint(lambda: read_trace(path)) == f"{path}{want}; name a CSV or YAML file in UTF-8"


def test_letters_of_several_bytes_at_the_end_of_what_is_looked_at_are_no_fault(tmp_path: Path) -> None:
    for shift in range(3):
        rows = "x" * shift + "\u20ac" * HEAD_BYTES
        assert detect(write(tmp_path, f"submit,gpus,duration,user\n0,1,5,{rows}\n")) == "horae"


def test_control_characters_in_a_header_are_written_out(tmp_path: Path) -> None:
    assert "its columns are \\x1b[31m, b;" in complaint(lambda: read_trace(write(tmp_path, "\x1b[31m,b\n")))


def test_control_characters_in_ids_are_written_out(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "id,submit,gpus,duration\n\x1b[31m,0,1,5\n\x1b[31m,0,1,5\n"))
    assert faults(trace) == [(3, "id", "'\\x1b[31m' is taken (line 2)")]


def test_a_file_that_does_not_fit_into_memory_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(path: Path, where: object) -> Trace:
        raise MemoryError

    path = write(tmp_path, "submit,gpus,duration\n0,1,5\n")
    monkeypatch.setitem(FORMATS, "horae", FORMATS["horae"]._replace(read=exhausted))
    said = f"{path}: does not fit into memory; split it into several files, and read each by itself"
    assert complaint(lambda: read_trace(path)) == said


@pytest.mark.parametrize("read", [read_trace, read_hived], ids=["jobs", "cluster"])
def test_yaml_beyond_all_bounds_is_refused_before_it_is_held(tmp_path: Path, read: Callable[[Path], object]) -> None:
    path = tmp_path / "endless.yaml"
    path.symlink_to("/dev/zero")
    assert complaint(lambda: read(path)) == (
        f"{path}: is larger than 16 MiB; name a YAML file in UTF-8; a large job table should be CSV or Parquet"
    )
    assert not is_hived(path)


def test_a_format_that_is_named_is_taken_at_its_word(tmp_path: Path) -> None:
    path = write(tmp_path, "submit,gpus,duration\n0,1,5\n")
    assert ":1: job_id: is missing" in complaint(lambda: read_trace(path, format="helios"))
