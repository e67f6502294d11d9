"""Alibaba's open GPU trace of 2023 (Weng et al., ATC'23), one pod per row.

A pod that asks for a fraction of a GPU gets a whole one. A pod runs from when it was scheduled, or from its creation
where that is not known, until it was deleted.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from horae.traces.readers.accounting import NOT_ENDED, Clock, count_gpus, named, read_times
from horae.traces.readers.raw_table import Where, read_raw
from horae.traces.readers.row_filter import Sieve, is_text
from horae.traces.readers.timestamps import UNKNOWN
from horae.traces.trace import Trace

FRACTION = "asks for a part of a GPU: given a whole one"
NOT_SCHEDULED = "has no time of scheduling: runs from its creation"
MEBIBYTE = 2.0**20


def read(path: Path, where: Where | None = None) -> Trace:
    raw = read_raw(path).where(where)
    raw.require("name", "num_gpu", "creation_time", "deletion_time")
    sieve = Sieve(raw)
    named(sieve, "name")
    count_gpus(sieve, pl.col("num_gpu"), "num_gpu")
    start = "creation_time"
    if "scheduled_time" in raw.columns:
        start = "started"
        scheduled = pl.col("scheduled_time")
        missing = scheduled.is_null() | scheduled.is_in(UNKNOWN)
        sieve.add(
            pl.when(missing).then("creation_time").otherwise(scheduled).alias(start), missing.alias("unscheduled")
        )
    sieve.leave_out(pl.col("deletion_time").is_null() | pl.col("deletion_time").is_in(UNKNOWN), NOT_ENDED)
    dated = read_times(sieve, Clock("creation_time", start, "deletion_time", ""))
    if start == "started":
        sieve.change(pl.col("unscheduled"), NOT_SCHEDULED)
    _read_amounts(sieve, raw.columns)
    if "gpu_spec" in raw.columns:
        sieve.add(pl.col("gpu_spec").alias("gpu_type"))
    sieve.add(pl.col("name").alias("id"))
    return sieve.trace({"id": "name"}, dated=dated)


def _read_amounts(sieve: Sieve, columns: list[str]) -> None:
    """CPUs and memory per GPU, converted from the file's amounts per pod."""
    if "gpu_milli" in columns:
        sieve.change(pl.col("gpu_milli").cast(pl.Float64, strict=False) < 1000, FRACTION)
    for name, column, unit in (("cpus_per_gpu", "cpu_milli", 1e-3), ("memory_per_gpu", "memory_mib", MEBIBYTE)):
        if column in columns:
            amount = pl.col(column).cast(pl.Float64, strict=False)
            wrong = pl.col(column).is_not_null() & ~(amount.is_finite() & (amount >= 0)).fill_null(False)
            sieve.fault(wrong, column, is_text(pl.col(column)), "give a number of 0 or more")
            sieve.add((amount * unit / pl.col("gpus")).alias(name))
