"""Two services on one PostgreSQL: the leader is killed, stopped and woken, or cut off from the store.

The standby decides, and no job runs twice.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest
from cut_connection import Mode, proxy
from live_service import Service
from patience import wait_until
from postgres import Server
from sqlalchemy import make_url, select

from horae.client import Client
from horae.model.errors import HoraeError
from horae.service.clock import LogClock
from horae.service.store.database import StoreUnavailable, open_database, reading
from horae.service.store.leadership import Leadership, take_lead
from horae.service.store.migrate import migrate
from horae.service.store.schema import events

SCRIPT = Path(__file__).parent.parent / "crash_job.py"


@contextmanager
def two_services(store: str, state: Path, leaders_store: str = "") -> Iterator[tuple[Service, Service]]:
    """A leader, and a standby for it."""
    emulated = ("--emulate", "1x2:A100", "--store")
    leader, standby = Service(state, *emulated, leaders_store or store), Service(state, *emulated, store)
    try:
        leader.start()
        standby.start("--standby", ready=False)
        yield leader, standby
    finally:
        leader.end()
        standby.end()


def submit(leader: Service, work: Path) -> list[str]:
    """Four jobs for two GPUs; returns when the first two run."""
    work.mkdir()
    spec = {"run": f"exec {sys.executable} {SCRIPT} {work} 60", "gpus": 1, "checkpoint": {}, "retries": 9}
    jobs = leader.client().submit([spec] * 4)
    wait_until(lambda: _states(leader.client()).count("running") == 2, 0.1)
    return jobs


def check(standby: Service, jobs: list[str], work: Path) -> None:
    wait_until(lambda: _states(standby.client()).count("finished") == 4, 0.2)
    client = standby.client()
    assert sorted((work / "finished").read_text().split()) == sorted(jobs)
    assert not (work / "violations").exists(), (work / "violations").read_text()
    assert all(len(client.leases(job)) == 1 for job in jobs), "no job was stopped or started twice"


@pytest.mark.parametrize("fault", ["killed", "stopped"])
def test_the_standby_takes_over_and_the_old_leader_changes_nothing(
    fault: str, postgres: Server, tmp_path: Path
) -> None:
    with two_services(postgres.new_database(), tmp_path / "state") as (leader, standby):
        jobs = submit(leader, tmp_path / "work")
        began = time.monotonic()
        loops = leader.pids("horae.service.loop")
        if fault == "killed":
            leader.kill()
        else:
            os.kill(loops[0], signal.SIGSTOP)
        wait_until(standby.is_ready, 0.05)
        print(f"the standby answers after {time.monotonic() - began:.1f} s")
        if fault == "stopped":
            wait_until(lambda: _states(standby.client()).count("finished") >= 1, 0.2)
            os.kill(loops[0], signal.SIGCONT)
            wait_until(lambda: leader.pids("horae.service.loop") != loops, 0.1)  # it has lost the lead, and ends
        check(standby, jobs, tmp_path / "work")


@pytest.mark.nightly  # `test_store_faults.py` has a shorter version
@pytest.mark.parametrize("mode", [Mode.RESET, Mode.SWALLOW])
def test_a_leader_that_is_cut_off_from_the_store_changes_nothing(mode: Mode, postgres: Server, tmp_path: Path) -> None:
    store = postgres.new_database()
    with proxy(postgres.socket) as between:
        through = f"postgresql://horae@127.0.0.1:{between.port}/{make_url(store).database}"
        with two_services(store, tmp_path / "state", through) as (leader, standby):
            jobs = submit(leader, tmp_path / "work")
            loops, began = leader.pids("horae.service.loop"), time.monotonic()
            between.cut(mode)
            wait_until(standby.is_ready, 0.05)
            print(f"the standby answers after {time.monotonic() - began:.1f} s")
            check(standby, jobs, tmp_path / "work")
            between.restore()
            wait_until(lambda: leader.pids("horae.service.loop") not in (loops, []), 0.1)
            print(f"the old leader has ended after {time.monotonic() - began:.1f} s")
            assert "the lead is lost: this process changes nothing more" in leader.log.read_text()
            _check_terms(store)


def _check_terms(store: str) -> None:
    """No event of a term was written after the first event of the next one."""
    with reading(open_database(store)) as connection:
        terms = connection.execute(select(events.c.term).order_by(events.c.seq)).scalars().all()
    assert set(terms) == {1, 2}
    assert terms == sorted(terms)


def test_a_client_that_is_silent_within_a_batch_of_statements_does_not_keep_the_standby_waiting(
    postgres: Server,
) -> None:
    """The server counts such a client as active, not as idle in a transaction, and would wait for it forever."""
    store = postgres.new_database()
    database = open_database(store)
    migrate(database)
    clock = LogClock().read()
    assert take_lead(database, "first", "", clock) is not None
    found: list[Leadership] = []

    def lead() -> bool:
        with suppress(StoreUnavailable):
            found.extend(each for each in [take_lead(database, "second", "", clock)] if each is not None)
        return bool(found)

    with pytest.raises(psycopg.OperationalError), psycopg.connect(store) as silent:
        silent.execute("UPDATE leader SET expires_at = expires_at - 100")
        silent.commit()
        with silent.pipeline():
            silent.execute("UPDATE leader SET at = 7")
            silent.pgconn.send_flush_request()
            silent.pgconn.flush()
            wait_until(lead, 0.1)
            silent.execute("SELECT 1")
    assert (found[0].term, found[0].last) == (2, clock)


def _states(client: Client) -> list[str]:
    try:
        return [job.state for job in client.jobs()]
    except HoraeError:
        return []
