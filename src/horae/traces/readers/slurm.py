"""Slurm's accounting, as `sacct -a -X -P` prints it; `COMMAND` names the columns.

GPUs are counted as `gres/gpu=8`, by type as `gres/gpu:a100=8`, or in both ways at once; then the first gives the number
and the second the type. What was allocated counts, or what was requested where the allocation names no GPUs. The type
is that of the request, where there is one: a job that asked for any GPU accepts any, whatever it was given. Columns of
older versions, `AllocGRES` and `ReqGRES` (`gpu:a100:8`), are read in the same way. Without `-X` there are steps of jobs
(`17.batch`), and with `-D` earlier runs of requeued jobs; both are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from horae.model.errors import InputError
from horae.traces.readers.accounting import Clock, count_gpus, named, read_times
from horae.traces.readers.raw_table import LINE, RawTable, Where, read_raw
from horae.traces.readers.row_filter import Sieve, is_text, quoted
from horae.traces.readers.timestamps import UNKNOWN
from horae.traces.trace import Trace
from horae.traces.units import seconds

ALLOCATED, REQUESTED = ("AllocTRES", "AllocGRES"), ("ReqTRES", "ReqGRES")
COLUMNS = (
    "JobID", "User", "Account", "Submit", "Start", "End", "State", "AllocTRES", "ReqTRES", "ElapsedRaw", "Timelimit"
)  # fmt: skip
KNOWN = (*COLUMNS, "AllocGRES", "ReqGRES", "Elapsed", "TimelimitRaw")
COMMAND = f"sacct -a -X -P -o {','.join(COLUMNS)}"
STEP = "is a step of a job"
EARLIER_RUN = "is an earlier run of a requeued job"
NO_LIMIT = ("", "UNLIMITED", "Partition_Limit", "INVALID", *UNKNOWN)


def read(path: Path, where: Where | None = None) -> Trace:
    raw = _canonical(read_raw(path, "|", quotes=False)).where(where)
    tres = [name for name in (*ALLOCATED, *REQUESTED) if name in raw.columns]
    run = next((name for name in ("ElapsedRaw", "Elapsed") if name in raw.columns), "")
    start, end = (name if name in raw.columns else "" for name in ("Start", "End"))
    clock = Clock("Submit", start, end, run)
    has_time = run or (clock.start and clock.end)
    if not (tres and has_time and {"JobID", "Submit"} <= set(raw.columns)):
        missing = [name for name in ("JobID", "Submit") if name not in raw.columns]
        missing += [] if tres else ["AllocTRES"]
        missing += [] if has_time else ["ElapsedRaw"]
        raise InputError(f"has no column {' and no '.join(missing)}", file=str(path), remedy=f"make it with {COMMAND}")
    sieve = Sieve(raw)
    sieve.leave_out(pl.col("JobID").str.contains(".", literal=True), STEP)
    named(sieve, "JobID")
    _leave_out_earlier_runs(sieve)
    _read_gpus(sieve, tres)
    _read_limit(sieve)
    if run == "Elapsed":
        _as_seconds(sieve, "Elapsed")
    dated = read_times(sieve, clock)
    sieve.add(*(pl.col(column).alias(name) for name, column in _kept(raw).items()))
    return sieve.trace({"id": "JobID"}, dated=dated)


def _canonical(raw: RawTable) -> RawTable:
    """Normalises column names: sacct accepts them in any case and prints them as typed."""
    known = {name.lower(): name for name in KNOWN}
    renamed = {name: known.get(name.lower(), name) for name in raw.columns}
    return replace(raw, cells=raw.cells.rename(renamed))


def _kept(raw: RawTable) -> dict[str, str]:
    kept = {"id": "JobID", "user": "User", "tenant": "Account"}
    return {name: column for name, column in kept.items() if column in raw.columns}


def _leave_out_earlier_runs(sieve: Sieve) -> None:
    """Of several rows of a job that was requeued, the last one counts."""
    if "State" not in sieve.table.columns:
        return
    was_requeued = pl.col("State").str.contains(r"^(REQUEUE|PREEMPTED|NODE_FAIL|RESIZING)").fill_null(False)
    ids = sieve.table.filter(was_requeued).select("JobID").unique()
    runs = sieve.table.join(ids, on="JobID", how="semi", nulls_equal=True)  # few: grouping all rows would take longer
    earlier = runs.filter(was_requeued & (pl.col(LINE) < pl.col(LINE).max().over("JobID")))[LINE]
    sieve.leave_out(pl.col(LINE).is_in(earlier.implode()), EARLIER_RUN)


def _read_gpus(sieve: Sieve, tres: Sequence[str]) -> None:
    """Adds GPUs and types, parsing each distinct text once because patterns are slow."""
    for name in tres:
        texts = _parsed(sieve.table.select(pl.col(name)).unique().drop_nulls(), name)
        sieve.table = sieve.table.join(texts, on=name, how="left", maintain_order="left")
    counts, types = [f"{name} count" for name in tres], [f"{name} types" for name in tres]
    asked = [name for name in tres if name in REQUESTED]
    # The type of a request, even if it names none; otherwise that of the allocation.
    has_request = pl.any_horizontal(pl.col(f"{name} count").is_not_null() for name in asked) if asked else pl.lit(False)
    of_request = pl.coalesce(f"{name} type" for name in asked) if asked else pl.lit(None, dtype=pl.String)
    sieve.add(
        pl.coalesce(counts).alias("count"),
        pl.max_horizontal(types).alias("types"),
        pl.when(has_request).then(of_request).otherwise(pl.coalesce(f"{name} type" for name in tres)).alias("gpu_type"),
        pl.coalesce(f"{name} type" for name in tres).alias("start_type"),  # allocations come first
    )
    sieve.fault(
        pl.col("types") > 1,
        tres[0],
        pl.format("{} has several GPU types", quoted(pl.coalesce(tres))),
        "a gang must be of one type; split the job",
    )
    count_gpus(sieve, pl.col("count"), tres[0])


def _parsed(texts: pl.DataFrame, name: str) -> pl.DataFrame:
    """By text: the number of GPUs, the type, and how many types there are."""
    text = pl.col(name)
    total = text.str.extract(r"(?:^|,)gres/gpu=([^,]*)")
    if name.endswith("GRES"):
        total = text.str.extract(r"(?:^|,)(?:gres:)?gpu:([0-9]+)(?:[^0-9:]|$)")
        typed = text.str.extract_all(r"(?:^|,)(?:gres:)?gpu:[^:,(]*[^:,(0-9][^:,(]*:[0-9]+")
        kind, count = r"gpu:([^:]*):", r":([0-9]+)$"
    else:
        typed = text.str.extract_all(r"(?:^|,)gres/gpu:[^=,]*=[^,]*")
        kind, count = r"gpu:([^=]*)=", r"=([^=]*)$"
    first = typed.list.first()
    return texts.with_columns(
        pl.coalesce(total, first.str.extract(count)).alias(f"{name} count"),
        first.str.extract(kind).alias(f"{name} type"),
        typed.list.len().alias(f"{name} types"),
    )


def _read_limit(sieve: Sieve) -> None:
    """Adds the time limit, in seconds; none where Slurm has none."""
    if "TimelimitRaw" in sieve.table.columns:
        minutes = pl.col("TimelimitRaw").cast(pl.Float64, strict=False)
        sieve.add(pl.when(minutes > 0).then(60.0 * minutes).otherwise(None).alias("limit"))
    elif "Timelimit" in sieve.table.columns:
        _as_seconds(sieve, "Timelimit")
        limit = pl.col("Timelimit").cast(pl.Float64, strict=False)
        sieve.add(pl.when(limit > 0).then(limit).otherwise(None).alias("limit"))


def _as_seconds(sieve: Sieve, column: str) -> None:
    """Replaces times such as `1-02:03:04` by seconds; a text that is no time is a fault."""
    texts = sieve.table[column].drop_nulls().unique().to_list()
    found = {text: _seconds(text) for text in texts if text not in NO_LIMIT}
    wrong = [text for text, value in found.items() if value is None]
    sieve.fault(pl.col(column).is_in(wrong), column, is_text(pl.col(column)), "give a time such as 1-02:03:04")
    told = {text: repr(value) for text, value in found.items() if value is not None}
    sieve.table = sieve.table.with_columns(pl.col(column).replace_strict(told, default=None, return_dtype=pl.String))


def _seconds(text: str) -> float | None:
    """Slurm leaves out what is zero: `1-02` are days and hours, `30` are minutes."""
    if text.isdigit():
        return 60.0 * float(text)
    days, dash, hours = text.partition("-")
    if dash and days.isdigit() and hours.isdigit():
        return 86400.0 * float(days) + 3600.0 * float(hours)
    try:
        return seconds(f"{text}:00" if dash and text.count(":") == 1 else text)
    except ValueError:
        return None
