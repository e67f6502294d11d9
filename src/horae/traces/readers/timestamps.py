"""Points in time as files write them: seconds, seconds since 1970, dates."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

import polars as pl

from horae.traces.readers.row_filter import EPOCH_SECONDS_MIN, Sieve, is_text, quoted
from horae.traces.units import iso_date, seconds

UNKNOWN = ("Unknown", "None", "N/A", "NaT", "nan", "NaN", "null", "NULL")
REMEDY = "give seconds, or a date such as 2020-09-01 00:00:12"
DATE_REMEDY = "give a date that exists, after 1979, such as 2020-09-01 00:00:12"
DATES, EPOCH, SECONDS = range(3)
KINDS = ("dates", "seconds since 1970", "seconds since the start")
ONE_OF_KIND = ("a date", "a number of seconds since 1970", "a number of seconds")

_DATE = r"^[0-9]{4}-"


def is_date(text: str) -> bool:
    return re.match(_DATE, text) is not None


def moment(text: str) -> float | None:
    """Seconds, since 1970 where a date is given; a date without a time zone is taken as UTC."""
    try:
        return seconds(text)
    except ValueError:
        pass
    try:
        date = datetime.fromisoformat(iso_date(text))
        value = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
    return value if value > EPOCH_SECONDS_MIN else None  # earlier dates stand for an unknown time


def moments(texts: pl.Series) -> pl.Series:
    """A column of texts as seconds; null where empty or unreadable."""
    some = texts.drop_nulls().filter(~texts.drop_nulls().is_in(UNKNOWN)).head(1)
    if len(some) and is_date(some[0]):
        mark = some[0][10:11] or "T"
        stamps = texts.str.to_datetime(f"%Y-%m-%d{mark}%H:%M:%S", strict=False, time_unit="ms").dt.epoch("ms")
        values = stamps.cast(pl.Float64) / 1000.0
        values = values.set(values <= EPOCH_SECONDS_MIN, None)
    else:
        values = texts.cast(pl.Float64, strict=False)
        values = values.set(~(values.is_finite() & (values >= 0)).fill_null(True), None)
    left = texts.filter(values.is_null() & texts.is_not_null()).unique()
    found = {text: moment(text) for text in left if text not in UNKNOWN}
    if not found:
        return values.alias(texts.name)
    replaced = texts.replace_strict(found, default=None, return_dtype=pl.Float64)
    return pl.select(pl.coalesce(values, replaced)).to_series().alias(texts.name)


def kinds(texts: pl.Series, values: pl.Series, *, counted: bool) -> pl.Series:
    """By text: the number of its kind; null where it has none. `counted`: numbers are seconds, however large."""
    dates = texts.str.contains(_DATE).fill_null(False)
    if dates.all():
        return pl.Series(texts.name, [DATES], pl.Int8).new_from_index(0, len(texts))
    epoch = (values > EPOCH_SECONDS_MIN) & (not counted)
    numbers = pl.when(epoch).then(EPOCH).when(values.is_not_null()).then(SECONDS)
    return pl.select(pl.when(dates).then(DATES).otherwise(numbers).cast(pl.Int8)).to_series().alias(texts.name)


def most(found: pl.Series) -> int:
    """The most frequent of these kinds; dates on a tie."""
    counts = found.drop_nulls().value_counts().sort("count", found.name, descending=[True, False])
    return int(counts[found.name][0]) if len(counts) else SECONDS


def settle(
    sieve: Sieve, columns: Mapping[str, str], fields: Mapping[str, str] | None = None, *, counted: bool = False
) -> int:
    """Adds columns of seconds (by name: the column of texts), null where unreadable, and returns the kind of
    submissions.

    Times of another kind than most submissions are faults, and so are dates that do not exist. `fields` gives the names
    of the columns for messages, where they differ.
    """
    fields = columns if fields is None else fields
    kind_names = {name: f"kind of {name}" for name in columns}
    for name, column in columns.items():
        texts = sieve.table[column]
        values = moments(texts)
        sieve.add(values.alias(f"seconds of {name}"), kinds(texts, values, counted=counted).alias(kind_names[name]))
    kind = most(sieve.table[kind_names["submit"]])
    remedy = f"make all times of the file {KINDS[kind]}"
    for name, column in columns.items():
        told = pl.col(kind_names[name]).replace_strict(dict(enumerate(ONE_OF_KIND)), return_dtype=pl.String)
        problem = pl.format(f"{{}} is {{}}, where most submissions are {KINDS[kind]}", quoted(pl.col(column)), told)
        sieve.fault(pl.col(kind_names[name]) != kind, fields[name], problem, remedy)
        no_date = (pl.col(kind_names[name]) == DATES) & pl.col(f"seconds of {name}").is_null()
        sieve.fault(no_date, fields[name], pl.format("{} is no time", quoted(pl.col(column))), DATE_REMEDY)
    sieve.table = sieve.table.drop(kind_names.values())
    return kind


def add_moments(sieve: Sieve, columns: dict[str, str]) -> bool:
    """Adds columns of seconds (by name: the file's column), and returns whether there were dates. Unreadable ones are
    faults.

    Each row must have a submission time.
    """
    text = pl.col(columns["submit"])
    missing = pl.when(text.is_null()).then(pl.lit("is missing")).otherwise(is_text(text))
    sieve.fault(text.is_null() | text.is_in(UNKNOWN), columns["submit"], missing, REMEDY)
    kind = settle(sieve, columns)
    sieve.add(*(pl.col(f"seconds of {name}").alias(name) for name in columns))
    for name, column in columns.items():
        text = pl.col(column)
        wrong = pl.col(name).is_null() & text.is_not_null() & ~text.is_in(UNKNOWN)
        sieve.fault(wrong, column, pl.format("{} is no time", quoted(text)), REMEDY)
    return kind != SECONDS
