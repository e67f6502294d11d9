"""Points in time as files write them: seconds, seconds since 1970, dates."""

from __future__ import annotations

from datetime import UTC, datetime

import polars as pl

from horae.traces.readers.sieve import EPOCH_SECONDS_MIN, Sieve
from horae.traces.units import seconds

UNKNOWN = ("Unknown", "None", "N/A", "NaT", "nan", "NaN", "null", "NULL")
REMEDY = "give seconds, or a date such as 2020-09-01 00:00:12"


def is_date(text: str) -> bool:
    return len(text) > 4 and text[4] == "-"


def moment(text: str) -> float | None:
    """Seconds, since 1970 where a date is given; a date without a zone is taken as it stands."""
    try:
        return seconds(text)
    except ValueError:
        pass
    try:
        date = datetime.fromisoformat(text)
        value = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
    return value if value > EPOCH_SECONDS_MIN else None  # what is earlier stands for a time that is not known


def moments(texts: pl.Series) -> pl.Series:
    """A column of texts as seconds; null where there is none or it cannot be read."""
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


def has_dates(texts: pl.Series) -> bool:
    """Whether any of these texts is a date rather than a number."""
    return bool((texts.str.slice(4, 1) == "-").any())


def add_moments(sieve: Sieve, columns: dict[str, str], *, required: str) -> bool:
    """Adds columns of seconds (by name: the file's column). What cannot be read is a fault; whether there were dates.

    The one that is required must be there in each row. Where there are dates, numbers are none.
    """
    dated = has_dates(sieve.table[columns[required]])
    sieve.add(*(moments(sieve.table[column]).alias(name) for name, column in columns.items()))
    for name, column in columns.items():
        text = pl.col(column)
        known = text.is_not_null() & ~text.is_in(UNKNOWN)
        if name == required:
            sieve.fault(
                ~known, column, pl.when(text.is_null()).then(pl.lit("is missing")).otherwise(is_text(text)), REMEDY
            )
        wrong = pl.col(name).is_null() & known
        if dated:
            wrong = wrong | (pl.col(name) <= EPOCH_SECONDS_MIN)
        sieve.fault(wrong, column, pl.format("{} is no time", quoted(text)), REMEDY)
    return dated


def quoted(text: pl.Expr) -> pl.Expr:
    short = pl.when(text.str.len_chars() <= 58).then(text).otherwise(pl.format("{}...", text.str.slice(0, 55)))
    return pl.format("'{}'", short)


def is_text(text: pl.Expr) -> pl.Expr:
    return pl.format("is {}", quoted(text))
