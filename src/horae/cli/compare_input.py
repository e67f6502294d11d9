"""What `horae compare` is given: a cluster, policies, failures and a workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from horae.cli.compare_request import Request
from horae.cli.inputs import choose_policies, choose_setup, not_negative, positive
from horae.cli.rows import Tell, pairs, tell_rows
from horae.cli.speed import speed_book
from horae.cli.trace import generator_of
from horae.comparison.task import Failures, PolicyChoice
from horae.comparison.workload import Drawn, Recorded, Workload
from horae.model.cells import Cluster
from horae.model.errors import PolicyError
from horae.model.jobs import Arrival
from horae.model.plain import Plain
from horae.model.pools import Setup
from horae.traces.arrivals import arrivals
from horae.traces.generators import GENERATORS
from horae.traces.load import read_trace
from horae.traces.trace import Trace, no_jobs

POLICIES_DEFAULT = ("fifo", "sjf", "srtf", "las", "tiresias", "drf")


@dataclass(frozen=True)
class TraceInput:
    """A workload, and what became of the rows of its file."""

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
    """What a request comes to."""

    setup: Setup
    policies: Mapping[str, PolicyChoice]  # by label
    baseline: str
    failures: Failures
    trace: TraceInput


def wanted(request: Request, tell: Tell) -> Wanted:
    setup = choose_setup(
        request.cluster, request.nodes, request.cadence, request.round_seconds, request.restart_seconds
    )
    policies = choose_policies(request.policies or POLICIES_DEFAULT)
    baseline = choose_baseline(request.baseline, list(policies))
    failures = choose_failures(request)
    return Wanted(setup, policies, baseline, failures, read_workload(request, setup.cluster, tell))


def read_workload(request: Request, cluster: Cluster, tell: Tell) -> TraceInput:
    """The jobs of a file for this cluster, or those that a generator draws, seed by seed."""
    if request.jobs.partition("=")[0] not in GENERATORS or Path(request.jobs).exists():
        trace, jobs = _read_file(request, cluster)
        workload: Workload = Recorded(jobs)
    else:
        generator = generator_of(request.jobs, request.data, "JOBS")
        draws = [_jobs(generator.trace(seed), request, cluster) for seed in range(request.seeds)]
        trace, jobs = draws[0]
        workload = Drawn(tuple(draw for _, draw in draws))
    tell_rows(trace, tell)
    return TraceInput(request.jobs, workload, len(jobs), trace.fault_count, trace.left_out, trace.changed)


def _read_file(request: Request, cluster: Cluster) -> tuple[Trace, tuple[Arrival, ...]]:
    mapping, where = pairs(request.mapping, "--map"), pairs(request.where, "--where")
    return _jobs(read_trace(Path(request.jobs), request.format, mapping, where), request, cluster)


def _jobs(trace: Trace, request: Request, cluster: Cluster) -> tuple[Trace, tuple[Arrival, ...]]:
    """The jobs, and the trace with the rows that cannot be jobs of this cluster among its faults."""
    speeds = speed_book(request.speeds, request.data) if request.speeds else None
    jobs, faults = arrivals(trace, cluster, speeds, whole_nodes=request.whole_nodes)
    trace = trace.without(faults)
    if request.strict:
        trace.strict()
    if not jobs:
        raise trace.faults[0].error(trace.source) if trace.faults else no_jobs(trace.source)
    return trace, tuple(jobs)


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
