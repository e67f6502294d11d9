"""Job tables: what they mean, and what is said about wrong ones."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest
from command_line import horae, horae_process
from sample_tables import write_sample, write_usage

from horae import samples
from horae.model.cluster import Cluster, Node
from horae.model.jobs import Arrival, Job
from horae.model.shapes import Option, Shape
from horae.traces.jobs import JobRow, read_jobs

# Two types, a level inside the nodes of one of them, and racks.
LAB = Cluster(
    "lab",
    (
        *(Node(f"a{index}", "A100", 8, levels=(("socket", 4),), rack="left") for index in range(2)),
        *(Node(f"v{index}", "V100", 4, rack=f"right/{index // 2}") for index in range(4)),
    ),
    restart_seconds=45.0,
)
LAB_FILE = """\
restart_seconds: 45
nodes:
  - {name: "a[0-1]", gpu: A100, gpus: 8, levels: {socket: 4}, rack: 2}
  - {name: "v[0-3]", gpu: V100, gpus: 4, rack: 2}
"""
HEADER = "id,submit,gpus,duration"
GOOD = f"{HEADER}\na,0,1,10m\n"
MAP = "name the columns with --map submit=COLUMN,gpus=COLUMN,duration=COLUMN"
KNOWN = f"use {', '.join(JobRow.model_fields)}; or {MAP}"
TIMES = "give seconds, or a number with s, m, h or d"
LEVELS = "use gpu, socket, node, rack, cluster"


def write(folder: Path, text: str | bytes, name: str = "jobs.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def with_column(column: str, cell: str) -> str:
    """A table with one more column: a good job on line 2, this cell on line 3."""
    return f"{HEADER},{column}\na,0,1,10m,\nb,0,1,10m,{cell}\n"


def complain(folder: Path, path: Path) -> str:
    cluster, journal = write(folder, LAB_FILE, "lab.yaml"), folder / "run.jsonl"
    complaint = horae("simulate", "--cluster", cluster, "--jobs", path, "--journal", journal).complaint
    assert not journal.exists()
    return complaint


# Sentence, file, and all that is printed about it behind the file's name.
WRONG_CSV: dict[str, tuple[str | bytes, str]] = {
    "members are more than the gang": (
        with_column("members", "1|1"),
        ":3: members: job 'b' asks for 1 GPUs, and its members have 2; "
        "give members with as many GPUs in all as the gang",
    ),
    "a member is a word": (with_column("members", "4|x"), ":3: members: is 'x'; it should be a valid integer"),
    "a member has no GPUs": (with_column("members", "1|0"), ":3: members: is '0'; it should be greater than 0"),
    "no node of these exists": (
        with_column("nodes", "z9|z8"),
        ":3: nodes: there is no node 'z9' in the cluster; use nodes of the cluster: a0, a1, v0, v1, v2, v3",
    ),
    "lazy is neither yes nor no": (
        with_column("lazy", "maybe"),
        ":3: lazy: is 'maybe'; it should be a valid boolean",
    ),
    # The file as a whole
    "the file is empty": ("", ": has no jobs; add one row a job"),
    "there is a header and nothing else": (f"{HEADER}\n", ": has no jobs; add one row a job"),
    "the file is Latin-1": (
        f"{GOOD}caf\xe9,0,1,5\n".encode("latin-1"),
        ":3: is not UTF-8 text; name a CSV or YAML file in UTF-8",
    ),
    "the file is compressed and cut short": (
        b"\x1f\x8b\x08\x00\x00",
        ": is cut short before its first line ends; fetch or copy the file again",
    ),
    "a quote is not closed": (
        f'{GOOD}"b,0,1,5\nc,0,1,5\n',
        ":3: not CSV: unexpected end of data; fix the quotes of this row",
    ),
    "a quote ends in the middle of a cell": (
        f'{GOOD}"b"x,0,1,5\n',
        """:3: not CSV: ',' expected after '"'; fix the quotes of this row""",
    ),
    # The header
    "a column is missing": ("id,submit,duration\na,0,5\n", ":1: gpus: is missing; add a column gpus"),
    "a column is unknown": (f"{HEADER},colour\na,0,1,5,red\n", f":1: colour: is not a known column; {KNOWN}"),
    "a column is unknown and empty": (f"{HEADER},colour\na,0,1,5,\n", f":1: colour: is not a known column; {KNOWN}"),
    "a column has no name": (f"{HEADER},\na,0,1,5,\n", f":1: column 5: is not a known column; {KNOWN}"),
    "a column is given twice": (
        "id,submit,gpus,duration,gpus\na,0,1,5,2\n",
        ":1: gpus: is a column twice; keep one of them",
    ),
    "semicolons stand between the cells": (
        "id;submit;gpus\na;0;1\n",
        f":1: has semicolons between its cells; put commas there, or {MAP}",
    ),
    "tabs stand between the cells": (
        "id\tsubmit\tgpus\na\t0\t1\n",
        f":1: has tabs between its cells; put commas there, or {MAP}",
    ),
    # Cells
    "a row has too many cells": (
        f"{GOOD}b,0,1,5,7\n",
        ":3: duration: 5 cells under 4 columns; put a cell that has commas in quotes",
    ),
    "a row has too few cells": (
        f"{GOOD}b,0\n",
        ":3: gpus: 2 cells under 4 columns; give each column a cell, if an empty one",
    ),
    "a row lacks only a cell that may be empty": (
        f"{HEADER},user\na,0,1,10m,\nb,0,1,10m\n",
        ":3: user: 4 cells under 5 columns; give each column a cell, if an empty one",
    ),
    "a cell is empty": (f"{GOOD}b,,1,5\n", ":3: submit: is missing; add it"),
    "gpus are negative": (f"{GOOD}b,0,-1,5\n", ":3: gpus: is '-1'; it should be greater than 0"),
    "gpus are zero": (f"{GOOD}b,0,0,5\n", ":3: gpus: is '0'; it should be greater than 0"),
    "gpus are a word": (f"{GOOD}b,0,two,5\n", ":3: gpus: is 'two'; it should be a valid integer"),
    "gpus are a fraction": (f"{GOOD}b,0,1.5,5\n", ":3: gpus: is '1.5'; it should be a valid integer"),
    "gpus are beyond all bounds": (
        f"{GOOD}b,0,99999999999,5\n",
        ":3: gpus: is '99999999999'; it should be less than or equal to 1000000",
    ),
    "the duration is zero": (f"{GOOD}b,0,1,0\n", ":3: duration: is '0'; it should be greater than 0"),
    "the duration is negative": (f"{GOOD}b,0,1,-5\n", f":3: duration: '-5' is no time; {TIMES}"),
    "the duration is endless": (f"{GOOD}b,0,1,inf\n", f":3: duration: 'inf' is no time; {TIMES}"),
    "the submission was yesterday": (f"{GOOD}b,yesterday,1,5\n", f":3: submit: 'yesterday' is no time; {TIMES}"),
    "the submission is not a number": (f"{GOOD}b,nan,1,5\n", f":3: submit: 'nan' is no time; {TIMES}"),
    "the submission is after the end of the world": (
        f"{GOOD}b,1e300,1,5\n",
        ":3: submit: is '1e300'; it should be less than or equal to 10000000000",
    ),
    "the weight is not a number": (with_column("weight", "nan"), ":3: weight: is 'nan'; it should be a finite number"),
    "the weight is endless": (with_column("weight", "inf"), ":3: weight: is 'inf'; it should be a finite number"),
    "the priority is a word": (
        with_column("priority", "high"),
        ":3: priority: is 'high'; it should be a valid integer",
    ),
    "the priority is beyond all bounds": (
        with_column("priority", "9" * 30),
        f":3: priority: is '{'9' * 30}'; it should be less than or equal to 1000000",
    ),
    "the deadline is a date": (
        with_column("deadline", "2026-12-01"),
        ":3: deadline: '2026-12-01' is a date, where most submissions are seconds since the start; "
        "make all times of the file seconds since the start",
    ),
    "the submission is a day that does not exist": (
        f"{HEADER}\na,2024-02-29,1,5\nb,2024-02-30,1,5\n",
        ":3: submit: '2024-02-30' is no time; give a date that exists, after 1979, such as 2020-09-01 00:00:12",
    ),
    "gpus have an underscore": (f"{GOOD}b,0,1_0,5\n", ":3: gpus: is '1_0'; give a number without underscores"),
    "a weight has an underscore": (
        with_column("weight", "1_0"),
        ":3: weight: is '1_0'; give a number without underscores",
    ),
    "a cell has control characters": (
        f"{GOOD}b,0,\x1b[31m,5\n",
        ":3: gpus: is '\\x1b[31m'; it should be a valid integer",
    ),
    "a column has control characters": (
        f"{HEADER},\x1b[31m\na,0,1,5,\n",
        f":1: \\x1b[31m: is not a known column; {KNOWN}",
    ),
    "retries are negative": (
        with_column("retries_max", "-1"),
        ":3: retries_max: is '-1'; it should be greater than or equal to 0",
    ),
    "there are a duration and steps": (
        with_column("steps", "100"),
        ":3: duration: there are both a duration and steps; give one of the two",
    ),
    "there are neither a duration nor steps": (
        f"{GOOD}b,0,1,\n",
        ":3: duration: there is neither a duration nor steps; give one of the two",
    ),
    "steps are endless": (
        "submit,gpus,steps\n0,1,inf\n",
        ":2: steps: is 'inf'; it should be a finite number",
    ),
    "two jobs have one id": (
        f"{GOOD}b,0,1,5\n\na,3,1,5\n",
        ":5: id: 'a' is taken (line 2); give each job a name of its own",
    ),
    # What must be in the cluster
    "all GPU types are unknown": (
        with_column("gpu_type", "H100|Z9"),
        ":3: gpu_type: GPU type 'H100' is not in the cluster; use A100, V100",
    ),
    "a level is unknown": (
        with_column("level", "galaxy"),
        f":3: level: there is no level 'galaxy' in the cluster; {LEVELS}",
    ),
    "a slowdown is for an unknown level": (
        with_column("slowdown", "rack=1.1;galaxy=2"),
        f":3: slowdown: there is no level 'galaxy' in the cluster; {LEVELS}",
    ),
    "a slowdown makes faster": (
        with_column("slowdown", "rack=0.5"),
        ":3: slowdown: is '0.5'; it should be greater than or equal to 1",
    ),
    "a slowdown has no number": (
        with_column("slowdown", "rack"),
        ":3: slowdown: 'rack' has no value; write rack=1.5",
    ),
    "all speeds are for unknown types": (
        with_column("speed", "H100=3;Z9=1"),
        ":3: speed: GPU type 'H100' is not in the cluster; use A100, V100",
    ),
    "a speed is missing for a type that is accepted": (
        f"{HEADER},speed,gpu_type\na,0,1,5,A100=2,V100\n",
        ":2: speed: is missing for GPU type 'V100'; add it, or drop the type",
    ),
    "a true speed is missing for a type that is accepted": (
        with_column("true_speed", "A100=2"),
        ":3: true_speed: is missing for GPU type 'V100'; add it, or drop the type",
    ),
    "a speed is a word": (with_column("speed", "A100=fast"), ":3: speed: is 'fast'; it should be a valid number"),
    "a speed is endless": (with_column("speed", "inf"), ":3: speed: is 'inf'; it should be a finite number"),
    "a speed has no number": (with_column("speed", "A100=2;V100"), ":3: speed: 'V100' has no value; write V100=1.5"),
    "a speed is given twice": (
        with_column("speed", "A100=2;A100=3"),
        ":3: speed: 'A100' is given twice; give it once",
    ),
    "a row after a cell of two lines is wrong": (
        f'{HEADER},command\n"a,b",0,1,5,"echo 1,\n2"\nc,0,0,5,\n',
        ":4: gpus: is '0'; it should be greater than 0",
    ),
}
WRONG_YAML = {
    "a member is a fraction": (
        "jobs:\n  - {submit: 0, gpus: 8, duration: 1,\n     members: [4.5, 3.5]}\n",
        ":3: jobs.0.members.0: is 4.5; it should be a valid integer, got a number with a fractional part",
    ),
    "nodes are a number": (
        "jobs:\n  - {submit: 0, gpus: 8, duration: 1,\n     nodes: 3}\n",
        ":3: jobs.0.nodes: is 3; it should be a valid list",
    ),
    "the file is empty": ("", ": is empty; give at least jobs"),
    "there is no list of jobs": ("rows: []\n", ":1: jobs: is missing; add it"),
    "the list of jobs is empty": ("jobs: []\n", ": has no jobs; add one row a job"),
    "the list of jobs was not written": ("jobs:\n", ":1: jobs: is empty; it should be a valid list"),
    "gpus are negative": (
        "jobs:\n  - {submit: 0, gpus: 1, duration: 5}\n  - submit: 0\n    gpus: -1\n    duration: 5\n",
        ":4: jobs.1.gpus: is -1; it should be greater than 0",
    ),
    "a field is missing": ("jobs:\n  - {submit: 0, duration: 1}\n", ":2: jobs.0.gpus: is missing; add it"),
    "a field is unknown": (
        "jobs:\n  - submit: 0\n    gpus: 1\n    duration: 5\n    color: red\n",
        ":5: jobs.0.color: is not a known field; remove it or check its spelling",
    ),
    "a field is given twice": (
        "jobs:\n  - submit: 0\n    gpus: 1\n    gpus: 2\n    duration: 5\n",
        ":4: gpus: is given twice (line 3); give it once",
    ),
    "an id is nothing": (
        "jobs:\n  - {id: null, submit: 0, gpus: 1, duration: 5}\n",
        ":2: jobs.0.id: is empty; it should be a valid string",
    ),
    "two jobs have one id": (
        "jobs:\n  - {id: a, submit: 0, gpus: 1, duration: 5}\n  - submit: 0\n    id: a\n    gpus: 1\n    duration: 5\n",
        ":4: id: 'a' is taken (line 2); give each job a name of its own",
    ),
    "the submission is a day that does not exist": (
        "jobs:\n  - gpus: 1\n    submit: 2024-02-30\n    duration: 5\n",
        ":3: submit: '2024-02-30' is no time; give a date that exists, after 1979, such as 2020-09-01 00:00:12",
    ),
    "the run time is a date": (
        "jobs:\n  - gpus: 1\n    submit: 0\n    duration: 2024-01-01\n",
        f":4: jobs.0.duration: '2024-01-01' is no time; {TIMES}",
    ),
    "the submission is nothing": (
        "jobs:\n  - {submit: null, gpus: 1, duration: 5}\n",
        f":2: jobs.0.submit: an empty value is no time; {TIMES}",
    ),
    "a row is no row": ("jobs:\n  - 7\n", ":2: jobs.0: is 7; give each value a name: {name: value}"),
    "a GPU type is unknown": (
        "jobs:\n  - submit: 0\n    gpus: 1\n    duration: 5\n    gpu_type: [H100]\n",
        ":5: gpu_type: GPU type 'H100' is not in the cluster; use A100, V100",
    ),
    "a speed is a word": (
        "jobs:\n  - submit: 0\n    gpus: 1\n    duration: 5\n    speed:\n      A100: 2\n      V100: slow\n",
        ":7: jobs.0.speed.V100: is 'slow'; it should be a valid number",
    ),
    "there is no speed at all": (
        "jobs:\n  - {submit: 0, gpus: 1, duration: 5, speed: {}}\n",
        ":2: jobs.0.speed: names no GPU type; give one number, or one for each type",
    ),
    "there are a duration and steps": (
        "jobs:\n  - submit: 0\n    gpus: 1\n    steps: 3\n    duration: 5\n",
        ":5: duration: there are both a duration and steps; give one of the two",
    ),
}


@pytest.mark.parametrize(("text", "want"), WRONG_CSV.values(), ids=WRONG_CSV)
def test_wrong_csv_is_one_line_with_its_place_and_a_remedy(tmp_path: Path, text: str | bytes, want: str) -> None:
    path = write(tmp_path, text)
    assert complain(tmp_path, path) == f"{path}{want}"


@pytest.mark.parametrize(("text", "want"), WRONG_YAML.values(), ids=WRONG_YAML)
def test_wrong_yaml_is_one_line_with_its_place_and_a_remedy(tmp_path: Path, text: str, want: str) -> None:
    path = write(tmp_path, text, "jobs.yaml")
    assert complain(tmp_path, path) == f"{path}{want}"


@pytest.mark.parametrize(
    "sentence", ["gpus are a word", pytest.param("a quote is not closed", marks=pytest.mark.nightly)]
)
def test_a_real_process_says_the_same_and_writes_no_journal(tmp_path: Path, sentence: str) -> None:
    text, want = WRONG_CSV[sentence]
    path, journal = write(tmp_path, text), tmp_path / "run.jsonl"
    assert horae_process("simulate", "--jobs", path, "--journal", journal).complaint == f"{path}{want}"
    assert not journal.exists()


def test_an_earlier_journal_survives_a_wrong_table(tmp_path: Path) -> None:
    path, journal = write(tmp_path, f"{HEADER}\n"), write(tmp_path, "precious", "run.jsonl")
    assert horae("simulate", "--jobs", path, "--journal", journal).code == 2
    assert journal.read_text() == "precious"


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none.csv"
    assert complain(tmp_path, path) == f"{path}: No such file or directory; name a CSV or YAML file in UTF-8"


def test_a_folder_is_no_job_table(tmp_path: Path) -> None:
    assert complain(tmp_path, tmp_path) == f"{tmp_path}: Is a directory; name a CSV or YAML file in UTF-8"


def read(folder: Path, text: str | bytes, name: str = "jobs.csv") -> list[Arrival]:
    return read_jobs(write(folder, text, name), LAB)


def one(folder: Path, columns: str, cells: str) -> Arrival:
    (arrival,) = read(folder, f"submit,gpus,{columns}\n0,{cells}\n")
    return arrival


def option(accelerator: str, gpus: int, level: str, speed: float) -> Option:
    return Option(Shape(accelerator, gpus, level), speed)


@pytest.mark.parametrize(
    "text",
    [
        b"\xef\xbb\xbf" + GOOD.encode(),
        GOOD.replace("\n", "\r\n").encode(),
        GOOD.encode().removesuffix(b"\n"),
        f"\n{HEADER}\n\na,0,1,10m\n\n".encode(),
        b"id , submit,gpus,duration\n a , 0 , 1 , 10m \n",
        b'"id","submit","gpus","duration"\n"a","0","1","10m"\n',
    ],
    ids=["byte-order mark", "CRLF", "no last line end", "blank lines", "spaces", "quotes"],
)
def test_harmless_forms_of_csv_are_all_the_same(tmp_path: Path, text: bytes) -> None:
    assert read(tmp_path, text) == read(tmp_path, GOOD)


def test_quoted_cells_may_have_commas_and_line_ends(tmp_path: Path) -> None:
    (arrival,) = read(tmp_path, f'{HEADER},command\n"a,b",0,1,5,"echo 1,\n2"\n')
    assert (arrival.job.id, arrival.job.command) == ("a,b", "echo 1,\n2")


def test_a_row_says_everything_about_its_job(tmp_path: Path) -> None:
    (arrival,) = read(
        tmp_path,
        "id,submit,tenant,app,gpus,duration,gpu_type,weight,priority,deadline,restart,min_runtime,grace,preemptions_max,"
        "retries_max,member_gpus,cpus_per_gpu,memory_per_gpu,command,workdir\n"
        "a,1m,nlp,sweep,2,2h,V100,2.5,7,1d,5,10m,30s,3,4,2,8,16GB,python train.py,/tmp\n",
    )
    assert arrival.job == Job(
        id="a",
        submitted_at=60.0,
        options=(option("V100", 2, "node", 1.0),),
        app="sweep",
        tenant="nlp",
        weight=2.5,
        priority=7,
        steps_total=7200.0,
        deadline_at=86400.0,
        restart_seconds=5.0,
        min_runtime_seconds=600.0,
        preemptions_max=3.0,
        grace_seconds=30.0,
        retries_max=4,
        member_gpus=2,
        cpus_per_gpu=8.0,
        memory_bytes_per_gpu=16e9,
        command="python train.py",
        workdir="/tmp",
    )


def test_a_row_says_where_its_members_may_go(tmp_path: Path) -> None:
    want = {"members": (8, 4, 4), "nodes": ("a1", "v0"), "pinned": "big", "lazy": True}
    columns = "members,nodes,pinned,lazy"
    from_csv = read(tmp_path, f"{HEADER},{columns}\na,0,16,5,8|4|4,a1|v0,big,true\nb,0,16,5,,,,\n")
    from_yaml = read(
        tmp_path,
        "jobs:\n"
        "  - {id: a, submit: 0, gpus: 16, duration: 5, members: [8, 4, 4], nodes: [a1, v0], pinned: big, lazy: true}\n"
        "  - {id: b, submit: 0, gpus: 16, duration: 5}\n",
        "jobs.yaml",
    )
    assert from_csv == from_yaml
    job, bare = (arrival.job for arrival in from_csv)
    assert {name: getattr(job, name) for name in want} == want
    assert (bare.members, bare.nodes, bare.pinned, bare.lazy) == ((), (), "", False)


@pytest.mark.parametrize(("cell", "want"), [("true", True), ("False", False), ("yes", True), ("0", False)])
def test_lazy_is_any_word_for_yes_or_no(tmp_path: Path, cell: str, want: bool) -> None:
    assert one(tmp_path, "duration,lazy", f"1,5,{cell}").job.lazy is want


def test_what_a_row_leaves_out_has_its_default(tmp_path: Path) -> None:
    job = one(tmp_path, "duration", "1,5").job
    assert (job.id, job.tenant, job.app_id, job.restart_seconds) == ("1", "default", "1", 45.0)
    assert (job.deadline_at, job.preemptions_max) == (inf, inf)


@pytest.mark.parametrize(
    ("columns", "cells", "want"),
    [
        ("duration", "4,5", [option("A100", 4, "node", 1.0), option("V100", 4, "node", 1.0)]),
        # Too large for one V100 node: there, and only there, it may be spread.
        ("duration", "8,5", [option("A100", 8, "node", 1.0), option("V100", 8, "cluster", 1.0)]),
        ("duration,gpu_type", "1,5,V100|A100", [option("V100", 1, "node", 1.0), option("A100", 1, "node", 1.0)]),
        ("duration,gpu_type", "1,5,V100|V100", [option("V100", 1, "node", 1.0)]),
        # Types that the cluster lacks are passed over, as long as one remains.
        ("duration,gpu_type", "1,5,H100|V100", [option("V100", 1, "node", 1.0)]),
        ("duration,speed", "1,5,H100=9;A100=2", [option("A100", 1, "node", 2.0)]),
        ("duration,gpu_type,speed", "1,5,H100|V100,H100=9;V100=2", [option("V100", 1, "node", 2.0)]),
        # Without a preference the fastest comes first; a type without a speed is not accepted.
        ("duration,speed", "1,5,A100=1;V100=2", [option("V100", 1, "node", 2.0), option("A100", 1, "node", 1.0)]),
        ("duration,speed", "1,5, V100 = 2 ;", [option("V100", 1, "node", 2.0)]),
        ("duration,speed,gpu_type", "1,5,3,A100", [option("A100", 1, "node", 3.0)]),
        ("duration,level,gpu_type", "4,5,socket,A100", [option("A100", 4, "socket", 1.0)]),
        # One option for each level at which it gets slower: 2 at most in a node, 2/1.25 in a rack, 2/2 beyond.
        (
            "duration,speed,gpu_type,level,slowdown",
            "4,5,2,A100,cluster,rack=1.25;cluster=2",
            [option("A100", 4, "node", 2.0), option("A100", 4, "rack", 1.6), option("A100", 4, "cluster", 1.0)],
        ),
        # A larger cell is never faster than a smaller one inside it.
        (
            "duration,gpu_type,level,slowdown",
            "4,5,A100,cluster,node=2;rack=1.5",
            [option("A100", 4, "socket", 1.0), option("A100", 4, "cluster", 0.5)],
        ),
        ("duration,gpu_type,slowdown", "4,5,A100,cluster=2", [option("A100", 4, "node", 1.0)]),
    ],
)
def test_shapes_accepted(tmp_path: Path, columns: str, cells: str, want: list[Option]) -> None:
    assert list(one(tmp_path, columns, cells).job.options) == want


def test_a_duration_is_meant_in_the_first_shape(tmp_path: Path) -> None:
    job = one(tmp_path, "duration,speed", "1,100,A100=3;V100=1").job
    assert job.steps_total == 300.0


def test_the_true_speed_is_known_to_the_engine_only(tmp_path: Path) -> None:
    arrival = one(tmp_path, "duration,gpu_type,speed,true_speed", "1,100,A100,2,0.5")
    assert (arrival.job.steps_total, arrival.job.options) == (200.0, (option("A100", 1, "node", 2.0),))
    assert (arrival.truth.steps_total, arrival.truth.options) == (50.0, (option("A100", 1, "node", 0.5),))


def test_jobs_come_in_the_order_of_submission_and_then_of_the_file(tmp_path: Path) -> None:
    arrivals = read(tmp_path, f"{HEADER}\nlate,9,1,5\nfirst,3,1,5\nsecond,3,1,5\n")
    assert [arrival.job.id for arrival in arrivals] == ["first", "second", "late"]


def test_a_row_without_an_id_takes_none_that_another_row_has(tmp_path: Path) -> None:
    arrivals = read(tmp_path, f"{HEADER}\n,0,1,5\n1,0,1,5\n2,0,1,5\n,0,1,5\n")
    assert [arrival.job.id for arrival in arrivals] == ["row-1", "1", "2", "4"]
    arrivals = read(tmp_path, f"{HEADER}\n,0,1,5\n1,0,1,5\nrow-1,0,1,5\n")
    assert [arrival.job.id for arrival in arrivals] == ["row-row-1", "1", "row-1"]


def test_ids_on_one_line_of_yaml_are_told_apart(tmp_path: Path) -> None:
    rows = "{id: a, submit: 0, gpus: 1, duration: 5}, {id: a, submit: 1, gpus: 1, duration: 5}"
    path = write(tmp_path, f"jobs: [{rows}]\n", "jobs.yaml")
    assert complain(tmp_path, path) == f"{path}:1: id: 'a' is taken (line 1); give each job a name of its own"


@pytest.mark.parametrize("cell", ["4", "4.0", "4.", "0.4e1", "+4"])
def test_whole_numbers_may_be_written_as_fractions(tmp_path: Path, cell: str) -> None:
    assert one(tmp_path, "duration", f"{cell},5").job.options[0].shape.gpus == 4


def test_times_may_be_dates_and_count_from_the_first(tmp_path: Path) -> None:
    from_csv = read(tmp_path, f"{HEADER},deadline\na,2024-03-31 00:00:10,1,5,2024-04-01\nb,2024-03-31,1,5,\n")
    from_yaml = read(
        tmp_path,
        "jobs:\n  - {id: a, submit: 2024-03-31 00:00:10, gpus: 1, duration: 5, deadline: 2024-04-01}\n"
        "  - {id: b, submit: 2024-03-31, gpus: 1, duration: 5}\n",
        "jobs.yaml",
    )
    assert [(made.job.id, made.job.submitted_at, made.job.deadline_at) for made in from_csv] == [
        ("b", 0.0, inf),
        ("a", 10.0, 86400.0),
    ]
    assert from_yaml == from_csv


def test_yaml_says_the_same_as_csv(tmp_path: Path) -> None:
    from_csv = read(
        tmp_path,
        f"{HEADER},gpu_type,speed,slowdown\n7,0,2,10m,V100|A100,V100=2;A100=1,rack=1.5\nb,30,1,600,,1.5,\n",
    )
    from_yaml = read(
        tmp_path,
        "jobs:\n"
        "  - {id: 7, submit: 0, gpus: 2, duration: 10m, gpu_type: [V100, A100], speed: {V100: 2, A100: 1},"
        " slowdown: {rack: 1.5}}\n"
        "  - {id: b, submit: 30, gpus: 1, duration: 600, speed: 1.5}\n",
        "jobs.yaml",
    )
    assert from_yaml == from_csv


def test_the_samples_are_what_their_generators_write(tmp_path: Path) -> None:
    path = tmp_path / "sample.csv"
    write_sample(path, seed=7)
    assert path.read_bytes() == samples.JOBS.read_bytes()
    write_usage(path, seed=5)
    assert path.read_bytes() == samples.USAGE.read_bytes()
