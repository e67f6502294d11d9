"""What `horae compare` does: read, run, measure, print."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from horae import __version__
from horae.cli.compare_input import Wanted, wanted
from horae.cli.compare_output import print_tables, tell_left_over
from horae.cli.compare_request import Format, Request
from horae.cli.rows import Tell
from horae.comparison.bars import Bars, Lines
from horae.comparison.cache import Cache, default_folder
from horae.comparison.formats import as_csv, as_json, as_markdown
from horae.comparison.identity import sources_digest
from horae.comparison.run import Outcome, compare
from horae.comparison.table import Comparison, tabulate
from horae.comparison.task import tasks
from horae.model.plain import Plain, to_plain

INTERRUPTED = 130  # as shells have it: 128 and the number of the signal


def run_comparison(request: Request) -> int:
    """The exit code. Whatever is not the result goes to standard error."""
    tell = _silence if request.quiet else _tell
    cache = None if request.no_cache else Cache(request.cache or default_folder(), tell)
    try:
        _compare(request, cache, tell)
    except KeyboardInterrupt:
        _tell(f"interrupted; {_what_is_kept(cache)}")
        return INTERRUPTED
    return 0


def _compare(request: Request, cache: Cache | None, tell: Tell) -> None:
    what = wanted(request, tell)
    todo = tasks(what.setup, what.policies, request.seeds, what.failures)
    progress = _progress(request)
    with progress.shown():
        outcomes = compare(todo, what.trace.workload, request.workers or _cores(), cache, progress)
    comparison = tabulate(outcomes, what.baseline, f"{request.by.value}s" if request.by else "")
    tell_left_over(outcomes, what.trace.workload, tell)
    if request.plots is not None:
        _draw(outcomes, request.plots, tell)
    _print(comparison, request, what)


def _tell(line: str) -> None:
    """One line, whatever a file may have in its names."""
    print(*line.splitlines(), file=sys.stderr)


def _silence(line: str) -> None: ...


def _progress(request: Request) -> Bars | Lines:
    if request.quiet:
        return Lines(_silence)
    if sys.stderr.isatty():
        return Bars(Console(stderr=True))
    return Lines(_tell if request.verbose else _silence)


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _what_is_kept(cache: Cache | None) -> str:
    if cache is None or cache.failed:
        return "nothing was kept; with a cache, the same command would go on from here"
    return f"finished runs are kept in {cache.folder}, and the same command goes on from there"


def _draw(outcomes: Sequence[Outcome], folder: Path, tell: Tell) -> None:
    from horae.reports.plots import plot_comparison  # noqa: PLC0415  (matplotlib takes a second to import)

    logs = {outcome.task.label: outcome.log for outcome in outcomes if outcome.task.seed == 0}
    for path in plot_comparison(logs, folder):
        tell(f"drew {path}")


def _print(comparison: Comparison, request: Request, what: Wanted) -> None:
    match request.output:
        case Format.TABLE:
            print_tables(comparison)
        case Format.JSON:
            sys.stdout.write(as_json(comparison, _parameters(request, what)))
        case Format.CSV:
            sys.stdout.write(as_csv(comparison))
        case Format.MARKDOWN:
            sys.stdout.write(as_markdown(comparison))


def _parameters(request: Request, what: Wanted) -> dict[str, Plain]:
    """What a paper must say so that others can do it again. Nothing of this machine or this day."""
    return {
        "horae": __version__,
        "sources": sources_digest(),
        "trace": what.trace.plain(),
        "workload": what.trace.workload.digest(0),
        "whole_nodes": request.whole_nodes,
        "speeds": list(request.speeds),
        "setup": to_plain(what.setup),
        "policies": [{"label": label, **to_plain(choice)} for label, choice in what.policies.items()],
        "seeds": request.seeds,
        "failures": to_plain(what.failures),
    }
