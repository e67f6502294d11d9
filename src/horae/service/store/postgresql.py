"""Connections to PostgreSQL that never wait for long: a server that is cut off is reported as one that is away.

The kernel notices packets that are not acknowledged. A server, proxy or pooler that takes a statement and never answers
is noticed only here, by its silence.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, text

CONNECT_SECONDS = 5
ANSWER_SECONDS = 10.0  # for one statement
_KEEPALIVE = {"keepalives_idle": 3, "keepalives_interval": 1, "keepalives_count": 5}
IDLE_SECONDS = 2.0  # a leader that is stopped in mid-transaction must not keep the standby waiting for its locks
_LOCK_SECONDS = 5.0


def open_postgresql(url: URL, answer_seconds: float = ANSWER_SECONDS) -> Engine:
    """Raises ImportError or NoSuchModuleError without the driver."""
    arguments = {
        "connect_timeout": CONNECT_SECONDS, "tcp_user_timeout": int(answer_seconds * 1000), **_KEEPALIVE
    }  # fmt: skip
    engine = create_engine(url.set(drivername="postgresql+psycopg"), pool_pre_ping=True, connect_args=arguments)
    bounded = _bounded_class(answer_seconds)

    @event.listens_for(engine, "do_connect")
    def connect(_dialect: Any, _record: Any, positional: Any, named: Any) -> Any:
        return bounded.connect(*positional, **named)

    @event.listens_for(engine, "connect")
    def set_timeouts(connection: Any, _record: Any) -> None:
        limits = {
            "idle_in_transaction_session_timeout": IDLE_SECONDS,
            "lock_timeout": min(_LOCK_SECONDS, answer_seconds),
            "statement_timeout": answer_seconds,
        }
        with connection.cursor() as cursor:
            cursor.execute("; ".join(f"SET {name} = {int(seconds * 1000)}" for name, seconds in limits.items()))
        connection.commit()

    return engine


def _bounded_class(answer_seconds: float) -> Any:
    """A class of connections that are closed when the server is silent for this long."""
    import psycopg  # noqa: PLC0415  an optional dependency

    class BoundedConnection(psycopg.Connection[Any]):
        def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
            return super().wait(self._while_it_answers(gen), *arguments, **options)

        def _while_it_answers(self, inner: Any) -> Generator[Any, Any, Any]:
            """The same operation; it is sent a false value when a moment has passed without an answer."""
            silent_since = time.monotonic()
            try:
                wanted = next(inner)
                while True:
                    ready = yield wanted
                    now = time.monotonic()
                    silent_since = now if ready else silent_since
                    if now - silent_since > answer_seconds:
                        self.pgconn.finish()
                        raise psycopg.OperationalError(f"the server has not answered for {answer_seconds:g} s")
                    wanted = inner.send(ready)
            except StopIteration as end:
                return end.value

    return BoundedConnection


def end_silent_transactions(connection: Connection) -> None:
    """Ends transactions on the leader's row whose clients are silent: stopped, or cut off.

    The server itself ends only those that are idle; a client that stops within a batch of statements is not.
    """
    connection.execute(
        text(
            "SELECT pg_terminate_backend(held.pid) FROM pg_locks held JOIN pg_stat_activity USING (pid)"
            " WHERE held.relation = 'leader'::regclass AND held.mode = 'RowExclusiveLock' AND held.granted"
            " AND held.pid <> pg_backend_pid() AND wait_event = 'ClientRead'"
        )
    )
