"""What if: a form that asks what would have happened under another setup. The page's module sends the question."""

from __future__ import annotations

from typing import Any

from horae.service.api.database import clock
from horae.service.api.routes.cluster import list_policies, list_pools
from horae.service.api.routes.tenants import list_tenants
from horae.service.api.routes.whatif import SECONDS, SECONDS_MAX, may_ask
from horae.service.dashboard.page import View


async def data(view: View) -> dict[str, Any]:
    """What the form offers: the setup in force, as far as the requester sees it."""
    who, all_ = view.who, view.all_
    if not may_ask(who):
        return {"may_ask": False}
    times = await all_.read(clock)
    tenants = await list_tenants(who, all_)
    return {
        "may_ask": True,
        "policies": [policy.model_dump() for policy in await list_policies(who)],
        "pools": [pool.model_dump(include={"name", "policy"}) for pool in await list_pools(who, all_)],
        "tenants": [tenant.model_dump(include={"name", "weight", "cells"}) for tenant in tenants],
        "log_begins_at": times.unix(0.0),
        "seconds": SECONDS,
        "seconds_max": SECONDS_MAX,
    }
