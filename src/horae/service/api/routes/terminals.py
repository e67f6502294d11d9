"""The terminal of an interactive job: for its own user and for operators."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Response
from fastapi.responses import StreamingResponse

from horae.service.api.identity import Identity
from horae.service.api.job_queries import find_job, find_spec
from horae.service.api.problems import Refused
from horae.service.api.routes.jobs import All, JobId, Who
from horae.service.api.services import Services, record
from horae.service.api.streams import counted
from horae.service.api.terminals import INPUT_BYTES_MAX, ended, lease_of, open_terminal, send_input, shown
from horae.service.models import ENDED, JobSpec

router = APIRouter(tags=["jobs"])
MEDIA_TYPE = "application/octet-stream"
_BYTES: dict[int | str, dict[str, Any]] = {
    200: {"content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}}
}


@router.get("/jobs/{job_id}/terminal", response_class=Response, responses=_BYTES)
async def attach(
    job_id: JobId,
    who: Who,
    all_: All,
    position: Annotated[int, Query(ge=0, le=2**62, description="byte of the output from which to begin")] = 0,
) -> Response:
    """Attach to the terminal of an interactive job: a stream of messages until the job ends.

    A message is a byte for its kind, four bytes for its length, and its content: `P` the position of the output that
    follows, `O` output, `E` the exit code. Closing the stream detaches.
    """
    row = await _attachable(all_, who, job_id)
    lease = lease_of(all_.context.state, job_id, row.epoch)
    streams = None if row.state in ENDED else await open_terminal(lease)
    if streams is None:
        stream = ended(all_.context.state, job_id, lease, position)
    else:
        await all_.write(lambda connection: record(connection, who, "attach", job_id))
        stream = shown(all_, streams, position)
    return StreamingResponse(counted(all_, who, stream), media_type=MEDIA_TYPE)


@router.post("/jobs/{job_id}/terminal", status_code=204)
async def type_into(
    job_id: JobId,
    who: Who,
    all_: All,
    body: Annotated[bytes, Body(media_type=MEDIA_TYPE, max_length=INPUT_BYTES_MAX)],
) -> Response:
    """Send messages to the terminal of a job: `I` input, `W` the rows and columns of the window, two bytes each."""
    row = await _attachable(all_, who, job_id)
    streams = None if row.state in ENDED else await open_terminal(lease_of(all_.context.state, job_id, row.epoch))
    if streams is None:
        raise Refused(409, f"job {job_id} has ended", remedy="start another one")
    await send_input(streams, body)
    return Response(status_code=204)


async def _attachable(all_: Services, who: Identity, job_id: str) -> Any:
    """The row of a job that has started and whose terminal the requester may use."""
    row, spec = await all_.read(lambda connection: (find_job(connection, who, job_id), find_spec(connection, job_id)))
    is_own = who.role != "viewer" and (who.tenant, who.user) == (row.tenant, row.user)
    if not is_own and who.role != "operator":
        raise Refused(403, f"job {job_id} is another user's", remedy="ask its user")
    if not JobSpec.model_validate_json(spec).pty:
        raise Refused(409, f"job {job_id} has no terminal", remedy="start one with `horae run --pty`")
    if row.epoch is None and row.state not in ENDED:
        raise Refused(409, f"job {job_id} is {row.state}, and does not run", remedy="attach when it runs")
    return row
