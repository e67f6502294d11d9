"""The loop crashes at any statement, commit or command, and a new process goes on: what was answered was kept.

A transaction that was not committed leaves nothing, as after the loss of all writes since the last fsync. The engine
survives, and checks that no GPU and no job is used twice.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from builders import cluster
from live_world import LiveEngine, World, cancel, start_loop, states, submit
from sqlalchemy import Engine, event, select

from horae.model.commands import Command
from horae.model.events import Ending, Event
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.service.loop.loop import Loop
from horae.service.models import ENDED, JobSpec
from horae.service.store.database import open_database, reading, sqlite_url
from horae.service.store.migrate import migrate
from horae.service.store.schema import events, inbox, jobs, leases

HISTORIES = int(os.environ.get("HORAE_CRASH_HISTORIES", "60"))
SEED = int(os.environ.get("HORAE_SEED", "0"))
SETUPS = {
    "fifo": (PoolSpec("all"),),
    "las": (PoolSpec("all", "las", cadence=Cadence.ROUNDS, round_seconds=20.0, admits_between_rounds=True),),
    "cells": (
        PoolSpec("nlp", tenants=("nlp",), cells={"A100.node": 1}),
        PoolSpec("spare", "las", cadence=Cadence.ROUNDS, round_seconds=20.0),
    ),
}


class Crash(BaseException):
    """The process is gone: nothing may catch it."""


class Fuse:
    """Crashes at the n-th step from now on."""

    def __init__(self) -> None:
        self.left = -1

    def step(self, *_: object) -> None:
        if self.left == 0:
            self.left = -1
            raise Crash
        self.left -= self.left > 0


def crashing_database(fuse: Fuse, path: Path) -> Engine:
    engine = open_database(sqlite_url(path))
    event.listen(engine, "connect", _without_waiting_for_the_disk)
    migrate(engine)
    event.listen(engine, "before_cursor_execute", fuse.step)
    event.listen(engine, "commit", fuse.step)
    return engine


def _without_waiting_for_the_disk(connection: sqlite3.Connection, _: object) -> None:
    connection.execute("PRAGMA synchronous = OFF")  # the machine itself does not crash in these tests


class CrashingEngine(LiveEngine):
    """May crash before and after each command, so that some of them are never carried out."""

    fuse: Fuse

    def execute(self, commands: Sequence[Command]) -> Sequence[Event]:
        replies: list[Event] = []
        for command in commands:
            self.fuse.step()
            replies.extend(super().execute([command]))
        self.fuse.step()
        return replies


@contextmanager
def crashing(fuse: Fuse, steps: int) -> Iterator[None]:
    fuse.left = steps
    with suppress(Crash):
        yield
    fuse.left = -1


def one_history(seed: int, folder: Path) -> None:
    random, fuse = Random(seed), Fuse()
    database, engine = crashing_database(fuse, folder / f"{seed}.db"), CrashingEngine(World())
    engine.fuse = fuse
    pools = SETUPS[random.choice(list(SETUPS))]
    setup = Setup(cluster(2, 4, "A100"), pools, acknowledge_seconds=5.0, retention_seconds=60.0)
    loop = start_loop(database, engine, setup, folder)
    accepted: list[str] = []
    for _ in range(random.randint(3, 8)):
        accepted += _act(random, database, engine, accepted)
        if random.random() < 0.1:
            engine.boot()
        with crashing(fuse, random.randint(0, 60)):
            _steps(loop, random.randint(1, 6))
            continue
        while True:
            with crashing(fuse, random.randint(10, 400)):
                loop = start_loop(database, engine, setup, folder)
                break
    loop = start_loop(database, engine, setup, folder)
    _finish(loop, engine, database)
    _check(database, accepted)


def _act(random: Random, database: Engine, engine: LiveEngine, accepted: list[str]) -> list[str]:
    """Something happens: jobs are submitted or cancelled, or end; time passes."""
    engine.world.seconds += random.choice([0.0, 1.0, 30.0, 100.0])
    for job_id in list(engine.running):
        engine.running[job_id].steps += random.random()
        if random.random() < 0.3:
            engine.end(job_id, random.choice([Ending.FINISHED, Ending.FINISHED, Ending.FAILED]))
    if accepted and random.random() < 0.3:
        cancel(database, random.choice(accepted))
    specs = [
        JobSpec(
            run="true",
            gpus=random.choice([1, 2, 4]),
            tenant=random.choice(["nlp", "vision"]),
            after=random.sample(accepted, 1) if accepted and random.random() < 0.3 else [],
            max_duration=random.choice([None, None, 50.0]),
            retries=random.choice([0, 2]),
        )
        for _ in range(random.randint(0, 4))
    ]
    return submit(database, *specs)


def _steps(loop: Loop, count: int) -> None:
    events: Sequence[Event] = ()
    for _ in range(count):
        events = loop.step(events)


def _finish(loop: Loop, engine: LiveEngine, database: Engine) -> None:
    """Runs on without faults until every job has ended."""
    events: Sequence[Event] = ()
    for _ in range(600):
        events = loop.step(events)
        for job_id in list(engine.running):
            engine.end(job_id)
        if all(state in ENDED for state in states(database).values()) and not events:
            return
    raise AssertionError(f"not all jobs have ended: {states(database)}")


def _check(database: Engine, accepted: list[str]) -> None:
    with reading(database) as connection:
        rows = connection.execute(select(jobs)).all()
        assert connection.execute(select(inbox)).all() == []
        open_leases = connection.execute(select(leases).where(leases.c.ended_at.is_(None))).all()
        numbers = connection.execute(select(events.c.seq).order_by(events.c.seq)).scalars().all()
        ticks = select(events.c.at).where(events.c.kind == "Tick").order_by(events.c.seq)
        times = connection.execute(ticks).scalars().all()
    assert sorted(row.id for row in rows) == sorted(accepted)
    assert open_leases == []
    assert numbers == list(range(1, len(numbers) + 1))
    assert all(one <= other for one, other in pairwise(times))


@pytest.mark.parametrize("start", range(0, HISTORIES, 20))
def test_nothing_that_was_answered_is_lost(start: int, tmp_path: Path) -> None:
    for number in range(start, min(start + 20, HISTORIES)):
        try:
            one_history(1_000_003 * SEED + number, tmp_path)
        except BaseException as error:
            error.add_note(f"history {number} of seed {SEED}")
            raise
