"""The loop: it alone runs the scheduler and writes the log.

    wait      for the engine, for requests, for questions, or until the scheduler wants to decide
    handle    every event, in memory
    commit    the events, their effects and the changes of the tables, in one transaction conditional on the term
    execute   the commands, only after the commit

A crash at any point loses nothing: an effect that was not committed was never sent, and one that was committed but not
sent is found missing by the survey with which every process begins.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Protocol

import structlog
from sqlalchemy import Engine as Database
from sqlalchemy import delete, insert, select, update

from horae.driver import Guarded
from horae.engines.engine import Engine
from horae.journal import JournalLines, event_of
from horae.model.commands import Command, Start
from horae.model.errors import HoraeError
from horae.model.events import (
    Event,
    JobCancelled,
    JobEnded,
    JobSubmitted,
    NodeChanged,
    PolicyChanged,
    SchedulerRestarted,
    Surveyed,
    TenantsChanged,
    Tick,
)
from horae.model.jobs import Job
from horae.model.notices import ChangeRefused
from horae.model.plans import Reaction
from horae.model.serialization import Plain, from_plain, to_plain
from horae.scheduler import Scheduler
from horae.service.clock import LogClock
from horae.service.loop.job_rows import JobRow, read_rows
from horae.service.loop.questions import Questions
from horae.service.loop.schedule import Dependencies, Drains, TimeLimits
from horae.service.loop.tables import Tables, write_setup
from horae.service.models import ENDED, JobSpec
from horae.service.store.database import StoreFull, StoreUnavailable, reading, writing
from horae.service.store.leadership import Leadership, confirm_lead
from horae.service.store.log import LogRow, append, pack, save_snapshot
from horae.service.store.schema import answers, inbox, jobs, nodes, waiting

REQUESTS_AT_A_TIME = 2000
RETRY_SECONDS = 1.0  # between two attempts to write to a full or absent store
SNAPSHOT_EVENTS = 5000

log = structlog.get_logger("loop")


class LiveEngine(Engine, Protocol):
    """What the loop needs of an engine besides the protocol."""

    def watch(self, descriptor: int) -> None:
        """Makes `wait` return when this descriptor is readable."""
        ...

    def prepare(self, job_id: str, spec: JobSpec, specification: Plain) -> None:
        """Tells how a job is run, before its start; `specification` is kept and given back."""
        ...

    def forget(self, job_id: str) -> None:
        """Tells that a job has ended for good."""
        ...

    def specification(self, job_id: str) -> Plain | None:
        """What `prepare` was given for a job that was found running."""
        ...


@dataclass(frozen=True)
class Request:
    """A row of the inbox."""

    id: int
    kind: str
    payload: dict[str, Any]


class Loop:
    def __init__(
        self,
        database: Database,
        leadership: Leadership,
        scheduler: Scheduler,
        seq: int,
        engine: LiveEngine,
        clock: LogClock,
        questions: Questions,
        renew_seconds: float = 1.0,
    ) -> None:
        self._database = database
        self._term = leadership.term
        self._guarded = Guarded(scheduler, events_max=inf)
        self._seq = seq
        self._engine = engine
        self._clock = clock
        self._questions = questions
        self._renew_seconds = renew_seconds
        self._lines = JournalLines()
        with reading(database) as connection:
            self._tables = Tables(connection, scheduler)
            waiting_jobs = connection.execute(select(waiting)).all()
            drains = connection.execute(select(nodes.c.name, nodes.c.drain_at).where(nodes.c.drain_at.is_not(None)))
            self._drains = Drains({row.name: row.drain_at for row in drains})
        self._limits, self._dependencies = TimeLimits(), Dependencies()
        for row in self._tables.rows.values():
            with suppress(ValueError):  # a job file that this version does not read: the job goes on without a limit
                self._limits.add(row, _spec(row))
        self._waiting = {row.job_id: from_plain(Job, json.loads(row.job)) for row in waiting_jobs}
        self._waiting_changed: dict[str, Job | None] = {}  # None: it waits no longer
        self._log: list[LogRow] = []
        self._commands: list[Command] = []
        self._answers: dict[int, str] = {}
        self._done: list[int] = []  # requests that were applied
        self._drain_reasons: dict[str, tuple[float | None, str]] = {}
        self._committed_at = -inf
        self._more_requests = False
        self.decision_seconds = 0.0  # of the last tick
        self.stopping = False
        engine.watch(questions.fileno())

    @property
    def scheduler(self) -> Scheduler:
        return self._guarded.scheduler

    @property
    def is_busy(self) -> bool:
        """Whether something is to be done now, before anything else happens."""
        return self._more_requests or self._guarded.next_wakeup_at <= self._clock.now()

    def restart(self, incarnation: int, changes: Sequence[Event] = ()) -> None:
        """Begins a new process's part of the log: nothing starts before a survey has told what runs."""
        self._apply(SchedulerRestarted(self._clock.now(), incarnation))
        for event in changes:
            self._apply(event)
        for job_id in list(self._waiting):
            self._wait_or_submit(self._tables.rows[job_id], self._waiting[job_id])
        self.snapshot()
        with writing(self._database) as connection:
            confirm_lead(connection, self._term, self._clock.read())
            write_setup(connection, self.scheduler)

    def run(self, enough: Callable[[], bool] = lambda: False) -> None:
        """Runs until `stopping` is set or `enough` returns true."""
        self._questions.serve(self._answer)
        events: Sequence[Event] = ()
        while not self.stopping and not enough():
            events = self.step(events)

    def step(self, events: Sequence[Event] = ()) -> Sequence[Event]:
        """One cycle; returns the immediate answers of the engine, which are the events of the next one."""
        if not events and not self._more_requests:
            moment = self._engine.wait(min(self._next_at(), self._clock.now() + self._renew_seconds))
            events = () if moment is None else moment.events
        self._questions.serve(self._answer)
        for event in events:
            self._apply(event)
        self._apply_requests()
        now = self._clock.now()
        for event in (*self._limits.due(self._tables.rows, now), *self._drains.due(now)):
            self._apply(event)
        if self._guarded.next_wakeup_at <= now:
            self._decide(now)
        self._commit()
        return self._execute()

    def see_off(self, is_running: Callable[[], bool]) -> None:
        """Records the ends of jobs that were told to stop, and decides nothing any more."""
        while is_running():
            moment = self._engine.wait(self._clock.now() + self._renew_seconds)
            for event in () if moment is None else moment.events:
                self._apply(event)
            self._commit()

    def snapshot(self) -> None:
        """Writes the whole state, so that a later process need not fold the events before."""
        self._commit()
        dump = self._guarded.dump()
        with writing(self._database) as connection:
            confirm_lead(connection, self._term, self._clock.read())
            save_snapshot(connection, self._seq, self.scheduler.now, dump)
        self._lines.forget_decisions()

    # Events

    def _next_at(self) -> float:
        return min(self._guarded.next_wakeup_at, self._limits.next_at(self._tables.rows), self._drains.next_at())

    def _decide(self, now: float) -> None:
        started = time.perf_counter()
        self._apply(Tick(now))
        self.decision_seconds = time.perf_counter() - started

    def _apply(self, event: Event) -> Reaction:
        if isinstance(event, Surveyed):
            self._adopt_unknown(event)
        rho = self.scheduler.rho(event.job_id) if isinstance(event, JobEnded) else None
        reaction = self._guarded.handle(event)
        self._seq += 1
        payload, effects = self._lines.event(event), pack(self._lines.effects(reaction))
        kind, wall = type(event).__name__, self._clock.read().wall
        self._log.append(LogRow(self._seq, self._term, event.at, wall, kind, payload, effects))
        self._tables.note(event, reaction, self.scheduler, self._seq, rho)
        self._commands.extend(reaction.commands)
        for notice in reaction.notices:
            log.warning("notice", kind=type(notice).__name__, text=str(notice))
        while self._tables.ended:
            self._ended(self._tables.ended.pop())
        return reaction

    def _ended(self, job_id: str) -> None:
        """Releases or cancels the jobs that waited for this one."""
        row = self._tables.rows[job_id]
        self._limits.drop(job_id)
        self._engine.forget(job_id)
        ready, never = self._dependencies.ended(job_id, finished=row.state == "finished")
        for each in ready:
            self._submit(each, self._waiting[each])
        for each in never:
            self._refuse(self._tables.rows[each], f"{job_id}, after which it shall run, {_ENDED_AS[row.state]}")

    def _refuse(self, row: JobRow, reason: str) -> None:
        """Ends a job that the scheduler has never seen."""
        row.state, row.reason, row.ended_at, row.changed_seq = "cancelled", reason, self._clock.now(), self._seq
        self._tables.touch(row)
        if self._waiting.pop(row.id, None) is not None:
            self._waiting_changed[row.id] = None
        self._ended(row.id)

    def _adopt_unknown(self, survey: Surveyed) -> None:
        """Submits jobs that run and are not known here: the end of the log was lost, or an old backup is in use."""
        for run in survey.running:
            specification = self._engine.specification(run.job_id)
            if self.scheduler.status(run.job_id) is None and specification is not None:
                row = JobRow(**specification["row"])
                row.epoch, row.held_gpus, row.held_type, row.places, row.started_at = None, 0, "", "", None
                if row.id not in self._tables.rows:
                    with reading(self._database) as connection:
                        is_new = not read_rows(connection, [row.id])
                    self._tables.add(row, is_new=is_new)
                    self._limits.add(row, _spec(row))
                job: Job = from_plain(Job, specification["job"])
                self._apply(JobSubmitted(survey.at, job))

    # Requests

    def _apply_requests(self) -> None:
        with reading(self._database) as connection:
            rows = connection.execute(select(inbox).order_by(inbox.c.id).limit(REQUESTS_AT_A_TIME)).all()
            requests = [Request(row.id, row.kind, json.loads(row.payload)) for row in rows]
            self._more_requests = len(rows) == REQUESTS_AT_A_TIME
            submitted = [each.payload["job"]["id"] for each in requests if each.kind == JobSubmitted.__name__]
            for row in read_rows(connection, submitted).values():
                self._tables.add(row)
        for request in requests:
            self._answers[request.id] = self._problem(request)
            self._done.append(request.id)

    def _problem(self, request: Request) -> str:
        """Applies a request; returns what is wrong with it, or an empty text."""
        try:
            if request.kind == "DrainAt":
                return self._drain_at(request.payload)
            event = event_of({**request.payload, "event": request.kind}, "inbox", request.id)._replace(
                at=self._clock.now()
            )
        except (HoraeError, KeyError, TypeError, ValueError) as error:
            log.error("request rejected", id=request.id, kind=request.kind, error=str(error))
            return str(error)
        if isinstance(event, JobSubmitted):
            return self._accept(event)
        if isinstance(event, JobCancelled) and self._dependencies.waits(event.job_id):
            self._dependencies.drop(event.job_id)
            self._refuse(self._tables.rows[event.job_id], "cancelled by its owner")
            return ""
        ignored = self.scheduler.ignored
        reaction = self._apply(event)
        refused = [str(notice) for notice in reaction.notices if isinstance(notice, ChangeRefused)]
        if isinstance(event, NodeChanged | PolicyChanged | TenantsChanged) and self.scheduler.ignored > ignored:
            refused.append("it had no effect")
        return refused[0] if refused else ""

    def _accept(self, event: JobSubmitted) -> str:
        row = self._tables.rows.get(event.job.id)
        if row is None:
            return f"job {event.job.id} has no row"
        if row.state != "submitted":
            return ""  # it was applied before
        try:
            self._limits.add(row, _spec(row))
        except ValueError as error:
            log.error("a job file cannot be read", job=row.id, error=str(error))
            self._refuse(row, "its job file cannot be read by the service")
            return str(error)
        self._wait_or_submit(row, event.job)
        return ""

    def _wait_or_submit(self, row: JobRow, job: Job) -> None:
        """Submits a job to the scheduler, unless jobs before it have yet to finish, or never will."""
        unfinished = self._unfinished(_spec(row).after)
        if isinstance(unfinished, str):
            self._refuse(row, unfinished)
        elif unfinished:
            self._dependencies.add(row.id, unfinished)
            row.state, row.changed_seq = "waiting", self._seq
            self._tables.touch(row)
            self._waiting[row.id] = self._waiting_changed[row.id] = job
        else:
            self._submit(row.id, job)

    def _submit(self, job_id: str, job: Job) -> None:
        if self._waiting.pop(job_id, None) is not None:
            self._waiting_changed[job_id] = None
        now = self._clock.now()
        self._apply(JobSubmitted(now, replace(job, submitted_at=now)))

    def _unfinished(self, after: Sequence[str]) -> list[str] | str:
        """The jobs that have yet to finish, or why one never will."""
        if not after:
            return []
        with reading(self._database) as connection:
            found = dict(connection.execute(select(jobs.c.id, jobs.c.state).where(jobs.c.id.in_(after))).all())
        for job_id in after:
            live = self._tables.rows.get(job_id)
            state = live.state if live is not None else found.get(job_id)
            if state is None:
                return f"there is no job {job_id}, after which it shall run"
            if state in ENDED and state != "finished":
                return f"{job_id}, after which it shall run, {_ENDED_AS[state]}"
            found[job_id] = state
        return [job_id for job_id in after if found[job_id] != "finished"]

    def _drain_at(self, payload: dict[str, Any]) -> str:
        node = str(payload["node"])
        if node not in self.scheduler.ledger.real_cluster.node_index:
            return f"there is no node {node}"
        reading_ = self._clock.read()
        at = None if payload.get("at_wall") is None else reading_.at + float(payload["at_wall"]) - reading_.wall
        if at is None:
            self._drains.at.pop(node, None)
        else:
            self._drains.at[node] = at
        self._drain_reasons[node] = (at, str(payload.get("reason", "")))
        return ""

    # The store and the engine

    def _commit(self) -> None:
        """Writes everything that was applied; waits for the store as long as it is full or away."""
        is_due = self._clock.now() >= self._committed_at + self._renew_seconds
        if not (self._log or self._done or self._tables.has_changes or is_due):
            return
        while True:
            try:
                self._write()
                return
            except (StoreFull, StoreUnavailable) as error:
                log.error("the store does not take anything", error=str(error))
                time.sleep(RETRY_SECONDS)

    def _write(self) -> None:
        with writing(self._database) as connection:
            confirm_lead(connection, self._term, self._clock.read())
            append(connection, self._log)
            self._tables.write(connection, self.scheduler)
            for start in range(0, len(self._done), 500):
                connection.execute(delete(inbox).where(inbox.c.id.in_(self._done[start : start + 500])))
            waited_for = [
                {"inbox_id": number, "at": self._clock.now(), "problem": problem}
                for number, problem in self._answers.items()
            ]
            if waited_for:
                connection.execute(insert(answers), waited_for)
            for job_id, job in self._waiting_changed.items():
                connection.execute(delete(waiting).where(waiting.c.job_id == job_id))
                if job is not None:
                    connection.execute(insert(waiting).values(job_id=job_id, job=json.dumps(to_plain(job))))
            for node, (at, reason) in self._drain_reasons.items():
                connection.execute(update(nodes).where(nodes.c.name == node).values(drain_at=at, reason=reason))
        self._committed_at = self._clock.now()
        self._tables.written()
        self._log, self._done, self._answers, self._drain_reasons, self._waiting_changed = [], [], {}, {}, {}
        live = len(self.scheduler.jobs.live)
        if self._guarded.events_since_dump > max(SNAPSHOT_EVENTS, 2 * live):
            self.snapshot()

    def _execute(self) -> Sequence[Event]:
        commands, self._commands = self._commands, []
        if not commands:
            return ()
        for command in commands:
            if isinstance(command, Start):
                for job_id in command.job_ids:
                    self._prepare(job_id)
        return self._engine.execute(commands)

    def _prepare(self, job_id: str) -> None:
        row, found = self._tables.rows.get(job_id), self.scheduler.jobs.live.get(job_id)
        if row is None or found is None:
            return
        pool, serial = found
        job = pool.table.jobs[pool.table.row[serial]]
        values = {name: getattr(row, name) for name in JobRow.__slots__}
        self._engine.prepare(job_id, _spec(row), {"row": values, "job": to_plain(job)})

    # Questions

    def _answer(self, question: dict[str, Any]) -> dict[str, Any]:
        scheduler = self.scheduler
        if "why" in question:
            explanation = scheduler.explain(str(question["why"]))
            if explanation is None:
                return {"explanation": None}
            reason = "" if explanation.reason is None else str(explanation.reason)
            return {"explanation": to_plain(explanation), "reason": reason, "now": scheduler.now}
        if "reasons" in question:
            reasons = {str(each): scheduler.why(str(each)) for each in question["reasons"]}
            return {"reasons": {job_id: str(why) for job_id, why in reasons.items() if why is not None}}
        if "rho" in question:
            return {"rho": {str(each): scheduler.rho(str(each)) for each in question["rho"]}}
        return {
            "term": self._term,
            "seq": self._seq,
            "now": self._clock.now(),
            "decision_seconds": self.decision_seconds,
            "awaits_survey": scheduler.awaits_survey,
            "live_jobs": len(scheduler.jobs.live),
        }


_ENDED_AS = {"failed": "failed", "cancelled": "was cancelled", "refused": "was refused", "finished": "finished"}


def _spec(row: JobRow) -> JobSpec:
    return JobSpec.model_validate_json(row.spec)
