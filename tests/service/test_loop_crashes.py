"""The loop crashes at any statement, commit or command, and a new process goes on: what was answered was kept.

A transaction that was not committed leaves nothing, as after the loss of all writes since the last fsync. The engine
survives, and checks that no GPU and no job is used twice.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from builders import cluster
from crashing_loop import CrashingEngine, CrashingStore, crashing
from live_world import LiveEngine, World, cancel, start_loop, states, submit
from profiles import NIGHTLY
from sqlalchemy import Engine, select

from horae.model.events import Ending, Event
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.service.loop.loop import Loop
from horae.service.models import ENDED, JobSpec
from horae.service.store.database import reading
from horae.service.store.schema import events, inbox, jobs, leases

# The nightly runs of ten seeds are ten thousand histories.
HISTORIES = int(os.environ.get("HORAE_CRASH_HISTORIES", "1000" if NIGHTLY else "60"))
SEED = int(os.environ.get("HORAE_SEED", "0"))
SETUPS = {
    "fifo": (PoolSpec("all"),),
    "las": (PoolSpec("all", "las", cadence=Cadence.ROUNDS, round_seconds=20.0, admits_between_rounds=True),),
    "cells": (
        PoolSpec("nlp", tenants=("nlp",), cells={"A100.node": 1}),
        PoolSpec("spare", "las", cadence=Cadence.ROUNDS, round_seconds=20.0),
    ),
}


def one_history(seed: int, store: CrashingStore, folder: Path) -> None:
    random, fuse = Random(seed), store.fuse
    database, engine = store.empty(), CrashingEngine(World())
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
    store = CrashingStore(tmp_path / "store.db")
    for number in range(start, min(start + 20, HISTORIES)):
        try:
            one_history(1_000_003 * SEED + number, store, tmp_path)
        except BaseException as error:
            error.add_note(f"history {number} of seed {SEED}")
            raise
