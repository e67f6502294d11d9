"""What would have happened under another setup: answered by a process of its own, from the log in the store."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Coroutine
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from horae.service.api.identity import Identity
from horae.service.api.problems import Refused
from horae.service.api.routes.jobs import All, Who
from horae.service.config import ARCHIVE
from horae.service.store.log import FIRST_SETUP, get_meta
from horae.service.whatif_models import WhatIfRequest, WhatIfView

router = APIRouter(tags=["futures"])
AT_A_TIME = 1
SECONDS, SECONDS_MAX = 30.0, 300.0
SLACK_SECONDS = 60.0  # to start, to read the log and to sum up
LOOK_SECONDS = 0.5  # how often it is looked whether the requester is still there
_RUNNING = "whatif processes"
Budget = Annotated[float, Query(ge=0.1, le=SECONDS_MAX, description="time budget of the simulation, in seconds")]


def may_ask(who: Identity) -> bool:
    """All roles may: it changes nothing, and each sees of the answer only what it sees elsewhere."""
    return who.has_role("viewer")


@router.post("/whatif")
async def whatif(body: WhatIfRequest, who: Who, all_: All, request: Request, seconds: Budget = SECONDS) -> WhatIfView:
    """What would have happened since some past moment under another policy, cluster, reservations or weights.

    The jobs of the log come again, as long as they really were. Requesters of one tenant see its jobs and figures only.
    """
    if not may_ask(who):
        raise Refused(403, "your role may not ask this", remedy="ask an operator")
    if await all_.read(lambda connection: get_meta(connection, FIRST_SETUP)) is None:
        raise Refused(409, "the log does not tell the setup with which it began", remedy="ask when jobs have run")
    if all_.memory.setdefault(_RUNNING, 0) >= AT_A_TIME:
        raise Refused(503, "another question is being answered", remedy="try again", headers={"Retry-After": "10"})
    question = {
        "store": all_.context.url,
        "archive": str(all_.context.state / ARCHIVE),
        "request": body.model_dump(mode="json"),
        "seconds": seconds,
        "tenant": None if who.sees_all else who.tenant,
    }
    all_.memory[_RUNNING] += 1
    try:
        answer = await _while_there(request, _asked(question, 2 * seconds + SLACK_SECONDS))
    finally:
        all_.memory[_RUNNING] -= 1
    if "problem" in answer:
        raise Refused(409, answer["problem"], field=answer.get("field") or None, remedy=answer.get("remedy") or None)
    return WhatIfView.model_validate(answer["answer"])


async def _while_there(request: Request, asked: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    """The answer, unless the requester goes away before: others wait for their turn."""
    task = asyncio.ensure_future(asked)
    try:
        while not (await asyncio.wait((task,), timeout=LOOK_SECONDS))[0]:
            if await request.is_disconnected():
                raise Refused(503, "the requester has gone", remedy="ask again")
        return await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))


async def _asked(question: dict[str, Any], seconds: float) -> dict[str, Any]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "horae.service.whatif", stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        said, _ = await asyncio.wait_for(process.communicate(json.dumps(question).encode()), seconds)
        found: dict[str, Any] = json.loads(said)
    except (TimeoutError, ValueError):
        raise Refused(
            503, "no answer within the time budget", remedy="ask for a later moment, or allow more seconds"
        ) from None
    else:
        return found
    finally:
        if process.returncode is None:  # also where the requester has gone
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
