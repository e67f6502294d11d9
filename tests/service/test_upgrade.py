"""An upgrade of the store's schema and of a policy's code, with jobs running: nothing is stopped or decided anew."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from live_service import Service, environment
from live_world import Lease, LiveEngine, World, run_until_quiet, start_loop, states
from patience import wait_until
from service.make_old_store import SETUP, SPARE, facts, scenario
from sqlalchemy import Engine, select, text

from horae.model.decisions import Ranking
from horae.model.view import View
from horae.policies.registry import POLICIES
from horae.service.clock import LogClock
from horae.service.loop.recovery import rebuild
from horae.service.store.database import open_database, reading, sqlite_url
from horae.service.store.migrate import downgrade, migrate
from horae.service.store.schema import events, jobs, leases

OLD_STORES = Path(__file__).parent / "old_stores"
SCRIPT = Path(__file__).parent.parent / "crash_job.py"
ENDLESS = 10_000_000  # steps: it runs for as long as the test


@pytest.fixture(params=sorted(path.stem for path in OLD_STORES.glob("*.sql")))
def old_store(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, object]:
    """A store as an earlier version wrote it, and what must be found in it."""
    store = tmp_path / "store.db"
    with sqlite3.connect(store) as connection:
        connection.executescript((OLD_STORES / f"{request.param}.sql").read_text())
    return store, json.loads((OLD_STORES / f"{request.param}.json").read_text())


def test_what_an_earlier_version_wrote_is_read(old_store: tuple[Path, object], tmp_path: Path) -> None:
    path, expected = old_store
    database = open_database(sqlite_url(path))
    migrate(database)
    found = rebuild(database)
    assert found is not None
    assert found.problems == ()
    assert json.loads(json.dumps(facts(found.scheduler))) == expected
    engine = running(database)
    before = dict(engine.running)
    run_until_quiet(start_loop(database, engine, SETUP, tmp_path))
    assert before.items() <= engine.running.items(), "no job is stopped or restarted"
    assert set(before).isdisjoint(job_id for job_id, _ in engine.starts)


def running(database: Engine) -> LiveEngine:
    """A machine on which the jobs run that have a lease in the store."""
    engine = LiveEngine(World(seconds=15.0))
    engine.clock = LogClock(None, engine.world.clocks())
    found = rebuild(database)
    assert found is not None
    ledger = found.scheduler.ledger
    for epoch, lease in found.scheduler.leases.by_epoch.items():
        for serial in lease.bundle:
            (job_id,) = [name for name, (_, number) in found.scheduler.jobs.live.items() if number == serial]
            engine.running[job_id] = Lease(
                job_id, epoch, tuple(ledger.names(lease.gpus)), tuple(ledger.cell_levels(lease.gpus)), 7.0
            )
    return engine


@dataclass(frozen=True)
class OldestFirst:
    name: ClassVar[str] = "by-age"

    def decide(self, view: View) -> Ranking:
        waiting = np.flatnonzero(view.jobs.pending)
        return Ranking(waiting[np.argsort(view.jobs.serial[waiting])])


class ChangedPolicy(OldestFirst):
    def decide(self, view: View) -> Ranking:
        raise AssertionError("it is asked for a decision that is on record")


def test_no_decision_is_made_anew_when_the_schema_and_the_code_of_a_policy_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(POLICIES, "by-age", OldestFirst)
    setup = replace(SETUP, pools=(SETUP.pools[0], replace(SPARE, policy="by-age")))
    store = tmp_path / "store.db"
    engine, before = scenario(store, tmp_path, setup)
    ran, rows = dict(engine.running), _rows(store)
    database = open_database(sqlite_url(store))
    downgrade(database, "0001")
    monkeypatch.setitem(POLICIES, "by-age", ChangedPolicy)
    migrate(database)
    found = rebuild(database)
    assert found is not None
    assert found.folded > 0, "there are events after the snapshot"
    assert facts(found.scheduler) == before
    start_loop(database, engine, setup, tmp_path)
    assert engine.running == ran
    assert _rows(store) == rows


def _rows(store: Path) -> list[object]:
    """Jobs and leases as the API shows them."""
    with reading(open_database(sqlite_url(store))) as connection:
        kept = [jobs.c.id, jobs.c.state, jobs.c.epoch, jobs.c.steps, jobs.c.failures, jobs.c.gpu_seconds, jobs.c.places]
        found = [tuple(row) for row in connection.execute(select(*kept).order_by(jobs.c.id))]
        return [*found, *(tuple(row) for row in connection.execute(select(leases).order_by(leases.c.epoch)))]


POLICY = """
from dataclasses import dataclass
from typing import ClassVar
import numpy as np
from horae.model.decisions import Ranking

@dataclass(frozen=True)
class ByAge:
    name: ClassVar[str] = "by-age"
    def decide(self, view):
        waiting = np.flatnonzero(view.jobs.pending)
        return Ranking(waiting[np.argsort({sign}view.jobs.serial[waiting])])
"""
CLUSTER = """
name: lab
nodes: [{name: a0, gpu: A100, gpus: 2}]
spare: {policy: by-age, cadence: rounds, round_seconds: 3600}
"""


@pytest.mark.nightly
def test_a_real_service_is_upgraded_with_its_jobs_running(tmp_path: Path) -> None:
    package, work = tmp_path / "package", tmp_path / "work"
    work.mkdir()
    (package / "by_age-1.dist-info").mkdir(parents=True)
    (package / "by_age-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: by-age\nVersion: 1\n")
    (package / "by_age-1.dist-info/entry_points.txt").write_text("[horae.policies]\nby-age = by_age:ByAge\n")
    (package / "by_age.py").write_text(POLICY.format(sign=""))
    (tmp_path / "lab.yaml").write_text(CLUSTER)
    running = Service(tmp_path / "state", "--config", str(tmp_path / "lab.yaml"), path=package)
    try:
        running.start()
        spec = {"run": f"exec {sys.executable} {SCRIPT} {work} {ENDLESS}", "gpus": 1, "checkpoint": {}, "retries": 9}
        accepted = running.client().submit([spec] * 4)
        first, second = accepted[:2]
        wait_until(lambda: (work / f"saved-{first}").exists() and (work / f"saved-{second}").exists(), 0.1)
        running.kill()
        supervisors, before = running.supervisors(), _rows(running.state / "store.db")
        database = open_database(sqlite_url(running.state / "store.db"))
        with reading(database) as connection:
            log = [tuple(row) for row in connection.execute(select(events).order_by(events.c.seq))]
        downgrade(database, "0001")
        database.dispose()
        (package / "by_age.py").write_text(POLICY.format(sign="-"))  # it would have started the other two
        running.start()
        assert running.supervisors() == supervisors
        assert _rows(running.state / "store.db") == before
        database = open_database(sqlite_url(running.state / "store.db"))
        with reading(database) as connection:
            again = [tuple(row) for row in connection.execute(select(events).order_by(events.c.seq))]
            assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == "0005"
        assert again[: len(log)] == log
        assert [states(database)[job] for job in accepted] == ["running", "running", "pending", "pending"]
        assert not (work / "violations").exists(), (work / "violations").read_text()
        assert len(running.client().leases(first)) == 1
    finally:
        running.end()


@pytest.mark.nightly  # `test_loop.py` has a shorter version
def test_a_real_service_adopts_all_jobs_after_the_restore_of_an_old_copy(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    running = Service(tmp_path / "state", "--emulate", "1x3:A100")
    try:
        running.start()
        spec = {"run": f"exec {sys.executable} {SCRIPT} {work} {ENDLESS}", "gpus": 1, "checkpoint": {}, "retries": 9}
        (old,) = running.client().submit([spec])
        wait_until((work / f"saved-{old}").exists, 0.1)
        command_line("backup", str(tmp_path / "copy.db"), "--state", str(running.state))
        young = running.client().submit([spec] * 2)
        wait_until(lambda: all((work / f"saved-{job}").exists() for job in young), 0.1)
        running.kill()
        supervisors = running.supervisors()
        command_line("restore", str(tmp_path / "copy.db"), "--state", str(running.state))
        running.start()
        client = running.client()
        wait_until(lambda: {job.id: job.state for job in client.jobs()} == dict.fromkeys([old, *young], "running"), 0.2)
        assert running.supervisors() == supervisors
        (new,) = client.submit([spec])
        assert new not in (old, *young), "numbers continue above those that were used"
        assert not (work / "violations").exists(), (work / "violations").read_text()
        assert all(len(client.leases(job)) == 1 for job in (old, *young))
    finally:
        running.end()


def command_line(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "horae", *arguments], check=True, env=environment(), capture_output=True)
