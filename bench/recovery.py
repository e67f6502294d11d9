"""Recovery of the service: the log of a long history is written by the loop itself, and a new process begins on it."""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from sqlalchemy import Engine

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
from horae.service.api.submission_writes import Submission
from horae.service.api.submissions import Checker, prepare
from horae.service.clock import Clocks, LogClock
from horae.service.config import configure
from horae.service.loop.loop import Loop
from horae.service.loop.questions import Questions
from horae.service.loop.recovery import begin, rebuild
from horae.service.models import JobSpec
from horae.service.store.database import open_database, reading, sqlite_url, writing
from horae.service.store.leadership import take_lead
from horae.service.store.log import last_seq
from horae.service.store.migrate import migrate

EVENTS, LIVE_JOBS = 1_000_000, 10_000
JOBS_AT_A_TIME = 1000  # as many as there are GPUs: all of them run, and end together
STEP_SECONDS = 60.0


class PassingMachine:
    """Jobs start at once and end one step later; those that are kept run for ever."""

    def __init__(self, seconds: list[float]) -> None:
        self._seconds = seconds
        self._running: list[JobEnded] = []
        self.clock: LogClock | None = None
        self.keeps = False

    def wait(self, until: float) -> Moment:
        self._seconds[0] += STEP_SECONDS
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

    def repair(self, node: str) -> None: ...


def measure(events: int = EVENTS, live_jobs: int = LIVE_JOBS) -> Result:
    """The processor time of a new process from the opened store to a scheduler that is ready to decide."""
    with tempfile.TemporaryDirectory() as folder:
        url = _write_history(Path(folder), events, live_jobs)
        database = open_database(url)
        started = time.process_time()
        rebuilt = rebuild(database)
        seconds = time.process_time() - started
        assert rebuilt is not None and rebuilt.seq >= events and not rebuilt.problems, "the history is too short"
        assert len(rebuilt.scheduler.jobs.live) >= live_jobs, "live jobs are missing"
        assert rebuilt.folded > 0, "the snapshot is the whole history: nothing was folded"
        database.dispose()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Result(events, seconds, peak, loop_seconds())


def _write_history(folder: Path, events: int, live_jobs: int) -> str:
    """Many jobs that come, run and end, then those that are alive at the end; returns the address of the store."""
    url = sqlite_url(folder / "store.db")
    database = open_database(url)
    migrate(database)
    seconds = [0.0]
    machine = PassingMachine(seconds)
    clocks = Clocks(lambda: "boot", lambda: seconds[0], lambda: 1.7e9 + seconds[0])
    leadership = take_lead(database, "bench", "", LogClock(None, clocks).read(), at_once=True)
    assert leadership is not None
    clock = machine.clock = LogClock(leadership.last, clocks)
    setup = configure(folder, None, [f"{JOBS_AT_A_TIME // 8}x8:A100"], [], None, 0).setup
    scheduler = begin(database, leadership, setup, clock)
    loop = Loop(database, leadership, scheduler, 0, machine, clock, Questions(folder))
    loop.restart(leadership.incarnation)
    checker = Checker(setup)
    seq = 0
    while seq < events:
        _submit(database, checker, JOBS_AT_A_TIME)
        _step(loop)
        with reading(database) as connection:
            seq = last_seq(connection)
    machine.keeps = True
    _submit(database, checker, live_jobs)
    for _ in range(live_jobs // JOBS_AT_A_TIME + 2):
        _step(loop)
    database.dispose()  # without a last snapshot: the process was killed
    return url


def _submit(database: Engine, checker: Checker, count: int) -> None:
    who = Identity("ada", "operator", "")
    specs = [JobSpec(run="python train.py", gpus=1)] * count
    groups = prepare(specs, who, checker, ApiClock(0.0), {}, Context("", Path(), own_uid=1))
    with writing(database) as connection:
        Submission(groups, who, QueuedJobs(Context("", Path())))(connection)


def _step(loop: Loop) -> None:
    events: Sequence[Event] = ()
    while (events := loop.step(events)) or loop.is_busy:
        pass
