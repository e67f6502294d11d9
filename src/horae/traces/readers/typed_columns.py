"""Converts columns of text to columns of Horae's format, by the rules of `JobRow`.

Numbers that are plainly valid are converted as columns. A row with any other cell in it (`10m`, `-1`, `two`) is parsed
by `JobRow` itself, which either accepts it or says what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import NamedTuple

import polars as pl
from pydantic import ValidationError

from horae.traces.job_row import GPUS_MAX, PRIORITY_MAX, RETRIES_MAX, SECONDS_MAX, JobRow
from horae.traces.readers.raw_table import LINE
from horae.traces.readers.row_filter import Sieve, whole
from horae.traces.trace import FAULTS_LISTED_MAX, SCHEMA, Fault
from horae.traces.yaml_files import first_complaint


class Plain(NamedTuple):
    """The range of numbers in which a cell is valid without conversion."""

    least: float
    most: float
    above_least: bool = False  # the least itself is not valid

    def holds(self, value: pl.Expr) -> pl.Expr:
        low = value > self.least if self.above_least else value >= self.least
        return low & (value <= self.most) & value.is_finite()


_TIME, _FINITE, _POSITIVE = Plain(0, SECONDS_MAX), Plain(0, inf), Plain(0, inf, above_least=True)
PLAIN: Mapping[str, Plain] = {
    "submit": _TIME,
    "gpus": Plain(1, GPUS_MAX),
    "duration": Plain(0, SECONDS_MAX, above_least=True),
    "steps": _POSITIVE,
    "member_gpus": Plain(1, GPUS_MAX),
    "weight": _POSITIVE,
    "priority": Plain(-PRIORITY_MAX, PRIORITY_MAX),
    "deadline": _TIME,
    "limit": Plain(0, SECONDS_MAX, above_least=True),
    "start": _TIME,
    "restart": _TIME,
    "min_runtime": _TIME,
    "grace": _TIME,
    "preemptions_max": _FINITE,
    "retries_max": Plain(0, RETRIES_MAX),
    "cpus_per_gpu": _FINITE,
    "memory_per_gpu": _FINITE,
}
LISTS = ("speed", "true_speed", "slowdown", "members")  # cells of several numbers
FLAGS = {"true": True, "false": False}
REQUIRED = tuple(name for name, field in JobRow.model_fields.items() if field.is_required())


def typed(sieve: Sieve, columns: Mapping[str, str], fields: Mapping[str, str] | None = None) -> None:
    """Converts the table to the columns of Horae's format; `columns` maps their names to the table's.

    `fields` gives their names for messages, where they differ.
    """
    fields = columns if fields is None else fields
    table = sieve.table
    plain = table.select(pl.all_horizontal(_is_plain(table, name, column) for name, column in columns.items()))
    mask = plain.to_series().fill_null(False)
    number = [name for name in table.columns if name not in columns.values()]  # line and number are kept
    odd = table.filter(~mask)
    sieve.table = table.filter(mask).select(*number, *(_value(name, column) for name, column in columns.items()))
    if len(odd):
        _read_odd(sieve, odd.select(*number, *(pl.col(column).alias(name) for name, column in columns.items())), fields)
    sieve.own(*columns)
    _check_work(sieve, fields)


def _is_plain(table: pl.DataFrame, name: str, column: str) -> pl.Expr:
    text = pl.col(column)
    if name in PLAIN:
        right = PLAIN[name].holds(_value(name, column))
        return right if name in REQUIRED else text.is_null() | right
    if SCHEMA[name] == pl.Boolean:
        return text.is_null() | text.is_in(list(FLAGS))
    if name in LISTS:
        cells = table[column].drop_nulls().unique()
        return text.is_null() | text.is_in([cell for cell in cells if _is_list(name, cell)])
    return pl.lit(True)


def _is_list(name: str, cell: str) -> bool:
    try:
        JobRow.model_validate({"submit": 0, "gpus": 1, name: cell})
    except ValidationError:
        return False
    return True


def _value(name: str, column: str) -> pl.Expr:
    if SCHEMA[name] == pl.Int64:
        return whole(pl.col(column)).alias(name)
    if SCHEMA[name] == pl.Boolean:
        return pl.col(column).replace_strict(FLAGS, default=None, return_dtype=pl.Boolean).alias(name)
    return pl.col(column).cast(SCHEMA[name], strict=False).alias(name)


def _read_odd(sieve: Sieve, odd: pl.DataFrame, columns: Mapping[str, str]) -> None:
    rows: list[dict[str, object]] = []
    faults: list[Fault] = []
    for row in _odd_rows(odd, columns):
        if isinstance(row, Fault):
            faults.append(row)
        else:
            rows.append(row)
    sieve.faults(faults[:FAULTS_LISTED_MAX], len(faults))
    if rows:
        sieve.table = pl.concat([sieve.table, pl.DataFrame(rows, schema=sieve.table.schema)]).sort(LINE)


def _odd_rows(odd: pl.DataFrame, columns: Mapping[str, str]) -> Iterator[dict[str, object] | Fault]:
    for cells in odd.iter_rows(named=True):
        given = {name: cells[name] for name in columns if cells[name] is not None}
        try:
            row = JobRow.model_validate(given)
        except ValidationError as error:
            details, problem, remedy = first_complaint(error)
            name = str(details["loc"][0])
            yield Fault(cells[LINE], columns.get(name, name), problem, remedy)
            continue
        read = [name for name in given if name in PLAIN or SCHEMA[name] == pl.Boolean]
        yield cells | {name: getattr(row, name) for name in read}


def _check_work(sieve: Sieve, columns: Mapping[str, str]) -> None:
    """Checks that the amount of work is given exactly once, in one of two ways."""
    missing = pl.lit(None, dtype=pl.Float64)
    duration, steps = (pl.col(name) if name in columns else missing for name in ("duration", "steps"))
    field = columns.get("duration", "duration")
    both = duration.is_not_null() & steps.is_not_null()
    sieve.fault(both, field, "there are both a duration and steps", "give one of the two")
    neither = duration.is_null() & steps.is_null()
    sieve.fault(neither, field, "there is neither a duration nor steps", "give one of the two")
