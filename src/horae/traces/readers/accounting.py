"""Common parts of the accounting logs of production clusters: times of submission, start and end, and a run time."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from horae.traces.job_row import GPUS_MAX, SECONDS_MAX
from horae.traces.readers.row_filter import NEVER_RAN, NO_GPU, NO_TIME, Sieve, is_text, quoted, whole
from horae.traces.readers.timestamps import UNKNOWN, add_moments

STILL_RUNNING = "still runs"
DIFFERENT = "ran for another time than from its start to its end: taken with its run time"
DIFFERENT_SECONDS = 60.0
NOT_ENDED = "has neither an end nor a run time"


class Clock(NamedTuple):
    """The file's names of its time columns; "" where it has none."""

    submit: str
    start: str
    end: str
    run: str  # seconds of run time


def named(sieve: Sieve, column: str) -> None:
    sieve.fault(pl.col(column).is_null(), column, "is missing", "give each job a name of its own")


def count_gpus(sieve: Sieve, text: pl.Expr, column: str) -> None:
    """Adds `gpus`. A row without GPUs is skipped; a value that is not a number is a fault."""
    sieve.add(whole(text).alias("gpus"))
    remedy = f"give a whole number from 1 to {GPUS_MAX:,}"
    wrong = text.is_not_null() & ~pl.col("gpus").is_between(0, GPUS_MAX).fill_null(False)
    sieve.fault(wrong, column, is_text(text), remedy)
    sieve.leave_out(pl.col("gpus").fill_null(0) == 0, NO_GPU)


def read_times(sieve: Sieve, clock: Clock) -> bool:
    """Adds `submit` and `duration` for the rows that ran; returns whether their times are dates."""
    columns = {"submit": clock.submit, "start": clock.start, "end": clock.end}
    dated = add_moments(sieve, {name: column for name, column in columns.items() if column})
    if clock.start:
        sieve.leave_out(pl.col("start").is_null(), NEVER_RAN)
        sieve.fault(
            pl.col("start") < pl.col("submit"),
            clock.start,
            pl.format("{} is before the submission", quoted(pl.col(clock.start))),
            "fix one of the two times",
        )
    if clock.start and clock.end:
        sieve.fault(
            pl.col("end") < pl.col("start"),
            clock.end,
            pl.format("{} is before the start", quoted(pl.col(clock.end))),
            "fix one of the two times",
        )
    _read_duration(sieve, clock)
    return dated


def _read_duration(sieve: Sieve, clock: Clock) -> None:
    """The run time as in the file; else from start to end."""
    run = pl.col(clock.run) if clock.run else pl.lit(None, dtype=pl.String)
    known = run.is_not_null() & ~run.is_in(UNKNOWN)
    between = pl.col("end") - pl.col("start") if clock.start and clock.end else pl.lit(None, dtype=pl.Float64)
    seconds = run.cast(pl.Float64, strict=False)
    sieve.fault(
        known & ~(seconds.is_between(0, SECONDS_MAX) & seconds.is_finite()).fill_null(False),
        clock.run,
        is_text(run),
        "give seconds of run time",
    )
    sieve.change(known & ((seconds - between).abs() > DIFFERENT_SECONDS), DIFFERENT)
    sieve.add(pl.when(known).then(seconds).otherwise(between).alias("duration"))
    sieve.leave_out(pl.col("duration").is_null(), NOT_ENDED)
    sieve.leave_out(pl.col("duration") == 0, NO_TIME)
    if clock.end:
        sieve.leave_out(pl.col("end").is_null(), STILL_RUNNING, pl.col("gpus") * pl.col("duration"))
