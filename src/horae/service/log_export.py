"""The whole log of a service: what is archived, and what is still in the store; also as a journal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Engine, select

from horae.journal import EffectsReader, JournalEntry, create_journal
from horae.model.errors import InputError
from horae.model.serialization import from_plain
from horae.model.setup import Setup
from horae.scheduler import Scheduler
from horae.service.store.archive import archived_entries
from horae.service.store.database import reading
from horae.service.store.log import FIRST_SETUP, entries, get_meta, read_snapshots
from horae.service.store.schema import snapshots


def first_setup(engine: Engine) -> Setup:
    """The setup with which the log began."""
    with reading(engine) as connection:
        first = get_meta(connection, FIRST_SETUP)
    if first is None:
        remedy = "it needs a log that was begun by this version or a later one"
        raise InputError("the log does not tell the setup with which it began", field="--state", remedy=remedy)
    setup: Setup = from_plain(Setup, json.loads(first))
    return setup


def whole_log(engine: Engine, archive: Path) -> Iterator[JournalEntry]:
    """All events since the log began, in order."""
    last = 0
    for entry in chain(archived_entries(archive), entries(engine)):
        if entry.line <= last:
            continue  # archived, and not deleted from the log yet
        if entry.line != last + 1:
            remedy = "name the state folder that has the folder `archive`"
            raise InputError(f"events {last + 1} to {entry.line - 1} are missing", field="--state", remedy=remedy)
        yield entry
        last = entry.line


class LogPart(NamedTuple):
    """A state, and the events since."""

    scheduler: Scheduler
    entries: Iterator[JournalEntry]


def log_since(engine: Engine, archive: Path, at: float | None) -> LogPart:
    """The latest stored state before a time of the log, and the events since; None: the whole log."""
    if at is not None:
        with reading(engine) as connection:
            known = select(snapshots.c.seq).where(snapshots.c.at < at).order_by(snapshots.c.seq.desc())
            usable = set(connection.scalars(known))
        for snapshot in read_snapshots(engine) if usable else ():
            if snapshot.seq in usable:
                return LogPart(Scheduler.restore(snapshot.dump), entries(engine, snapshot.seq))
    return LogPart(Scheduler(first_setup(engine)), whole_log(engine, archive))


def export_journal(engine: Engine, archive: Path, target: Path, origin: float | None = None) -> int:
    """Writes a journal that `horae replay`, `horae why --journal` and `horae whatif --journal` read; returns the number
    of its events. `origin` is the Unix time of second 0."""
    setup = first_setup(engine)
    scheduler, reader, last = Scheduler(setup), EffectsReader("events"), 0
    date = "" if origin is None else datetime.fromtimestamp(origin, UTC).isoformat(timespec="milliseconds")
    with create_journal(target) as journal:
        journal.open(setup, date)
        for entry in whole_log(engine, archive):
            journal.heard(entry.event)
            journal.reacted(entry.event, scheduler.handle(entry.event, reader.read(entry)))
            last = entry.line
    return last
