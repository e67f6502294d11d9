"""Rebuilds the scheduler from the store: a snapshot, and the recorded effects of the events since.

No policy is called, so that nothing is decided anew.
"""

from __future__ import annotations

import json
from secrets import token_hex
from typing import NamedTuple

from sqlalchemy import Engine

from horae.journal import EffectsReader
from horae.model.errors import HoraeError, InputError
from horae.model.serialization import to_plain
from horae.model.setup import Setup
from horae.scheduler import Scheduler
from horae.service.clock import LogClock
from horae.service.store.database import reading, writing
from horae.service.store.leadership import Leadership, confirm_lead
from horae.service.store.log import FIRST_SETUP, entries, last_seq, pack_dump, read_snapshots, save_snapshot, set_meta


class Rebuilt(NamedTuple):
    scheduler: Scheduler
    seq: int  # of the last event
    folded: int  # events after the snapshot
    problems: tuple[str, ...]  # snapshots that could not be used


def rebuild(engine: Engine) -> Rebuilt | None:
    """The scheduler at the end of the log, from the latest snapshot that can be used; None for an empty store."""
    problems: list[str] = []
    for snapshot in read_snapshots(engine):
        try:
            scheduler = Scheduler.restore(snapshot.dump)
            reader, seq, folded = EffectsReader("events"), snapshot.seq, 0
            for entry in entries(engine, snapshot.seq):
                scheduler.handle(entry.event, reader.read(entry))
                seq, folded = entry.line, folded + 1
            return Rebuilt(scheduler, seq, folded, tuple(problems))
        except (HoraeError, KeyError, ValueError, TypeError) as error:
            problems.append(f"snapshot {snapshot.seq}: {type(error).__name__}: {error}")
    with reading(engine) as connection:
        if last_seq(connection):
            remedy = "restore a backup, or use the Horae that wrote it"
            raise InputError(f"the log cannot be read: {'; '.join(problems)}", field="--store", remedy=remedy)
    return None


def begin(engine: Engine, leadership: Leadership, setup: Setup, clock: LogClock) -> Scheduler:
    """A new log: its first snapshot holds the setup."""
    scheduler = Scheduler(setup)
    dump = pack_dump(scheduler.dump())
    with writing(engine) as connection:
        confirm_lead(connection, leadership.term, clock.read())
        save_snapshot(connection, 0, 0.0, dump)
        set_meta(connection, FIRST_SETUP, json.dumps(to_plain(setup)))
        set_meta(connection, "secret", token_hex(32))  # signs the tokens of jobs
    return scheduler
