"""Reads the workload of a command, in the same way for every command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from horae.cli.rows import Tell, tell_rows
from horae.cli.speed import speed_book
from horae.cli.trace import generator_of
from horae.cli.workload_options import WorkloadOptions
from horae.experiments.compare.as_recorded import RecordedStart
from horae.experiments.compare.generated_workload import GeneratedWorkload
from horae.experiments.compare.workload import Recorded, Workload
from horae.experiments.inputs import pairs
from horae.model.errors import InputError, JobError
from horae.model.jobs import Arrival
from horae.model.serialization import Plain
from horae.model.setup import Setup
from horae.model.shapes import Option
from horae.traces.formats import read_trace
from horae.traces.generators import GENERATORS
from horae.traces.gpu_names import find_types
from horae.traces.jobs import JobRules, jobs_of
from horae.traces.readers import native
from horae.traces.trace import Trace

EQUALLY_FAST = (
    "all GPU types count as equally fast: give a column speed (A100=3;V100=1), or models with --speeds shipped"
)


@dataclass(frozen=True)
class TraceInput:
    """A workload, and the statistics of the rows of its file."""

    source: str
    workload: Workload
    jobs: int  # of seed 0
    rows_broken: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    changed: Mapping[str, int] = field(default_factory=dict)
    starts: Mapping[str, RecordedStart] = field(default_factory=dict)  # by job; empty unless all are known
    origin: str = ""  # the date and time of second 0, where the file has dates

    def plain(self) -> dict[str, Plain]:
        return {
            "source": self.source,
            "jobs": self.jobs,
            "rows_broken": self.rows_broken,
            "rows_left_out": dict(self.left_out),
            "rows_changed": dict(self.changed),
        }


def read_workload(
    source: str, setup: Setup, options: WorkloadOptions, tell: Tell, warn: Tell | None = None
) -> TraceInput:
    """The jobs of a file for this cluster, or those that a generator draws, seed by seed.

    `warn` is told of broken rows, and `tell` where it is not given.
    """
    rules = JobRules(
        speeds=speed_book(options.speeds, options.data, "--speeds") if options.speeds else None,
        whole_nodes=options.whole_nodes,
        types=pairs(options.types, "--types") or {},
        tenants=tuple(tenant for pool in setup.pools for tenant in pool.tenants),
        strict=options.strict,
        broken_max=options.broken_max,
    )
    _check_types(rules.types, setup)
    if source.partition("=")[0] not in GENERATORS or Path(source).exists():
        mapping, where = pairs(options.mapping, "--map"), pairs(options.where, "--where")
        try:
            trace, jobs = jobs_of(read_trace(Path(source), options.format, mapping, where), setup.cluster, rules)
        except JobError as error:
            raise native.place(error, Path(source)) from None
        workload: Workload = Recorded(tuple(jobs))
    else:
        _refuse_file_options(source, options)
        generator = generator_of(source, options.data, "JOBS")
        trace, jobs = jobs_of(generator.trace(0), setup.cluster, rules)
        workload = GeneratedWorkload(generator, setup.cluster, rules)
    tell_rows(trace, tell, warn or tell)
    _tell_tenants(setup, {arrival.job.tenant for arrival in jobs}, tell)
    _tell_speeds(setup, jobs, tell)
    nameless = trace.table["tenant"].null_count() if "tenant" in trace.table.columns else 0
    if 0 < nameless < len(trace.table):
        tell(f"{nameless:,} of {len(trace.table):,} jobs name no tenant, and are those of tenant 'default'")
    return TraceInput(
        source,
        workload,
        len(jobs),
        trace.fault_count,
        trace.left_out,
        trace.changed,
        _starts(trace, jobs, setup, rules),
        trace.origin,
    )


def _starts(trace: Trace, jobs: Sequence[Arrival], setup: Setup, rules: JobRules) -> dict[str, RecordedStart]:
    if "start" not in trace.table.columns:
        return {}
    kind = pl.col("start_type") if "start_type" in trace.table.columns else pl.lit(None, dtype=pl.String)
    rows = trace.table.filter(pl.col("start").is_not_null()).select("id", "start", kind.alias("kind"))
    types = {
        name: find_types(name, setup.cluster.accelerators, rules.types) for name in rows["kind"].drop_nulls().unique()
    }
    known = {job_id: RecordedStart(at, types.get(name, ())) for job_id, at, name in rows.iter_rows()}
    return known if all(arrival.job.id in known for arrival in jobs) else {}


def _tell_speeds(setup: Setup, jobs: Sequence[Arrival], tell: Tell) -> None:
    """Reports that GPU types make no difference: jobs accept several of them, and none is faster anywhere."""
    if len(setup.cluster.accelerators) < 2:
        return
    distinct = {id(each.truth.options): each.truth.options for each in jobs}.values()  # most jobs share theirs
    accepts_several = any(len({option.shape.accelerator for option in options}) > 1 for options in distinct)
    if accepts_several and not any(_differ(options) for options in distinct):
        tell(EQUALLY_FAST)


def _differ(options: Sequence[Option]) -> bool:
    """Whether a gang is faster on one GPU type than on another."""
    found: dict[tuple[int, str], set[float]] = {}
    for (_, gpus, level), speed in options:
        found.setdefault((gpus, level), set()).add(speed)
    return any(len(speeds) > 1 for speeds in found.values())


def _check_types(types: Mapping[str, str], setup: Setup) -> None:
    for name, kind in types.items():
        if kind not in setup.cluster.accelerators:
            known = ", ".join(setup.cluster.accelerators)
            raise InputError(
                f"{name} is to be {kind!r}, which the cluster lacks", field="--types", remedy=f"use {known}"
            )


def _refuse_file_options(source: str, options: WorkloadOptions) -> None:
    """Rejects options for reading a file when the workload is a generator."""
    for option, value in (("--format", options.format), ("--map", options.mapping), ("--where", options.where)):
        if value is not None:
            name = source.partition("=")[0]
            raise InputError(f"is for files, and {name} is a generator", field=option, remedy="leave it out")


def _tell_tenants(setup: Setup, there: set[str], tell: Tell) -> None:
    """Reports tenants of the cluster without jobs, and tenants of jobs that the cluster does not name."""
    named = {tenant for pool in setup.pools for tenant in pool.tenants}
    if not named:
        return
    idle, unknown = sorted(named - there), sorted(there - named)
    if idle:
        tell(f"no jobs of {'tenant' if len(idle) == 1 else 'tenants'} {', '.join(idle)} in the trace")
    if unknown:
        shown = ", ".join(unknown[:8]) + (", ..." if len(unknown) > 8 else "")
        tell(f"{len(unknown)} of the trace's tenants are not in the cluster: {shown}")
