"""A store that is full, away or cut off, and clocks that jump: nothing is lost, repeated or commanded too early."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from builders import cluster
from cut_connection import Mode, proxy
from live_world import LiveEngine, World, run_until_quiet, start_loop, states, submit
from patience import HANG_SECONDS, wait_until
from postgres import Server
from sqlalchemy import Connection, Engine, event, insert, make_url, select
from sqlalchemy.exc import OperationalError

from horae.model.errors import InputError
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.service import up
from horae.service.api.loop_client import LoopClient
from horae.service.clock import ClockReading
from horae.service.loop import patience
from horae.service.loop.loop import Loop
from horae.service.loop.questions import Questions
from horae.service.models import JobSpec
from horae.service.store import database as database_module
from horae.service.store import leadership, postgresql
from horae.service.store.database import StoreUnavailable, TermEnded, open_database, reading, sqlite_url, writing
from horae.service.store.leadership import Observer, take_lead
from horae.service.store.migrate import migrate
from horae.service.store.schema import events, meta

ROUNDS = PoolSpec("all", "las", cadence=Cadence.ROUNDS, round_seconds=20.0, admits_between_rounds=True)
SETUP = Setup(cluster(1, 4, "A100"), (ROUNDS,), acknowledge_seconds=5.0)
DAY = 86400.0


@pytest.fixture
def database(tmp_path: Path) -> Engine:
    engine = open_database(sqlite_url(tmp_path / "store.db"))
    migrate(engine)
    return engine


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "RETRY_SECONDS", 0.02)
    monkeypatch.setattr(patience, "POLL_SECONDS", 0.01)


@pytest.mark.parametrize("looks_max", [0, 1, 1_000_000], ids=["SQLite looks", "both look", "we look"])
def test_a_writer_waits_for_the_transaction_of_another(
    database: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks_max: int
) -> None:
    monkeypatch.setattr(database_module, "_LOOKS_MAX", looks_max)
    other = open_database(sqlite_url(tmp_path / "store.db"))
    written: list[str] = []

    def write() -> None:
        with writing(other) as connection:
            connection.execute(insert(meta).values(key="second", value=""))
            written.extend(connection.scalars(select(meta.c.key).where(meta.c.key.in_(("first", "second")))))

    thread = threading.Thread(target=write)
    with writing(database) as connection:
        thread.start()
        connection.execute(insert(meta).values(key="first", value=""))
        assert not written
    thread.join(HANG_SECONDS)
    assert sorted(written) == ["first", "second"]


def test_a_lock_that_is_kept_is_told_and_leaves_the_connection_usable(
    database: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "_LOOKS_MAX", 2)
    monkeypatch.setattr(database_module, "_BUSY_SECONDS", 0)
    other = open_database(sqlite_url(tmp_path / "store.db"))
    with writing(database), pytest.raises(StoreUnavailable, match="locked"), writing(other):
        pass
    with writing(other) as connection:
        connection.execute(insert(meta).values(key="second", value=""))


@pytest.mark.usefixtures("quick_retries")
@pytest.mark.parametrize("error", ["database or disk is full", "disk I/O error", "database is locked"])
def test_the_loop_waits_for_a_store_that_takes_nothing(database: Engine, tmp_path: Path, error: str) -> None:
    engine = LiveEngine(World())
    loop = start_loop(database, engine, SETUP, tmp_path)
    run_until_quiet(loop)
    submit(database, JobSpec(run="true"))
    refusals: list[str] = []

    def refuse(connection: object, cursor: object, statement: str, *_: object) -> None:
        if "INSERT INTO events" in statement and len(refusals) < 3:
            assert engine.starts == [], "no command goes out before the commit"
            refusals.append(statement)
            raise sqlite3.OperationalError(error)

    with listening(database, "before_cursor_execute", _wrapped(refuse)):
        run_until_quiet(loop)
    assert len(refusals) == 3
    assert states(database) == {"1": "running"}
    assert [job_id for job_id, _ in engine.starts] == ["1"]


@pytest.mark.usefixtures("quick_retries")
def test_a_commit_whose_answer_was_lost_is_not_repeated(database: Engine, tmp_path: Path) -> None:
    engine = LiveEngine(World())
    loop = start_loop(database, engine, SETUP, tmp_path)
    submit(database, JobSpec(run="true"))
    lost: list[Connection] = []

    def commit_and_fail(connection: Connection) -> None:
        if not lost:
            lost.append(connection)
            connection.exec_driver_sql("COMMIT")
            raise StoreUnavailable("the connection was closed")

    with listening(database, "commit", commit_and_fail):
        run_until_quiet(loop)
    assert lost
    with reading(database) as connection:
        numbers = connection.execute(select(events.c.seq).order_by(events.c.seq)).scalars().all()
    assert numbers == list(range(1, len(numbers) + 1))
    assert [job_id for job_id, _ in engine.starts] == ["1"]


@pytest.mark.usefixtures("quick_retries")
@pytest.mark.parametrize("mode", [Mode.RESET, Mode.SWALLOW])
def test_a_loop_that_is_cut_off_loses_its_term_and_commands_nothing(
    mode: Mode, postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leadership, "LEASE_SECONDS", 0.5)
    monkeypatch.setattr(postgresql, "CONNECT_SECONDS", 1)
    store = postgres.new_database()
    migrate(open_database(store))
    with proxy(postgres.socket) as between:
        through = f"postgresql://horae@127.0.0.1:{between.port}/{make_url(store).database}"
        engine = LiveEngine(World())
        loop = start_loop(open_database(through, answer_seconds=1.0), engine, SETUP, tmp_path)
        run_until_quiet(loop)
        direct = open_database(store)
        submit(direct, *[JobSpec(run="true", gpus=4)] * 2)
        between.cut(mode)
        ended = _in_thread(loop)
        wait_until(lambda: _takes_lead(direct, engine), 0.05)
        between.restore()
        wait_until(lambda: bool(ended))
    assert [type(error) for error in ended] == [TermEnded]
    assert engine.starts == []
    other = start_loop(direct, engine, SETUP, tmp_path)
    run_until_quiet(other)
    assert [job_id for job_id, _ in engine.starts] == ["1"]
    with reading(direct) as connection:
        terms = connection.execute(select(events.c.term).order_by(events.c.seq)).scalars().all()
    assert terms == sorted(terms)


def _takes_lead(database: Engine, engine: LiveEngine) -> bool:
    assert engine.clock is not None
    return take_lead(database, "other", "", engine.clock.read()) is not None


def _in_thread(loop: Loop) -> list[BaseException]:
    """Steps until the loop fails; returns a list that then has the error."""
    ended: list[BaseException] = []

    def run() -> None:
        try:
            loop.run()
        except BaseException as error:
            ended.append(error)

    threading.Thread(target=run, daemon=True).start()
    return ended


@pytest.mark.parametrize("jump", [DAY, -DAY])
def test_a_wall_clock_that_jumps_changes_no_decision(jump: float, tmp_path: Path) -> None:
    logs = []
    for seconds in (0.0, jump):
        folder = tmp_path / str(seconds)
        folder.mkdir()
        database = open_database(sqlite_url(folder / "store.db"))
        migrate(database)
        engine = LiveEngine(World())
        loop = start_loop(database, engine, SETUP, folder)
        submit(database, *[JobSpec(run="true", gpus=2)] * 4)
        run_until_quiet(loop)
        engine.world.wall += seconds
        _pass(loop, engine, 30.0)
        engine.world.wall -= 2 * seconds
        loop = start_loop(database, engine, SETUP, folder)  # a new process reads the clock that the last one wrote
        _pass(loop, engine, 30.0)
        with reading(database) as connection:
            logs.append(
                [tuple(row) for row in connection.execute(select(events.c.at, events.c.kind, events.c.payload))]
            )
    assert len(logs[0]) > 10
    assert logs[0] == logs[1]


def _pass(loop: Loop, engine: LiveEngine, seconds: float) -> None:
    """Lets time pass; the engine's clock moves while the loop waits."""
    ends_at = engine.now() + seconds
    pending = loop.step()
    while engine.now() < ends_at or pending:
        pending = loop.step(pending)


def test_a_leader_that_does_not_renew_is_replaced_although_the_clock_of_the_database_jumped_back(
    database: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = World().clocks()
    reading_ = ClockReading(0.0, clock.boot_id(), 0.0, 0.0)
    wall, seconds = [1_000_000.0], [0.0]
    monkeypatch.setattr(time, "time", lambda: wall[0])
    observer = Observer(lambda: seconds[0])
    assert take_lead(database, "first", "", reading_) is not None
    wall[0] -= DAY
    assert take_lead(database, "second", "", reading_, observer=observer) is None
    seconds[0] += leadership.LEASE_SECONDS + 1
    found = take_lead(database, "second", "", reading_, observer=observer)
    assert found is not None
    assert found.term == 2


def test_a_state_folder_on_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "file_system", lambda path, mounts: "nfs4")
    with pytest.raises(InputError, match="network file system") as refused:
        up.prepare_state(tmp_path / "state")
    assert "\n" not in str(refused.value)
    assert "--store postgresql" in str(refused.value)


def test_the_file_system_of_a_path_is_that_of_the_longest_mount_point(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("/dev/sda / ext4 rw 0 0\nhome:/x /home nfs4 rw 0 0\ntmpfs /home/a\\040b tmpfs rw 0 0\n")
    found = {path: database_module.file_system(Path(path), mounts) for path in ("/var", "/home/ada", "/home/a b/c")}
    assert found == {"/var": "ext4", "/home/ada": "nfs4", "/home/a b/c": "tmpfs"}


def test_a_second_service_on_one_folder_is_refused(tmp_path: Path) -> None:
    with up._lock(tmp_path), pytest.raises(InputError, match=r"runs in .* already \(process \d+\)"):
        up._lock(tmp_path)


def test_sockets_work_in_a_folder_whose_path_is_longer_than_their_addresses(tmp_path: Path) -> None:
    folder = tmp_path / ("a" * 100) / ("b" * 100)
    folder.mkdir(parents=True)
    questions = Questions(folder)
    answers: list[dict[str, Any]] = []

    def ask() -> None:
        answers.append(asyncio.run(LoopClient(folder / "loop.sock", HANG_SECONDS).ask({"ping": True})))

    threading.Thread(target=ask, daemon=True).start()
    while not answers:
        questions.serve(lambda question, _: {"pong": question})
        time.sleep(0.01)
    assert answers == [{"pong": {"ping": True}}]
    questions.close()


@contextmanager
def listening(target: Engine, name: str, listener: Callable[..., None]) -> Iterator[None]:
    event.listen(target, name, listener)
    try:
        yield
    finally:
        event.remove(target, name, listener)


def _wrapped(refuse: Callable[..., None]) -> Callable[..., None]:
    """Errors of a listener are not those of the driver: this one makes them so."""

    def listener(connection: Connection, *arguments: object) -> None:
        try:
            refuse(connection, *arguments)
        except sqlite3.OperationalError as error:
            raise OperationalError(str(arguments[1]), {}, error) from error

    return listener
