"""What `horae compare` is given: a cluster, policies, failures and a workload."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any

import yaml

from horae.cli.compare_request import Request
from horae.cli.quick_cluster import quick_cluster
from horae.comparison.task import Failures, PolicyChoice
from horae.comparison.workload import Drawn, Recorded, Workload
from horae.model.cells import Cluster
from horae.model.errors import InputError, PolicyError
from horae.model.jobs import Arrival
from horae.model.plain import Plain
from horae.model.pools import PoolSpec, Setup
from horae.policies.registry import make_policy
from horae.traces.arrivals import arrivals
from horae.traces.cluster_file import read_cluster
from horae.traces.generators import GENERATORS, make_generator
from horae.traces.load import parse_mapping, read_trace
from horae.traces.trace import Trace, no_jobs

Tell = Callable[[str], None]
LISTED_MAX = 10  # rows that are told
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
    setup = choose_setup(request)
    policies = choose_policies(request.policies or POLICIES_DEFAULT)
    baseline = choose_baseline(request.baseline, list(policies))
    failures = choose_failures(request)
    return Wanted(setup, policies, baseline, failures, read_workload(request, setup.cluster, tell))


def read_workload(request: Request, cluster: Cluster, tell: Tell) -> TraceInput:
    """The jobs of a file for this cluster, or those that a generator draws, seed by seed."""
    name, _, options = request.jobs.partition("=")
    if name not in GENERATORS or Path(request.jobs).exists():
        trace, jobs = _read_file(request, cluster)
        workload: Workload = Recorded(jobs)
    else:
        generator = make_generator(name, yaml_options(options, "JOBS"))
        draws = [_jobs(generator.trace(seed), request, cluster) for seed in range(request.seeds)]
        trace, jobs = draws[0]
        workload = Drawn(tuple(draw for _, draw in draws))
    _tell_rows(trace, tell)
    return TraceInput(request.jobs, workload, len(jobs), trace.fault_count, trace.left_out, trace.changed)


def _read_file(request: Request, cluster: Cluster) -> tuple[Trace, tuple[Arrival, ...]]:
    mapping, where = _pairs(request.mapping, "--map"), _pairs(request.where, "--where")
    return _jobs(read_trace(Path(request.jobs), request.format, mapping, where), request, cluster)


def _jobs(trace: Trace, request: Request, cluster: Cluster) -> tuple[Trace, tuple[Arrival, ...]]:
    """The jobs, and the trace with the rows that cannot be jobs of this cluster among its faults."""
    jobs, faults = arrivals(trace, cluster, whole_nodes=request.whole_nodes)
    trace = trace.without(faults)
    if request.strict:
        trace.strict()
    if not jobs:
        raise trace.faults[0].error(trace.source) if trace.faults else no_jobs(trace.source)
    return trace, tuple(jobs)


def _pairs(text: str | None, field: str) -> dict[str, str] | None:
    try:
        return None if text is None else parse_mapping(text)
    except InputError as error:
        raise InputError(error.problem, field=field, remedy=error.remedy) from None


def _tell_rows(trace: Trace, tell: Tell) -> None:
    if trace.fault_count:
        tell(f"{trace.source}: {trace.fault_count:,} broken {_rows(trace.fault_count)} left out; --strict stops there")
        for fault in trace.faults[:LISTED_MAX]:
            tell(str(fault.error(trace.source)))
        if trace.fault_count > LISTED_MAX:
            tell(f"and {trace.fault_count - LISTED_MAX:,} more")
    for what, counts in (("left out", trace.left_out), ("changed", trace.changed)):
        for reason, count in counts.items():
            tell(f"{trace.source}: {count:,} {_rows(count)} {what}: {reason}")


def _rows(count: int) -> str:
    return "row" if count == 1 else "rows"


def choose_setup(request: Request) -> Setup:
    cluster, nodes, restart_seconds = request.cluster, request.nodes, request.restart_seconds
    if (cluster is None) == (not nodes):
        problem = "there are both --cluster and --nodes" if nodes else "there is no cluster"
        raise InputError(problem, remedy="give --cluster FILE or --nodes 20x8, one of the two")
    setup = quick_cluster(nodes) if cluster is None else read_cluster(cluster, make_policy)
    if restart_seconds is not None:
        not_negative("--restart-seconds", restart_seconds)
        setup = replace(setup, cluster=replace(setup.cluster, restart_seconds=restart_seconds))
    if request.round_seconds is not None:
        positive("--round-seconds", request.round_seconds)
    return replace(setup, pools=tuple(_pool(pool, request) for pool in setup.pools))


def _pool(pool: PoolSpec, request: Request) -> PoolSpec:
    return replace(
        pool, cadence=request.cadence or pool.cadence, round_seconds=request.round_seconds or pool.round_seconds
    )


def choose_policies(texts: Sequence[str]) -> dict[str, PolicyChoice]:
    """By what the user wrote, each once."""
    return {text: _policy(text) for text in texts}


def _policy(text: str) -> PolicyChoice:
    """`name`, or `name={options in YAML}`."""
    name, _, options_text = text.partition("=")
    options = yaml_options(options_text, "--policy")
    try:
        make_policy(name, options)
    except InputError as error:
        raise PolicyError(error.problem, field="--policy", remedy=error.remedy) from None
    return PolicyChoice(name, options)


def yaml_options(text: str, field: str) -> dict[str, Any]:
    try:
        options = yaml.safe_load(text) if text else {}
    except (yaml.YAMLError, ValueError):
        options = None
    if not isinstance(options, dict):
        raise InputError(f"{text!r} are no options", field=field, remedy="write {limits: [1, 3]}")
    return options


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


def positive(field: str, value: float) -> None:
    _check(field, value, 0 < value < inf, "give a positive number")


def not_negative(field: str, value: float) -> None:
    _check(field, value, 0 <= value < inf, "give 0 or more")


def _check(field: str, value: float, right: bool, remedy: str) -> None:
    if not right:
        raise InputError(f"is {value:g}", field=field, remedy=remedy)
