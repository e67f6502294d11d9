"""What once ended the loop, froze it, or made it forget: each must harm nothing but itself."""

from __future__ import annotations

import fcntl
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import cluster
from live_world import LiveEngine, World, cancel, run_until_quiet, start_loop, states, submit
from sqlalchemy import Engine, event, insert, select

from horae.journal import JournalLines, pack, packed_entry
from horae.model.commands import Survey
from horae.model.errors import InputError
from horae.model.events import (
    ClusterChanged,
    Ending,
    JobHeld,
    JobReleased,
    JobSubmitted,
    Surveyed,
    TenantsChanged,
    Tick,
)
from horae.model.setup import PoolSpec, Setup
from horae.model.setup_changes import changes
from horae.scheduler import Scheduler
from horae.service.api import server
from horae.service.api.database import LogClock as LogClockOfApi
from horae.service.api.database import clock as api_clock
from horae.service.backup import backup, restore
from horae.service.clock import ClockReading, Clocks, LogClock
from horae.service.loop.job_rows import row_of
from horae.service.models import JobSpec
from horae.service.store.database import open_database, reading, sqlite_url, writing
from horae.service.store.migrate import migrate
from horae.service.store.offsets import Stretch
from horae.service.store.schema import answers, inbox, jobs

SETUP = Setup(cluster(2, 4, "A100"), (PoolSpec("all"),), acknowledge_seconds=5.0)


def _send(database: Engine, sent: Any) -> None:
    line = json.loads(JournalLines().event(sent))
    with writing(database) as connection:
        connection.execute(insert(inbox).values(kind=type(sent).__name__, payload=json.dumps(line), wall=0.0))


def test_a_log_of_any_length_does_not_stop_a_process() -> None:
    """`horae up` reads the standard output of its processes for one word only."""
    script = """
import structlog
from horae.service.log_output import configure_log
configure_log()
for number in range(2000):
    structlog.get_logger("loop").error("the store does not take anything", error="x" * 100)
print("ready", flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.wait() == 0, "it wrote its log to standard output, which is not read"
    assert process.stdout is not None
    assert process.stdout.read() == b"ready\n"


def test_a_long_chain_of_jobs_ends_with_its_first(database: Engine, tmp_path: Path) -> None:
    engine = LiveEngine(World())
    loop = start_loop(database, engine, SETUP, tmp_path)
    (first,) = submit(database, JobSpec(run="true"))
    chain = [JobSpec(run="true", after=[str(number)]) for number in range(int(first), int(first) + 1500)]
    submit(database, *chain)
    run_until_quiet(loop)
    engine.end(first, Ending.FAILED)
    run_until_quiet(loop)
    assert set(states(database).values()) == {"failed", "cancelled"}


def test_names_in_after_are_counted_once_and_bounded() -> None:
    assert JobSpec(run="true", after=["1"] * 5000).after == ["1"]
    with pytest.raises(ValueError, match="at most 1000"):
        JobSpec(run="true", after=[str(number) for number in range(1001)])


def test_a_request_that_fails_unforeseen_is_answered_and_not_tried_again(
    database: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = LiveEngine(World())
    loop = start_loop(database, engine, SETUP, tmp_path)
    bad, good = submit(database, JobSpec(run="bad"), JobSpec(run="true"))
    accept = loop._accept

    def fail(submitted: JobSubmitted) -> str:
        assert submitted.job.id != bad, "not foreseen"
        return accept(submitted)

    monkeypatch.setattr(loop, "_accept", fail)
    run_until_quiet(loop)
    assert states(database) == {bad: "cancelled", good: "running"}
    with reading(database) as connection:
        assert connection.execute(select(inbox)).all() == []


def test_a_submission_that_the_scheduler_rejects_is_refused(
    database: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = LiveEngine(World())
    loop = start_loop(database, engine, SETUP, tmp_path)
    (job_id,) = submit(database, JobSpec(run="true"))
    handle = Scheduler.handle

    def break_down(self: Scheduler, heard: Any, effects: Any = None) -> Any:
        assert effects is not None or not isinstance(heard, JobSubmitted), "a fault in the scheduler"
        return handle(self, heard, effects)

    monkeypatch.setattr(Scheduler, "handle", break_down)
    run_until_quiet(loop)
    assert states(database) == {job_id: "cancelled"}


def test_a_last_line_with_control_characters_is_a_reason(database: Engine, tmp_path: Path) -> None:
    engine = LiveEngine(World())
    loop = start_loop(database, engine, SETUP, tmp_path)
    (job_id,) = submit(database, JobSpec(run="true"))
    run_until_quiet(loop)
    engine.end(job_id, Ending.FAILED, "x\0y\x1b[31m")
    run_until_quiet(loop)
    with reading(database) as connection:
        row = connection.execute(select(jobs)).one()
    assert row.state == "failed"
    assert row.reason.isprintable() and "x" in row.reason


def test_a_waiting_job_is_held_until_it_is_released(database: Engine, tmp_path: Path) -> None:
    engine = LiveEngine(World())
    loop = start_loop(database, engine, SETUP, tmp_path)
    first, second = submit(database, JobSpec(run="true"), JobSpec(run="true", after=["1"]))
    run_until_quiet(loop)
    _send(database, JobHeld(0.0, second))
    run_until_quiet(loop)
    assert states(database)[second] == "suspended"
    loop = start_loop(database, engine, SETUP, tmp_path)
    assert states(database)[second] == "suspended", "a new process knows it, too"
    engine.end(first)
    run_until_quiet(loop)
    assert states(database)[second] == "suspended"
    assert second not in engine.running
    _send(database, JobReleased(0.0, second))
    run_until_quiet(loop)
    assert states(database)[second] == "running"


def test_a_hold_that_is_released_before_the_jobs_turn_changes_nothing(database: Engine, tmp_path: Path) -> None:
    engine = LiveEngine(World())
    loop = start_loop(database, engine, SETUP, tmp_path)
    first, second = submit(database, JobSpec(run="true"), JobSpec(run="true", after=["1"]))
    run_until_quiet(loop)
    _send(database, JobHeld(0.0, second))
    _send(database, JobReleased(0.0, second))
    run_until_quiet(loop)
    assert states(database)[second] == "waiting"
    cancel(database, second)
    run_until_quiet(loop)
    assert states(database) == {first: "running", second: "cancelled"}


def test_a_survey_that_finds_nothing_new_writes_no_rows(database: Engine, tmp_path: Path) -> None:
    engine = LiveEngine(World())
    loop = start_loop(database, engine, SETUP, tmp_path)
    submit(database, *[JobSpec(run="true", gpus=4)] * 5)
    run_until_quiet(loop)
    written: list[str] = []

    @event.listens_for(database, "before_cursor_execute")
    def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("UPDATE jobs"):
            written.append(statement)

    (survey,) = engine.execute([Survey()])
    assert isinstance(survey, Surveyed) and len(survey.running) == 2
    engine.events.append(survey)
    run_until_quiet(loop)
    assert written == []


def test_answers_are_forgotten_after_an_hour(database: Engine, tmp_path: Path) -> None:
    engine = LiveEngine(World())
    loop = start_loop(database, engine, SETUP, tmp_path)
    kept = []
    for _ in range(3):
        _send(database, JobHeld(0.0, "unknown"))
        run_until_quiet(loop)
        with reading(database) as connection:
            kept.append(len(connection.execute(select(answers)).all()))
        engine.world.seconds += 2 * 3600
    assert kept[0] == 1
    assert kept[2] < 3


def test_the_loop_answers_requests_and_only_wrong_submissions(database: Engine, tmp_path: Path) -> None:
    """The API has answered a submission before the loop sees it."""
    loop = start_loop(database, LiveEngine(World()), SETUP, tmp_path)
    submit(database, JobSpec(run="true"))
    _send(database, JobHeld(0.0, "unknown"))
    with writing(database) as connection:
        connection.execute(insert(inbox).values(kind="JobSubmitted", payload='{"job":{"id":"no row"}}', wall=0.0))
    run_until_quiet(loop)
    with reading(database) as connection:
        found = connection.execute(select(answers).order_by(answers.c.inbox_id)).all()
        assert connection.execute(select(inbox)).all() == []
    assert [bool(row.problem) for row in found] == [False, True]


def test_lines_of_effects_may_contain_any_character() -> None:
    lines = ['{"app":"a\u2028b\x85c"}\n', '{"app":"d"}\n']
    assert packed_entry(1, Tick(0.0), pack(lines)).lines == ('{"effects":2}\n', *lines)
    assert packed_entry(1, Tick(0.0), pack([])).lines == ()
    with pytest.raises(ValueError, match="pattern"):
        JobSpec(run="x", app="a\u2028b")


def test_rows_of_another_version_are_read() -> None:
    row = row_of({"id": "7", "number": 7, "a column of later": 1})
    assert (row.id, row.number, row.name, row.gpus, row.epoch) == ("7", 7, "", 0, None)


def test_time_on_another_machine_goes_on_by_the_wall_clock() -> None:
    """A machine that has been up for 300 days takes over a log that was written a minute ago."""
    last = ClockReading(1000.0, "one boot", 50.0, 1_700_000_000.0)
    clocks = Clocks(lambda: "another", lambda: 300 * 86_400.0, lambda: 1_700_000_060.0)
    assert LogClock(last, clocks).now() == pytest.approx(1060.0)
    just_booted = Clocks(lambda: "another", lambda: 20.0, lambda: 1_700_009_000.0)
    assert LogClock(last, just_booted).now() == pytest.approx(1020.0)
    wrong = Clocks(lambda: "another", lambda: 20.0, lambda: 0.0)
    assert LogClock(last, wrong).now() == pytest.approx(1000.0)


def test_a_smaller_node_comes_after_the_cells_that_it_had() -> None:
    before = Setup(cluster(2, 4, "A100"), (PoolSpec("all"), PoolSpec("a", tenants=("a",), cells={"A100.node": 2})))
    nodes = (before.cluster.nodes[0], replace(before.cluster.nodes[1], gpus=2))
    after = replace(
        before,
        cluster=replace(before.cluster, nodes=nodes),
        pools=(before.pools[0], replace(before.pools[1], cells={"A100.node": 1})),
    )
    found = changes(before, after, 0.0)
    assert [type(each) for each in found] == [TenantsChanged, ClusterChanged]
    assert changes(after, after, 0.0) == []


def test_restoring_keeps_all_of_the_former_store(tmp_path: Path) -> None:
    """What is only in its log as yet, too; and a second restore keeps a second copy."""
    state = tmp_path / "state"
    state.mkdir()
    database = open_database(sqlite_url(state / "store.db"))
    migrate(database)
    backup(state, tmp_path / "early.db")
    assert (tmp_path / "early.db").stat().st_mode & 0o777 == 0o600
    submit(database, JobSpec(run="true"))
    held = database.connect()  # an open reader: the log is not written back when the others close
    held.execute(select(jobs)).all()
    for number in (1, 2):
        restore(state, tmp_path / "early.db")
        kept = state / f"store.db.before-restore-{number}"
        with closing(sqlite3.connect(kept)) as copy:
            assert copy.execute("SELECT count(*) FROM jobs").fetchone() == (1 if number == 1 else 0,)
        assert kept.stat().st_mode & 0o777 == 0o600
    held.close()
    with closing(sqlite3.connect(state / "store.db")) as store:
        assert store.execute("SELECT count(*) FROM jobs").fetchone() == (0,)


def test_nothing_is_restored_beside_a_service(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    database = open_database(sqlite_url(state / "store.db"))
    migrate(database)
    backup(state, tmp_path / "copy.db")
    with (state / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="a service runs"):
            restore(state, tmp_path / "copy.db")


def test_the_socket_of_another_process_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    with server._unix(path):
        inode = path.stat().st_ino
        path.rename(tmp_path / "old")  # so that its inode is not used again
        with server._unix(path):
            server._remove(path, inode)
            assert path.exists()
            server._remove(path, path.stat().st_ino)
            assert not path.exists()


def test_dates_before_the_machine_was_off_do_not_move(database: Engine, tmp_path: Path) -> None:
    world = World()
    engine = LiveEngine(world)
    loop = start_loop(database, engine, SETUP, tmp_path)
    submit(database, JobSpec(run="true"))
    run_until_quiet(loop)

    def dates() -> list[float]:
        with reading(database) as connection:
            times = connection.scalars(select(jobs.c.submitted_at).order_by(jobs.c.number)).all()
            return [api_clock(connection).unix(at) for at in times]

    (first,) = dates()
    assert first == pytest.approx(world.wall + world.seconds, abs=10)
    world.seconds += 100.0
    run_until_quiet(loop)
    engine.boot()
    world.wall += 2 * 86_400.0
    loop = start_loop(database, engine, SETUP, tmp_path)
    submit(database, JobSpec(run="true"))
    run_until_quiet(loop)
    again, second = dates()
    assert again == pytest.approx(first)
    assert second == pytest.approx(world.wall + world.seconds, abs=60)


def test_times_convert_both_ways_over_jumps_of_the_wall_clock() -> None:
    stretches = (Stretch(0.0, 1000.0), Stretch(100.0, 5000.0), Stretch(200.0, 4900.0))
    clock = LogClockOfApi(4900.5, stretches)
    assert [clock.unix(at) for at in (50.0, 150.0, 300.0)] == [1050.0, 5150.0, 5200.5]
    assert [clock.log(unix) for unix in (1050.0, 5150.0, 5200.5)] == pytest.approx([50.0, 199.5, 300.0], abs=50.0)
    assert clock.log(3000.0) == 100.0, "the log's clock stood still"
    assert clock.unix_or_none(None) is None
