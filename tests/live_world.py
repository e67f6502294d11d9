"""A world for the service's loop: a store, an engine whose jobs run as the test says, and clocks that stand still.

The engine survives crashes of the loop, as a machine does; it never runs two jobs on one GPU, nor one job twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import Engine as Database
from sqlalchemy import insert, select, update

from horae.engines.engine import Moment
from horae.journal import JournalLines
from horae.model.cluster import Gpu
from horae.model.commands import Command, Start, Stop, Survey
from horae.model.events import Ending, Event, JobCancelled, JobEnded, JobStarted, JobSubmitted, Running, Surveyed
from horae.model.jobs import Job
from horae.model.serialization import Plain
from horae.model.setup import Setup
from horae.model.shapes import Option, Shape
from horae.service.clock import Clocks, LogClock
from horae.service.job_file import expand
from horae.service.loop.loop import Loop
from horae.service.loop.questions import Questions
from horae.service.loop.recovery import begin, rebuild
from horae.service.models import JobSpec
from horae.service.store.database import reading, writing
from horae.service.store.leadership import raise_term, take_lead
from horae.service.store.schema import counters, inbox, jobs, trials
from horae.service.sweeps import trial_rows


@dataclass
class World:
    """Time, and what runs on the machine."""

    seconds: float = 0.0
    boot: str = "boot-1"
    wall: float = 1_700_000_000.0

    def clocks(self) -> Clocks:
        return Clocks(lambda: self.boot, lambda: self.seconds, lambda: self.wall + self.seconds)


@dataclass
class Lease:
    job_id: str
    epoch: int
    gpus: tuple[Gpu, ...]
    cells: tuple[str, ...]
    steps: float = 0.0


@dataclass
class LiveEngine:
    """Runs jobs as entries in a table. Starts are confirmed at once; jobs end when the test says so."""

    world: World
    running: dict[str, Lease] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    specifications: dict[str, Plain] = field(default_factory=dict)
    dead: dict[str, JobEnded] = field(default_factory=dict)  # by job: how its latest lease ended or was forestalled
    starts: list[tuple[str, int]] = field(default_factory=list)
    idle: dict[Gpu, float] = field(default_factory=dict)
    repaired: list[str] = field(default_factory=list)
    clock: LogClock | None = None

    def now(self) -> float:
        assert self.clock is not None
        return self.clock.now()

    def watch(self, descriptor: int) -> None:
        pass

    def prepare(self, job_id: str, spec: JobSpec, specification: Plain) -> None:
        self.specifications[job_id] = json.loads(json.dumps(specification))

    def forget(self, job_id: str) -> None:
        pass

    def take_idle(self) -> dict[Gpu, float]:
        idle, self.idle = self.idle, {}
        return idle

    def explain(self, why: Callable[[str], str]) -> None:
        pass

    def repair(self, node: str) -> None:
        self.repaired.append(node)

    def specification(self, job_id: str) -> Plain | None:
        return self.specifications.get(job_id) if job_id in self.running else None

    def wait(self, until: float) -> Moment:
        events, self.events = self.events, []
        if not events and until > self.now():
            self.world.seconds += min(until - self.now(), 1.0)
        return Moment(self.now(), events)

    def execute(self, commands: Sequence[Command]) -> Sequence[Event]:
        replies: list[Event] = []
        for command in commands:
            match command:
                case Start():
                    replies.extend(self._start(command))
                case Stop():
                    replies.extend(self._stop(command))
                case Survey():
                    found = [
                        Running(each.job_id, each.epoch, each.gpus, each.steps, cells=each.cells)
                        for each in self.running.values()
                    ]
                    replies.append(Surveyed(self.now(), tuple(found)))
        return replies

    def end(self, job_id: str, ending: Ending = Ending.FINISHED, message: str = "") -> None:
        lease = self.running.pop(job_id)
        self.dead[job_id] = JobEnded(self.now(), job_id, lease.epoch, ending, lease.steps, message)
        self.events.append(self.dead[job_id])

    def boot(self) -> None:
        """The machine boots again: everything that ran is gone, and so are messages on their way."""
        self.world.boot += "'"
        self.events.clear()
        for job_id, lease in self.running.items():
            self.dead[job_id] = JobEnded(self.now(), job_id, lease.epoch, Ending.LOST, lease.steps)
        self.running.clear()

    def _start(self, command: Start) -> list[Event]:
        replies: list[Event] = []
        for job_id in command.job_ids:
            if job_id in self.dead and command.epoch <= self.dead[job_id].epoch:
                replies += [self.dead[job_id]] if command.epoch == self.dead[job_id].epoch else []
                continue
            if job_id in self.running and self.running[job_id].epoch == command.epoch:
                replies.append(JobStarted(self.now(), job_id, command.epoch))
                continue
            assert job_id not in self.running, f"{job_id} would run twice"
            busy = {gpu for lease in self.running.values() if lease.job_id not in command.job_ids for gpu in lease.gpus}
            assert busy.isdisjoint(command.gpus), f"{job_id} would share GPUs"
            self.running[job_id] = Lease(job_id, command.epoch, command.gpus, command.cells)
            self.starts.append((job_id, command.epoch))
            replies.append(JobStarted(self.now(), job_id, command.epoch))
        return replies

    def _stop(self, command: Stop) -> list[Event]:
        lease, dead = self.running.get(command.job_id), self.dead.get(command.job_id)
        if lease is not None and lease.epoch == command.epoch:
            del self.running[command.job_id]
        elif dead is not None and dead.epoch >= command.epoch:
            return [dead] if dead.epoch == command.epoch else []
        steps = 0.0 if lease is None else lease.steps
        self.dead[command.job_id] = JobEnded(self.now(), command.job_id, command.epoch, Ending.STOPPED, steps)
        return [self.dead[command.job_id]]


def start_loop(
    database: Database,
    engine: LiveEngine,
    setup: Setup,
    folder: Path,
    used_term: int = 0,
    webhooks: Collection[str] = (),
) -> Loop:
    """A new process of the loop: it leads, recovers and has written its first snapshot."""
    engine.world.seconds += 0.001  # no clock stands still while a process starts: surveys are later than its leases
    clocks = engine.world.clocks()
    leadership = take_lead(database, "test", "", LogClock(None, clocks).read(), at_once=True)
    assert leadership is not None
    leadership = raise_term(database, leadership, used_term)
    clock = engine.clock = LogClock(leadership.last, clocks)
    rebuilt = rebuild(database)
    scheduler = begin(database, leadership, setup, clock) if rebuilt is None else rebuilt.scheduler
    seq = 0 if rebuilt is None else rebuilt.seq
    loop = Loop(database, leadership, scheduler, seq, engine, clock, Questions(folder), webhooks=webhooks)
    loop.restart(leadership.incarnation)
    return loop


def run_until_quiet(loop: Loop, steps_max: int = 200) -> None:
    """Steps until nothing is left to do at this moment."""
    events: Sequence[Event] = ()
    for _ in range(steps_max):
        events = loop.step(events)
        if not events and not loop.is_busy:
            return
    raise AssertionError("the loop does not come to rest")


# Requests, as the API writes them


def submit(database: Database, *specs: JobSpec, tenant: str = "default", accelerator: str = "A100") -> list[str]:
    """Accepts jobs durably; returns their ids."""
    ids = []
    with writing(database) as connection:
        last = connection.execute(select(counters.c.value).where(counters.c.name == "jobs")).scalar()
        if last is None:
            connection.execute(insert(counters).values(name="jobs", value=0))
        for number, given in enumerate(specs, start=(last or 0) + 1):
            elements = expand(given)
            for position, spec in elements:
                gpus = spec.gpus if isinstance(spec.gpus, int) else spec.gpus.min
                job = Job(
                    str(number) if position is None else f"{number}_{position}",
                    0.0,
                    (Option(Shape(accelerator, gpus, "node"), 1.0),),
                    app="" if position is None else str(number),
                    tenant=spec.tenant or tenant,
                    user="ada",
                    steps_total=spec.steps,
                    retries_max=spec.retries,
                    bids=spec.bids,
                )
                connection.execute(insert(jobs).values(**row_values(job, spec, number)))
                line = json.loads(JournalLines().event(JobSubmitted(0.0, job)))
                connection.execute(insert(inbox).values(kind="JobSubmitted", payload=json.dumps(line), wall=0.0))
                ids.append(job.id)
            rows = trial_rows(number, ids[-len(elements) :], elements[0].spec)
            if rows:
                connection.execute(insert(trials), rows)
        connection.execute(update(counters).values(value=(last or 0) + len(specs)))
    return ids


def cancel(database: Database, job_id: str) -> None:
    line = json.loads(JournalLines().event(JobCancelled(0.0, job_id)))
    with writing(database) as connection:
        connection.execute(insert(inbox).values(kind="JobCancelled", payload=json.dumps(line), wall=0.0))


def row_values(job: Job, spec: JobSpec, number: int) -> dict[str, object]:
    return {
        "id": job.id, "number": number, "name": spec.name, "app": job.app_id, "tenant": job.tenant, "user": job.user,
        "model": spec.model, "state": "submitted", "reason": "", "spec": spec.model_dump_json(), "gpus": job.gpus,
        "gpu_type": "", "held_gpus": 0, "held_type": "", "places": "", "guaranteed": False, "epoch": None,
        "submitted_at": 0.0, "first_started_at": None, "started_at": None, "ended_at": None, "run_seconds": 0.0,
        "gpu_seconds": 0.0, "preemptions": 0, "failures": 0, "steps": 0.0, "steps_total": spec.steps,
        "resumable": False, "rho": None, "idempotency_key": None, "changed_seq": 0,
    }  # fmt: skip


def states(database: Database) -> dict[str, str]:
    with reading(database) as connection:
        return dict(connection.execute(select(jobs.c.id, jobs.c.state)).all())
