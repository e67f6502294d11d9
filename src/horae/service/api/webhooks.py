"""Sends notices to the webhooks of tenants: at least once, with pauses that grow while a receiver does not answer.

One thread per tenant, so that a receiver that is slow or dead delays neither other tenants nor anything else. The body
is JSON; with a secret, `X-Horae-Signature` is the HMAC of the body, and `X-Horae-Notice` is the same number for each
attempt, so that a receiver can recognise a notice that it has seen.
"""

from __future__ import annotations

import hmac
import json
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any

import httpx
import structlog
from sqlalchemy import Connection, Engine, delete, or_, select, update
from sqlalchemy.exc import SQLAlchemyError

from horae.model.safe_text import brief
from horae.service.api.context import Webhook
from horae.service.api.database import LogClock, clock
from horae.service.api.identity import Identity
from horae.service.api.job_views import job_rows, job_view
from horae.service.api.masking import ReasonMask
from horae.service.api.writer import Writer
from horae.service.store.schema import jobs, notices

POLL_SECONDS = 1.0
TIMEOUT_SECONDS = 10.0
PAUSE_SECONDS_MAX = 3600.0
KEPT_SECONDS = 7 * 86_400.0  # delivered notices, and those that could not be delivered for so long, are deleted
AT_A_TIME = 50

log = structlog.get_logger("webhooks")


class Webhooks:
    """The threads that send; they end with the process, and what was not sent is sent by the next one."""

    def __init__(self, engine: Engine, writer: Writer, hooks: Mapping[str, Webhook]) -> None:
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(
                target=Sender(engine, writer, tenant, hook).run, args=(self._stopping,), name="webhook", daemon=True
            )
            for tenant, hook in hooks.items()
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()


class Sender:
    """Sends the notices of one tenant."""

    def __init__(self, engine: Engine, writer: Writer, tenant: str, hook: Webhook) -> None:
        self._engine, self._writer = engine, writer
        self._who = Identity(user="", role="viewer", tenant=tenant, via="token")
        self._hook = hook

    def run(self, stopping: threading.Event) -> None:
        with httpx.Client(timeout=TIMEOUT_SECONDS, follow_redirects=False) as client:
            while not stopping.is_set():
                try:
                    self.send_due(client, stopping)
                except SQLAlchemyError as error:  # the store does not answer; what was sent may be sent again
                    log.warning("notices wait for the store", error=brief(str(error)))
                stopping.wait(POLL_SECONDS)

    def send_due(self, client: httpx.Client, stopping: threading.Event | None = None) -> int:
        """Sends what is due, until one attempt fails; returns how many were delivered."""
        with self._engine.connect() as connection:
            due = self._due(connection)
        delivered = 0
        for number, attempts, body in due:
            if stopping is not None and stopping.is_set():
                break
            problem = self._post(client, number, body)
            self._writer.submit(partial(self._note, number, attempts, problem)).result()
            if problem:
                break
            delivered += 1
        return delivered

    def _due(self, connection: Connection) -> list[tuple[int, int, bytes]]:
        now, table = clock(connection), notices.c
        is_due = or_(table.next_attempt_at.is_(None), table.next_attempt_at <= now.now)
        mine = (table.tenant == self._who.tenant) & table.delivered_at.is_(None)
        rows = connection.execute(select(notices).where(mine & is_due).order_by(table.id).limit(AT_A_TIME)).all()
        return [(row.id, row.attempts, self._body(connection, row, now)) for row in rows]

    def _body(self, connection: Connection, row: Any, now: LogClock) -> bytes:
        """What is sent: other tenants' jobs are not named, as in answers of the API."""
        said = json.loads(row.payload)
        reason = ReasonMask(connection, self._who, [said["reason"]])(said["reason"])
        found = {"notice": row.id, "kind": row.kind, "at": now.unix(row.at), "tenant": row.tenant, "job": row.job}
        found |= {"reason": reason, "state": said["state"], "steps": said["steps"]}
        job = connection.execute(job_rows().where(jobs.c.id == row.job)).first()
        if job is not None:
            view = job_view(job, now)
            found |= {"name": view.name, "user": view.user, "app": view.app, "steps_total": view.steps_total}
            if view.steps_total and job.steps_per_second:
                left = max(view.steps_total - said["steps"], 0.0)
                found["remaining_seconds"] = left / job.steps_per_second  # of running, at its last speed
        return json.dumps(found).encode()

    def _post(self, client: httpx.Client, number: int, body: bytes) -> str:
        """Sends one notice; returns what went wrong, or an empty text."""
        headers = {"Content-Type": "application/json", "User-Agent": "horae", "X-Horae-Notice": str(number)}
        if self._hook.secret:
            digest = hmac.new(self._hook.secret.encode(), body, "sha256").hexdigest()
            headers["X-Horae-Signature"] = f"sha256={digest}"
        try:
            # The answer's body is not read: it may be of any size.
            with client.stream("POST", self._hook.url, content=body, headers=headers) as response:
                return "" if response.is_success else f"it answered {response.status_code}"
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            return brief(f"{type(error).__name__}: {error}")

    def _note(self, number: int, attempts: int, problem: str, connection: Connection) -> None:
        now = clock(connection).now
        values: dict[str, Any] = {"attempts": attempts + 1, "last_error": problem or None}
        if problem:
            values["next_attempt_at"] = now + min(2.0**attempts, PAUSE_SECONDS_MAX)
        else:
            values["delivered_at"] = now
        connection.execute(update(notices).where(notices.c.id == number).values(**values))
        old = (notices.c.tenant == self._who.tenant) & (notices.c.at < now - KEPT_SECONDS)
        connection.execute(delete(notices).where(old))
