"""What `horae compare` says: the table on a terminal, and notes beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from horae.comparison.columns import Page, group_page, page
from horae.comparison.run import Outcome
from horae.comparison.table import CONFIDENCE, Comparison
from horae.comparison.workload import Workload
from horae.model.events import JobSubmitted
from horae.model.reasons import Reason
from horae.reports.log import REFUSED
from horae.scheduler import Scheduler

LISTED_MAX = 10
PIPED_WIDTH = 10_000  # nobody's terminal: a table that goes into a file is as wide as it needs to be


def print_tables(comparison: Comparison, console: Console | None = None) -> None:
    shown = console or Console()
    if not shown.is_terminal:
        shown = Console(width=PIPED_WIDTH, file=shown.file)
    for sheet in (page(comparison), *([group_page(comparison)] if comparison.by else [])):
        table, left_out = _fitting(sheet, shown)
        shown.print(table)
        if left_out:
            names = ", ".join(left_out)
            shown.print(
                f"no room for {escape(names)}: use a wider terminal, or -o md, csv or json",
                soft_wrap=True,
                highlight=False,
            )
    shown.print(escape(_legend(comparison)), soft_wrap=True, highlight=False)


def _note(console: Console, text: str) -> None:
    console.print(escape(text), soft_wrap=True, highlight=False)


def _legend(comparison: Comparison) -> str:
    found = next((row.versus for row in comparison.rows if row.versus is not None), None)
    over = f", {CONFIDENCE:.0%} interval over {found.seconds.samples} {found.over}" if found else ""
    return f"vs {comparison.baseline}: mean completion time of the same jobs{over}; rho as Themis defines it"


def _fitting(sheet: Page, console: Console) -> tuple[Table, list[str]]:
    """The table with as many columns as there is room for; those that matter least go first."""
    kept = list(range(len(sheet.headings)))
    left_out: list[str] = []
    boundless = console.options.update(width=PIPED_WIDTH)
    while (table := _table(sheet, kept)) and console.measure(table, options=boundless).maximum > console.width:
        last = max(kept, key=lambda index: (sheet.ranks[index], index))
        if not sheet.ranks[last]:
            break
        kept.remove(last)
        left_out.insert(0, sheet.headings[last])
    return table, left_out


def _table(sheet: Page, kept: Sequence[int]) -> Table:
    columns = [
        Column(escape(sheet.headings[index]), justify="left" if index < sheet.left else "right", no_wrap=True)
        for index in kept
    ]
    table = Table(*columns)
    for line in sheet.lines:
        table.add_row(*(escape(line[index]) for index in kept))
    return table


def tell_left_over(outcomes: Sequence[Outcome], workload: Workload, tell: Callable[[str], None]) -> None:
    """The jobs that did not run to their end: those that never could with the reason, the others by policy."""
    first = outcomes[0]
    refused = {first.log.jobs.id[row] for row in np.flatnonzero(first.log.jobs.outcome == REFUSED).tolist()}
    if refused:
        tell(f"{len(refused):,} {_jobs(len(refused))} can never run here")
        for job_id, reason in islice(_reasons(first, workload, refused).items(), LISTED_MAX):
            tell(f"refused {job_id}: {reason}")
        if len(refused) > LISTED_MAX:
            tell(f"and {len(refused) - LISTED_MAX:,} more")
    for outcome in outcomes:
        count = outcome.log.unfinished_count
        if count:
            tell(f"{outcome.task}: {count:,} {_jobs(count)} did not end, and nothing is left that could move them")


def _jobs(count: int) -> str:
    return "job" if count == 1 else "jobs"


def _reasons(outcome: Outcome, workload: Workload, refused: set[str]) -> dict[str, Reason | None]:
    """Asked anew, for a log has no words: whether a job can ever run depends on nothing but the cluster."""
    scheduler = Scheduler(outcome.task.setup)
    jobs = (arrival.job for arrival in workload(outcome.task.seed) if arrival.job.id in refused)
    reasons = {}
    for job in islice(jobs, LISTED_MAX):
        scheduler.handle(JobSubmitted(job.submitted_at, job))
        reasons[job.id] = scheduler.why(job.id)
    return reasons
