"""`horae history`, `horae events`: what happened."""

from __future__ import annotations

import json
from collections import deque
from itertools import islice
from typing import Annotated

import typer

from horae.cli.live.arguments import States, known_states
from horae.cli.live.completion import complete_jobs
from horae.cli.live.job_columns import JOB_COLUMNS
from horae.cli.live.lists import ListFormat, ListOutput, Tenant, Watch, formatted, print_list
from horae.cli.live.plain import plain
from horae.cli.live.tables import Column
from horae.cli.live.times import ago, local, moment, now
from horae.cli.text import examples
from horae.client import Client
from horae.client.client import JobFilters
from horae.model.safe_text import printable
from horae.service.models import EventView, JobView

history_app = typer.Typer(add_completion=False)
events_app = typer.Typer(add_completion=False)
SHOWN = 100
PAGE_MAX = 500
_TABLE_COLUMNS = ("ID", "NAME", "USER", "TENANT", "STATE", "TYPE", "RHO", "WAIT", "RUN")
_KNOWN = {column.heading: column for column in JOB_COLUMNS}
HISTORY_COLUMNS: tuple[Column[JobView], ...] = (
    *(_KNOWN[heading] for heading in _TABLE_COLUMNS[:5]),
    Column("GPUS", lambda job: str(job.gpus), is_number=True),
    *(_KNOWN[heading] for heading in _TABLE_COLUMNS[5:]),
    Column("GPU-HOURS", lambda job: f"{job.gpu_seconds / 3600:,.1f}", is_number=True, is_wide=True),
    *(_KNOWN[heading] for heading in ("PREEMPTED", "SUBMITTED", "STARTED")),
    Column("ENDED AT", lambda job: local(job.ended_at), is_wide=True),
    Column("ENDED", lambda job: ago(job.ended_at, now())),
    Column("REASON", lambda job: job.reason, is_cut=True),
)
EVENT_COLUMNS: tuple[Column[EventView], ...] = (
    Column("SEQ", lambda event: str(event.seq), is_number=True),
    Column("TIME", lambda event: local(event.at)),
    Column("KIND", lambda event: event.kind),
    Column("JOB", lambda event: event.job_id or "-", is_cut=True),
    Column("TENANT", lambda event: event.tenant or "-", is_wide=True),
    Column("TEXT", lambda event: event.text, is_cut=True),
)

Since = Annotated[str | None, typer.Option(help="Submitted not before: a date, or a time ago such as 7d.")]
Until = Annotated[str | None, typer.Option(help="Submitted not after: a date, or a time ago such as 7d.")]


@history_app.command(
    epilog=examples("horae history", "horae history --since 7d --state failed", "horae history -o csv")
)
def history(
    since: Since = None,
    until: Until = None,
    state: States = None,
    tenant: Tenant = None,
    user: Annotated[str | None, typer.Option(help="Of this user only.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many jobs.")] = SHOWN,
    output: ListOutput = ListFormat.TABLE,
    watch: Watch = False,
) -> None:
    """List jobs that have ended, the last ones first."""
    filters = JobFilters(state=known_states(state) or None, tenant=tenant, user=user, limit=min(limit, PAGE_MAX))
    filters |= JobFilters(since=moment(since, "--since", now()), until=moment(until, "--until", now()))
    with Client() as client:
        print_list(
            lambda: list(islice(client.history(**filters), limit)), HISTORY_COLUMNS, output, watch, "no ended jobs"
        )


@events_app.command(epilog=examples("horae events", "horae events -f", "horae events --job 17 -o json"))
def events(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what happens, until Ctrl-C.")] = False,
    since: Annotated[int | None, typer.Option(min=0, help="Events after this number.")] = None,
    job: Annotated[str | None, typer.Option(help="Of this job only.", autocompletion=complete_jobs)] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, the last ones.")] = SHOWN,
    output: ListOutput = ListFormat.TABLE,
) -> None:
    """List what happened to jobs, nodes and tenants."""
    with Client() as client:
        job_id = None if job is None else client.find(job).id
        found = list(deque(client.events(since=since, job=job_id, limit=min(limit, PAGE_MAX)), limit))
        if not follow:
            print(formatted(found, EVENT_COLUMNS, output, "no events"))
            return
        for event in found:
            _print(event, output)
        try:
            for event in client.events(since=found[-1].seq if found else since, job=job_id, follow=True):
                _print(event, output)
        except KeyboardInterrupt:
            return


def _print(event: EventView, output: ListFormat) -> None:
    """One event per line: a line of text, or of JSON."""
    if output is ListFormat.JSON:
        print(json.dumps(plain(event)), flush=True)
        return
    shown = (column.text(event) for column in EVENT_COLUMNS if output is ListFormat.WIDE or not column.is_wide)
    print("  ".join(printable(text) for text in shown), flush=True)
