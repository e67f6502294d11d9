"""Helios (Hu et al., SC'21), `cluster_log.csv`: one job per row, including those that use no GPU."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from horae.traces.readers.accounting import Clock, count_gpus, named, read_times
from horae.traces.readers.raw_table import Where, read_raw
from horae.traces.readers.row_filter import Sieve
from horae.traces.trace import Trace

COLUMNS = ("job_id", "gpu_num", "submit_time", "start_time", "end_time", "duration")


def read(path: Path, where: Where | None = None) -> Trace:
    raw = read_raw(path).where(where)
    raw.require(*COLUMNS)
    sieve = Sieve(raw)
    named(sieve, "job_id")
    count_gpus(sieve, pl.col("gpu_num"), "gpu_num")
    dated = read_times(sieve, Clock("submit_time", "start_time", "end_time", "duration"))
    kept = {"id": "job_id", "tenant": "vc", "user": "user"}
    sieve.add(*(pl.col(column).alias(name) for name, column in kept.items() if column in raw.columns))
    return sieve.trace({"id": "job_id"}, dated=dated)
