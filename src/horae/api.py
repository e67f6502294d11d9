"""The functions behind `import horae`: read a cluster and its jobs, simulate them, compare policies.

The command line calls the same functions. Results are polars data frames, plots are matplotlib figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from horae.experiments.compare.formats import as_columns, as_json, as_markdown
from horae.experiments.compare.report_file import ReportFacts, check_report_file
from horae.experiments.compare.run import outcomes
from horae.experiments.compare.run_spec import NO_FAILURES, Failures, PolicyChoice, run_specs, with_policy
from horae.experiments.compare.table import Comparison, TableOptions, tabulate
from horae.experiments.compare.workload import Recorded, has_limits
from horae.experiments.explain_journal import JournalExplanation, explain_journal
from horae.experiments.inputs import BASELINE, choose_policies, choose_setup
from horae.experiments.replay import Replay, replay_file
from horae.experiments.result_store import ResultStore
from horae.experiments.simulate import Run
from horae.experiments.simulate import simulate as run_simulation
from horae.journal import read_journal
from horae.model.errors import InputError, PolicyError
from horae.model.jobs import Arrival
from horae.model.serialization import to_plain
from horae.model.setup import Cadence, Setup
from horae.model.view import Policy
from horae.policies.registry import option_defaults, register_policy
from horae.reports import UNFAIR_ABOVE
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
    origin: str = ""  # the date and time of second 0, where the trace has dates

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
        from horae.reports.plots.comparison import PlottedRuns, run_figures  # noqa: PLC0415  (matplotlib: a second)

        return run_figures(PlottedRuns({label: self.log}, origin=self.origin))

    def save_plots(self, folder: str | Path, label: str = "run") -> list[Path]:
        """Write the figures into a folder as PDF, SVG and PNG; the same run gives the same bytes."""
        return _save_plots(self.plots(label), folder)


@dataclass(frozen=True)
class ComparisonResult:
    """Several policies on the same jobs."""

    comparison: Comparison  # the rows of the table, the differences from the baseline, and the logs
    facts: ReportFacts  # what a report tells besides: the cluster, the trace, what was assumed

    @property
    def origin(self) -> str:
        """The date and time of second 0, where the trace has dates."""
        return self.facts.origin

    @cached_property
    def frame(self) -> pl.DataFrame:
        """One row per policy and seed (and tenant or user, if asked for), one column per metric."""
        columns = as_columns(self.comparison)
        return pl.DataFrame(columns, strict=False, infer_schema_length=None).with_columns(
            pl.col(pl.Null).cast(pl.Float64)
        )

    def to_markdown(self) -> str:
        """The table that `horae compare -o md` prints."""
        return as_markdown(self.comparison)

    def to_json(self) -> str:
        """All numbers, with differences and intervals, as `horae compare -o json` prints them."""
        return as_json(self.comparison, {})

    def plots(self) -> dict[str, Figure]:
        """Figures by name: the numbers and intervals of the table, and the runs of seed 0."""
        from horae.experiments.compare.figures import comparison_figures  # noqa: PLC0415  (matplotlib: a second)

        return comparison_figures(self.comparison, self.origin)

    def save_plots(self, folder: str | Path) -> list[Path]:
        """Write the figures into a folder as PDF, SVG and PNG, as `horae compare --plots` does."""
        return _save_plots(self.plots(), folder)

    def report(self, path: str | Path) -> None:
        """Write one page with the answer in words, tables and plots, as `horae compare --report` does.

        Tables by tenant or user need `by` of `compare`.
        """
        from horae.experiments.compare.report import report, write_report  # noqa: PLC0415  (matplotlib: a second)

        check_report_file(Path(path), "path")
        write_report(Path(path), report(self.comparison, self.facts))


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

    def explain(self, job_id: str, at: float | str = inf) -> JournalExplanation:
        """What blocked a job at some moment, and what would unblock it.

        The moment is in seconds from the start of the run, or a text such as "2h" or "2026-03-01 14:30".
        """
        return explain_journal(self.path, job_id, at)


def load_cluster(
    source: str | Path | Sequence[str],
    *,
    cadence: str | None = None,
    round_seconds: float | None = None,
    restart_seconds: float | None = None,
    seed: int = 0,
) -> Setup:
    """Read a cluster file or a table of nodes, or take a shorthand such as "20x8:V100": 20 nodes of 8 GPUs.

    A list of shorthands is a cluster of several GPU types.

    Examples:
        >>> load_cluster("2x4").cluster.gpu_count
        8
    """
    if cadence is not None and cadence not in [each.value for each in Cadence]:
        raise InputError(f"is {cadence!r}", field="cadence", remedy="give 'events' or 'rounds'")
    if not isinstance(source, str | Path):
        return choose_setup(
            None, tuple(source), None if cadence is None else Cadence(cadence), round_seconds, restart_seconds, seed
        )
    path = Path(source)
    is_file = isinstance(source, Path) or path.suffix in (".yaml", ".yml", ".csv", ".parquet") or path.exists()
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
    seed: int | None = None,
    failures: Failures = NO_FAILURES,
    journal: str | Path | None = None,
) -> SimulationResult:
    """Run a workload through the scheduler in virtual time, under one policy or as the cluster file says."""
    arrivals = _arrivals(jobs)
    seed = cluster.seed if seed is None else seed
    setup = replace(cluster, seed=seed)
    if policy is not None:
        setup = with_policy(setup, _choice(policy)[1])
    run = run_simulation(
        setup,
        arrivals,
        failures.plan(setup, seed, arrivals),
        checkpoint_seconds=failures.checkpoint_seconds,
        journal=None if journal is None else Path(journal),
        origin=_origin(jobs),
    )
    return SimulationResult(run, _origin(jobs))


def compare(
    cluster: Setup,
    jobs: Jobs | Iterable[Arrival],
    policies: Sequence[PolicyLike],
    *,
    baseline: str | None = None,
    seeds: int = 1,
    by: str = "",
    unfair_above: float = UNFAIR_ABOVE,
    failures: Failures = NO_FAILURES,
    workers: int = 1,
    store: str | Path | None = None,
) -> ComparisonResult:
    """Run several policies on the same jobs.

    `by` is "", "tenants" or "users" and adds rows for each of these; an app with a rho of more than `unfair_above`
    counts as treated unfairly; `store` is a folder that keeps results.
    """
    chosen = _choices([policies] if isinstance(policies, str) else policies)
    if seeds < 1:
        raise InputError(f"is {seeds}", field="seeds", remedy="give 1 or more")
    if workers < 1:
        raise InputError(f"is {workers}", field="workers", remedy="give 1 or more")
    if not chosen:
        raise InputError("there is no policy", field="policies", remedy="name at least one")
    by = {"tenant": "tenants", "user": "users"}.get(by, by)
    if by not in ("", "tenants", "users"):
        raise InputError(f"is {by!r}", field="by", remedy="give 'tenant' or 'user'")
    first = baseline or (BASELINE if BASELINE in chosen else next(iter(chosen)))
    if first not in chosen:
        raise InputError(f"{first!r} is not compared", field="baseline", remedy=f"choose one of {', '.join(chosen)}")
    arrivals = tuple(_arrivals(jobs))
    workload = Recorded(arrivals)
    results = None if store is None else ResultStore(Path(store), print)
    runs = outcomes(run_specs(cluster, chosen, seeds, failures), workload, workers, results)
    options = TableOptions(by, unfair_above, cluster.tenant_weights, has_limits(arrivals))
    comparison = tabulate(runs, list(chosen), first, options, is_recorded=True)
    return ComparisonResult(comparison, _facts(cluster, jobs, failures))


def _facts(cluster: Setup, jobs: Jobs | Iterable[Arrival], failures: Failures) -> ReportFacts:
    if not isinstance(jobs, Jobs):
        return ReportFacts(cluster, failures=failures)
    trace = jobs.trace
    source = Path(trace.source).name
    return ReportFacts(cluster, source, trace.origin, trace.fault_count, trace.left_out, trace.changed, failures)


def _choices(policies: Sequence[PolicyLike]) -> dict[str, PolicyChoice]:
    """Policies by label; two of one label would be one row."""
    chosen: dict[str, PolicyChoice] = {}
    for policy in policies:
        label, choice = _choice(policy)
        if label in chosen:
            remedy = "name each once; classes need names of their own"
            raise PolicyError(f"two policies are called {label!r}", field="policies", remedy=remedy)
        chosen[label] = choice
    return chosen


def _choice(policy: PolicyLike) -> tuple[str, PolicyChoice]:
    """A label and a policy: by name, `name={option: value}`, class or object."""
    if isinstance(policy, str):
        return policy, choose_policies([policy])[policy]
    kind = policy if isinstance(policy, type) else type(policy)
    if not isinstance(policy, type) and not is_dataclass(policy) and getattr(policy, "__dict__", None):
        raise PolicyError(
            f"{kind.__name__} has values that only this object has: {', '.join(vars(policy))}",
            field="policy",
            remedy="make it a dataclass, so that they are options",
        )
    register_policy(kind)
    options: dict[str, object] = {}
    if is_dataclass(policy) and not isinstance(policy, type):
        defaults = option_defaults(kind)
        given = {item.name: getattr(policy, item.name) for item in fields(policy) if item.init}
        options = {name: value for name, value in given.items() if name not in defaults or value != defaults[name]}
    shown = ", ".join(f"{name}: {to_plain(value)}" for name, value in options.items())
    return f"{kind.name}={{{shown}}}" if options else kind.name, PolicyChoice(kind.name, options)


def _arrivals(jobs: Jobs | Iterable[Arrival]) -> list[Arrival]:
    """The jobs in the order of submission, each with an id of its own."""
    if isinstance(jobs, Jobs):
        return list(jobs.arrivals)
    made = list(jobs) if isinstance(jobs, Iterable) else [jobs]
    for each in made:
        if not isinstance(each, Arrival):
            problem = f"{type(each).__name__} is no job"
            raise InputError(problem, field="jobs", remedy="give what load_jobs returns, or arrivals")
    seen: set[str] = set()
    for each in made:
        if each.job.id in seen:
            raise InputError(f"two jobs are called {each.job.id!r}", field="jobs", remedy="give each its own id")
        seen.add(each.job.id)
    return sorted(made, key=lambda each: each.job.submitted_at)


def _origin(jobs: Jobs | Iterable[Arrival]) -> str:
    return jobs.trace.origin if isinstance(jobs, Jobs) else ""


def _save_plots(figures: Mapping[str, Figure], folder: str | Path) -> list[Path]:
    from horae.reports.plots.style import save_all  # noqa: PLC0415  (matplotlib takes a second to import)

    return save_all(figures.items(), Path(folder))
