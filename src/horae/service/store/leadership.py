"""Which process may write: one row that its leader renews. Every transaction is conditional on the leader's term.

A leader that was paused or cut off cannot commit when it comes back, and commands go out only after a commit, so it
cannot command either.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from sqlalchemy import Connection, Engine, func, insert, select, text, update
from sqlalchemy.exc import DBAPIError

from horae.model.errors import HoraeError
from horae.service.clock import ClockReading, boot_seconds
from horae.service.store.database import TermEnded, reading, writing
from horae.service.store.postgresql import end_silent_transactions
from horae.service.store.schema import leader

LEASE_SECONDS = 3.0
RENEW_SECONDS = 0.5
SILENT_SECONDS = 2.0  # after its end, a term that still has an open transaction with a silent client is cut short


class Leadership(NamedTuple):
    term: int
    incarnation: int
    last: ClockReading | None  # the clock at the last transaction of the leader before; None: a new log


class Leader(NamedTuple):
    """The leader as others see it."""

    term: int
    holder: str
    url: str
    is_current: bool
    clock: ClockReading


class Observer:
    """Sees by its own clock whether the leader renews its lead: the database's clock may jump back."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._expires_at, self._since = 0.0, monotonic()

    def is_stale(self, expires_at: float) -> bool:
        """Whether the leader has not moved its expiry for longer than a lead lasts."""
        if expires_at != self._expires_at:
            self._expires_at, self._since = expires_at, self._monotonic()
        return self._monotonic() - self._since > LEASE_SECONDS


def take_lead(
    engine: Engine,
    holder: str,
    url: str,
    clock: ClockReading,
    *,
    at_once: bool = False,
    observer: Observer | None = None,
) -> Leadership | None:
    """Begins a new term if the present one has expired; None while another process leads.

    With `at_once` the former leader is known to be gone: the lock on the state folder of an embedded store is ours.
    """

    def leads(expires_at: float) -> bool:
        if at_once or expires_at <= now:
            return False
        return observer is None or not observer.is_stale(expires_at)

    with writing(engine) as connection:
        now = database_time(connection)
        expires_at = connection.execute(select(leader.c.expires_at)).scalar_one_or_none()
        if expires_at is not None and leads(expires_at):
            return None
        is_overdue = expires_at is not None and abs(now - expires_at) > SILENT_SECONDS
        if is_overdue and connection.dialect.name == "postgresql":
            end_silent_transactions(connection)
        row = connection.execute(select(leader).with_for_update()).one_or_none()
        values = {"holder": holder, "url": url, "expires_at": now + LEASE_SECONDS}
        if row is None:
            connection.execute(insert(leader).values(id=1, term=1, incarnation=1, **values, **clock._asdict()))
            return Leadership(1, 1, None)
        if leads(row.expires_at):
            return None
        term, incarnation = row.term + 1, row.incarnation + 1
        connection.execute(update(leader).values(term=term, incarnation=incarnation, **values))
        return Leadership(term, incarnation, ClockReading(row.at, row.boot_id, row.boot_seconds, row.wall))


def end_expired_term(connection: Connection) -> bool:
    """Makes sure that a leader whose term has expired never writes again; False while it leads."""
    row = connection.execute(select(leader).with_for_update()).one_or_none()
    if row is not None and row.expires_at > database_time(connection):
        return False
    connection.execute(update(leader).values(term=leader.c.term + 1))
    return True


def raise_term(engine: Engine, lead: Leadership, used_term: int) -> Leadership:
    """The same lead under a term above one that was used before: an older copy of the store had forgotten it."""
    if lead.term > used_term:
        return lead
    term = used_term + 1
    with writing(engine) as connection:
        raised = connection.execute(
            update(leader).where(leader.c.term == lead.term).values(term=term, incarnation=max(term, lead.incarnation))
        )
        if raised.rowcount != 1:
            raise TermEnded(f"term {lead.term} has ended: another process leads")
    return lead._replace(term=term, incarnation=max(term, lead.incarnation))


def has_written(connection: Connection, term: int, clock: ClockReading) -> bool:
    """Whether the transaction that had confirmed the lead with this reading of the clock was the last to be written."""
    row = connection.execute(select(leader).where(leader.c.term == term)).one_or_none()
    return row is not None and ClockReading(row.at, row.boot_id, row.boot_seconds, row.wall) == clock


def confirm_lead(connection: Connection, term: int, clock: ClockReading) -> None:
    """Renews the lead as part of a transaction; raises `TermEnded` if it is lost."""
    now = database_time(connection)
    values = {"expires_at": now + LEASE_SECONDS, **clock._asdict()}
    renewed = connection.execute(update(leader).where(leader.c.term == term).values(**values))
    if renewed.rowcount != 1:
        raise TermEnded(f"term {term} has ended: another process leads")


class Renewal:
    """Renews the lead from a thread of its own, so that a long decision or a slow start does not lose it."""

    def __init__(self, engine: Engine, term: int, seconds: float = RENEW_SECONDS) -> None:
        self._engine, self._term, self._seconds = engine, term, seconds
        self._renewed_at = boot_seconds()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="renewal", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def is_fresh(self) -> bool:
        """Whether the lead cannot have expired yet: a process that was stopped for long must not act on it."""
        return boot_seconds() < self._renewed_at + LEASE_SECONDS

    def _run(self) -> None:
        while not self._stop.wait(self._seconds):
            began = boot_seconds()  # before the database's clock is read, so that for this process the lead ends first
            with suppress(HoraeError, DBAPIError):  # the loop says so
                with writing(self._engine) as connection:
                    expires_at = database_time(connection) + LEASE_SECONDS
                    own = update(leader).where(leader.c.term == self._term)
                    if connection.execute(own.values(expires_at=expires_at)).rowcount != 1:
                        return  # lost: the loop's next transaction fails
                self._renewed_at = began


def resign(engine: Engine, term: int) -> None:
    """Lets a standby take over at once."""
    with writing(engine) as connection:
        connection.execute(update(leader).where(leader.c.term == term).values(expires_at=0.0))


def read_leader(engine: Engine) -> Leader | None:
    with reading(engine) as connection:
        row = connection.execute(select(leader)).one_or_none()
        if row is None:
            return None
        clock = ClockReading(row.at, row.boot_id, row.boot_seconds, row.wall)
        return Leader(row.term, row.holder, row.url, row.expires_at > database_time(connection), clock)


def database_time(connection: Connection) -> float:
    """The database's clock, so that leader and standby compare the same one."""
    if connection.dialect.name == "sqlite":
        return time.time()
    return float(connection.execute(select(func.extract("epoch", text("clock_timestamp()")))).scalar_one())
