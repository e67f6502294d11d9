"""Any table whose columns are named by hand: `{"submit": "SubmitTime", "gpus": "n_gpu", "duration": "secs"}`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from horae.model.errors import InputError
from horae.traces.job_row import JobRow
from horae.traces.readers.moments import has_dates, moments
from horae.traces.readers.raw import RawTable, Where, read_raw
from horae.traces.readers.sieve import Sieve
from horae.traces.readers.typed import REQUIRED, typed
from horae.traces.trace import Trace

FIELDS = tuple(JobRow.model_fields)


def read(path: Path, mapping: Mapping[str, str], where: Where | None = None) -> Trace:
    check_mapping(mapping)
    separator = "\t" if path.name.removesuffix(".gz").endswith(".tsv") else ","
    return read_columns(read_raw(path, separator).where(where), mapping)


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
    """The table as a trace; times of submission and deadlines may be dates."""
    raw.require(*mapping.values())
    sieve = Sieve(raw)
    # A column may be asked for twice, and may have the name of a field that it is not.
    columns = {name: f"{name} of {column}" for name, column in mapping.items()}
    sieve.add(*(pl.col(column).alias(columns[name]) for name, column in mapping.items()))
    sieve.table = sieve.table.drop(raw.columns)
    dated = has_dates(sieve.table[columns["submit"]])
    for name in ("submit", "deadline"):
        if name in columns:
            sieve.add(_seconds(sieve.table[columns[name]]))
    typed(sieve, columns, mapping)
    return sieve.trace(mapping, dated=dated)


def _seconds(texts: pl.Series) -> pl.Series:
    """Dates as seconds, still as text; what cannot be read stays, for others to complain about."""
    if not has_dates(texts):
        return texts
    return pl.select(pl.coalesce(moments(texts).cast(pl.String), texts)).to_series().alias(texts.name)
