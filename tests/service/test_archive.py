"""Old events leave the log for Parquet files; recovery does not need them, and a journal has them all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from live_world import LiveEngine, World, run_until_quiet, start_loop, submit
from service.make_old_store import SETUP, facts
from sqlalchemy import Engine, func, select

from horae.experiments.replay import replay_file
from horae.service.log_export import export_journal
from horae.service.loop.loop import Loop
from horae.service.loop.recovery import rebuild
from horae.service.models import JobSpec
from horae.service.store import archive
from horae.service.store.archive import Archive, archived_entries
from horae.service.store.database import open_database, reading, sqlite_url
from horae.service.store.leadership import read_leader
from horae.service.store.migrate import migrate
from horae.service.store.schema import events, snapshots

DAY = 86400.0


@pytest.fixture
def database(tmp_path: Path) -> Engine:
    engine = open_database(sqlite_url(tmp_path / "store.db"))
    migrate(engine)
    return engine


def three_days(database: Engine, tmp_path: Path) -> tuple[LiveEngine, Loop]:
    engine = LiveEngine(World())
    loop = start_loop(database, engine, SETUP, tmp_path)
    for _ in range(3):
        (job_id,) = submit(database, JobSpec(run="true", tenant="vision"))
        run_until_quiet(loop)
        engine.end(job_id)
        run_until_quiet(loop)
        loop.snapshot()
        engine.world.seconds += DAY
    return engine, loop


def archive_of(database: Engine, engine: LiveEngine, folder: Path) -> Archive:
    leader = read_leader(database)
    assert leader is not None and engine.clock is not None
    return Archive(database, folder, leader.term, engine.clock, keep_seconds=DAY)


def numbers(database: Engine) -> list[int]:
    with reading(database) as connection:
        return list(connection.execute(select(events.c.seq).order_by(events.c.seq)).scalars())


def test_old_events_are_moved_and_everything_goes_on(database: Engine, tmp_path: Path) -> None:
    engine, loop = three_days(database, tmp_path)
    all_numbers = numbers(database)
    archive_of(database, engine, tmp_path / "archive").look()
    kept, moved = numbers(database), [entry.line for entry in archived_entries(tmp_path / "archive")]
    assert moved
    assert moved + kept == all_numbers
    with reading(database) as connection:
        oldest = connection.execute(select(func.min(snapshots.c.seq))).scalar_one()
    assert max(moved) < oldest, "every snapshot can be used"
    found = rebuild(database)
    assert found is not None
    assert facts(found.scheduler) == facts(loop.scheduler)
    count = export_journal(database, tmp_path / "archive", tmp_path / "journal.jsonl")
    assert count == len(all_numbers)
    replayed = replay_file(tmp_path / "journal.jsonl")
    assert (replayed.difference, replayed.events) == ("", count)
    submit(database, JobSpec(run="true", tenant="vision"))
    run_until_quiet(start_loop(database, engine, SETUP, tmp_path))
    assert "4" in engine.running


def test_nothing_is_deleted_before_the_file_is_durable(
    database: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, _ = three_days(database, tmp_path)
    before = numbers(database)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        archive_of(database, engine, tmp_path / "archive").look()
    assert numbers(database) == before
    assert list(archived_entries(tmp_path / "archive")) == []
    with monkeypatch.context() as patch:  # a crash after the file and before the deletion
        patch.setattr(archive, "confirm_lead", full)
        archive_of(database, engine, tmp_path / "archive").look()
    assert numbers(database) == before
    assert export_journal(database, tmp_path / "archive", tmp_path / "journal.jsonl") == len(before)
    archive_of(database, engine, tmp_path / "archive").look()
    assert [entry.line for entry in archived_entries(tmp_path / "archive")] + numbers(database) == before
