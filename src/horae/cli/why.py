"""`horae why --journal`: what blocked a job, by which jobs, and what would unblock it; "never" apart from "not now"."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import isfinite
from pathlib import Path

from horae.cli.output import OutputFormat
from horae.cli.why_words import STORY_MAX, several, state_in_words
from horae.experiments.explain_journal import JournalExplanation, explain_journal
from horae.experiments.log_time import LogTime
from horae.model.decisions import Limit
from horae.model.explanations import Explanation, Holder, ShapeShare, ShareExplanation, Solve, TypeWorth
from horae.model.reasons import AwaitsVictims, Never, NoPool
from horae.model.safe_text import counted
from horae.model.serialization import Plain, to_plain
from horae.model.status import Status

ENDED = (Status.FINISHED, Status.FAILED, Status.CANCELLED, Status.REFUSED)


def explain(job: str, journal: Path, at: str, output: OutputFormat) -> None:
    """Prints what blocked a job at some moment of a journal."""
    hindsight = explain_journal(journal, job, at)
    if output is OutputFormat.JSON:
        print(json.dumps(_plain(hindsight), indent=2))
    else:
        print("\n".join(describe(hindsight)))


def describe(hindsight: JournalExplanation) -> list[str]:
    """The answer, one line per item."""
    item = hindsight.explanation
    time = hindsight.time
    lines = [_headline(hindsight)]
    if item.reason is not None:
        lines.append(f"  why       {item.reason}")
    if item.holders:
        lines.append(f"  held by   {several([_holder(holder, time) for holder in item.holders])}")
    if item.ahead:
        lines.append(f"  ahead     {counted(len(item.ahead), 'job')} of the same queue: {several(item.ahead)}")
    if item.share is not None:
        lines += describe_share(item.share, time)
    unblocks = _unblocks(item, time)
    if unblocks:
        lines.append(f"  unblocks  {unblocks}")
    if item.status in (Status.PENDING, Status.HOLDING) and not isinstance(item.reason, AwaitsVictims):
        when = f"at {time.text(item.next_decision_at)}" if isfinite(item.next_decision_at) else "when something happens"
        lines.append(f"  next look {when}")
    if isfinite(hindsight.started_at):
        lines.append(f"  in fact   it started at {time.text(hindsight.started_at)}")
    story = hindsight.story
    if len(story) > STORY_MAX:
        lines.append(f"  so far    {len(story) - STORY_MAX} earlier lines are in -o json")
    for at, line in story[-STORY_MAX:]:
        lines.append(f"  {time.text(at):>9} {line}")
    return lines


def _headline(hindsight: JournalExplanation) -> str:
    item, time = hindsight.explanation, hindsight.time
    state = state_in_words(item.status.name.lower())
    where = f", in pool {item.pool} under {item.policy}" if item.pool else ""
    # A job that has ended did so at the last event of its story, whenever the question is asked.
    at = hindsight.story[-1][0] if item.status in ENDED and hindsight.story else item.at
    return f"{item.job_id} {state} at {time.text(at)} ({at:,.0f} s){where}"


def _unblocks(item: Explanation, time: LogTime) -> str:
    match item.reason:
        case Never():
            most = counted(item.reason.largest_gpus, "GPU")
            way_out = f"a negative priority: {item.reason.way_out}; or" if item.reason.spare else "nothing:"
            return f"{way_out} ask for at most {most} of that kind, or for a larger pool"
        case NoPool():
            return "nothing: give the tenant nodes, or leave some nodes to everybody"
    if item.status is not Status.PENDING:
        return ""
    if item.unblocking is None:
        return "a node that comes back: nothing that runs would make enough room by leaving"
    if not item.unblocking.leaving:
        return f"{item.unblocking.shape} is free: it starts when those ahead let it"
    names = several([holder.job_id for holder in item.unblocking.leaving])
    when = f"believed at {time.text(item.unblocking.at)}" if isfinite(item.unblocking.at) else "end unknown"
    return f"{item.unblocking.shape}, once {names} left ({when}) and no other job comes before it"


def _holder(holder: Holder, time: LogTime) -> str:
    ends = f"believed until {time.text(holder.ends_at)}" if isfinite(holder.ends_at) else "end unknown"
    return f"{holder.job_id} ({counted(holder.gpus, 'GPU')} since {time.text(holder.since)}, {ends})"


def _plain(hindsight: JournalExplanation) -> object:
    item = hindsight.explanation
    plain = to_plain(item)
    plain["status"] = item.status.name.lower()
    if item.reason is not None:
        kind = type(item.reason).__name__
        plain["reason"] = {"kind": kind, "text": str(item.reason), "never": isinstance(item.reason, Never | NoPool)}
    if item.share is not None:
        plain["share"] = plain_share(item.share)
    plain["started_in_fact_at"] = hindsight.started_at if isfinite(hindsight.started_at) else None
    plain["story"] = [{"at": at, "what": what} for at, what in hindsight.story]
    return plain


# Output of `horae why` for a job in a pool that works by shares: its share, its debts, and the value of GPUs

LIMITS = {
    Limit.NOWHERE: "no GPU type on which it runs has any GPUs here",
    Limit.TIME: "its own time: it is to run all of it",
    Limit.SCARCE: "GPUs: all of those it could use better are given out",
    Limit.DROPPED: "its deadline cannot be kept with those of the others, and no longer counts",
}


def hours(at: float) -> str:
    return f"{at / 3600:,.2f} h"


def describe_share(item: ShareExplanation, time: LogTime) -> list[str]:
    """The shares of a job, one line per item."""
    lines = [f"  share     {_shapes(item, time)}"]
    if item.solve is not None:
        lines += _solve(item.solve)
    if item.unsolved:
        lines.append(f"  unsolved  {item.unsolved}; the shares of {time.text(item.shared_at)} stand")
    return lines


def plain_share(item: ShareExplanation) -> Plain:
    """The shares as plain data, with words for what keeps the job from more."""
    plain = to_plain(item)
    if item.solve is not None and item.solve.limit is not None:
        limit = item.solve.limit
        plain["solve"]["limit"] = {"kind": limit.name.lower(), "text": LIMITS[limit]}
    return plain


def _shapes(item: ShareExplanation, time: LogTime) -> str:
    told = [shape for shape in item.shapes if shape.fraction or shape.received_seconds or round(shape.owed_seconds)]
    if not told:
        return "none yet"
    return "; ".join(_shape(shape) for shape in told) + f" (by {time.text(item.counted_at)})"


def _shape(item: ShapeShare) -> str:
    owed = round(item.owed_seconds)
    debt = f"is owed {hours(owed)}" if owed > 0 else f"is {hours(-owed)} ahead" if owed < 0 else "is owed nothing"
    return f"{item.fraction:.1%} of its time on {item.shape}, has had {hours(item.received_seconds)} and {debt}"


def _solve(item: Solve) -> list[str]:
    lines = [] if item.limit is None else [f"  no more   {LIMITS[item.limit]}"]
    lines.append(f"  the aim   {item.objective}: {item.value:.4g}, and no shares have better than {item.bound:.4g}")
    worth = _worth(item.types)
    return [*lines, f"  GPUs      {worth}"] if worth else lines


def _worth(types: Sequence[TypeWorth]) -> str:
    """Prices in words: those of the most valuable type in absolute terms, of the others relative to it."""
    if not types:
        return ""
    dearest, *others = types
    if not dearest.price:
        full = [each.accelerator for each in types if each.is_full]
        state = f"{_listed(full)} {'is' if len(full) == 1 else 'are'} full, but" if full else "no type is full, and"
        return f"{state} one more GPU would better nothing"
    lead = f"{dearest.accelerator} is full; one more would better that by {dearest.price:.3g}"
    worth = [f"{each.accelerator} is worth {_part(each, dearest)}" for each in others]
    return "; ".join([lead, *worth])


def _part(item: TypeWorth, dearest: TypeWorth) -> str:
    return f"{item.relative:.2f} of a {dearest.accelerator}" if round(item.relative, 2) else "nothing"


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
