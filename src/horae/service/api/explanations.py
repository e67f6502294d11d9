"""Why a job waits: the loop's explanation, without what the requester may not see."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf, isfinite
from typing import Any, get_args

from horae.model import reasons
from horae.model.serialization import from_plain
from horae.service.api.database import LogClock
from horae.service.api.masking import OTHER, masked, masked_text
from horae.service.models import Holder, Why

NAMES_MAX = 5  # in a sentence
_REASONS: dict[frozenset[str], Any] = {
    frozenset(kind.__dataclass_fields__): kind for kind in get_args(reasons.Reason) if kind.__dataclass_fields__
}


def jobs_named(plain: Mapping[str, Any]) -> list[str]:
    """The ids of all jobs in an explanation."""
    reason = plain.get("reason") or {}
    named = [*plain.get("ahead", ()), *(reason.get("leaving", ()))]
    named += [reason[key] for key in ("head", "by") if key in reason]
    holders = [*plain.get("holders", ()), *(plain.get("unblocking") or {}).get("leaving", ())]
    return named + [holder["job_id"] for holder in holders]


def why_from_loop(answer: Mapping[str, Any], row: Any, clock: LogClock, visible: Collection[str] | None) -> Why:
    """The answer of the loop as the API gives it; `visible` None: all jobs are."""
    plain = answer.get("explanation") or {}
    holders = _holders(plain.get("holders", ()), clock, visible)
    unblocking = plain.get("unblocking") or {}
    ahead = list(plain.get("ahead", ()))
    next_at = float(plain.get("next_decision_at", 0.0))
    why = Why(
        job_id=row.id,
        state=row.state,
        reason=_reason(plain.get("reason"), str(answer.get("reason", "") or row.reason), visible),
        pool=plain.get("pool", ""),
        policy=plain.get("policy", ""),
        ahead=ahead if visible is None else masked(ahead, visible),
        holders=holders,
        unblocked_by=_holders(unblocking.get("leaving", ()), clock, visible),
        next_decision_at=clock.unix(next_at) if 0 < next_at < inf else None,
        text="",
    )
    why.text = str(answer["text"]) if visible is None and answer.get("text") else _text(why)
    return why


def why_from_tables(row: Any, reason: str, *, is_away: bool) -> Why:
    """What the tables say: the scheduler does not answer, or does not know the job (yet, or any longer)."""
    text = f"{row.id} is {row.state}" + (f": {reason}" if reason else "")
    if is_away:
        text += "\nThe scheduler does not answer at present; this is its last known state."
    return Why(
        job_id=row.id,
        state=row.state,
        reason=reason,
        pool="",
        policy="",
        ahead=[],
        holders=[],
        unblocked_by=[],
        next_decision_at=None,
        text=text,
    )


def _reason(plain: Mapping[str, Any] | None, text: str, visible: Collection[str] | None) -> str:
    if visible is None:
        return text
    kind = _REASONS.get(frozenset(plain)) if plain else None
    if plain is None or kind is None:
        return masked_text(text, visible)
    hidden = {
        key: masked([value], visible)[0]
        if key in ("head", "by")
        else masked(value, visible)
        if key == "leaving"
        else value
        for key, value in plain.items()
    }
    try:
        return str(from_plain(kind, hidden))
    except (ValueError, TypeError, KeyError):
        return masked_text(text, visible)


def _holders(plain: Any, clock: LogClock, visible: Collection[str] | None) -> list[Holder]:
    made = []
    for holder in plain:
        ends_at = float(holder["ends_at"])
        job_id = holder["job_id"] if visible is None or holder["job_id"] in visible else OTHER
        ends = clock.unix(ends_at) if isfinite(ends_at) else None
        made.append(Holder(job_id=job_id, gpus=holder["gpus"], since=clock.unix(holder["since"]), ends_at=ends))
    return made


def _text(why: Why) -> str:
    """The explanation in words, from what the requester may see."""
    lines = [f"{why.job_id} is {why.state}" + (f", in pool {why.pool} under {why.policy}" if why.pool else "")]
    if why.reason:
        lines.append(f"  why       {why.reason}")
    if why.holders:
        gpus = sum(holder.gpus for holder in why.holders)
        lines.append(f"  held by   {_several([holder.job_id for holder in why.holders])} ({gpus} GPUs)")
    if why.ahead:
        lines.append(f"  ahead     {len(why.ahead):,} waiting: {_several(why.ahead)}")
    if why.unblocked_by:
        lines.append(f"  unblocks  the end of {_several([holder.job_id for holder in why.unblocked_by])}")
    return "\n".join(lines)


def _several(names: list[str]) -> str:
    own = [name for name in names if name != OTHER]
    others = len(names) - len(own)
    parts = own[:NAMES_MAX] + ([f"{len(own) - NAMES_MAX:,} more of yours"] if len(own) > NAMES_MAX else [])
    if others:
        parts.append(f"{others:,} {OTHER}{'' if others == 1 else 's'}")
    return ", ".join(parts)
