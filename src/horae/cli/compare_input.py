"""The input of `horae compare`: a cluster, policies, failures and a workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from horae.cli.compare_request import Request
from horae.cli.rows import Tell, tell_rows
from horae.cli.sharing import with_sharing
from horae.cli.speed import speed_book
from horae.cli.trace import generator_of
from horae.experiments.compare.generated_workload import GeneratedWorkload, jobs_of
from horae.experiments.compare.run_spec import Failures, PolicyChoice
from horae.experiments.compare.workload import Recorded, Workload
from horae.experiments.inputs import choose_policies, choose_setup, not_negative, pairs, positive
from horae.model.cluster import Cluster
from horae.model.errors import InputError, PolicyError
from horae.model.serialization import Plain
from horae.model.setup import Setup
from horae.traces.formats import read_trace
from horae.traces.generators import GENERATORS

POLICIES_DEFAULT = ("fifo", "sjf", "srtf", "las", "tiresias", "drf")


@dataclass(frozen=True)
class TraceInput:
    """A workload, and the statistics of the rows of its file."""

    source: str
    workload: Workload
    jobs: int  # of seed 0
    rows_broken: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    changed: Mapping[str, int] = field(default_factory=dict)

    def plain(self) -> dict[str, Plain]:
        return {
            "source": self.source,
            "jobs": self.jobs,
            "rows_broken": self.rows_broken,
            "rows_left_out": dict(self.left_out),
            "rows_changed": dict(self.changed),
        }


@dataclass(frozen=True)
class Wanted:
    """The parsed request."""

    setup: Setup
    policies: Mapping[str, PolicyChoice]  # by label
    baseline: str
    failures: Failures
    trace: TraceInput


def wanted(request: Request, tell: Tell) -> Wanted:
    setup = choose_setup(
        request.cluster, request.nodes, request.cadence, request.round_seconds, request.restart_seconds
    )
    setup = with_sharing(setup, request.sharing)
    policies = choose_policies(request.policies or POLICIES_DEFAULT)
    baseline = choose_baseline(request.baseline, list(policies))
    failures = choose_failures(request)
    return Wanted(setup, policies, baseline, failures, read_workload(request, setup.cluster, tell))


def read_workload(request: Request, cluster: Cluster, tell: Tell) -> TraceInput:
    """The jobs of a file for this cluster, or those that a generator draws, seed by seed."""
    speeds = speed_book(request.speeds, request.data, "--speeds") if request.speeds else None
    how = (cluster, speeds, request.whole_nodes, request.strict)
    if request.jobs.partition("=")[0] not in GENERATORS or Path(request.jobs).exists():
        mapping, where = pairs(request.mapping, "--map"), pairs(request.where, "--where")
        trace, jobs = jobs_of(read_trace(Path(request.jobs), request.format, mapping, where), *how)
        workload: Workload = Recorded(tuple(jobs))
    else:
        _refuse_file_options(request)
        generator = generator_of(request.jobs, request.data, "JOBS")
        trace, jobs = jobs_of(generator.trace(0), *how)
        workload = GeneratedWorkload(generator, *how)
    tell_rows(trace, tell)
    return TraceInput(request.jobs, workload, len(jobs), trace.fault_count, trace.left_out, trace.changed)


def _refuse_file_options(request: Request) -> None:
    """Rejects options for reading a file when the workload is a generator."""
    for option, value in (("--format", request.format), ("--map", request.mapping), ("--where", request.where)):
        if value is not None:
            name = request.jobs.partition("=")[0]
            raise InputError(f"is for files, and {name} is a generator", field=option, remedy="leave it out")


def choose_failures(request: Request) -> Failures:
    if request.days_between_failures is not None:
        positive("--days-between-failures", request.days_between_failures)
    not_negative("--repair-seconds", request.repair_seconds)
    not_negative("--checkpoint-seconds", request.checkpoint_seconds)
    return Failures(request.days_between_failures, request.repair_seconds, request.checkpoint_seconds)


def choose_baseline(baseline: str | None, labels: Sequence[str]) -> str:
    if baseline is None:
        return labels[0]
    if baseline not in labels:
        known = ", ".join(labels)
        raise PolicyError(f"{baseline!r} is not compared", field="--baseline", remedy=f"choose one of {known}")
    return baseline
