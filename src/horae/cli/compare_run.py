"""Carries out `horae compare`: reads the request, runs it, measures and prints."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
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
from horae.experiments.compare.run import ComparedRun, outcomes
from horae.experiments.compare.run_spec import Failures, PolicyChoice, RunSpec, run_specs, with_policy
from horae.experiments.compare.table import Comparison, tabulate
from horae.experiments.compare.terminal import print_tables
from horae.experiments.compare.workload import Workload
from horae.experiments.inputs import check_failures, choose_policies, choose_setup
from horae.experiments.result_store import ResultStore, default_folder, sources_digest
from horae.experiments.workers import RunLost
from horae.model.errors import InputError, PolicyError
from horae.model.events import JobSubmitted
from horae.model.reasons import Reason
from horae.model.serialization import Plain, to_plain
from horae.model.setup import Setup
from horae.reports.run_log import REFUSED
from horae.scheduler import Scheduler

BASELINE = "slurm"  # what most clusters run; the default where it is compared
POLICIES_DEFAULT = (BASELINE, "fifo", "sjf", "srtf", "las", "tiresias", "drf")
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
    what = wanted(request, tell)
    todo = run_specs(what.setup, what.policies, request.seeds, what.failures)
    workload, labels, by = what.trace.workload, list(what.policies), f"{request.by.value}s" if request.by else ""
    recorded = _recorded(what, request.seeds, tell)
    progress = _progress(request)
    with (
        progress.shown(),
        closing(outcomes(todo, workload, request.workers or _cores(), cache, progress)) as found,
    ):
        runs = chain(recorded, found)
        labels = [*(run.task.label for run in recorded), *labels]
        comparison = tabulate(runs, labels, what.baseline, by, is_recorded=workload.is_recorded)
    _tell_of_record(comparison, tell)
    tell_left_over(comparison, todo[0], workload, tell)
    _print(comparison, request, what)
    if request.plots is not None:
        _draw(comparison, request.plots, tell)
    return any(row.estimate["refused"] < row.estimate["jobs"] for row in comparison.rows)


def _recorded(what: Wanted, seeds: int, tell: Tell) -> list[ComparedRun]:
    """The run that the trace records, if it has start times; other draws of the trace were never run."""
    if not what.trace.started_at:
        return []
    if seeds > 1:
        tell("the trace has start times: with one seed they are shown as a row of their own")
        return []
    try:
        log = recorded_log(what.setup, what.trace.workload(0), what.trace.started_at)
    except InputError as error:
        tell(f"not shown as recorded: {error.problem}; {error.remedy}")
        return []
    by_hand = with_policy(what.setup, PolicyChoice("fifo", {}))  # no policy of ours decided
    return [ComparedRun(RunSpec(LABEL, by_hand), log, cached=True)]


def _tell_of_record(comparison: Comparison, tell: Tell) -> None:
    """Reports how well the policy that stands for the cluster reproduces what was recorded."""
    rows = {row.label: row.estimate for row in comparison.rows}
    if LABEL in rows and BASELINE in rows:
        record, ours = rows[LABEL], rows[BASELINE]
        ratio = ours["completion_mean_seconds"] / record["completion_mean_seconds"] - 1
        waiting = ours["waiting_mean_seconds"] / 3600, record["waiting_mean_seconds"] / 3600
        tell(
            f"{BASELINE} reproduces the record: mean completion {ratio:+.1%}, mean waiting {waiting[0]:,.2f} h instead "
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


def _draw(comparison: Comparison, folder: Path, tell: Tell) -> None:
    from horae.reports.plots.comparison import plot_comparison  # noqa: PLC0415  (matplotlib takes a second to import)

    for path in plot_comparison(comparison.logs, folder):
        tell(f"drew {path}")


def _print(comparison: Comparison, request: Request, what: Wanted) -> None:
    match request.output:
        case CompareFormat.TABLE:
            print_tables(comparison)
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
        "trace": what.trace.plain(),
        "workload": what.trace.workload.digest(0),
        "whole_nodes": request.workload.whole_nodes,
        "speeds": list(request.workload.speeds),
        "setup": to_plain(what.setup),
        "policies": [{"label": label, **to_plain(choice)} for label, choice in what.policies.items()],
        "seeds": request.seeds,
        "failures": to_plain(what.failures),
    }


# The input


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
    tell_of_sharing(setup, policies.values(), tell)
    baseline = choose_baseline(request.baseline, list(policies))
    failures = choose_failures(request)
    return Wanted(setup, policies, baseline, failures, read_workload(request.jobs, setup, request.workload, tell))


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


def tell_left_over(comparison: Comparison, first: RunSpec, workload: Workload, tell: Callable[[str], None]) -> None:
    """Reports the jobs that did not run to their end: those that never could with the reason, the others by policy."""
    jobs = comparison.logs[first.label].jobs
    refused = {jobs.id[row] for row in np.flatnonzero(jobs.outcome == REFUSED).tolist()}
    if refused:
        tell(f"{len(refused):,} {_jobs(len(refused))} can never run here")
        for job_id, reason in islice(_reasons(first, workload, refused).items(), LISTED_MAX):
            tell(f"refused {job_id}: {reason}")
        if len(refused) > LISTED_MAX:
            tell(f"and {len(refused) - LISTED_MAX:,} more")
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
