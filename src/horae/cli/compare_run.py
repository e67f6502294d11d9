"""Carries out `horae compare`: reads the request, runs it, measures and prints."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from types import FrameType

import numpy as np
from rich.console import Console

from horae import __version__
from horae.cli.compare import CompareFormat, Request
from horae.cli.progress import ProgressBars, ProgressLines
from horae.cli.rows import Tell
from horae.cli.sharing import tell_of_sharing, with_sharing
from horae.cli.workload import TraceInput, read_workload
from horae.experiments.compare.as_recorded import LABEL, recorded_log
from horae.experiments.compare.formats import as_csv, as_json, as_markdown
from horae.experiments.compare.job_results import JobResults, check_jobs_file
from horae.experiments.compare.report_file import ReportFacts, check_report_file, natural_groups
from horae.experiments.compare.run import ComparedRun, outcomes
from horae.experiments.compare.run_spec import Failures, PolicyChoice, RunSpec, run_specs, with_policy
from horae.experiments.compare.table import Comparison, TableOptions, tabulate
from horae.experiments.compare.terminal import print_tables
from horae.experiments.compare.workload import Workload, has_limits
from horae.experiments.inputs import BASELINE, check_failures, choose_policies, choose_setup
from horae.experiments.result_store import ResultStore, default_folder, sources_digest
from horae.experiments.workers import RunLost
from horae.model.errors import InputError, PolicyError
from horae.model.events import JobSubmitted
from horae.model.reasons import Reason
from horae.model.serialization import Plain, to_plain
from horae.model.setup import PoolSpec, Setup
from horae.reports.run_log import REFUSED
from horae.scheduler import Scheduler
from horae.traces.clusters.shorthand import is_shorthand

POLICIES_DEFAULT = (BASELINE, "fifo", "sjf", "srtf", "las", "tiresias", "drf")
AS_CONFIGURED = "as configured"  # the row of the cluster file with the policies that it names
LISTED_MAX = 10

NOTHING_RAN = 1  # all jobs were refused
INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM  # as shells have it


class Terminated(KeyboardInterrupt):
    """This process was asked to terminate. It is handled like Ctrl-C: there are processes and files to clean up."""


def run_comparison(request: Request) -> int:
    """Runs a comparison and returns the exit code. Everything except the result goes to standard error."""
    tell = _silence if request.quiet else _tell
    cache = None if request.no_cache else ResultStore(request.cache or default_folder(), tell)
    try:
        with _heeding_termination():
            if not _compare(request, cache, tell):
                return NOTHING_RAN
    except RunLost as error:
        raise InputError(error.problem, remedy=f"{error.remedy}; {_what_is_kept(cache)}") from None
    except Terminated:
        _tell(f"terminated; {_what_is_kept(cache)}")
        return TERMINATED
    except KeyboardInterrupt:
        _tell(f"interrupted; {_what_is_kept(cache)}")
        return INTERRUPTED
    return 0


@contextmanager
def _heeding_termination() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set signal handlers
        return

    def terminate(number: int, frame: FrameType | None) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _compare(request: Request, cache: ResultStore | None, tell: Tell) -> bool:
    """Runs, measures and prints; returns whether any job could run at all."""
    if request.plots is not None:
        _make_folder(request.plots)
    if request.jobs_out is not None:
        check_jobs_file(request.jobs_out)
    if request.report is not None:
        check_report_file(request.report)
    what = wanted(request, tell)
    todo = [run_specs(side.setup, side.policies, request.seeds, what.failures) for side in what.sides]
    recorded = _recorded(what.here, request.seeds, tell)
    labels = [*(run.task.label for run in recorded), *(label for side in what.sides for label in side.policies)]
    progress, results = _progress(request), JobResults(what.here.trace.origin)
    with progress.shown(), ExitStack() as open_runs:
        found = [
            open_runs.enter_context(
                closing(outcomes(tasks, side.trace.workload, request.workers or _cores(), cache, progress))
            )
            for side, tasks in zip(what.sides, todo, strict=True)
        ]
        runs: Iterable[ComparedRun] = chain(recorded, *found)
        if request.jobs_out is not None:
            runs = results.collect(runs)
        is_recorded = what.here.trace.workload.is_recorded
        measured = tabulate(runs, labels, what.baseline, _table_options(request, what), is_recorded=is_recorded)
    comparison = measured if request.by else measured.without_groups()
    _tell_of_record(comparison, tell)
    for side, tasks in zip(what.sides, todo, strict=True):
        tell_refused(comparison, tasks[0], side.trace.workload, _tell)
    tell_unfinished(comparison, _tell)
    _print(comparison, request, what)
    if request.jobs_out is not None:
        results.write(request.jobs_out, labels)
        tell(f"wrote {request.jobs_out}")
    if request.plots is not None:
        _draw(comparison, what.here.trace.origin, request.plots, tell)
    if request.report is not None:
        _report(measured, what, request.report, tell)
    return any(row.estimate["refused"] < row.estimate["jobs"] for row in comparison.rows)


def _table_options(request: Request, what: Wanted) -> TableOptions:
    by = f"{request.by.value}s" if request.by else ""
    if request.report is not None and not by:
        by = natural_groups(arrival.job for arrival in what.here.trace.workload(0))
    return TableOptions(
        by=by,
        unfair_above=request.unfair_above,
        weights=what.here.setup.tenant_weights,
        has_limits=has_limits(what.here.trace.workload(0)),
        others={side.name: next(iter(side.policies)) for side in what.sides[1:]},
    )


def _recorded(side: Side, seeds: int, tell: Tell) -> list[ComparedRun]:
    """The run that the trace records, if it has start times; other draws of the trace were never run."""
    if not side.trace.starts:
        return []
    if seeds > 1:
        tell("the trace has start times: with one seed they are shown as a row of their own")
        return []
    try:
        log = recorded_log(side.setup, side.trace.workload(0), side.trace.starts)
    except InputError as error:
        tell(f"not shown as recorded: {error.problem}; {error.remedy}")
        return []
    by_hand = with_policy(side.setup, PolicyChoice("fifo", {}))  # no policy of ours decided
    return [ComparedRun(RunSpec(LABEL, by_hand), log, cached=True)]


def _tell_of_record(comparison: Comparison, tell: Tell) -> None:
    """Reports how well the policy that stands for the cluster reproduces what was recorded."""
    rows = {row.label: row.estimate for row in comparison.rows}
    if LABEL in rows and BASELINE in rows:
        record, ours = rows[LABEL], rows[BASELINE]
        ratio = ours["completion_mean_seconds"] / record["completion_mean_seconds"] - 1
        waiting = ours["waiting_mean_seconds"] / 3600, record["waiting_mean_seconds"] / 3600
        tell(
            f"{BASELINE} beside the record: mean completion {ratio:+.1%}, mean waiting {waiting[0]:,.2f} h instead "
            f"of {waiting[1]:,.2f} h"
        )


def _make_folder(folder: Path) -> None:
    """Makes the output folder before hours of work rather than after."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        problem = f"cannot be written: {error.strerror}"
        raise InputError(problem, file=str(folder), field="--plots", remedy="name a folder of yours") from None


def _tell(line: str) -> None:
    """Prints one line, whatever characters a file has in its names."""
    print(*line.splitlines(), file=sys.stderr)


def _silence(line: str) -> None: ...


def _progress(request: Request) -> ProgressBars | ProgressLines:
    if request.quiet:
        return ProgressLines(_silence)
    if sys.stderr.isatty():
        return ProgressBars(Console(stderr=True))
    return ProgressLines(_tell if request.verbose else _silence)


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _what_is_kept(cache: ResultStore | None) -> str:
    if cache is None or cache.failed:
        return "nothing was kept; with a cache, the same command would go on from here"
    if not cache.stored_count:
        return "no run had finished"
    return f"finished runs are kept in {cache.folder}, and the same command goes on from there"


def _draw(comparison: Comparison, origin: str, folder: Path, tell: Tell) -> None:
    from horae.experiments.compare.figures import comparison_figures  # noqa: PLC0415  (matplotlib takes a second)
    from horae.reports.plots.style import save  # noqa: PLC0415

    for name, figure in comparison_figures(comparison, origin).items():
        tell(f"drew {', '.join(map(str, save(figure, folder, name)))}")


def _report(comparison: Comparison, what: Wanted, path: Path, tell: Tell) -> None:
    from horae.experiments.compare.report import report, write_report  # noqa: PLC0415  (matplotlib: a second)

    trace = what.here.trace
    facts = ReportFacts(
        what.here.setup,
        source=Path(trace.source).name if Path(trace.source).exists() else trace.source,
        origin=trace.origin,
        rows_broken=trace.rows_broken,
        left_out=trace.left_out,
        changed=trace.changed,
        failures=what.failures,
    )
    write_report(path, report(comparison, facts))
    tell(f"wrote {path}")


def _print(comparison: Comparison, request: Request, what: Wanted) -> None:
    match request.output:
        case CompareFormat.TABLE:
            print_tables(comparison, [side.setup for side in what.sides])
        case CompareFormat.JSON:
            sys.stdout.write(as_json(comparison, _parameters(request, what)))
        case CompareFormat.CSV:
            sys.stdout.write(as_csv(comparison))
        case CompareFormat.MARKDOWN:
            sys.stdout.write(as_markdown(comparison))


def _parameters(request: Request, what: Wanted) -> dict[str, Plain]:
    """The parameters that a paper must state to be reproducible, without anything specific to this machine or date."""
    return {
        "horae": __version__,
        "sources": sources_digest(),
        **_side_parameters(what.here),
        "whole_nodes": request.workload.whole_nodes,
        "speeds": list(request.workload.speeds),
        "seeds": request.seeds,
        "failures": to_plain(what.failures),
        "other_clusters": {side.name: _side_parameters(side) for side in what.sides[1:]},
    }


def _side_parameters(side: Side) -> dict[str, Plain]:
    return {
        "trace": side.trace.plain(),
        "workload": side.trace.workload.digest(0),
        "setup": to_plain(side.setup),
        "policies": [
            {"label": label, **({} if choice is None else to_plain(choice))} for label, choice in side.policies.items()
        ],
    }


# The input


@dataclass(frozen=True)
class Side:
    """One cluster, and what runs on it."""

    name: str  # "" for the first
    setup: Setup
    policies: Mapping[str, PolicyChoice | None]  # by label; None: those that the cluster file configures
    trace: TraceInput


@dataclass(frozen=True)
class Wanted:
    """The parsed request."""

    sides: tuple[Side, ...]  # the first is that of --cluster or --nodes, the others those of --vs
    baseline: str
    failures: Failures

    @property
    def here(self) -> Side:
        return self.sides[0]


def wanted(request: Request, tell: Tell) -> Wanted:
    choices = choose_policies(request.policies or POLICIES_DEFAULT)
    sides = [_side(request, request.cluster, request.nodes, "", choices, tell)]
    for text in request.others:
        path = None if is_shorthand(text) and not Path(text).exists() else Path(text)
        name = text if path is None else path.stem
        if name in {side.name for side in sides}:
            raise InputError(f"two clusters are called {name!r}", field="--vs", remedy="rename one of the files")
        sides.append(_side(request, path, () if path else (text,), name, choices, tell))
    tell_of_sharing(sides[0].setup, choices.values(), tell)
    return Wanted(tuple(sides), choose_baseline(request.baseline, list(sides[0].policies)), choose_failures(request))


def _side(
    request: Request,
    cluster: Path | None,
    nodes: Sequence[str],
    name: str,
    choices: Mapping[str, PolicyChoice],
    tell: Tell,
) -> Side:
    setup = choose_setup(cluster, nodes, request.cadence, request.round_seconds, request.restart_seconds)
    setup = with_sharing(setup, request.sharing)
    policies: dict[str, PolicyChoice | None] = {
        f"{label} on {name}" if name else label: choices[label] for label in choices
    }
    if _configures_policies(setup):
        policies[f"{AS_CONFIGURED} on {name}" if name else AS_CONFIGURED] = None
    return Side(name, setup, policies, read_workload(request.jobs, setup, request.workload, tell, _tell))


def _configures_policies(setup: Setup) -> bool:
    """Whether a cluster file chose policies: a pool without any is scheduled first in, first out."""
    return any(pool.policy != PoolSpec("").policy or pool.options for pool in setup.pools)


def choose_failures(request: Request) -> Failures:
    check_failures(request.days_between_failures, request.repair_seconds, request.checkpoint_seconds)
    return Failures(request.days_between_failures, request.repair_seconds, request.checkpoint_seconds)


def choose_baseline(baseline: str | None, labels: Sequence[str]) -> str:
    if baseline is None:
        return BASELINE if BASELINE in labels else labels[0]
    if baseline not in labels:
        known = ", ".join(labels)
        raise PolicyError(f"{baseline!r} is not compared", field="--baseline", remedy=f"choose one of {known}")
    return baseline


# Jobs that did not run to their end


def tell_refused(comparison: Comparison, first: RunSpec, workload: Workload, tell: Tell) -> None:
    """Reports the jobs that can never run on a cluster, with the reasons; they are the same under every policy."""
    jobs = comparison.logs[first.label].jobs
    refused = {jobs.id[row] for row in np.flatnonzero(jobs.outcome == REFUSED).tolist()}
    if refused:
        tell(f"{len(refused):,} {_jobs(len(refused))} can never run here")
        for job_id, reason in islice(_reasons(first, workload, refused).items(), LISTED_MAX):
            tell(f"refused {job_id}: {reason}")
        if len(refused) > LISTED_MAX:
            tell(f"and {len(refused) - LISTED_MAX:,} more")


def tell_unfinished(comparison: Comparison, tell: Tell) -> None:
    """Reports by policy and seed how many jobs were accepted and did not end."""
    for seed in range(len(comparison.rows[0].by_seed)):
        for row in comparison.rows:
            count = int(row.by_seed[seed]["unfinished"])
            if count:
                whose = f"{row.label}, seed {seed}"
                tell(f"{whose}: {count:,} {_jobs(count)} did not end, and nothing is left that could move them")


def _jobs(count: int) -> str:
    return "job" if count == 1 else "jobs"


def _reasons(task: RunSpec, workload: Workload, refused: set[str]) -> dict[str, Reason | None]:
    """Recomputes the reasons, because a log has no texts: whether a job can ever run depends only on the cluster."""
    scheduler = Scheduler(task.setup)
    jobs = (arrival.job for arrival in workload(task.seed) if arrival.job.id in refused)
    reasons = {}
    for job in islice(jobs, LISTED_MAX):
        scheduler.handle(JobSubmitted(job.submitted_at, job))
        reasons[job.id] = scheduler.why(job.id)
    return reasons
