"""Events of the log in words, as far as a requester may see them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from horae.service.api.identity import Identity
from horae.service.api.masking import without_holder
from horae.service.models import EventView

Payload = Mapping[str, Any]
HIDDEN = frozenset({"Tick", "Surveyed"})  # of every cycle; shown only on request
_FOR_ALL = frozenset({"NodeChanged", "GpuChanged", "ClusterChanged", "SchedulerRestarted"})

_TEXTS: dict[str, Callable[[Payload], str]] = {
    "JobSubmitted": lambda e: "submitted",
    "JobCancelled": lambda e: e.get("reason") or "cancelled",
    "JobHeld": lambda e: "held by its owner",
    "JobReleased": lambda e: "released by its owner",
    "JobStarted": lambda e: f"started, lease {e['epoch']}",
    "JobPhase": lambda e: f"is {e['phase']}, lease {e['epoch']}",
    "JobProgressed": lambda e: f"saved {e['steps']:g} steps",
    "JobEnded": lambda e: f"{e['ending']} at step {e['steps']:g}" + (f": {e['message']}" if e.get("message") else ""),
    "JobResumable": lambda e: "resumes from checkpoints",
    "CurveRevised": lambda e: "new estimate of its loss curve",
    "LeaseAdopted": lambda e: f"found running, lease {e['epoch']}",
    "NodeChanged": lambda e: f"node {e['node']} is {e['health']}",
    "GpuChanged": lambda e: f"GPU {e['gpu']} is {e['state']}",
    "ClusterChanged": lambda e: f"{len(e.get('nodes', ()))} nodes changed, {len(e.get('removed', ()))} removed",
    "PolicyChanged": lambda e: f"pool {e['pool']} has policy {e['policy']}",
    "TenantsChanged": lambda e: f"tenants changed: {', '.join(e['tenants'])}",
    "BidGiven": lambda e: f"bid of {e['app']} in auction {e['auction']}",
    "SpeedRevised": lambda e: f"{e['model']} runs {e['steps_per_second']:g} steps per second",
    "SchedulerRestarted": lambda e: "the scheduler was restarted",
}


def jobs_of(payload: Payload) -> list[str]:
    """The ids of the jobs that an event is about."""
    if "job" in payload:
        return [str(payload["job"]["id"])]
    return [str(each) for each in payload.get("job_ids", [payload["job_id"]] if "job_id" in payload else [])]


def event_view(row: Any, payload: Payload, tenant_of: Mapping[str, str], who: Identity) -> EventView | None:
    """The event as the requester may see it; None: not at all."""
    named = jobs_of(payload)
    mine = [job_id for job_id in named if job_id in tenant_of and who.sees(tenant_of[job_id])]
    if named and not mine and not who.sees_all:
        return None
    if not named and not who.sees_all and row.kind not in _FOR_ALL:
        return None
    job_id = mine[0] if mine else named[0] if named else None
    tenant = tenant_of.get(job_id) if job_id is not None else None
    text = _text(row.kind, payload) if who.sees_all else without_holder(_text(row.kind, payload))
    if row.kind == "GpuChanged" and payload.get("note") and who.sees_all:
        text += f": {payload['note']}"
    return EventView(seq=row.seq, at=row.wall, kind=row.kind, job_id=job_id, tenant=tenant, text=text)


def _text(kind: str, payload: Payload) -> str:
    try:
        return _TEXTS[kind](payload)
    except (KeyError, TypeError, ValueError):  # an event of another version
        return kind


def payload_of(row: Any) -> Payload:
    loaded: Payload = json.loads(row.payload)
    return loaded
