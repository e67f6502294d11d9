"""Whether the service works, and who the requester is."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from sqlalchemy import text

from horae.service.api.loop_client import LoopAway
from horae.service.api.routes.jobs import All, Who
from horae.service.models import Me

router = APIRouter(tags=["service"])
probes = APIRouter(tags=["service"])


@probes.get("/healthz")
async def healthz() -> dict[str, bool]:
    """The process answers."""
    return {"ok": True}


@probes.get("/readyz", responses={503: {"description": "the store or the scheduler does not answer"}})
async def readyz(all_: All, response: Response) -> dict[str, Any]:
    """Store and scheduler answer."""
    state = {"store": True, "scheduler": True}
    try:
        await all_.read(lambda connection: connection.execute(text("SELECT 1")))
    except Exception:
        state["store"] = False
    try:
        await all_.loop.ask({"ping": True}, 1.0)
    except LoopAway:
        state["scheduler"] = False
    if not all(state.values()):
        response.status_code = 503
    return {"ready": all(state.values()), **state}


@router.get("/me")
async def me(who: Who) -> Me:
    return Me(user=who.user, role=who.role, tenant=who.tenant, via=who.via)
