"""Whether the service works, and who the requester is."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from sqlalchemy import text

from horae.engines.local.untrusted_files import read_bytes
from horae.service.api.loop_client import LoopAway
from horae.service.api.routes.jobs import All, Who
from horae.service.api.services import Services
from horae.service.models import Health, Me

PROBLEM = "config-problem"  # the file in the state folder with what `horae.service.reloading` could not apply
router = APIRouter(tags=["service"])
probes = APIRouter(tags=["service"])


@probes.get("/healthz")
async def healthz() -> dict[str, bool]:
    """The process answers."""
    return {"ok": True}


@probes.get("/readyz", responses={503: {"description": "the store or the scheduler does not answer"}})
async def readyz(all_: All, response: Response) -> dict[str, Any]:
    """Store and scheduler answer."""
    state = await _parts(all_)
    if not all(state.values()):
        response.status_code = 503
    return {"ready": all(state.values()), **state}


async def _parts(all_: Services) -> dict[str, bool]:
    state = {"store": True, "scheduler": True}
    try:
        await all_.read(lambda connection: connection.execute(text("SELECT 1")))
    except Exception:
        state["store"] = False
    try:
        await all_.loop.ask({"ping": True}, 1.0)
    except LoopAway:
        state["scheduler"] = False
    return state


@router.get("/health")
async def health(who: Who, all_: All) -> Health:
    """Which parts of the service answer, and whether its configuration file is in force."""
    state = await _parts(all_)
    problem = read_bytes(all_.context.state / PROBLEM) or b""
    shown = problem.decode(errors="replace") if who.sees_all else "it cannot be applied" if problem else ""
    return Health(ready=all(state.values()), configuration=shown, **state)


@router.get("/me")
async def me(who: Who) -> Me:
    assert who.via != "cluster"  # no request comes that way
    return Me(user=who.user, role=who.role, tenant=who.tenant, via=who.via)
