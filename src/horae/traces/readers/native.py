"""Horae's own format: CSV or Parquet with the columns of docs/reference/files.md, or YAML with the same fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import polars as pl
from pydantic import ValidationError

from horae.model.errors import InputError
from horae.traces.job_row import ANY, JobFile, JobRow
from horae.traces.readers.mapped_columns import settle_text
from horae.traces.readers.raw_table import LINE, RawTable, Where, read_raw
from horae.traces.readers.row_filter import Sieve
from horae.traces.readers.timestamps import DATES, is_date
from horae.traces.readers.typed_columns import REQUIRED, typed
from horae.traces.trace import FAULTS_LISTED_MAX, Fault, Trace, no_jobs
from horae.traces.yaml_files import YamlFile, complain, read_yaml

YAML = (".yaml", ".yml")
JOBS = "jobs"
KNOWN = tuple(JobRow.model_fields)
TIMES = ("submit", "deadline")  # columns that may hold dates
MAP = "name the columns with --map submit=COLUMN,gpus=COLUMN,duration=COLUMN"
SEPARATORS = {";": "semicolons", "\t": "tabs"}  # separators that are not ours


def read(path: Path, where: Where | None = None) -> Trace:
    raw = _yaml(path) if path.suffix in YAML else read_raw(path)
    if path.suffix not in YAML:
        raw = _in_our_case(raw)
        _check_header(raw)
    raw = raw.where(where)
    sieve = Sieve(raw)
    columns = {name: name for name in KNOWN if name in raw.columns}
    kind = settle_text(sieve, columns, columns, counted=True)
    typed(sieve, columns)
    return sieve.trace({}, dated=kind == DATES, counted=kind != DATES)


def _in_our_case(raw: RawTable) -> RawTable:
    """The table with known columns spelt as ours, whatever their case: `Submit`, `GPUs`."""
    ours = {name: raw.column(name) for name in KNOWN}
    return replace(
        raw, cells=raw.cells.rename({theirs: name for name, theirs in ours.items() if theirs in raw.columns})
    )


def separated_by(header: str) -> str:
    """The separator of a header without commas; empty where there is only one cell."""
    return "" if "," in header else next((name for mark, name in SEPARATORS.items() if mark in header), "")


def _check_header(raw: RawTable) -> None:
    marks = separated_by(raw.columns[0]) if len(raw.columns) == 1 else ""
    if marks:
        raise raw.header_error("", f"has {marks} between its cells", f"put commas there, or {MAP}")
    for name in (*raw.columns, *raw.strange):
        if name not in KNOWN:
            raise raw.header_error(name, "is not a known column", f"use {', '.join(KNOWN)}; or {MAP}")
    raw.require(*raw.strange)
    for name in REQUIRED:
        if name not in raw.columns:
            raise raw.header_error(name, "is missing", f"add a column {name}")


def _yaml(path: Path) -> RawTable:
    """The rows of a YAML file as CSV cells; invalid rows are already faults."""
    file = read_yaml(path, JobFile)
    if not file.value.jobs:
        raise no_jobs(str(path))
    rows: list[dict[str, str | None]] = []
    lines: list[int] = []
    faults: list[Fault] = []
    for index, given in enumerate(file.value.jobs):
        row = _yaml_row(file, index, given)
        if isinstance(row, Fault):
            faults.append(row)
        else:
            rows.append(row)
            lines.append(file.line(JOBS, index))
    names = [name for name in KNOWN if name in REQUIRED or any(name in row for row in rows)]
    cells = pl.DataFrame({name: pl.Series([row.get(name) for row in rows], dtype=pl.String) for name in names})
    numbered = cells.with_columns(pl.Series(LINE, lines, pl.Int64))
    return RawTable(path, 0, numbered, tuple(faults[:FAULTS_LISTED_MAX]), len(faults))


def _yaml_row(file: YamlFile[JobFile], index: int, given: object) -> dict[str, str | None] | Fault:
    dates: dict[str, str | None] = {}
    if isinstance(given, dict):
        dates = {name: given[name] for name in TIMES if isinstance(given.get(name), str) and is_date(given[name])}
        given = given | dict.fromkeys(dates, 0)
    try:
        row = JobRow.model_validate(given)
    except ValidationError as error:
        said = complain(error, file.path, file.tree, (JOBS, index))
        return Fault(said.line, said.field, said.problem, said.remedy)
    return {name: _cell(row, name) for name in KNOWN if name in row.model_fields_set} | dates


def _cell(row: JobRow, name: str) -> str | None:
    value = getattr(row, name)
    if isinstance(value, list):
        value = "|".join(map(str, value))
    elif isinstance(value, Mapping):
        value = value[ANY] if list(value) == [ANY] else ";".join(f"{key}={number}" for key, number in value.items())
    elif isinstance(value, bool):
        value = str(value).lower()
    return None if value is None else str(value) or None


def place(error: InputError, path: Path) -> InputError:
    """The same error with the line of its field, which in YAML may differ from that of its row."""
    if path.suffix not in YAML or not error.line or error.field.startswith(f"{JOBS}."):
        return error
    file = read_yaml(path, JobFile)
    index = next(index for index in range(len(file.value.jobs)) if file.line(JOBS, index) == error.line)
    line = file.line(JOBS, index, error.field)
    return type(error)(error.problem, remedy=error.remedy, file=error.file, line=line, field=error.field)
