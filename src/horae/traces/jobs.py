"""Converts a trace to jobs of one cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from math import ceil, inf
from pathlib import Path
from typing import Any

import polars as pl

from horae.model.cluster import Cluster
from horae.model.errors import JobError
from horae.model.jobs import Arrival, Job, Truth
from horae.traces import BROKEN_MAX
from horae.traces.gpu_names import find_types
from horae.traces.job_row import JobRow
from horae.traces.job_shapes import JobShapes, RequestedShapes, Speeds, shapes
from horae.traces.readers import native
from horae.traces.trace import Fault, Trace, no_jobs, too_large

# Fields of `Job` in its own order, by groups, with defaults for missing columns.
_LABELS = {"app": "", "tenant": "default", "user": "", "model": "", "weight": 1.0, "priority": 0}
_LIMITS = {"deadline": inf, "restart": 0.0, "min_runtime": 0.0, "preemptions_max": inf, "grace": 0.0, "retries_max": 0}
_NEEDS = {"pinned": "", "lazy": False, "cpus_per_gpu": 0.0, "memory_per_gpu": 0.0, "command": "", "workdir": ""}


def arrivals(
    trace: Trace,
    cluster: Cluster,
    speeds: Speeds | None = None,
    *,
    whole_nodes: bool = False,
    types: Mapping[str, str] | None = None,
) -> tuple[list[Arrival], tuple[Fault, ...]]:
    """The jobs, in the order of the trace, and the rows that cannot be jobs of this cluster.

    With `whole_nodes`, gangs larger than a node take whole nodes, as production clusters allocate them. `types`: by a
    name of a GPU type in the trace, that of the cluster, where the two are not merely spelt differently.
    """
    return _convert(trace, cluster, speeds, whole_nodes, types)[:2]


def _convert(
    trace: Trace, cluster: Cluster, speeds: Speeds | None, whole_nodes: bool, types: Mapping[str, str] | None
) -> tuple[list[Arrival], tuple[Fault, ...], int]:
    """As `arrivals`, and the number of jobs of models whose speeds were looked for and are not known."""
    unknown = 0
    table = trace.table
    known: dict[tuple[Any, ...], JobShapes | JobError] = {}
    made: list[Arrival] = []
    faults: list[Fault] = []
    rows = zip(
        _group(table, {"line": 0, "id": "", "submit": 0.0, "steps": None, "duration": None, "limit": inf}),
        _group(table, dict.fromkeys(RequestedShapes._fields)),
        _group(table, _LABELS),
        _group(table, _LIMITS | {"restart": cluster.restart_seconds}),
        _group(table, _NEEDS),
        strict=False,  # groups without columns in the table are infinite
    )
    for (line, name, submit, steps, duration, limit), wish, labels, limits, needs in rows:
        found = known.get(wish)
        if found is None:
            found = known[wish] = _shapes(RequestedShapes(*wish), cluster, speeds, whole_nodes, types)
        if isinstance(found, JobError):
            faults.append(_fault(line, found))
            continue
        try:
            believed, true, member_gpus, members, nodes, unknown_model = found
            if unknown_model and duration is None:
                raise _unknown(unknown_model)
            unknown += bool(unknown_model)
            work = _work(steps, duration, believed[0].steps_per_second)
            fields: tuple[Any, ...] = (name, submit, believed, *labels, work, *limits, member_gpus, members, nodes)
            job = Job(*fields, *needs)
            if limit < inf:
                job = replace(job, limit_seconds=limit)
            if true is not believed:
                work = _work(steps, duration, true[0].steps_per_second)
            made.append(Arrival(job, Truth(work, true)))
        except JobError as error:
            faults.append(_fault(line, error))
    return made, tuple(faults), unknown if speeds is not None else 0


def _unknown(model: str) -> JobError:
    return JobError(
        f"how fast {model!r} runs on the cluster's GPUs is not known, and its work is given in steps",
        field="model",
        remedy="name a table that has it with --speeds, or add a column speed",
    )


def _fault(line: int, error: JobError) -> Fault:
    return Fault(line, error.field, error.problem, error.remedy)


def _shapes(
    wish: RequestedShapes,
    cluster: Cluster,
    speeds: Speeds | None,
    whole_nodes: bool,
    types: Mapping[str, str] | None,
) -> JobShapes | JobError:
    try:
        return shapes(wish, cluster, speeds, whole_nodes, types)
    except JobError as error:
        return error


def _work(steps: float | None, duration: float | None, steps_per_second: float) -> float:
    """The number of steps; a duration refers to the reference shape."""
    if steps is not None:
        return steps
    if duration is None:
        raise JobError("there is neither a duration nor steps", field="duration", remedy="give one of the two")
    return duration * steps_per_second


def _group(table: pl.DataFrame, defaults: dict[str, Any]) -> Iterable[tuple[Any, ...]]:
    """These columns row by row, with a default for each empty cell."""
    if not any(name in table.columns for name in defaults):
        return repeat(tuple(defaults.values()))
    columns = [_column(table, name, default) for name, default in defaults.items()]
    return zip(*columns, strict=False)


def _column(table: pl.DataFrame, name: str, default: Any) -> Iterable[Any]:
    if name not in table.columns:
        return repeat(default)
    column = table[name]
    return (column if default is None else column.fill_null(default)).to_list()


# How every command reads a workload: which rows count, and how many may be broken


UNKNOWN_SPEED = "the speed tables do not have its model: it runs for the same time on all GPU types"
PAST_DEADLINE = "has a deadline before its submission, which it misses"


@dataclass(frozen=True)
class JobRules:
    """How the rows of a trace become jobs of a cluster."""

    speeds: Speeds | None = None  # None: run times as the trace has them
    whole_nodes: bool = True  # gangs larger than a node take whole nodes
    types: Mapping[str, str] = field(default_factory=dict)  # by name of a GPU type in the trace: that of the cluster
    tenants: tuple[str, ...] = ()  # of the cluster; names in the trace may differ in case
    strict: bool = False  # a broken row is an error
    broken_max: float = BROKEN_MAX  # a larger fraction of broken rows is an error


def jobs_of(trace: Trace, cluster: Cluster, rules: JobRules | None = None) -> tuple[Trace, list[Arrival]]:
    """The jobs, and the trace with the rows that cannot be jobs of this cluster among its faults."""
    rules = rules or JobRules()
    trace = _with_tenants(trace, rules.tenants)
    jobs, faults, unknown = _convert(trace, cluster, rules.speeds, rules.whole_nodes, rules.types)
    trace = replace(trace, changed={**trace.changed, UNKNOWN_SPEED: unknown}) if unknown else trace
    trace = _with_types_told(_with_deadlines_told(trace.without(faults)), cluster, rules.types)
    if rules.strict:
        trace.strict()
    if not jobs:
        raise trace.faults[0].error(trace.source) if trace.faults else no_jobs(trace.source)
    broken = trace.fault_count / (len(jobs) + trace.fault_count)
    if broken > rules.broken_max:
        first, count = trace.faults[0], trace.fault_count
        remedy = first.remedy
        if count > 1:
            allowed = f"--broken-max {ceil(100 * broken) / 100:g} allows it"
            remedy += f"; {count:,} of {len(jobs) + count:,} rows are broken, {allowed}"
        raise JobError(first.problem, file=trace.source, line=first.line, field=first.field, remedy=remedy)
    return trace, jobs


def _with_tenants(trace: Trace, tenants: Sequence[str]) -> Trace:
    """The trace with tenants named as the cluster names them, where only the case differs."""
    if not tenants or "tenant" not in trace.table.columns:
        return trace
    here = {name.casefold(): name for name in tenants}
    given = trace.table["tenant"].drop_nulls().unique().to_list()
    renamed = {name: here[name.casefold()] for name in given if name not in tenants and name.casefold() in here}
    if not renamed:
        return trace
    counts = {
        f"tenant {name!r} is {own!r} in the cluster": int((trace.table["tenant"] == name).sum())
        for name, own in sorted(renamed.items())
    }
    table = trace.table.with_columns(pl.col("tenant").replace(renamed))
    return replace(trace, table=table, changed={**trace.changed, **counts})


def _with_deadlines_told(trace: Trace) -> Trace:
    if "deadline" not in trace.table.columns:
        return trace
    late = int((trace.table["deadline"] < trace.table["submit"]).fill_null(False).sum())
    return replace(trace, changed={**trace.changed, PAST_DEADLINE: late}) if late else trace


def _with_types_told(trace: Trace, cluster: Cluster, types: Mapping[str, str]) -> Trace:
    """The trace with a note on GPU types that the cluster names differently."""
    if "gpu_type" not in trace.table.columns:
        return trace
    counts: dict[str, int] = {}
    for text, count in trace.table["gpu_type"].drop_nulls().value_counts().sort("gpu_type").iter_rows():
        for name in (part.strip() for part in text.split("|")):
            found = find_types(name, cluster.accelerators, types)
            if found and found != (name,):
                note = f"GPU type {name!r} is {' or '.join(found)} in the cluster"
                counts[note] = counts.get(note, 0) + count
    return replace(trace, changed={**trace.changed, **counts}) if counts else trace


# A user's job table for one cluster; the first invalid row is an error

__all__ = ["JobRow", "JobRules", "arrivals", "jobs_of", "read_jobs"]


def read_jobs(path: Path, cluster: Cluster, *, whole_nodes: bool = True) -> list[Arrival]:
    """All jobs of a file, in the order of submission."""
    try:
        trace = native.read(path).strict()
        jobs, faults = arrivals(trace, cluster, whole_nodes=whole_nodes)
        for fault in sorted(faults):
            raise fault.error(trace.source)
    except JobError as error:
        raise native.place(error, path) from None
    except MemoryError:
        raise too_large(str(path)) from None
    if not jobs:
        raise no_jobs(str(path))
    return jobs
