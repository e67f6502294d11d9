"""The whole log of a service as a journal: what is archived, and what is still in the store."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

from sqlalchemy import Engine

from horae.journal import EffectsReader, create_journal
from horae.model.errors import InputError
from horae.model.serialization import from_plain
from horae.model.setup import Setup
from horae.scheduler import Scheduler
from horae.service.store.archive import archived_entries
from horae.service.store.database import reading
from horae.service.store.log import FIRST_SETUP, entries, get_meta


def export_journal(engine: Engine, archive: Path, target: Path) -> int:
    """Writes a journal that `horae replay` and `horae why --journal` read; returns the number of its events."""
    with reading(engine) as connection:
        first = get_meta(connection, FIRST_SETUP)
    if first is None:
        remedy = "it needs a log that was begun by this version or a later one"
        raise InputError("the log does not tell the setup with which it began", field="--state", remedy=remedy)
    setup: Setup = from_plain(Setup, json.loads(first))
    scheduler, reader, last = Scheduler(setup), EffectsReader("events"), 0
    with create_journal(target) as journal:
        journal.open(setup)
        for entry in chain(archived_entries(archive), entries(engine)):
            if entry.line <= last:
                continue  # archived, and not deleted from the log yet
            if entry.line != last + 1:
                remedy = "name the state folder that has the folder `archive`"
                raise InputError(f"events {last + 1} to {entry.line - 1} are missing", field="--state", remedy=remedy)
            journal.heard(entry.event)
            journal.reacted(entry.event, scheduler.handle(entry.event, reader.read(entry)))
            last = entry.line
    return last
