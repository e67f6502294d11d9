"""Reads any table with explicitly named columns: `{"submit": "SubmitTime", "gpus": "n_gpu", "duration": "secs"}`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import polars as pl

from horae.model.errors import InputError
from horae.traces.job_row import JobRow
from horae.traces.readers.raw_table import RawTable, Where, read_raw
from horae.traces.readers.row_filter import Sieve
from horae.traces.readers.text_file import header_of, read_head
from horae.traces.readers.timestamps import DATES, SECONDS, settle
from horae.traces.readers.typed_columns import REQUIRED, typed
from horae.traces.trace import Trace
from horae.traces.units import unit_seconds

FIELDS = tuple(JobRow.model_fields)
SEPARATORS = (",", "\t", ";", "|")
DURATIONS = ("duration", "limit")
TIMES = ("submit", "start", "deadline", "restart", "min_runtime", "grace", *DURATIONS)
LOOKS_LIKE = {  # by unit: names of columns
    "h": re.compile(r"hour|(?<![a-z])hrs?(?![a-z])|(?<![a-z])h$", re.IGNORECASE),
    "m": re.compile(r"minute|(?<![a-z])mins?(?![a-z])", re.IGNORECASE),
}
SHORT_SECONDS = 60.0  # a median run time below this is doubtful


class Column(NamedTuple):
    """A column of the file, and the unit of its bare numbers: `Hours:h`."""

    name: str
    unit: str = ""


def read(path: Path, mapping: Mapping[str, str], where: Where | None = None) -> Trace:
    check_mapping(mapping)
    raw = read_raw(path, _separator(path, mapping)).where(where)
    columns = {field: _column(raw, field, text) for field, text in mapping.items()}
    raw.require(*(column.name for column in columns.values()))
    trace = read_columns(_in_seconds(raw, columns), {field: column.name for field, column in columns.items()})
    return replace(trace, doubts=tuple(_doubts(raw, columns, trace)))


def _separator(path: Path, mapping: Mapping[str, str]) -> str:
    """The separator with which the header contains most of the requested columns."""
    header = header_of(read_head(path)).casefold()
    found = {mark: {cell.strip().strip('"') for cell in header.split(mark)} for mark in SEPARATORS}
    wanted = {text.casefold() for text in mapping.values()}
    wanted |= {text.rpartition(":")[0] for text in wanted}
    return max(SEPARATORS, key=lambda mark: len(found[mark] & wanted))


def _column(raw: RawTable, field: str, text: str) -> Column:
    """The column that a text names, with its unit if it has one."""
    name, colon, unit = text.rpartition(":")
    if raw.column(text) in raw.columns or not colon or raw.column(name) not in raw.columns:
        return Column(raw.column(text))
    if field not in TIMES:
        raise InputError(f"{text!r} has a unit, and {field} is no time", field=field, remedy=f"map it: {field}={name}")
    if unit_seconds(unit) is None:
        raise InputError(f"{unit!r} is no unit of time", field=field, remedy=f"use s, m, h or d: {field}={name}:h")
    return Column(raw.column(name), unit)


def _in_seconds(raw: RawTable, columns: Mapping[str, Column]) -> RawTable:
    """The table with bare numbers of columns that have a unit in seconds."""
    factors = {column.name: unit_seconds(column.unit) for column in columns.values() if column.unit}
    numbers = {name: pl.col(name).cast(pl.Float64, strict=False) * factor for name, factor in factors.items()}
    return replace(
        raw,
        cells=raw.cells.with_columns(
            pl.coalesce(number.cast(pl.String), pl.col(name)).alias(name) for name, number in numbers.items()
        ),
    )


def _doubts(raw: RawTable, columns: Mapping[str, Column], trace: Trace) -> Iterator[str]:
    """What suggests that numbers read as seconds are hours or minutes."""
    for field in DURATIONS:
        column = columns.get(field)
        if column is None or column.unit:
            continue
        cells = raw.cells[column.name].drop_nulls()
        if 2 * cells.cast(pl.Float64, strict=False).count() <= len(cells):
            continue  # most have a unit
        remedy = f"--map {field}={column.name}"
        for unit, name in LOOKS_LIKE.items():
            if name.search(column.name):
                yield f"the numbers of column {column.name} are read as seconds; write {remedy}:{unit} or {remedy}:s"
                return
        middle = trace.table[field].median() if field == "duration" else None
        if isinstance(middle, float) and middle < SHORT_SECONDS:
            yield (
                f"half of the jobs run for less than {SHORT_SECONDS:g} s; if column {column.name} is not in seconds, "
                f"write {remedy}:h (or m, d)"
            )


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
