"""The functions behind `import horae`: read a cluster and its jobs, simulate them, compare policies.

The command line calls the same functions. Results are polars data frames, plots are matplotlib figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from io import StringIO
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from horae.experiments.compare.formats import as_csv, as_json, as_markdown
from horae.experiments.compare.run import outcomes
from horae.experiments.compare.run_spec import NO_FAILURES, Failures, PolicyChoice, run_specs, with_policy
from horae.experiments.compare.table import Comparison, tabulate
from horae.experiments.compare.workload import Recorded
from horae.experiments.explain_journal import JournalExplanation, explain_journal
from horae.experiments.inputs import choose_policies, choose_setup
from horae.experiments.replay import Replay, replay_file
from horae.experiments.result_store import ResultStore
from horae.experiments.simulate import Run
from horae.experiments.simulate import simulate as run_simulation
from horae.journal import read_journal
from horae.model.errors import InputError
from horae.model.jobs import Arrival
from horae.model.setup import Cadence, Setup
from horae.model.view import Policy
from horae.policies.registry import register_policy
from horae.reports.frames import apps_frame, jobs_frame, leases_frame
from horae.reports.metrics import Metrics, measure
from horae.reports.run_log import RunLog
from horae.traces import BROKEN_MAX
from horae.traces.formats import read_trace
from horae.traces.jobs import JobRules, jobs_of
from horae.traces.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PolicyLike = str | Policy | type[Policy]


@dataclass(frozen=True)
class Jobs:
    """The jobs of a trace for one cluster."""

    arrivals: tuple[Arrival, ...]  # each job with the values that only the engine knows, in order of submission
    trace: Trace  # the table as it was read, with the rows that could not be jobs

    def __len__(self) -> int:
        return len(self.arrivals)

    @property
    def frame(self) -> pl.DataFrame:
        """The rows of the trace, as they were read."""
        return self.trace.table


@dataclass(frozen=True)
class SimulationResult:
    """The result of one simulated run. Times are seconds from the start of the run."""

    run: Run  # the log, and the jobs that were rejected or did not finish, each with its reason

    @property
    def log(self) -> RunLog:
        """Jobs and leases of the run as columns; every metric is a function of it."""
        return self.run.log

    @cached_property
    def metrics(self) -> Metrics:
        """All metrics of the run."""
        return measure(self.log)

    @cached_property
    def jobs(self) -> pl.DataFrame:
        """One row per job: tenant, GPUs, outcome, when it was submitted, started and ended."""
        return jobs_frame(self.log)

    @cached_property
    def leases(self) -> pl.DataFrame:
        """One row per lease: which job held how many GPUs of which type, from when to when, and why it ended."""
        return leases_frame(self.log)

    @cached_property
    def apps(self) -> pl.DataFrame:
        """One row per app, with its finish-time fairness rho in three definitions."""
        return apps_frame(self.log)

    def plots(self, label: str = "run") -> dict[str, Figure]:
        """Figures by name: completion, queue, utilisation and more; the caller saves or shows them."""
        return _figures({label: self.log})


@dataclass(frozen=True)
class ComparisonResult:
    """Several policies on the same jobs."""

    comparison: Comparison  # the rows of the table, the differences from the baseline, and the logs

    @cached_property
    def frame(self) -> pl.DataFrame:
        """One row per policy and seed (and tenant or user, if asked for), one column per metric."""
        return pl.read_csv(StringIO(as_csv(self.comparison)), infer_schema_length=None)

    def to_markdown(self) -> str:
        """The table that `horae compare -o md` prints."""
        return as_markdown(self.comparison)

    def to_json(self) -> str:
        """All numbers, with differences and intervals, as `horae compare -o json` prints them."""
        return as_json(self.comparison, {})

    def plots(self) -> dict[str, Figure]:
        """Figures by name, with all policies in each."""
        return _figures(self.comparison.logs)


class Journal:
    """A journal on disk: all that a run was told, and what it decided and commanded."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def setup(self) -> Setup:
        """The cluster, tenants and policies with which the run began."""
        return read_journal(self.path).setup

    def replay(self) -> Replay:
        """Decide everything anew and compare: `difference` is empty if every line comes out the same."""
        return replay_file(self.path)

    def explain(self, job_id: str, at: float = inf) -> JournalExplanation:
        """What blocked a job at some moment, in seconds from the start of the run, and what would unblock it."""
        return explain_journal(self.path, job_id, at)


def load_cluster(
    source: str | Path,
    *,
    cadence: str | None = None,
    round_seconds: float | None = None,
    restart_seconds: float | None = None,
    seed: int = 0,
) -> Setup:
    """Read a cluster file, or take a shorthand such as "20x8:V100": 20 nodes of 8 GPUs.

    Examples:
        >>> load_cluster("2x4").cluster.gpu_count
        8
    """
    path = Path(source)
    is_file = isinstance(source, Path) or path.suffix in (".yaml", ".yml") or path.exists()
    cluster, nodes = (path, ()) if is_file else (None, (str(source),))
    return choose_setup(
        cluster, nodes, None if cadence is None else Cadence(cadence), round_seconds, restart_seconds, seed
    )


def load_jobs(
    source: str | Path,
    cluster: Setup,
    *,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    where: Mapping[str, str] | None = None,
    types: Mapping[str, str] | None = None,
    whole_nodes: bool = True,
    strict: bool = True,
    broken_max: float = BROKEN_MAX,
) -> Jobs:
    """Read the jobs of any trace whose format is known; `columns` names the columns of one that is not.

    With `strict` a row that cannot be a job of this cluster is an error; otherwise it is in `Jobs.trace.faults`.
    """
    rules = JobRules(
        whole_nodes=whole_nodes,
        types=types or {},
        tenants=tuple(tenant for pool in cluster.pools for tenant in pool.tenants),
        strict=strict,
        broken_max=broken_max,
    )
    trace, arrivals = jobs_of(read_trace(Path(source), format, columns, where), cluster.cluster, rules)
    return Jobs(tuple(arrivals), trace)


def simulate(
    cluster: Setup,
    jobs: Jobs | Iterable[Arrival],
    policy: PolicyLike | None = None,
    *,
    seed: int = 0,
    failures: Failures = NO_FAILURES,
    journal: str | Path | None = None,
) -> SimulationResult:
    """Run a workload through the scheduler in virtual time, under one policy or as the cluster file says."""
    arrivals = list(jobs.arrivals if isinstance(jobs, Jobs) else jobs)
    setup = replace(cluster, seed=seed)
    if policy is not None:
        setup = with_policy(setup, _choice(policy)[1])
    run = run_simulation(
        setup,
        arrivals,
        failures.plan(setup, seed, arrivals),
        checkpoint_seconds=failures.checkpoint_seconds,
        journal=None if journal is None else Path(journal),
    )
    return SimulationResult(run)


def compare(
    cluster: Setup,
    jobs: Jobs | Iterable[Arrival],
    policies: Sequence[PolicyLike],
    *,
    baseline: str | None = None,
    seeds: int = 1,
    by: str = "",
    failures: Failures = NO_FAILURES,
    workers: int = 1,
    store: str | Path | None = None,
) -> ComparisonResult:
    """Run several policies on the same jobs.

    `by` is "", "tenants" or "users" and adds rows for each of these; `store` is a folder that keeps results.
    """
    chosen = dict(_choice(policy) for policy in policies)
    if not chosen:
        raise InputError("there is no policy", field="policies", remedy="name at least one")
    if by not in ("", "tenants", "users"):
        raise InputError(f"is {by!r}", field="by", remedy="give 'tenants' or 'users'")
    first = baseline or next(iter(chosen))
    if first not in chosen:
        raise InputError(f"{first!r} is not compared", field="baseline", remedy=f"choose one of {', '.join(chosen)}")
    workload = Recorded(tuple(jobs.arrivals if isinstance(jobs, Jobs) else jobs))
    results = None if store is None else ResultStore(Path(store), print)
    runs = outcomes(run_specs(cluster, chosen, seeds, failures), workload, workers, results)
    return ComparisonResult(tabulate(runs, list(chosen), first, by, is_recorded=True))


def _choice(policy: PolicyLike) -> tuple[str, PolicyChoice]:
    """A label and a policy: by name, `name={option: value}`, class or object."""
    if isinstance(policy, str):
        return policy, choose_policies([policy])[policy]
    kind = policy if isinstance(policy, type) else type(policy)
    register_policy(kind)
    options: dict[str, object] = {}
    if is_dataclass(policy) and not isinstance(policy, type):
        options = {item.name: getattr(policy, item.name) for item in fields(policy) if item.init}
    return kind.name, PolicyChoice(kind.name, options)


def _figures(logs: Mapping[str, RunLog]) -> dict[str, Figure]:
    from horae.reports.plots.comparison import figures  # noqa: PLC0415  (matplotlib takes a second to import)

    return figures(logs)
