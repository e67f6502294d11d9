"""Reading by columns is reading row by row; writing and reading back changes nothing."""

from __future__ import annotations

import csv
import io
import tempfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from pydantic import ValidationError

from horae.model.errors import InputError
from horae.traces.formats import read_trace, write_trace
from horae.traces.job_row import JobRow
from horae.traces.readers import native
from horae.traces.readers.raw_table import read_raw
from horae.traces.readers.typed_columns import PLAIN
from horae.traces.trace import SCHEMA, Trace

ODD = ["", "0", "1", "-1", "2.5", "1e3", "1e400", "10m", "2h", "nan", "inf", "-0", "+3", "1_000", "x", " 7 ", "1.0"]
ODD += ["99999999999", "9" * 30, "0x10", "1e-320", "16GB", "5e", ".5", "5.", "\u0661", "A=1", "A=1;B=2", "A=x", "A|B"]
ODD += ["8|4|4", "4|x", "4|0", "true", "false", "yes"]
CELLS = st.sampled_from(ODD) | st.integers(-5, 2_000_000).map(str) | st.floats(allow_nan=False).map(repr)
OPTIONAL = [name for name in JobRow.model_fields if name not in ("submit", "gpus", "id")]


def folder() -> Path:
    return Path(tempfile.mkdtemp())


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[list[str]]]:
    columns = ["submit", "gpus", *draw(st.lists(st.sampled_from(OPTIONAL), unique=True, max_size=5))]
    good = st.tuples(st.integers(0, 100).map(str), st.integers(1, 9).map(str))
    wild = st.tuples(CELLS, CELLS)
    rows = [
        [*draw(good | wild), *draw(st.lists(CELLS, min_size=len(columns) - 2, max_size=len(columns) - 2))]
        for _ in range(draw(st.integers(1, 6)))
    ]
    return columns, rows


def row_by_row(columns: list[str], rows: list[list[str]]) -> tuple[list[tuple[int, dict[str, Any]]], list[int]]:
    """Line and fields of each row that is right, and the lines of those that are wrong; blank rows are neither."""
    right, wrong = [], []
    for line, cells in enumerate(rows, start=2):
        if not any(cells):
            continue
        given = {name: cell.strip() for name, cell in zip(columns, cells, strict=True) if cell.strip()}
        try:
            row = JobRow.model_validate(given)
        except ValidationError:
            wrong.append(line)
            continue
        if (row.duration is None) == (row.steps is None):
            wrong.append(line)
        else:
            read = {name: getattr(row, name) for name in given if name in PLAIN or name == "lazy"}
            right.append((line, given | read))
    return sorted(right, key=lambda item: item[1]["submit"]), wrong


@examples(quick=100, nightly=300)
@given(tables(), st.booleans())
def test_reading_by_columns_is_reading_row_by_row(table: tuple[list[str], list[list[str]]], quoted: bool) -> None:
    columns, rows = table
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL, lineterminator="\n")
    writer.writerows([columns, *rows])
    path = folder() / "jobs.csv"
    path.write_text(text.getvalue(), encoding="utf-8")
    if not any(map(any, rows)):
        with pytest.raises(InputError, match="has no jobs"):
            native.read(path)
        return
    trace = native.read(path)
    right, wrong = row_by_row(columns, rows)
    found = [
        (line, {name: value for name, value in row.items() if value is not None})
        for line, row in zip(trace.table["line"], trace.table.drop("id", "line").iter_rows(named=True), strict=True)
    ]
    assert found == right
    assert ([fault.line for fault in trace.faults], trace.fault_count) == (wrong, len(wrong))


TIMES = {"2024-03-31 01:59:59": "dates", "2024-04-01": "dates", "2024-02-30": "dates", "1711850000": "epoch"}
TIMES |= {"1711850000.5": "epoch", "5": "seconds", "10m": "seconds", "1.5e-3": "seconds"}
READABLE = [text for text in TIMES if text != "2024-02-30"]


@examples(quick=70, nightly=200)
@given(st.lists(st.sampled_from([*TIMES, "soon"]), min_size=1, max_size=9), st.booleans())
def test_times_are_what_most_of_them_are_and_the_others_are_faults(cells: list[str], quoted: bool) -> None:
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL, lineterminator="\n")
    writer.writerows([["at", "n", "secs"], *([cell, "1", "5"] for cell in cells)])
    path = folder() / "jobs.csv"
    path.write_text(text.getvalue(), encoding="utf-8")
    trace = read_trace(path, mapping={"submit": "at", "gpus": "n", "duration": "secs"})
    kinds = [TIMES.get(cell, "") for cell in cells]
    kind = max(("dates", "epoch", "seconds"), key=kinds.count)
    right = [line for line, cell in enumerate(cells, start=2) if cell in READABLE and TIMES[cell] == kind]
    assert sorted(trace.table["line"]) == right
    assert trace.fault_count == len(cells) - len(right)
    assert bool(trace.origin) == bool(right and kind != "seconds")


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8).filter(
    lambda text: text == text.strip() and pl.Series([text]).str.strip_chars()[0] == text
)
SECONDS = st.floats(0, 1e10, allow_subnormal=False)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "gpus": st.integers(1, 1_000_000),
    "member_gpus": st.integers(1, 1_000_000),
    "priority": st.integers(-1_000_000, 1_000_000),
    "retries_max": st.integers(0, 1_000_000),
    "members": st.sampled_from(["8", "8|4|4", "1|1|1"]),
    "lazy": st.booleans(),
    "speed": st.sampled_from(["2", "A=1.5;B=2"]),
    "true_speed": st.sampled_from(["2", "A=1.5;B=2"]),
    "slowdown": st.sampled_from(["rack=2", "rack=1.5;cluster=2"]),
    "steps": st.floats(1e-9, 1e300),
    "duration": st.floats(1e-9, 1e10),
    "limit": st.floats(1e-9, 1e10),
    "weight": st.floats(1e-9, 1e300),
    "preemptions_max": st.floats(0, 1e300) | st.just(float("inf")),
    "cpus_per_gpu": st.floats(0, 1e300),
    "memory_per_gpu": st.floats(0, 1e300),
}


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    work = draw(st.sampled_from(["duration", "steps"]))
    others = [name for name in SCHEMA if name not in ("id", "submit", "gpus", "line", "duration", "steps")]
    names = ["submit", "gpus", work, *draw(st.lists(st.sampled_from(others), unique=True, max_size=6))]
    count = draw(st.integers(1, 5))
    columns: dict[str, list[Any]] = {"id": draw(st.lists(TEXT, unique=True, min_size=count, max_size=count))}
    for name in names:
        value = VALUES.get(name, TEXT if SCHEMA[name] == pl.String else SECONDS)
        cells = value if name in ("submit", "gpus", work) else value | st.none()
        columns[name] = draw(st.lists(cells, min_size=count, max_size=count))
    columns["submit"].sort()
    ordered = [name for name in SCHEMA if name in columns]
    table = pl.DataFrame({name: columns[name] for name in ordered}, schema={name: SCHEMA[name] for name in ordered})
    return Trace("made up", table)


@examples(quick=70, nightly=200)
@given(traces(), st.sampled_from(["jobs.csv", "jobs.csv.gz", "jobs.parquet"]))
def test_what_is_written_is_read_back(trace: Trace, name: str) -> None:
    path = folder() / name
    write_trace(trace, path)
    again = native.read(path)
    assert again.faults == ()
    assert again.table.drop("line").rows(named=True) == trace.table.rows(named=True)
    assert again.table.drop("line").schema == trace.table.schema


@examples(quick=100, nightly=300)
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode), st.sampled_from(["x.csv", "x.yaml", "x.gz"]))
def test_whatever_is_in_a_file_it_is_read_or_refused_in_one_line(data: bytes, name: str) -> None:
    path = folder() / name
    path.write_bytes(data)
    for read in (read_trace, read_raw):
        try:
            read(path)
        except InputError as error:
            assert str(error).startswith(str(path))
