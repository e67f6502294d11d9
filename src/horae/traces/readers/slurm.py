"""Slurm's accounting: `sacct -a -X -P -o JobID,User,Account,Submit,Start,End,State,AllocTRES,ReqTRES,ElapsedRaw`.

GPUs are counted as `gres/gpu=8`, by type as `gres/gpu:a100=8`, or in both ways at once; then the first gives the number
and the second the type. The allocation counts, or the request where nothing was allocated. Without `-X` there are steps
of jobs (`17.batch`), which are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from horae.traces.readers.accounting import Clock, count_gpus, named, read_times
from horae.traces.readers.raw_table import RawTable, Where, read_raw
from horae.traces.readers.row_filter import Sieve, quoted
from horae.traces.trace import Trace

COLUMNS = ("JobID", "User", "Account", "Submit", "Start", "End", "State", "AllocTRES", "ReqTRES", "ElapsedRaw")
STEP = "is a step of a job"


def read(path: Path, where: Where | None = None) -> Trace:
    raw = _canonical(read_raw(path, "|", quotes=False)).where(where)
    raw.require("JobID", "Submit")
    tres = [name for name in ("AllocTRES", "ReqTRES") if name in raw.columns]
    if not tres:
        raw.require("AllocTRES")
    clock = Clock("Submit", *(name if name in raw.columns else "" for name in ("Start", "End", "ElapsedRaw")))
    if not clock.run and not (clock.start and clock.end):
        raw.require("ElapsedRaw")
    sieve = Sieve(raw)
    sieve.leave_out(pl.col("JobID").str.contains(".", literal=True), STEP)
    named(sieve, "JobID")
    _read_gpus(sieve, tres)
    dated = read_times(sieve, clock)
    sieve.add(*(pl.col(column).alias(name) for name, column in _kept(raw).items()))
    return sieve.trace({"id": "JobID"}, dated=dated)


def _canonical(raw: RawTable) -> RawTable:
    """Normalises column names: sacct accepts them in any case and prints them as typed."""
    known = {name.lower(): name for name in COLUMNS}
    renamed = {name: known.get(name.lower(), name) for name in raw.columns}
    return replace(raw, cells=raw.cells.rename(renamed))


def _kept(raw: RawTable) -> dict[str, str]:
    kept = {"id": "JobID", "user": "User", "tenant": "Account"}
    return {name: column for name, column in kept.items() if column in raw.columns}


def _read_gpus(sieve: Sieve, tres: Sequence[str]) -> None:
    """Adds GPUs and types, parsing each distinct text once because patterns are slow."""
    sieve.add(pl.coalesce(tres).alias("tres"))
    texts = (
        sieve.table.select("tres")
        .unique()
        .drop_nulls()
        .with_columns(
            pl.col("tres").str.extract(r"(?:^|,)gres/gpu=([^,]*)").alias("count"),
            pl.col("tres").str.extract_all(r"(?:^|,)gres/gpu:[^=,]*=[^,]*").alias("typed"),
        )
    )
    typed = pl.col("typed").list
    texts = texts.with_columns(
        typed.first().str.extract(r"gpu:([^=]*)=").alias("gpu_type"),
        typed.len().alias("types"),
        pl.coalesce("count", typed.first().str.extract(r"=([^=]*)$")).alias("count"),
    ).drop("typed")
    sieve.table = sieve.table.join(texts, on="tres", how="left", maintain_order="left")
    sieve.fault(
        pl.col("types") > 1,
        tres[0],
        pl.format("{} has several GPU types", quoted(pl.col("tres"))),
        "a gang must be of one type; split the job",
    )
    count_gpus(sieve, pl.col("count"), tres[0])
