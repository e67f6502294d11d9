"""Which process may write: one row that its leader renews. Every transaction is conditional on the leader's term.

A leader that was paused or cut off cannot commit when it comes back, and commands go out only after a commit, so it
cannot command either.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from sqlalchemy import Connection, Engine, func, insert, select, text, update

from horae.service.clock import ClockReading
from horae.service.store.database import TermEnded, reading, writing
from horae.service.store.schema import leader

LEASE_SECONDS = 3.0


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


def take_lead(
    engine: Engine, holder: str, url: str, clock: ClockReading, *, at_once: bool = False
) -> Leadership | None:
    """Begins a new term if the present one has expired; None while another process leads.

    With `at_once` the former leader is known to be gone: the lock on the state folder of an embedded store is ours.
    """
    with writing(engine) as connection:
        now = database_time(connection)
        row = connection.execute(select(leader).with_for_update()).one_or_none()
        values = {"holder": holder, "url": url, "expires_at": now + LEASE_SECONDS}
        if row is None:
            connection.execute(insert(leader).values(id=1, term=1, incarnation=1, **values, **clock._asdict()))
            return Leadership(1, 1, None)
        if row.expires_at > now and not at_once:
            return None
        term, incarnation = row.term + 1, row.incarnation + 1
        connection.execute(update(leader).values(term=term, incarnation=incarnation, **values))
        return Leadership(term, incarnation, ClockReading(row.at, row.boot_id, row.boot_seconds, row.wall))


def confirm_lead(connection: Connection, term: int, clock: ClockReading) -> None:
    """Renews the lead as part of a transaction; raises `TermEnded` if it is lost."""
    now = database_time(connection)
    values = {"expires_at": now + LEASE_SECONDS, **clock._asdict()}
    renewed = connection.execute(update(leader).where(leader.c.term == term).values(**values))
    if renewed.rowcount != 1:
        raise TermEnded(f"term {term} has ended: another process leads")


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
