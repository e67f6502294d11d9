"""Recovery of the service: the log of a long history is written by the loop, and a new process begins on it.

Only the beginning of the history and its end are written event by event. Between them are copies of the beginning, with
numbers of their own: they fill the tables as a long history does, and lie before the snapshots, so that they are not
read again.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from sqlalchemy import Connection, Engine, Table, delete, func, select, update

from bench.cases import Result, loop_seconds
from horae.engines.engine import Moment
from horae.model.cluster import Gpu
from horae.model.commands import Command, Start, Stop, Survey
from horae.model.events import Ending, Event, JobEnded, JobStarted, Surveyed
from horae.model.serialization import Plain
from horae.service.api.context import Context
from horae.service.api.database import LogClock as ApiClock
from horae.service.api.identity import Identity
from horae.service.api.limits import QueuedJobs
from horae.service.api.setup_reader import SetupReader
from horae.service.api.submission_writes import Submission
from horae.service.api.submissions import Checker, prepare
from horae.service.clock import Clocks, LogClock
from horae.service.config import configure
from horae.service.loop.loop import Loop
from horae.service.loop.questions import Questions
from horae.service.loop.recovery import Rebuilt, begin, rebuild
from horae.service.models import JobSpec
from horae.service.store import schema
from horae.service.store.database import open_database, reading, sqlite_url, writing
from horae.service.store.leadership import take_lead
from horae.service.store.log import last_seq
from horae.service.store.migrate import migrate

EVENTS, LIVE_JOBS = 1_000_000, 10_000
WRITTEN = 30_000  # events at the beginning, and as many at the end before the live jobs
FOLDED = 1.5  # per live job: a snapshot is due at 2
JOBS_AT_A_TIME = 1000  # as many as there are GPUs: all of them run, and end together
STEP_SECONDS = 60.0


class PassingMachine:
    """Jobs start at once and end one step later; those that are kept run for ever."""

    def __init__(self, seconds: list[float]) -> None:
        self.seconds = seconds
        self._running: list[JobEnded] = []
        self.clock: LogClock | None = None
        self.keeps = False

    def wait(self, until: float) -> Moment:
        self.seconds[0] += STEP_SECONDS
        assert self.clock is not None
        now = self.clock.now()
        ended = [] if self.keeps else self._running
        self._running = self._running if self.keeps else []
        return Moment(now, [each._replace(at=now) for each in ended])

    def execute(self, commands: Sequence[Command]) -> Sequence[Event]:
        assert self.clock is not None
        replies: list[Event] = []
        for command in commands:
            match command:
                case Start():
                    for job_id in command.job_ids:
                        replies.append(JobStarted(self.clock.now(), job_id, command.epoch))
                        self._running.append(JobEnded(0.0, job_id, command.epoch, Ending.FINISHED, 1.0))
                case Stop():
                    replies.append(JobEnded(self.clock.now(), command.job_id, command.epoch, Ending.STOPPED, 0.0))
                case Survey():
                    replies.append(Surveyed(self.clock.now(), ()))
        return replies

    def watch(self, descriptor: int) -> None: ...

    def prepare(self, job_id: str, spec: JobSpec, specification: Plain) -> None: ...

    def forget(self, job_id: str) -> None: ...

    def specification(self, job_id: str) -> Plain | None: ...

    def take_idle(self) -> Mapping[Gpu, float]:
        return {}

    def explain(self, why: Callable[[str], str]) -> None: ...

    def repair(self, node: str) -> None: ...


@dataclass(frozen=True)
class Recovered(Result):
    """`seconds` is processor time of the new process until it has written its first snapshot; memory is its own."""

    text: str


def measure(events: int = EVENTS, live_jobs: int = LIVE_JOBS) -> Result:
    """A new process from the opened store to a loop that decides, as `horae.service.loop` begins."""
    with tempfile.TemporaryDirectory() as folder:
        _write_history(Path(folder), events, live_jobs)
        command = [sys.executable, "-m", "bench.recovery", folder, str(events), str(live_jobs)]
        answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Recovered(**json.loads(answer.stdout.splitlines()[-1]))


def recover(folder: Path, events: int, live_jobs: int) -> Recovered:
    machine = PassingMachine([1e6])
    machine.keeps = True
    started, started_wall = time.process_time(), time.perf_counter()
    rebuilt, make_loop = _begin(folder, machine)
    rebuilt_seconds = time.process_time() - started
    loop, incarnation = make_loop()
    loop.restart(incarnation)
    seconds, wall = time.process_time() - started, time.perf_counter() - started_wall
    assert rebuilt.seq >= events and not rebuilt.problems, "the history is too short"
    assert len(rebuilt.scheduler.jobs.live) >= live_jobs, "live jobs are missing"
    assert rebuilt.folded >= FOLDED * live_jobs, "too few events were folded"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    live = len(rebuilt.scheduler.jobs.live)
    text = (
        f"{seconds:.2f} s of processor time and {wall:.2f} s by the clock, wanted under 10; {rebuilt_seconds:.2f} s of "
        f"these for the snapshot and {rebuilt.folded:,} events after it, over {live:,} live jobs; {rebuilt.seq:,} "
        f"events in the log; {peak:.0f} MiB"
    )
    return Recovered(events, seconds, peak, loop_seconds(), text)


def _begin(folder: Path, machine: PassingMachine) -> tuple[Rebuilt, Callable[[], tuple[Loop, int]]]:
    """What is rebuilt from the store of this folder, and the loop that continues from there."""
    database = open_database(sqlite_url(folder / "store.db"))
    clocks = Clocks(lambda: "boot", lambda: machine.seconds[0], lambda: 1.7e9 + machine.seconds[0])
    leadership = take_lead(database, "bench", "", LogClock(None, clocks).read(), at_once=True)
    assert leadership is not None
    clock = machine.clock = LogClock(leadership.last, clocks)
    setup = configure(folder, None, [f"{JOBS_AT_A_TIME // 8}x8:A100"], [], None, 0).setup
    rebuilt = rebuild(database) or Rebuilt(begin(database, leadership, setup, clock), 0, 0, ())

    def make_loop() -> tuple[Loop, int]:
        loop = Loop(database, leadership, rebuilt.scheduler, rebuilt.seq, machine, clock, Questions(folder))
        return loop, leadership.incarnation

    return rebuilt, make_loop


def _write_history(folder: Path, events: int, live_jobs: int) -> None:
    """Many jobs that come, run and end, then those that are alive at the end."""
    database = open_database(sqlite_url(folder / "store.db"))
    migrate(database)
    machine = PassingMachine([0.0])
    written = min(WRITTEN, events // 3)
    loop = _started(folder, machine)
    _run_until(database, loop, written)
    loop.snapshot()
    loop.close()
    _copy(database, events - 2 * written)
    loop = _started(folder, machine)
    _run_until(database, loop, events)
    machine.keeps = True
    _submit(database, live_jobs)
    for _ in range(live_jobs // JOBS_AT_A_TIME + 2):
        _step(loop)
    while _since_snapshot(database) < FOLDED * live_jobs:
        machine.keeps = False  # those that run end, and others begin
        _step(loop)
        machine.keeps = True
        _submit(database, JOBS_AT_A_TIME)
        _step(loop)
    loop.close()
    database.dispose()  # without a last snapshot: the process was killed


def _started(folder: Path, machine: PassingMachine) -> Loop:
    _, make_loop = _begin(folder, machine)
    loop, incarnation = make_loop()
    loop.restart(incarnation)
    return loop


def _run_until(database: Engine, loop: Loop, events: int) -> None:
    seq = 0
    while seq < events:
        _submit(database, JOBS_AT_A_TIME)
        _step(loop)
        with reading(database) as connection:
            seq = last_seq(connection)
    _step(loop)


def _copy(database: Engine, events: int) -> None:
    """Repeats the events of the log and their jobs and leases until there are so many, before its last snapshot."""
    with writing(database) as connection:
        count = last_seq(connection)
        for number in range(1, -(-events // count)):
            for table, column in ((schema.jobs, "id"), (schema.leases, "job_id")):
                changed = {column: f"'{number}-' || {column}", "idempotency_key": "NULL"}
                _repeat(connection, table, changed, f"{column} NOT LIKE '%-%'")
            _repeat(connection, schema.events, {"seq": f"seq + {number * count}"}, f"seq <= {count}")
        last = last_seq(connection)
        newest = connection.scalar(select(func.max(schema.snapshots.c.seq)))
        connection.execute(delete(schema.snapshots).where(schema.snapshots.c.seq < newest))
        connection.execute(update(schema.snapshots).values(seq=last))


def _repeat(connection: Connection, table: Table, changed: Mapping[str, str], where: str) -> None:
    columns = [f'"{column.name}"' for column in table.columns]
    values = [changed.get(column.name, f'"{column.name}"') for column in table.columns]
    statement = f"INSERT INTO {table.name} ({', '.join(columns)}) SELECT {', '.join(values)} FROM {table.name}"
    connection.exec_driver_sql(f"{statement} WHERE {where}")


def _since_snapshot(database: Engine) -> int:
    with reading(database) as connection:
        return last_seq(connection) - int(connection.scalar(select(func.max(schema.snapshots.c.seq))) or 0)


def _submit(database: Engine, count: int) -> None:
    who = Identity("ada", "operator", "")
    specs = [JobSpec(run="python train.py", gpus=1)] * count
    with reading(database) as connection:
        checker = Checker(SetupReader().read(connection).setup)
    groups = prepare(specs, who, checker, ApiClock(0.0), {}, Context("", Path(), own_uid=1))
    with writing(database) as connection:
        Submission(groups, who, QueuedJobs(Context("", Path())))(connection)


def _step(loop: Loop) -> None:
    events: Sequence[Event] = ()
    while (events := loop.step(events)) or loop.is_busy:
        pass


if __name__ == "__main__":
    print(json.dumps(asdict(recover(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))))
