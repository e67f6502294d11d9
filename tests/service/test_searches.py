"""Searches through the service: trials are paused at the ends of rungs, go on or are stopped by what they report."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from builders import cluster
from crashing_loop import CrashingEngine, CrashingStore, crashing
from live_world import LiveEngine, World, cancel, run_until_quiet, start_loop, states, submit
from sqlalchemy import Engine, select

from horae.model.events import Ending, Event
from horae.model.searches import Method, Rungs, bracket_sizes
from horae.model.setup import PoolSpec, Setup
from horae.service.api.problems import Refused
from horae.service.api.reports import Reports
from horae.service.loop.loop import Loop
from horae.service.models import ENDED, JobSpec, Progress
from horae.service.store.database import reading, writing
from horae.service.store.schema import events, jobs, leases, trials
from horae.service.sweeps import METHODS

SETUP = Setup(cluster(2, 4, "A100"), (PoolSpec("all"),), acknowledge_seconds=5.0)
HISTORIES = int(os.environ.get("HORAE_CRASH_HISTORIES", "6"))
SEED = int(os.environ.get("HORAE_SEED", "0"))
STEPS = 70.0


def search(count: int = 4, stop: str = "successive-halving", retries: int = 0) -> JobSpec:
    return JobSpec(run="x {n}", sweep={"n": list(range(count)), "stop": stop}, steps=STEPS, retries=retries)


def report(database: Engine, engine: LiveEngine, job_id: str, steps: float, loss: float | None) -> None:
    """As the SDK in a running job, and the API that receives it."""
    engine.running[job_id].steps = steps
    said = Progress(epoch=engine.running[job_id].epoch, steps=steps, loss=loss, diverged=loss is None)
    with writing(database) as connection:
        Reports().take(connection, job_id, said, None)


def reasons(database: Engine) -> dict[str, str]:
    with reading(database) as connection:
        return dict(connection.execute(select(jobs.c.id, jobs.c.reason)).all())


@pytest.fixture
def world(database: Engine, tmp_path: Path) -> tuple[Loop, LiveEngine, list[str]]:
    """Four trials that run."""
    engine = LiveEngine(World())
    loop = start_loop(database, engine, SETUP, tmp_path)
    ids = submit(database, search())
    run_until_quiet(loop)
    assert set(engine.running) == set(ids)
    return loop, engine, ids


def test_the_better_half_goes_on_and_the_others_are_stopped(
    database: Engine, world: tuple[Loop, LiveEngine, list[str]]
) -> None:
    loop, engine, ids = world
    for job_id, loss in zip(ids[:3], (0.5, 0.2, 0.9), strict=True):
        report(database, engine, job_id, 9.0, loss)  # before the end of the rung, at step 10
        run_until_quiet(loop)
        assert job_id in engine.running
        report(database, engine, job_id, 11.0, loss)
        run_until_quiet(loop)
        assert job_id not in engine.running
    assert states(database)[ids[0]] == "suspended"
    assert reasons(database)[ids[0]] == "paused at step 11 until the other trials of its rung have got as far"
    report(database, engine, ids[3], 10.0, 0.3)
    run_until_quiet(loop)
    assert states(database) == {ids[0]: "stopped", ids[1]: "running", ids[2]: "stopped", ids[3]: "running"}
    assert reasons(database)[ids[0]] == "stopped by its search: loss 0.5 at step 11, and the best 2 of 4 go on"
    assert [epoch for job_id, epoch in engine.starts if job_id == ids[3]] == [engine.running[ids[3]].epoch]
    report(database, engine, ids[1], 31.0, 0.4)
    report(database, engine, ids[3], 30.0, 0.1)
    run_until_quiet(loop)
    assert states(database)[ids[1]] == "stopped"
    engine.end(ids[3])
    run_until_quiet(loop)
    assert Counter(states(database).values()) == {"stopped": 3, "finished": 1}
    with reading(database) as connection:
        query = select(leases.c.reason).where(leases.c.job_id == ids[1]).order_by(leases.c.epoch.desc())
        assert str(connection.scalars(query).first()).startswith("stopped by its search: loss 0.4 at step 31")


@pytest.mark.parametrize(
    ("happens", "left", "why"),
    [
        ("fails", {"0", "3"}, "no trial waits for one that failed, and it does not go on"),
        ("is cancelled", {"0", "3"}, "nor for one that its owner has cancelled"),
        ("finishes early", {"0", "2"}, "one that has finished is compared by its last loss"),
        ("diverges", {"0", "3"}, "what is no number is the worst loss"),
    ],
)
def test_the_end_of_a_trial_is_seen(
    happens: str, left: set[str], why: str, database: Engine, world: tuple[Loop, LiveEngine, list[str]]
) -> None:
    loop, engine, ids = world
    for job_id, loss in zip((ids[0], ids[1], ids[3]), (0.5, 0.9, 0.7), strict=True):
        report(database, engine, job_id, 11.0, loss)
    report(database, engine, ids[2], 5.0, 0.1)
    run_until_quiet(loop)
    match happens:
        case "fails":
            engine.end(ids[2], Ending.FAILED)
        case "is cancelled":
            cancel(database, ids[2])
        case "finishes early":
            engine.end(ids[2])
        case "diverges":
            report(database, engine, ids[2], 12.0, None)
    run_until_quiet(loop)
    with reading(database) as connection:
        rows = connection.execute(select(trials).where(trials.c.state.in_(("running", "paused", "finished")))).all()
    assert {row.job_id.partition("_")[2] for row in rows} == left, why


def test_a_trial_that_is_retried_is_waited_for(database: Engine, tmp_path: Path) -> None:
    engine = LiveEngine(World())
    loop = start_loop(database, engine, SETUP, tmp_path)
    ids = submit(database, search(2, retries=1))
    run_until_quiet(loop)
    report(database, engine, ids[1], 30.0, 0.9)
    engine.end(ids[0], Ending.FAILED)
    run_until_quiet(loop)
    assert states(database) == {ids[0]: "running", ids[1]: "suspended"}
    report(database, engine, ids[0], 30.0, 0.1)
    run_until_quiet(loop)
    assert states(database) == {ids[0]: "running", ids[1]: "stopped"}


# Crashes


def one_history(seed: int, store: CrashingStore, folder: Path) -> None:
    """Trials report a loss of their own, whatever happens to them and to the loop."""
    random, fuse = Random(seed), store.fuse
    database, engine = store.empty(), CrashingEngine(World())
    engine.fuse = fuse
    may_fail = random.random() < 0.3
    stop, count = random.choice(["successive-halving", "hyperband"]), random.randint(1, 9)
    loop = start_loop(database, engine, SETUP, folder)
    ids = submit(database, search(count, stop, retries=1 if may_fail else 0))
    losses = {job_id: random.random() for job_id in ids}
    for _ in range(random.randint(4, 12)):
        _progress(random, database, engine, losses, may_fail=may_fail)
        if random.random() < 0.1:
            engine.boot()
        with crashing(fuse, random.randint(0, 80)):
            _steps(loop, random.randint(1, 6))
            continue
        while True:
            with crashing(fuse, random.randint(10, 400)):
                loop = start_loop(database, engine, SETUP, folder)
                break
    loop = start_loop(database, engine, SETUP, folder)
    for _ in range(400):
        _steps(loop, 2)
        _progress(random, database, engine, losses, may_fail=False)
        if all(state in ENDED for state in states(database).values()):
            break
    _check(database, losses, METHODS[stop], may_fail=may_fail)


def _steps(loop: Loop, count: int) -> None:
    replies: Sequence[Event] = ()
    for _ in range(count):
        replies = loop.step(replies)


def _progress(
    random: Random, database: Engine, engine: LiveEngine, losses: dict[str, float], *, may_fail: bool
) -> None:
    engine.world.seconds += random.choice([0.0, 1.0, 30.0])
    for job_id, lease in list(engine.running.items()):
        steps = min(lease.steps + random.choice([3.0, 12.0, 40.0]), STEPS)
        try:
            report(database, engine, job_id, steps, losses[job_id])
        except Refused:  # the loop has not seen its start, or has given the lease up
            lease.steps = steps
        if steps == STEPS:
            engine.end(job_id)
        elif may_fail and random.random() < 0.1:
            engine.end(job_id, Ending.FAILED)


def _check(database: Engine, losses: dict[str, float], method: Method, *, may_fail: bool) -> None:
    found = states(database)
    assert set(found.values()) <= {"finished", "stopped", "failed"}
    with reading(database) as connection:
        sent = connection.execute(select(events.c.kind, events.c.payload)).all()
        rungs = dict(connection.execute(select(trials.c.job_id, trials.c.rung)).all())
    stops = Counter(json.loads(row.payload)["job_id"] for row in sent if row.kind == "JobCancelled")
    assert set(stops.values()) <= {1}, "no trial is stopped twice"
    ids = list(losses)
    for size in bracket_sizes(method, len(ids)):
        members, ids = ids[:size], ids[size:]
        ended_well = [job_id for job_id in members if found[job_id] == "finished"]
        assert ended_well or "failed" in {found[job_id] for job_id in members}, "one trial is left"
        if may_fail:
            continue
        left = members
        for rung in range(Rungs(size).number - 1):
            best = Rungs(size).best(rung, [losses[job_id] for job_id in left])
            for place, job_id in enumerate(left):
                assert place in best or rungs[job_id] == rung, f"{job_id} is not among the best of rung {rung}"
                assert place not in best or rungs[job_id] > rung, f"{job_id} is among the best of rung {rung}"
            left = [left[place] for place in best]


@pytest.mark.parametrize("start", range(0, HISTORIES, 6))
def test_crashes_of_the_loop_change_nothing_in_what_a_search_decides(start: int, tmp_path: Path) -> None:
    store = CrashingStore(tmp_path / "store.db")
    for number in range(start, min(start + 6, HISTORIES)):
        try:
            one_history(1_000_003 * SEED + number, store, tmp_path)
        except BaseException as error:
            error.add_note(f"history {number} of seed {SEED}")
            raise
