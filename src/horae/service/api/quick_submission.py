"""Answers valid submissions without the general machinery of the web framework, which takes longer than they do.

Everything else, such as a body that is not valid, goes the general way, so that its answer is the general one.
"""

from __future__ import annotations

from pydantic import TypeAdapter, ValidationError
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from horae.service.api.identity import Identity
from horae.service.api.problems import problem_of, response
from horae.service.api.routes.jobs import KEY_CHARACTERS_MAX, Body, accept, location
from horae.service.api.services import Services
from horae.service.models import JobSpec, Submitted

PATH = "/v1/jobs"
_BODY: TypeAdapter[JobSpec | list[JobSpec]] = TypeAdapter(Body)


class QuickSubmission:
    def __init__(self, app: ASGIApp, all_: Services) -> None:
        self._app = app
        self._all = all_

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != PATH or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        who, key = scope["state"]["identity"], headers.get(b"idempotency-key", b"").decode("latin-1")
        if (
            headers.get(b"content-type") != b"application/json"
            or not isinstance(who, Identity)
            or len(key) > KEY_CHARACTERS_MAX
        ):
            await self._app(scope, receive, send)
            return
        try:
            answer = await self._answer(who, key, await _read(receive))
        except _NotValid as body:
            await self._app(scope, _again(body.args[0], receive), send)
            return
        except Exception as error:  # as the general way answers it
            refused = problem_of(error)
            answer = response(refused.problem, refused.headers)
        await answer(scope, receive, send)

    async def _answer(self, who: Identity, key: str, body: bytes) -> Response:
        try:
            specs = _BODY.validate_json(body)
        except ValidationError:
            raise _NotValid(body) from None
        ids = await accept(specs, who, self._all, key or None)
        return Response(Submitted(ids=ids).model_dump_json(), 201, location(ids), media_type="application/json")


class _NotValid(Exception):
    """A body that is not a submission, or not a valid one."""


async def _read(receive: Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise _NotValid(b"".join(parts))  # the client has gone
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


def _again(body: bytes, receive: Receive) -> Receive:
    """The same request once more."""
    is_first = True

    async def replay() -> Message:
        nonlocal is_first
        if is_first:
            is_first = False
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return replay
