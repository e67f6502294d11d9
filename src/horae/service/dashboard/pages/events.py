"""Events: what happened, the latest first. The log outlives the jobs."""

from __future__ import annotations

from typing import Any

from horae.service.api.routes.events import list_events
from horae.service.dashboard.page import View

SHOWN = 300


async def data(view: View) -> dict[str, Any]:
    """The latest events that the requester may see; with `job`, those of one job."""
    job = view.query.get("job") or None
    found = await list_events(view.who, view.all_, job=job, limit=SHOWN if job is None else 1000)
    return {"events": [item.model_dump() for item in reversed(found.items)], "job": job, "next": found.next}
