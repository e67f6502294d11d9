"""What would have happened under another setup: answered by a process of its own, from the log in the store."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Query

from horae.service.api.problems import Refused
from horae.service.api.routes.jobs import All, Who
from horae.service.config import ARCHIVE
from horae.service.store.log import FIRST_SETUP, get_meta
from horae.service.whatif_models import WhatIfRequest, WhatIfView

router = APIRouter(tags=["futures"])
AT_A_TIME = 1
SECONDS, SECONDS_MAX = 30.0, 300.0
SLACK_SECONDS = 60.0  # to start, to read the log and to sum up
_RUNNING = "whatif processes"
Budget = Annotated[float, Query(ge=0.1, le=SECONDS_MAX, description="time budget of the simulation, in seconds")]


@router.post("/whatif")
async def whatif(body: WhatIfRequest, who: Who, all_: All, seconds: Budget = SECONDS) -> WhatIfView:
    """What would have happened since some past moment under another policy, cluster, reservations or weights.

    The jobs of the log come again, as long as they really were. Requesters of one tenant see its jobs and figures only.
    """
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
        answer = await _asked(question, 2 * seconds + SLACK_SECONDS)
    finally:
        all_.memory[_RUNNING] -= 1
    if "problem" in answer:
        raise Refused(409, answer["problem"], field=answer.get("field") or None, remedy=answer.get("remedy") or None)
    return WhatIfView.model_validate(answer["answer"])


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
