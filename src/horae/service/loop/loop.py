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
import socket
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any, TypeVar

import structlog
from sqlalchemy import Connection, select, update
from sqlalchemy import Engine as Database

from horae.driver import Guarded
from horae.journal import JournalLines, event_of
from horae.model.commands import Command, Start
from horae.model.errors import HoraeError
from horae.model.events import (
    Event,
    GpuChanged,
    GpuState,
    Health,
    JobCancelled,
    JobEnded,
    JobHeld,
    JobReleased,
    JobSubmitted,
    NodeChanged,
    PolicyChanged,
    SchedulerRestarted,
    Surveyed,
    TenantsChanged,
    Tick,
)
from horae.model.jobs import Job
from horae.model.notices import ChangeRefused, FactRejected
from horae.model.plans import Reaction
from horae.model.serialization import from_plain, to_plain
from horae.model.setup import Setup
from horae.model.setup_changes import changes
from horae.scheduler import Scheduler
from horae.service.api.masking import masked_text, named_jobs
from horae.service.clock import ClockReading, LogClock
from horae.service.loop.futures import Futures, is_about_the_future
from horae.service.loop.job_rows import JobRow, read_rows, row_of
from horae.service.loop.live_engine import LiveEngine
from horae.service.loop.patience import Patience
from horae.service.loop.questions import Questions, about_jobs
from horae.service.loop.requests import REQUESTS_AT_A_TIME, Answered, Request, next_requests
from horae.service.loop.schedule import Dependencies, Drains, TimeLimits
from horae.service.loop.searches import Order, Verb
from horae.service.loop.tables import Tables, write_setup
from horae.service.loop.waiting import ENDED_AS, WaitingJobs, states_of, unfinished
from horae.service.models import TRIAL_REPORTED, JobSpec
from horae.service.store.database import StoreFull, StoreUnavailable, TermEnded, reading, writing
from horae.service.store.leadership import Leadership, confirm_lead, has_written
from horae.service.store.log import LogRow, append, pack_dump, save_snapshot, set_meta
from horae.service.store.offsets import Offsets
from horae.service.store.schema import nodes, progress

T = TypeVar("T")
SNAPSHOT_EVENTS = 5000
CONFIGURED = "configured"  # in the table `meta`: the setup of the file that was applied last
FAILED_GPUS_MAX = 2  # with so many on one node, the node is drained

log = structlog.get_logger("loop")


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
        upkeep: Callable[[], None] = lambda: None,
        webhooks: Collection[str] = (),
    ) -> None:
        """`upkeep` is called after every cycle; `webhooks`: the tenants that are sent notices."""
        self._database = database
        self._term = leadership.term
        self._guarded = Guarded(scheduler, events_max=inf)
        self._seq = seq
        self._engine = engine
        self._clock = clock
        self._questions = questions
        self._futures = Futures()
        self._renew_seconds = renew_seconds
        self._upkeep = upkeep
        self._patiently = Patience(lambda: questions.serve(self._answer), lambda: self.stopping)
        self._attempted: ClockReading | None = None  # of the transaction that may have been written, or not
        self._lines = JournalLines()
        with reading(database) as connection:
            self._tables = Tables(connection, scheduler, webhooks)
            self._waiting = WaitingJobs(connection)
            self._offsets = Offsets(connection)
            drains = connection.execute(select(nodes.c.name, nodes.c.drain_at).where(nodes.c.drain_at.is_not(None)))
            self._drains = Drains({row.name: row.drain_at for row in drains})
        self._limits, self._dependencies = TimeLimits(), Dependencies()
        for row in self._tables.rows.values():
            with suppress(ValueError):  # a job file that this version does not read: the job goes on without a limit
                self._limits.add(row, _spec(row))
        self._log: list[LogRow] = []
        self._commands: list[Command] = []
        self._answered = Answered()
        self._configured: Setup | None = None
        self._configured_changed = False
        self._unreadable: list[str] = []  # jobs whose file cannot be read, to be cancelled
        self._drain_reasons: dict[str, tuple[float | None, str]] = {}
        self._committed_at = -inf
        self._more_requests = False
        self.decision_seconds = 0.0  # of the last tick
        self.stopping = False
        self.reload: Callable[[str], str] = lambda path: "this process cannot read its configuration again"
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
        for job_id in list(self._waiting.jobs):
            row = self._tables.rows[job_id]
            spec = self._readable(row)
            if spec is not None:
                self._wait_or_submit(row, self._waiting.jobs[job_id], spec.after)
        self.snapshot()
        self._patiently(self._write_setup)

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
        while self._unreadable:
            self._apply(JobCancelled(now, self._unreadable.pop()))
        if self._guarded.next_wakeup_at <= now:
            self._decide(now)
        self._tables.note_idle(self.scheduler, self._engine.take_idle(), now)
        self._engine.explain(self._why)
        self._commit()
        replies = self._execute()
        self._upkeep()
        self._futures.reap()
        return replies

    def close(self) -> None:
        self._futures.close()
        self._questions.close()

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
        dump = pack_dump(self._guarded.dump())

        def save() -> None:
            with writing(self._database) as connection:
                confirm_lead(connection, self._term, self._clock.read())
                save_snapshot(connection, self._seq, self.scheduler.now, dump)

        self._patiently(save)

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
        payload, effects = self._lines.event(event), self._guarded.recorded
        kind, wall = type(event).__name__, self._clock.read().wall
        self._log.append(LogRow(self._seq, self._term, event.at, wall, kind, payload, effects))
        self._tables.note(event, reaction, self.scheduler, self._seq, rho)
        self._commands.extend(reaction.commands)
        for notice in reaction.notices:
            log.warning("notice", kind=type(notice).__name__, text=str(notice))
        while self._tables.ended:
            self._ended(self._tables.ended.pop())
        if isinstance(event, GpuChanged) and event.state is GpuState.FAILED:
            self._drain_if_broken(event.gpu.node)
        return reaction

    def _drain_if_broken(self, node: str) -> None:
        """Drains a node on which several GPUs have failed: the fault is probably not in the GPUs."""
        states = self.scheduler.ledger.gpu_states
        failed = sorted(gpu for gpu, state in states.items() if gpu.node == node and state is GpuState.FAILED)
        if len(failed) >= FAILED_GPUS_MAX and self.scheduler.ledger.health_of(node) is Health.HEALTHY:
            self._apply(NodeChanged(self._clock.now(), node, Health.DRAINING))
            names = ", ".join(map(str, failed))
            self._drain_reasons[node] = (None, f"{len(failed)} of its GPUs have failed: {names}")

    def _ended(self, job_id: str) -> None:
        """Releases or cancels the jobs that waited for this one, and those that waited for these, in chains of any
        length."""
        ended = [job_id]
        while ended:
            row = self._tables.rows[ended.pop()]
            self._limits.drop(row.id)
            self._engine.forget(row.id)
            if row.id in self._tables.searches:
                self._end_trial(row)
            ready, never = self._dependencies.ended(row.id, finished=row.state == "finished")
            for each in ready:
                self._submit(each, self._waiting.jobs[each])
            for each in never:
                self._cancel(self._tables.rows[each], f"{row.id}, after which it shall run, {ENDED_AS[row.state]}")
            ended += never

    def _end_trial(self, row: JobRow) -> None:
        query = select(progress.c.loss).where(progress.c.job_id == row.id)
        loss = self._read(lambda connection: connection.scalar(query))
        self._carry_out(self._tables.searches.ended(row.id, row.state, row.steps, loss))

    def _refuse(self, row: JobRow, reason: str) -> None:
        """Ends a job that the scheduler does not have."""
        self._cancel(row, reason)
        self._ended(row.id)

    def _cancel(self, row: JobRow, reason: str) -> None:
        row.state, row.reason, row.ended_at, row.changed_seq = "cancelled", reason, self._clock.now(), self._seq
        self._tables.touch(row)
        self._waiting.remove(row.id)

    def _readable(self, row: JobRow) -> JobSpec | None:
        """The job file of a waiting job; one that this version cannot read is refused."""
        try:
            return _spec(row)
        except ValueError as error:
            log.error("a job file cannot be read", job=row.id, error=str(error))
            self._refuse(row, "its job file cannot be read by the service")
            return None

    def _adopt_unknown(self, survey: Surveyed) -> None:
        """Submits jobs that run and are not known here: the end of the log was lost, or an old backup is in use."""
        for run in survey.running:
            specification = self._engine.specification(run.job_id)
            if self.scheduler.status(run.job_id) is None and specification is not None:
                row = row_of(specification["row"])
                row.epoch, row.held_gpus, row.held_type, row.places, row.started_at = None, 0, "", "", None
                if row.id not in self._tables.rows:
                    self._tables.add(row, is_new=not self._read(partial(read_rows, job_ids=[row.id])))
                    self._limits.add(row, _spec(row))
                job: Job = from_plain(Job, specification["job"])
                self._apply(JobSubmitted(survey.at, job))

    # Requests

    def _apply_requests(self) -> None:
        requests, submitted = self._read(next_requests)
        self._more_requests = len(requests) == REQUESTS_AT_A_TIME
        for row in submitted:
            self._tables.add(row)
        several = {row.number for row in submitted if row.id != str(row.number)}  # they may be trials
        for number in sorted(several):
            self._read(partial(self._tables.searches.load, search=number))
        for request in requests:
            self._answered.add(request, self._answer_to(request))

    def _answer_to(self, request: Request) -> str:
        """Applies a request. One that fails in a way that was not foreseen is answered, too: it must not be there again
        after a restart."""
        try:
            return self._problem(request)
        except (StoreFull, StoreUnavailable, TermEnded):
            raise
        except Exception as error:
            log.exception("a request failed", id=request.id, kind=request.kind)
            row = self._tables.rows.get(str(request.payload.get("job", {}).get("id", "")))
            if row is not None and self.scheduler.status(row.id) is None and not row.has_ended:
                self._refuse(row, "an internal error of the service; its log has the details")
            return f"internal error: {type(error).__name__}"

    def _problem(self, request: Request) -> str:
        """Applies a request; returns what is wrong with it, or an empty text."""
        try:
            if request.kind == "DrainAt":
                return self._drain_at(request.payload)
            if request.kind == TRIAL_REPORTED:
                return self._trial_reported(request.payload)
            event = event_of({**request.payload, "event": request.kind}, "inbox", request.id)._replace(
                at=self._clock.now()
            )
        except (HoraeError, KeyError, TypeError, ValueError) as error:
            log.error("request rejected", id=request.id, kind=request.kind, error=str(error))
            return str(error)
        if isinstance(event, JobSubmitted):
            return self._accept(event)
        if isinstance(event, JobCancelled | JobHeld | JobReleased) and self._dependencies.waits(event.job_id):
            self._change_waiting(event)
            return ""
        ignored = self.scheduler.ignored
        reaction = self._apply(event)
        refused = [str(notice) for notice in reaction.notices if isinstance(notice, ChangeRefused)]
        if isinstance(event, NodeChanged | PolicyChanged | TenantsChanged) and self.scheduler.ignored > ignored:
            refused.append("it had no effect")
        return refused[0] if refused else ""

    def _change_waiting(self, event: JobCancelled | JobHeld | JobReleased) -> None:
        """Applies what a user asks of a job that the scheduler does not have yet."""
        row = self._tables.rows[event.job_id]
        if isinstance(event, JobCancelled):
            self._dependencies.drop(row.id)
            self._refuse(row, "cancelled by its owner")
            return
        row.state = "suspended" if isinstance(event, JobHeld) else "waiting"
        row.changed_seq = self._seq
        self._tables.touch(row)

    def _accept(self, event: JobSubmitted) -> str:
        row = self._tables.rows.get(event.job.id)
        if row is None:
            return f"job {event.job.id} has no row"
        if row.state != "submitted":
            return ""  # it was applied before
        spec = self._readable(row)
        if spec is None:
            return "the job file cannot be read"
        self._limits.add(row, spec)
        self._wait_or_submit(row, event.job, spec.after)
        return ""

    def _wait_or_submit(self, row: JobRow, job: Job, after: Sequence[str]) -> None:
        """Submits a job to the scheduler, unless jobs before it have yet to finish, or never will."""
        stored = self._read(partial(states_of, job_ids=after)) if after else {}
        left = unfinished(after, self._tables.rows, stored)
        if isinstance(left, str):
            self._refuse(row, left)
        elif left:
            self._dependencies.add(row.id, left)
            row.state = "suspended" if row.state == "suspended" else "waiting"  # by its owner, who may release it
            row.changed_seq = self._seq
            self._tables.touch(row)
            self._waiting.add(row.id, job)
        else:
            self._submit(row.id, job)

    def _submit(self, job_id: str, job: Job) -> None:
        self._waiting.remove(job_id)
        now, row = self._clock.now(), self._tables.rows[job_id]
        is_held = row.state == "suspended"
        reaction = self._apply(JobSubmitted(now, replace(job, submitted_at=now)))
        if any(isinstance(notice, FactRejected) for notice in reaction.notices):
            self._refuse(row, "an internal error of the scheduler; the service's log has the details")
        elif is_held:
            self._apply(JobHeld(now, job_id))

    def _drain_at(self, payload: dict[str, Any]) -> str:
        node = str(payload["node"])
        if node not in self.scheduler.ledger.real_cluster.node_index:
            return f"there is no node {node}"
        reading_ = self._clock.read()
        at = None if payload.get("at_wall") is None else reading_.at + float(payload["at_wall"]) - reading_.wall
        if at is None:
            self._drains.at.pop(node, None)
            self._engine.repair(node)
        else:
            self._drains.at[node] = at
        self._drain_reasons[node] = (at, str(payload.get("reason", "")))
        return ""

    # Searches

    def _trial_reported(self, payload: dict[str, Any]) -> str:
        loss = None if payload["loss"] is None else float(payload["loss"])
        self._carry_out(self._tables.searches.reported(str(payload["job_id"]), float(payload["steps"]), loss))
        return ""

    def _carry_out(self, orders: Sequence[Order]) -> None:
        for job_id, verb, reason in orders:
            row, now = self._tables.rows.get(job_id), self._clock.now()
            if verb is Verb.PAUSE:
                self._apply(JobHeld(now, job_id))
                if row is not None:
                    row.reason = reason
            else:
                self._apply(JobReleased(now, job_id) if verb is Verb.GO_ON else JobCancelled(now, job_id, reason))

    # The store and the engine

    def _commit(self) -> None:
        """Writes everything that was applied."""
        is_due = self._clock.now() >= self._committed_at + self._renew_seconds
        if not (self._log or self._answered or self._tables.has_changes or is_due):
            return
        self._patiently(self._write)
        self._attempted = None
        self._committed_at = self._clock.now()
        self._tables.written()
        self._configured_changed = False
        self._answered.written(self._clock.now())
        self._waiting.written()
        self._offsets.written()
        self._log, self._drain_reasons = [], {}
        live = len(self.scheduler.jobs.live)
        if self._guarded.events_since_dump > max(SNAPSHOT_EVENTS, 2 * live):
            self.snapshot()

    def _read(self, query: Callable[[Connection], T]) -> T:
        def read() -> T:
            with reading(self._database) as connection:
                return query(connection)

        return self._patiently(read)

    def _write_setup(self) -> None:
        with writing(self._database) as connection:
            confirm_lead(connection, self._term, self._clock.read())
            write_setup(connection, self.scheduler)

    def _write(self) -> None:
        with writing(self._database) as connection:
            if self._attempted is not None and has_written(connection, self._term, self._attempted):
                return  # only the answer to its commit was lost
            self._attempted = self._clock.read()
            confirm_lead(connection, self._term, self._attempted)
            append(connection, self._log)
            self._tables.write(connection, self.scheduler)
            self._answered.write(connection, self._clock.now())
            self._waiting.write(connection)
            self._offsets.write(connection, self._attempted)
            if self._configured_changed:
                set_meta(connection, CONFIGURED, json.dumps(to_plain(self._configured)))
            for node, (at, reason) in self._drain_reasons.items():
                connection.execute(update(nodes).where(nodes.c.name == node).values(drain_at=at, reason=reason))

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
        try:
            spec = _spec(row)
        except ValueError as error:  # of a former version; without its file the engine reports it as lost
            log.error("a job file cannot be read", job=row.id, error=str(error))
            self._unreadable.append(job_id)
            return
        values = {name: getattr(row, name) for name in JobRow.__slots__}
        self._engine.prepare(job_id, spec, {"row": values, "job": to_plain(job)})

    # Configuration

    def change_setup(self, wanted: Setup) -> str:
        """Applies another configuration as a whole; returns why it cannot be, and then nothing has changed.

        The events are tried on a copy of the scheduler first.
        """
        events = changes(self._configured or self.scheduler.present_setup(), wanted, self._clock.now())
        trial = Scheduler.restore(self.scheduler.dump())
        for event in events:
            for notice in trial.handle(event).notices:
                if isinstance(notice, ChangeRefused):
                    return str(notice)
        for event in events:
            self._apply(event)
        self.note_configured(wanted)
        return ""

    def note_configured(self, setup: Setup) -> None:
        """Tells which configuration is in force: what differs from it was changed through the API, and stays so when
        another version of the file is applied."""
        self._configured, self._configured_changed = setup, True

    # Questions

    def _why(self, job_id: str) -> str:
        """Why a job waits or has ended, as its tenant may see it; empty if it runs."""
        reason, row = self.scheduler.why(job_id), self._tables.rows.get(job_id)
        if row is not None and row.has_ended:
            return f"{row.state}: {row.reason}" if row.reason else row.state
        if reason is None or row is None:
            return ""
        text = str(reason)
        rows = (self._tables.rows.get(name) for name in named_jobs(text))
        return masked_text(text, {each.id for each in rows if each is not None and each.tenant == row.tenant})

    def _answer(self, question: dict[str, Any], client: socket.socket) -> dict[str, Any] | None:
        scheduler = self.scheduler
        if is_about_the_future(question):
            problem = self._futures.begin(client, question, scheduler, self._clock.now())
            return {"problem": problem} if problem else None
        if "reload" in question:
            return {"problem": self.reload(str(question["reload"]))}
        return about_jobs(scheduler, question) or {
            "term": self._term,
            "seq": self._seq,
            "now": self._clock.now(),
            "decision_seconds": self.decision_seconds,
            "awaits_survey": scheduler.awaits_survey,
            "live_jobs": len(scheduler.jobs.live),
        }


def _spec(row: JobRow) -> JobSpec:
    return JobSpec.model_validate_json(row.spec)
