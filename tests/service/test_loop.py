"""The loop: requests become jobs, jobs run and end, and a new process continues where the last one stopped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from builders import cluster
from live_world import LiveEngine, World, cancel, run_until_quiet, start_loop, states, submit
from sqlalchemy import Engine, select, update

from horae.model.events import Ending
from horae.model.setup import PoolSpec, Setup
from horae.service.backup import backup, restore
from horae.service.models import JobSpec
from horae.service.store.database import open_database, reading, sqlite_url, writing
from horae.service.store.migrate import migrate
from horae.service.store.schema import inbox, jobs, leases, usage

SETUP = Setup(cluster(2, 4, "A100"), (PoolSpec("all"),), acknowledge_seconds=5.0)


@pytest.fixture
def database(store_url: str) -> Engine:
    engine = open_database(store_url)
    migrate(engine)
    return engine


def test_a_job_is_submitted_runs_and_finishes(database: Engine, tmp_path: Path) -> None:
    engine = LiveEngine(World())
    loop = start_loop(database, engine, SETUP, tmp_path)
    (job_id,) = submit(database, JobSpec(name="bert", run="true", gpus=2))
    run_until_quiet(loop)
    assert states(database) == {job_id: "running"}
    assert engine.running[job_id].gpus
    engine.world.seconds += 100
    engine.end(job_id)
    run_until_quiet(loop)
    with reading(database) as connection:
        row = connection.execute(select(jobs)).one()
        lease = connection.execute(select(leases)).one()
        used = connection.execute(select(usage)).one()
        assert connection.execute(select(inbox)).all() == []
    assert (row.state, row.held_gpus, row.epoch) == ("finished", 0, None)
    assert row.run_seconds == pytest.approx(100, abs=2)
    assert (lease.ending, lease.gpus, lease.ended_at) == ("finished", 2, row.ended_at)
    assert used.gpu_seconds == pytest.approx(row.gpu_seconds)


def test_a_new_process_adopts_what_runs(database: Engine, tmp_path: Path) -> None:
    engine = LiveEngine(World())
    loop = start_loop(database, engine, SETUP, tmp_path)
    ids = submit(database, *[JobSpec(run="true", gpus=2)] * 5)
    run_until_quiet(loop)
    ran = dict(engine.running)
    assert len(ran) == 4
    again = start_loop(database, engine, SETUP, tmp_path)
    run_until_quiet(again)
    assert engine.running == ran
    assert len(engine.starts) == 4
    engine.end(ids[0])
    run_until_quiet(again)
    assert states(database) == {ids[0]: "finished", **dict.fromkeys(ids[1:], "running")}


def test_jobs_wait_for_those_before_them(database: Engine, tmp_path: Path) -> None:
    engine = LiveEngine(World())
    loop = start_loop(database, engine, SETUP, tmp_path)
    first, second = submit(database, *[JobSpec(run="true")] * 2)
    third, fourth = submit(database, JobSpec(run="true", after=[first]), JobSpec(run="true", after=[second]))
    run_until_quiet(loop)
    assert states(database)[third] == "waiting"
    loop = start_loop(database, engine, SETUP, tmp_path)
    engine.world.seconds += 1
    engine.end(first)
    engine.end(second, Ending.FAILED)
    run_until_quiet(loop)
    assert states(database) == {first: "finished", second: "failed", third: "running", fourth: "cancelled"}


def test_a_job_is_cancelled_when_its_time_is_over(database: Engine, tmp_path: Path) -> None:
    engine = LiveEngine(World())
    loop = start_loop(database, engine, SETUP, tmp_path)
    submit(database, JobSpec(run="true", max_duration=60))
    run_until_quiet(loop)
    engine.world.seconds += 61
    run_until_quiet(loop)
    with reading(database) as connection:
        row = connection.execute(select(jobs)).one()
    assert (row.state, row.reason) == ("cancelled", "it ran for its maximum of 60 s")


def test_a_waiting_job_is_cancelled_at_once(database: Engine, tmp_path: Path) -> None:
    engine = LiveEngine(World())
    loop = start_loop(database, engine, SETUP, tmp_path)
    first, second = submit(database, *[JobSpec(run="true", gpus=4)] * 2)
    (third,) = submit(database, JobSpec(run="true", gpus=4))
    run_until_quiet(loop)
    assert states(database)[third] == "pending"
    cancel(database, third)
    cancel(database, first)
    run_until_quiet(loop)
    assert states(database) == {first: "cancelled", second: "running", third: "cancelled"}


def test_after_the_restore_of_an_old_backup_all_running_jobs_are_adopted(tmp_path: Path) -> None:
    store, copy = tmp_path / "store.db", tmp_path / "copy.db"
    database = open_database(sqlite_url(store))
    migrate(database)
    engine = LiveEngine(World())
    loop = start_loop(database, engine, SETUP, tmp_path)
    submit(database, JobSpec(name="old", run="true", gpus=2))
    run_until_quiet(loop)
    backup(tmp_path, copy)
    submit(database, *[JobSpec(name="young", run="true", gpus=2, tenant="nlp")] * 2)
    run_until_quiet(loop)
    ran = dict(engine.running)
    assert len(ran) == 3
    database.dispose()
    restore(tmp_path, copy)
    database = open_database(sqlite_url(store))
    loop = start_loop(database, engine, SETUP, tmp_path, used_term=2)
    run_until_quiet(loop)
    assert engine.running == ran, "nothing was stopped or started"
    with reading(database) as connection:
        rows = {row.id: (row.name, row.tenant, row.state) for row in connection.execute(select(jobs))}
    assert rows == {"1": ("old", "default", "running"), **dict.fromkeys("23", ("young", "nlp", "running"))}
    for job_id in ran:
        engine.end(job_id)
    run_until_quiet(loop)
    assert set(states(database).values()) == {"finished"}


def test_a_job_file_that_cannot_be_read_is_refused_and_the_loop_goes_on(database: Engine, tmp_path: Path) -> None:
    engine = LiveEngine(World())
    loop = start_loop(database, engine, SETUP, tmp_path)
    bad, good = submit(database, *[JobSpec(run="true")] * 2)
    with writing(database) as connection:
        connection.execute(update(jobs).where(jobs.c.id == bad).values(spec='{"run": "true", "user": ""}'))
    run_until_quiet(loop)
    assert states(database) == {bad: "cancelled", good: "running"}


def test_opening_a_store_again_in_one_process_keeps_its_locks(tmp_path: Path) -> None:
    """Closing any descriptor of the file would drop the locks of the process, and its log would be deleted in use."""
    path = tmp_path / "store.db"
    database = open_database(sqlite_url(path))
    migrate(database)
    inode, opened = path.stat().st_ino, []
    real = os.open

    def watched(name: object, flags: int, *more: int) -> int:
        descriptor = real(name, flags, *more)  # type: ignore[arg-type]
        opened.append(os.fstat(descriptor).st_ino)
        return descriptor

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", watched)
        open_database(sqlite_url(path))
    assert inode not in opened
