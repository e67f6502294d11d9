"""A workload as a table, independent of its source file: one job per row, one meaning per column.

Readers and generators make a `Trace`; `arrivals` turns it into jobs for one cluster. A row that cannot be a job is a
`Fault`: counted and listed, never dropped silently. So are rows that are valid but not jobs for Horae (they ask for no
GPU), and rows that were taken with a change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import polars as pl

from horae.model.errors import InputError, JobError
from horae.model.safe_text import printable

FAULTS_LISTED_MAX = 1000  # the rest is only counted

# The columns of Horae's own format, documented in docs/reference/files.md. A table has the columns with data:
# `id`, `submit`, `gpus` and `line` always, and `duration` or `steps` for each row. Times are seconds.
SCHEMA: Mapping[str, pl.DataType] = {
    "id": pl.String(),
    "submit": pl.Float64(),
    "gpus": pl.Int64(),
    "duration": pl.Float64(),
    "steps": pl.Float64(),
    "user": pl.String(),
    "tenant": pl.String(),
    "app": pl.String(),
    "model": pl.String(),
    "gpu_type": pl.String(),  # A100|V100, in order of preference
    "speed": pl.String(),  # 2.5, or A100=3.1;V100=1.4
    "true_speed": pl.String(),
    "level": pl.String(),
    "slowdown": pl.String(),  # rack=1.3;cluster=1.6
    "member_gpus": pl.Int64(),
    "members": pl.String(),  # 8|4|4
    "nodes": pl.String(),  # a0|a1
    "pinned": pl.String(),
    "lazy": pl.Boolean(),
    "weight": pl.Float64(),
    "priority": pl.Int64(),
    "deadline": pl.Float64(),
    "limit": pl.Float64(),
    "start": pl.Float64(),  # as recorded
    "start_type": pl.String(),  # the GPU type on which it ran, as recorded
    "restart": pl.Float64(),
    "min_runtime": pl.Float64(),
    "grace": pl.Float64(),
    "preemptions_max": pl.Float64(),
    "retries_max": pl.Int64(),
    "cpus_per_gpu": pl.Float64(),
    "memory_per_gpu": pl.Float64(),  # bytes
    "command": pl.String(),
    "workdir": pl.String(),
    "line": pl.Int64(),  # of the file it came from; the row's number where there are no lines
}


class Fault(NamedTuple):
    """A row that cannot be a job, and why."""

    line: int
    field: str
    problem: str
    remedy: str

    def error(self, file: str) -> JobError:
        return JobError(self.problem, file=file, line=self.line, field=printable(self.field), remedy=self.remedy)


@dataclass(frozen=True)
class Trace:
    source: str  # the file, or the generator and its seed
    table: pl.DataFrame  # columns of SCHEMA, in the order of submission
    faults: tuple[Fault, ...] = ()  # the first of them, by line
    fault_count: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)  # by reason: rows that are not jobs for Horae
    changed: Mapping[str, int] = field(default_factory=dict)  # by reason: rows that were taken with a change
    origin: str = ""  # the date and time of second 0, where the file has dates
    left_out_gpu_hours: Mapping[str, float] = field(default_factory=dict)  # by reason, where they are known
    doubts: tuple[str, ...] = ()  # what may be wrong with the file as a whole, each with a remedy

    def strict(self) -> Trace:
        """The same trace, if no row is broken; otherwise raises the first fault as an error."""
        if self.faults:
            raise self.faults[0].error(self.source)
        return self

    def without(self, faults: tuple[Fault, ...]) -> Trace:
        """The same trace without the rows of these lines, which cannot be jobs of the given cluster."""
        lines = [fault.line for fault in faults]
        merged = tuple(sorted((*self.faults, *faults)))
        return replace(
            self,
            table=self.table.filter(~pl.col("line").is_in(lines)),
            faults=merged[:FAULTS_LISTED_MAX],
            fault_count=self.fault_count + len(set(lines)),
        )


def too_large(source: str) -> InputError:
    remedy = "split it into several files, and read each by itself"
    return InputError("does not fit into memory", file=source, remedy=remedy)


def no_jobs(source: str) -> InputError:
    return JobError("has no jobs", file=source, remedy="add one row a job")
