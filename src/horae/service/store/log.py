"""The event log and its snapshots."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, Engine, delete, func, insert, select, update

from horae.journal import JournalEntry, event_of, packed_entry
from horae.model.serialization import Plain
from horae.service.store.database import reading
from horae.service.store.schema import counters, events, meta, snapshots
from horae.service.store.statements import Statement

SNAPSHOTS_KEPT = 3
FIRST_SETUP = "first_setup"  # in `meta`: the setup with which the log began


class LogRow(NamedTuple):
    seq: int
    term: int
    at: float
    wall: float
    kind: str
    payload: str
    effects: bytes | None


_APPEND = Statement(insert(events).inline(), LogRow._fields)


class Snapshot(NamedTuple):
    seq: int
    dump: Plain


def append(connection: Connection, rows: Sequence[LogRow]) -> None:
    _APPEND.run_all(connection, [row._asdict() for row in rows])


def last_seq(connection: Connection) -> int:
    return connection.execute(select(func.max(events.c.seq))).scalar() or 0


def entries(engine: Engine, after_seq: int = 0, rows_at_a_time: int = 1000) -> Iterator[JournalEntry]:
    """The events after this one with their effects, in order, as a journal has them."""
    while True:
        query = select(events).where(events.c.seq > after_seq).order_by(events.c.seq).limit(rows_at_a_time)
        with reading(engine) as connection:
            rows = connection.execute(query).all()
        for row in rows:
            yield entry_of(LogRow(*row))
        if len(rows) < rows_at_a_time:
            return
        after_seq = rows[-1].seq


class PackedDump(NamedTuple):
    version: int
    payload: bytes


def pack_dump(dump: Plain) -> PackedDump:
    """A dump as it is stored; packing takes too long for an open transaction."""
    return PackedDump(int(dump["version"]), zlib.compress(json.dumps(dump, separators=(",", ":")).encode(), 1))


def entry_of(row: LogRow) -> JournalEntry:
    return packed_entry(row.seq, event_of(json.loads(row.payload), "events", row.seq), row.effects)


def save_snapshot(connection: Connection, seq: int, at: float, dump: PackedDump) -> None:
    """Keeps the latest few, so that a damaged one costs time and not the state."""
    connection.execute(delete(snapshots).where(snapshots.c.seq == seq))
    connection.execute(insert(snapshots).values(seq=seq, at=at, version=dump.version, payload=dump.payload))
    kept = select(snapshots.c.seq).order_by(snapshots.c.seq.desc()).limit(SNAPSHOTS_KEPT)
    known = connection.execute(kept).scalars().all()
    connection.execute(delete(snapshots).where(snapshots.c.seq < min(known)))


def read_snapshots(engine: Engine) -> Iterator[Snapshot]:
    """The snapshots, latest first."""
    with reading(engine) as connection:
        rows = connection.execute(select(snapshots).order_by(snapshots.c.seq.desc())).all()
    for row in rows:
        yield Snapshot(row.seq, json.loads(zlib.decompress(row.payload)))


def get_meta(connection: Connection, key: str) -> str | None:
    return connection.execute(select(meta.c.value).where(meta.c.key == key)).scalar()


def set_meta(connection: Connection, key: str, value: str) -> None:
    connection.execute(delete(meta).where(meta.c.key == key))
    connection.execute(insert(meta).values(key=key, value=value))


def raise_counter(connection: Connection, name: str, used: int) -> None:
    """Makes sure that no number up to this one is given out again; an older copy of the store may have forgotten it."""
    value = connection.execute(select(counters.c.value).where(counters.c.name == name)).scalar()
    if value is None:
        connection.execute(insert(counters).values(name=name, value=used))
    elif value < used:
        connection.execute(update(counters).where(counters.c.name == name).values(value=used))
