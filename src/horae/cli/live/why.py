"""`horae why`: what blocks a job of the service, or what blocked one in a journal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from horae.cli.live.arguments import JobArgument
from horae.cli.live.plain import plain
from horae.cli.live.times import local
from horae.cli.output import Output, OutputFormat
from horae.cli.text import examples
from horae.cli.why_words import STORY_MAX, several, state_in_words
from horae.client import Client
from horae.model.errors import InputError
from horae.model.safe_text import counted, printable
from horae.service.models import Holder, Why

app = typer.Typer(add_completion=False)
SHARES = ("  share ", "  no more ", "  the aim ", "  GPUs ", "  unsolved ")  # as in `horae.cli.why`


@app.command(
    epilog=examples(
        "horae why bert",
        "horae why nlp-188 --journal run.jsonl",
        "horae why nlp-188 --at 18h --journal run.jsonl -o json",
    )
)
def why(
    job: JobArgument,
    journal: Annotated[
        Path | None, typer.Option(help="A file made with --journal; without one, the service is asked.")
    ] = None,
    at: Annotated[
        str, typer.Option(help="The moment: in seconds, as 10m, 2h, 1d, or as a date; else the journal's end.")
    ] = "",
    output: Output = OutputFormat.TABLE,
) -> None:
    """Tell what blocks a job, or blocked it at some moment, by which jobs, and what would unblock it."""
    if journal is not None:
        from horae.cli.why import explain  # noqa: PLC0415  (it imports the scheduler, which the service has)

        explain(job, journal, at, output)
        return
    if at:
        raise InputError("is given without --journal", field="--at", remedy="the service tells of now: leave it out")
    with Client() as client:
        found = client.why(client.find(job))
    print(json.dumps(plain(found), indent=2) if output is OutputFormat.JSON else "\n".join(describe(found)))


def describe(item: Why) -> list[str]:
    """The answer, one line per item."""
    pool = f", in pool {item.pool} under {item.policy}" if item.pool else ""
    lines = [f"{item.job_id} {state_in_words(item.state)}{pool}"]
    if item.reason:
        lines.append(f"  why       {item.reason}")
    if item.holders:
        lines.append(f"  held by   {several([_holder(holder) for holder in item.holders])}")
    if item.ahead:
        lines.append(f"  ahead     {counted(len(item.ahead), 'job')} of the same queue: {several(item.ahead)}")
    lines += _more(item)
    if item.unblocked_by:
        lines.append(f"  unblocks  {_unblocks(item.unblocked_by)}")
    if item.state in ("pending", "holding"):
        when = f"at {local(item.next_decision_at)}" if item.next_decision_at is not None else "when something happens"
        lines.append(f"  next look {when}")
    if len(item.story) > STORY_MAX:
        lines.append(f"  so far    {len(item.story) - STORY_MAX} earlier lines are in -o json")
    return [printable(line) for line in [*lines, *(f"  {line}" for line in item.story[-STORY_MAX:])]]


def _more(item: Why) -> list[str]:
    """What only the text of the service says: of shares, or that the scheduler does not answer."""
    lines = item.text.splitlines()[1:]
    return [line for line in lines if line.startswith(SHARES)] if item.pool else [f"  {line.strip()}" for line in lines]


def _unblocks(leaving: list[Holder]) -> str:
    """What has to leave, and when the last of it is expected to."""
    names = several([holder.job_id for holder in leaving])
    ends = [holder.ends_at for holder in leaving if holder.ends_at is not None]
    when = f"believed at {local(max(ends))}" if len(ends) == len(leaving) else "end unknown"
    return f"once {names} left ({when}) and no other job comes before it"


def _holder(holder: Holder) -> str:
    ends = "end unknown" if holder.ends_at is None else f"believed until {local(holder.ends_at)}"
    return f"{holder.job_id} ({counted(holder.gpus, 'GPU')} since {local(holder.since)}, {ends})"
