"""Reads any table with explicitly named columns: `{"submit": "SubmitTime", "gpus": "n_gpu", "duration": "secs"}`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from horae.model.errors import InputError
from horae.traces.job_row import JobRow
from horae.traces.readers.raw_table import RawTable, Where, read_raw
from horae.traces.readers.row_filter import Sieve
from horae.traces.readers.text_file import read_head
from horae.traces.readers.timestamps import DATES, SECONDS, settle
from horae.traces.readers.typed_columns import REQUIRED, typed
from horae.traces.trace import Trace

FIELDS = tuple(JobRow.model_fields)
SEPARATORS = (",", "\t", ";", "|")


def read(path: Path, mapping: Mapping[str, str], where: Where | None = None) -> Trace:
    check_mapping(mapping)
    return read_columns(read_raw(path, _separator(path, mapping)).where(where), mapping)


def _separator(path: Path, mapping: Mapping[str, str]) -> str:
    """The separator with which the header contains most of the requested columns."""
    lines = (line for line in read_head(path).decode(errors="replace").splitlines() if line.strip())
    header = next(lines, "")
    found = {mark: {cell.strip().strip('"') for cell in header.split(mark)} for mark in SEPARATORS}
    return max(SEPARATORS, key=lambda mark: len(found[mark] & set(mapping.values())))


def check_mapping(mapping: Mapping[str, str]) -> None:
    for name in mapping:
        if name not in FIELDS:
            raise InputError("is no field of a job", field=name, remedy=f"map one of {', '.join(FIELDS)}")
    for name in REQUIRED:
        if name not in mapping:
            raise InputError("has no column", field=name, remedy=f"map it: {name}=COLUMN")
    if not {"duration", "steps"} & set(mapping):
        raise InputError("has no column", field="duration", remedy="map it: duration=COLUMN, or steps=COLUMN")


def read_columns(raw: RawTable, mapping: Mapping[str, str]) -> Trace:
    """The table as a trace; submission times and deadlines may be dates."""
    raw.require(*mapping.values())
    sieve = Sieve(raw)
    # A column may be used twice, and may have the name of a field that it is not.
    columns = {name: f"{name} of {column}" for name, column in mapping.items()}
    sieve.add(*(pl.col(column).alias(columns[name]) for name, column in mapping.items()))
    sieve.table = sieve.table.drop(raw.columns)
    kind = settle_text(sieve, columns, mapping, counted=False)
    typed(sieve, columns, mapping)
    return sieve.trace(mapping, dated=kind != SECONDS, counted=kind == SECONDS)


def settle_text(sieve: Sieve, columns: Mapping[str, str], fields: Mapping[str, str], *, counted: bool) -> int:
    """Converts dates to seconds, still as text; unreadable cells are kept, for later checks to report."""
    times = {name: columns[name] for name in ("submit", "deadline") if name in columns}
    kind = settle(sieve, times, fields, counted=counted)
    for name, column in times.items():
        seconds = f"seconds of {name}"
        if kind == DATES:
            sieve.table = sieve.table.with_columns(pl.coalesce(pl.col(seconds).cast(pl.String), column).alias(column))
        sieve.table = sieve.table.drop(seconds)
    return kind
