"""Authenticates every request before it is routed, and bounds its size."""

from __future__ import annotations

import re
import time
from typing import Any
from urllib.parse import quote

from anyio import to_thread
from sqlalchemy import Engine, select
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from horae.service.api.context import Context
from horae.service.api.database import meta_value
from horae.service.api.identity import Identity, JobBearer, not_authenticated, of_peer
from horae.service.api.problems import Refused, problem_of, response
from horae.service.api.sessions import session_token, unsniffed, wants_page
from horae.service.api.tokens import SECRET, epoch_of_job_token, hash_of
from horae.service.store.schema import tokens

OPEN_PATHS = frozenset({"/healthz", "/readyz", "/openapi.json", "/login", "/logout"})
OPEN_FOLDER = "/static/"  # of the dashboard
PEER = "horae.peer_uid"  # the key of the ASGI scope with the user id of a Unix socket's other end
CACHE_SECONDS = 2.0  # a token that was revoked in another process is refused after this time
CACHED_MAX = 10_000
_PROGRESS = re.compile(r"/v1/jobs/([^/]+)/progress")


class TokenCache:
    """Looks up tokens in the store, and remembers them for a moment."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[str, tuple[float, Any]] = {}
        self._secret: str | None = None

    async def find(self, token: str) -> Identity | None:
        key, now = hash_of(token), time.time()
        checked_at, row = self._known.get(key, (0.0, None))
        if not now - CACHE_SECONDS < checked_at <= now:
            row = await to_thread.run_sync(self._read, key)
            if len(self._known) >= CACHED_MAX:
                self._known.clear()
            if row is not None:
                self._known[key] = now, row
        if row is None or (row.expires_wall is not None and row.expires_wall <= now):
            return None
        return Identity(row.user, row.role, row.tenant)

    async def epoch_of(self, token: str, job_id: str) -> int | None:
        """The lease to which a token of a job belongs; None: it is no token of this job."""
        if self._secret is None:
            self._secret = await to_thread.run_sync(self._read_secret)
        return None if self._secret is None else epoch_of_job_token(token, self._secret, job_id)

    def forget(self) -> None:
        self._known.clear()

    def _read(self, key: str) -> Any:
        with self._engine.connect() as connection:
            return connection.execute(select(tokens).where(tokens.c.hash == key)).first()

    def _read_secret(self) -> str | None:
        with self._engine.connect() as connection:
            return meta_value(connection, SECRET)


class Authentication:
    def __init__(self, app: ASGIApp, context: Context, cache: TokenCache) -> None:
        self._app = app
        self._context = context
        self._cache = cache

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})
        try:
            if scope["path"] not in OPEN_PATHS and not scope["path"].startswith(OPEN_FOLDER):
                scope["state"]["identity"] = await self._identity(scope)
            receive = _bounded(scope, receive, self._context.body_bytes_max)
        except Exception as error:
            refused = problem_of(error)
            if refused.problem.status == 401 and wants_page(scope):
                await RedirectResponse(f"/login?next={quote(scope['path'])}", 303)(scope, receive, send)
                return
            await response(refused.problem, refused.headers)(scope, receive, send)
            return
        await self._app(scope, receive, unsniffed(send) if scope["state"].get("has_cookie") else send)

    async def _identity(self, scope: Scope) -> Identity | JobBearer:
        token = _bearer(scope)
        if token is None:
            uid = scope.get(PEER)
            return await self._of_session(scope) if uid is None else of_peer(uid, self._context)
        found = await self._cache.find(token)
        if found is not None:
            return found
        reports = _PROGRESS.fullmatch(scope["path"]) if scope["method"] == "POST" else None
        epoch = await self._cache.epoch_of(token, reports[1]) if reports else None
        if reports is None or epoch is None:
            raise not_authenticated()
        return JobBearer(reports[1], epoch)

    async def _of_session(self, scope: Scope) -> Identity:
        token = session_token(scope)
        found = None if token is None else await self._cache.find(token)
        if found is None:
            raise not_authenticated()
        scope["state"]["has_cookie"] = True
        return found


def _bearer(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, token = value.decode("latin-1").partition(" ")
            return token.strip() if scheme.lower() == "bearer" else ""
    return None


def _bounded(scope: Scope, receive: Receive, bytes_max: int) -> Receive:
    """The request's body, refused as soon as it is too large."""
    too_large = Refused(413, f"the body has more than {bytes_max:,} bytes", remedy="split the request")
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > bytes_max:
            raise too_large
    received = 0

    async def bounded() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > bytes_max:
            raise too_large
        return message

    return bounded
