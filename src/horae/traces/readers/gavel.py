"""Gavel's traces (Narayanan et al., OSDI'20) and Shockwave's (Zheng et al., NSDI'23): tab-separated, no header.

Gavel's have ten fields per line; Shockwave's have two more, the run time and the mode in which a job changes its batch
size. The job type becomes the model, whose speed comes from speed tables. An SLO is a factor of the run time, -1 is
none; as Gavel's files have no run times, such a job gets no deadline there, and is counted as changed. Commands are
dropped: they are specific to Gavel's cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
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
SHOCKWAVE_FIELDS = (*FIELDS[:7], "mode", *FIELDS[7:9], "duration", FIELDS[9])
MODES = ("static", "accordion", "gns")
ADAPTS = "changes its batch size as it runs: at a constant speed, for the same run time"
NO_DEADLINE = "has an SLO, a factor of a run time that the file does not tell: no deadline"
COLUMNS = {
    "submit": "arrival_time",
    "gpus": "scale_factor",
    "steps": "total_steps",
    "model": "job_type",
    "weight": "priority_weight",
}


def read(path: Path, where: Where | None = None) -> Trace:
    sieve, has_slo = _sieve(path, where, FIELDS)
    sieve.change(has_slo, NO_DEADLINE)
    typed(sieve, COLUMNS)
    return sieve.trace({})


def read_shockwave(path: Path, where: Where | None = None) -> Trace:
    sieve, has_slo = _sieve(path, where, SHOCKWAVE_FIELDS)
    sieve.fault(~pl.col("mode").is_in(MODES), "mode", is_text(pl.col("mode")), f"give one of {', '.join(MODES)}")
    sieve.change(pl.col("mode") != "static", ADAPTS)
    typed(sieve, {name: column for name, column in COLUMNS.items() if name != "steps"} | {"duration": "duration"})
    late = pl.col("submit") + pl.col("slo").cast(pl.Float64, strict=False) * pl.col("duration")
    sieve.add(pl.when(has_slo).then(late).otherwise(None).alias("deadline"))
    return sieve.trace({})


def _sieve(path: Path, where: Where | None, fields: Sequence[str]) -> tuple[Sieve, pl.Expr]:
    """The rows of a file, and which of them have an SLO."""
    sieve = Sieve(read_raw(path, "\t", quotes=False, names=fields).where(where))
    slo = pl.col("slo").cast(pl.Float64, strict=False)
    none = pl.col("slo").is_null() | (slo == -1)
    wrong = ~none & ~(slo.is_finite() & (slo > 0)).fill_null(False)
    sieve.fault(wrong.fill_null(True), "slo", is_text(pl.col("slo")), "give a factor of the run time, or -1 for none")
    sieve.fault(pl.col("job_type").is_null(), "job_type", "is missing", "add it")
    return sieve, ~none
