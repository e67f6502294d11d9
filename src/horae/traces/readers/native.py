"""Our own format: CSV or Parquet with the columns of docs/reference/files.md, or YAML with the same fields."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from horae.model.errors import InputError
from horae.traces.job_row import ANY, JobFile, JobRow
from horae.traces.readers.raw import LINE, RawTable, Where, read_raw
from horae.traces.readers.sieve import Sieve
from horae.traces.readers.typed import REQUIRED, typed
from horae.traces.trace import Trace, no_jobs
from horae.traces.yaml_lines import read_yaml

YAML = (".yaml", ".yml")
KNOWN = tuple(JobRow.model_fields)


def read(path: Path, where: Where | None = None) -> Trace:
    raw = _yaml(path) if path.suffix in YAML else read_raw(path, pad=True)
    _check_header(raw)
    raw = raw.where(where)
    sieve = Sieve(raw)
    typed(sieve, {name: name for name in KNOWN if name in raw.columns})
    return sieve.trace({}, counted=True)


def _check_header(raw: RawTable) -> None:
    for name in raw.columns:
        if name not in KNOWN:
            raise raw.header_error(name, "is not a known column", f"use {', '.join(KNOWN)}")
    for name in REQUIRED:
        if name not in raw.columns:
            raise raw.header_error(name, "is missing", f"add a column {name}")


def _yaml(path: Path) -> RawTable:
    """The rows of a YAML file, checked already, as the cells that they would be in CSV."""
    file = read_yaml(path, JobFile)
    if not file.value.jobs:
        raise no_jobs(str(path))
    given = dict.fromkeys(name for name in KNOWN for row in file.value.jobs if name in row.model_fields_set)
    cells = {name: [_cell(row, name) for row in file.value.jobs] for name in given}
    lines = [file.line("jobs", index) for index in range(len(file.value.jobs))]
    schema = {name: pl.String() for name in given}
    return RawTable(path, 0, pl.DataFrame(cells, schema=schema).with_columns(pl.Series(LINE, lines, pl.Int64)))


def _cell(row: JobRow, name: str) -> str | None:
    value = getattr(row, name)
    if name not in row.model_fields_set or value is None:
        return None
    if isinstance(value, list):
        value = "|".join(value)
    elif isinstance(value, Mapping):
        value = value[ANY] if list(value) == [ANY] else ";".join(f"{key}={number}" for key, number in value.items())
    return str(value) or None


def place(error: InputError, path: Path) -> InputError:
    """The same error with the line of its field, which in YAML may be another than that of its row."""
    if path.suffix not in YAML or not error.line:
        return error
    file = read_yaml(path, JobFile)
    index = next(index for index in range(len(file.value.jobs)) if file.line("jobs", index) == error.line)
    line = file.line("jobs", index, error.field)
    return type(error)(error.problem, remedy=error.remedy, file=error.file, line=line, field=error.field)
