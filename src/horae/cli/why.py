"""`horae why`: what blocked a job, who, and what would unblock it; "never" kept apart from "not now"."""

from __future__ import annotations

import json
from math import inf, isfinite
from pathlib import Path
from typing import Annotated

import typer

from horae.cli.output import Format, Output
from horae.cli.why_shares import describe_share, hours, plain_share
from horae.hindsight import Hindsight, look_back
from horae.model.errors import InputError
from horae.model.explanations import Explanation, Holder
from horae.model.plain import to_plain
from horae.model.reasons import AwaitsVictims, Never, NoPool
from horae.model.status import Status
from horae.traces.units import seconds

NAMES_MAX = 5  # that are told
STORY_MAX = 12


def why(
    job: Annotated[str, typer.Argument(help="The id of a job.")],
    journal: Annotated[Path, typer.Option(help="A file made with --journal.")],
    at: Annotated[str, typer.Option(help="The moment, in seconds or as 10m, 2h, 1d; else the journal's end.")] = "",
    output: Output = Format.TABLE,
) -> None:
    """Tell what blocked a job at some moment, by whom, and what would unblock it."""
    hindsight = look_back(journal, job, _moment(at))
    if output is Format.JSON:
        print(json.dumps(_plain(hindsight), indent=2))
    else:
        print("\n".join(describe(hindsight)))


def _moment(text: str) -> float:
    try:
        return seconds(text) if text else inf
    except ValueError as error:
        problem, _, remedy = str(error).partition("; ")
        raise InputError(problem, field="--at", remedy=remedy) from None


def describe(hindsight: Hindsight) -> list[str]:
    """The answer, a line for each thing there is to say."""
    item = hindsight.explanation
    lines = [_headline(item)]
    if item.reason is not None:
        lines.append(f"  why       {item.reason}")
    if item.holders:
        lines.append(f"  held by   {_several([_holder(holder) for holder in item.holders])}")
    if item.ahead:
        lines.append(f"  ahead     {_count(len(item.ahead), 'job')} of the same queue: {_several(item.ahead)}")
    if item.share is not None:
        lines += describe_share(item.share)
    unblocks = _unblocks(item)
    if unblocks:
        lines.append(f"  unblocks  {unblocks}")
    if item.status in (Status.PENDING, Status.HOLDING) and not isinstance(item.reason, AwaitsVictims):
        when = f"at {hours(item.next_decision_at)}" if isfinite(item.next_decision_at) else "when something happens"
        lines.append(f"  next look {when}")
    story = hindsight.story
    if len(story) > STORY_MAX:
        lines.append(f"  so far    {len(story) - STORY_MAX} earlier lines are in -o json")
    for at, line in story[-STORY_MAX:]:
        lines.append(f"  {hours(at):>9} {line}")
    return lines


def _headline(item: Explanation) -> str:
    state = {
        Status.PENDING: "waits",
        Status.HOLDING: "is about to start",
        Status.STARTING: "is starting",
        Status.RUNNING: "runs",
        Status.STOPPING: "is leaving its GPUs",
        Status.CANCELLING: "is leaving for good",
        Status.REFUSED: "was refused",
    }.get(item.status, f"has {item.status.name.lower()}" if item.status is not Status.CANCELLED else "was cancelled")
    where = f", in pool {item.pool} under {item.policy}" if item.pool else ""
    return f"{item.job_id} {state} at {hours(item.at)} ({item.at:,.0f} s){where}"


def _unblocks(item: Explanation) -> str:
    match item.reason:
        case Never():
            return f"nothing: ask for at most {item.reason.largest_gpus} GPUs of that kind, or for a larger pool"
        case NoPool():
            return "nothing: give the tenant nodes, or leave some nodes to everybody"
    if item.status is not Status.PENDING:
        return ""
    if item.unblocking is None:
        return "a node that comes back: nothing that runs would make enough room by leaving"
    if not item.unblocking.leaving:
        return f"{item.unblocking.shape} is free: it starts when those ahead let it"
    names = _several([holder.job_id for holder in item.unblocking.leaving])
    when = f"believed at {hours(item.unblocking.at)}" if isfinite(item.unblocking.at) else "nobody knows when"
    return f"{item.unblocking.shape}, once {names} left ({when}) and nobody comes before it"


def _holder(holder: Holder) -> str:
    ends = f"believed until {hours(holder.ends_at)}" if isfinite(holder.ends_at) else "end unknown"
    return f"{holder.job_id} ({_count(holder.gpus, 'GPU')} since {hours(holder.since)}, {ends})"


def _several(names: list[str] | tuple[str, ...]) -> str:
    more = f" and {len(names) - NAMES_MAX:,} more" if len(names) > NAMES_MAX else ""
    return ", ".join(names[:NAMES_MAX]) + more


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _plain(hindsight: Hindsight) -> object:
    item = hindsight.explanation
    plain = to_plain(item)
    plain["status"] = item.status.name.lower()
    if item.reason is not None:
        kind = type(item.reason).__name__
        plain["reason"] = {"kind": kind, "text": str(item.reason), "never": isinstance(item.reason, Never | NoPool)}
    if item.share is not None:
        plain["share"] = plain_share(item.share)
    plain["story"] = [{"at": at, "what": what} for at, what in hindsight.story]
    return plain
