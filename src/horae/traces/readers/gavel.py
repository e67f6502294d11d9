"""Gavel's traces (Narayanan et al., OSDI'20): ten tab-separated fields per line, no header.

The job type becomes the model, whose speed comes from speed tables. An SLO is a factor of the run time, -1 is none; as
the file has no run times, such a job gets no deadline, and is counted as changed. Commands are dropped: they are
specific to Gavel's cluster.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from horae.traces.readers.raw_table import Where, read_raw
from horae.traces.readers.row_filter import Sieve, is_text
from horae.traces.readers.typed_columns import typed
from horae.traces.trace import Trace

FIELDS = (
    "job_type",
    "command",
    "working_directory",
    "steps_argument",
    "needs_data",
    "total_steps",
    "scale_factor",
    "priority_weight",
    "slo",
    "arrival_time",
)
NO_DEADLINE = "has an SLO, a factor of a run time that the file does not tell: no deadline"
COLUMNS = {
    "submit": "arrival_time",
    "gpus": "scale_factor",
    "steps": "total_steps",
    "model": "job_type",
    "weight": "priority_weight",
}


def read(path: Path, where: Where | None = None) -> Trace:
    sieve = Sieve(read_raw(path, "\t", quotes=False, names=FIELDS).where(where))
    slo = pl.col("slo").cast(pl.Float64, strict=False)
    none = pl.col("slo").is_null() | (slo == -1)
    wrong = ~none & ~(slo.is_finite() & (slo > 0)).fill_null(False)
    sieve.fault(wrong.fill_null(True), "slo", is_text(pl.col("slo")), "give a factor of the run time, or -1 for none")
    sieve.fault(pl.col("job_type").is_null(), "job_type", "is missing", "add it")
    sieve.change(~none, NO_DEADLINE)
    typed(sieve, COLUMNS)
    return sieve.trace({})
