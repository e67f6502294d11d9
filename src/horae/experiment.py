"""Whole runs: a workload through a scheduler on an engine, and the replay of a journal."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from pathlib import Path

from horae.driver import Observer, run
from horae.engines.engine import Engine
from horae.engines.searching import SearchEngine
from horae.engines.simulated import SimulatedEngine
from horae.journal import Entry, Journal, JournalWriter, create_journal, parse_journal, read_journal, reopen_journal
from horae.model.commands import Command, Survey
from horae.model.errors import InputError, JournalError
from horae.model.events import Event
from horae.model.jobs import Arrival
from horae.model.pools import Setup
from horae.model.reasons import Reason, Refusal
from horae.model.searches import Search
from horae.reports.log import RunLog
from horae.reports.records import Recorder
from horae.scheduler import Scheduler


@dataclass(frozen=True)
class Run:
    """A workload that was run to its end."""

    recorder: Recorder
    refused: Mapping[str, Refusal]  # by job id: why it can never run
    unfinished: Mapping[str, Reason | None]  # accepted, and yet there is nothing left that could move them

    @cached_property
    def log(self) -> RunLog:
        return self.recorder.log(self.refused)


def simulate(
    setup: Setup,
    arrivals: Iterable[Arrival],
    outside: Iterable[Event] = (),
    *,
    checkpoint_seconds: float = 0.0,
    journal: Path | None = None,
    observers: Sequence[Observer] = (),
    enough: Callable[[], bool] = lambda: False,
    wrap: Callable[[Engine], Engine] = lambda engine: engine,
    searches: Sequence[Search] = (),
) -> Run:
    """Run a workload in virtual time to its end, or until somebody has seen enough.

    The scheduler is made first: bad input leaves no file behind. `wrap` puts something around the engine, such as one
    that learns speeds by watching. Of `searches`, the arrivals have the first jobs only.
    """
    recorder = Recorder(setup)
    scheduler = Scheduler(setup)
    expected = recorder.expecting(arrivals)
    simulated = SimulatedEngine(setup.cluster, expected, outside, checkpoint_seconds, setup.sharing)
    engine = wrap(SearchEngine(simulated, searches, recorder.expect) if searches else simulated)
    if journal is None:
        run(scheduler, engine, [recorder, *observers], enough=enough)
        return _outcome(recorder, scheduler)
    with create_journal(journal) as writer:
        writer.open(setup)
        run(scheduler, engine, [recorder, *observers], writer, enough)
    return _outcome(recorder, scheduler)


def _outcome(recorder: Recorder, scheduler: Scheduler) -> Run:
    why = {job_id: scheduler.why(job_id) for job_id in recorder.live}
    refused = {job_id: reason for job_id, reason in why.items() if isinstance(reason, Refusal)}
    unfinished = {job_id: reason for job_id, reason in why.items() if job_id not in refused}
    return Run(recorder, refused, unfinished)


@dataclass(frozen=True)
class Replay:
    """What came of feeding a journal's events to a fresh scheduler."""

    scheduler: Scheduler
    writer: JournalWriter  # it knows what was written, and can go on from there
    events: int
    commands: int
    unsent: tuple[Command, ...]  # the last event's commands: after a crash nobody knows whether they were sent
    missing: str  # what the last event led to and a crash kept from being written
    difference: str  # the first line that came out otherwise; empty: all of it is the same, bit for bit


def replay(journal: Journal) -> Replay:
    scheduler = Scheduler(journal.setup)
    page = io.StringIO()
    writer = JournalWriter(page)
    events, commands = 0, 0
    unsent: tuple[Command, ...] = ()
    missing, difference = "", ""
    entry = next(journal.entries, None)
    while entry is not None:
        reaction = scheduler.handle(entry.event)
        events, commands, unsent = events + 1, commands + len(reaction.commands), reaction.commands
        page.seek(0)
        page.truncate()
        writer.reacted(entry.event, reaction)
        lines = page.getvalue().splitlines(keepends=True)
        following = next(journal.entries, None)
        if following is None:
            missing = "".join(lines[len(entry.lines) :])
            lines = lines[: len(entry.lines)]
        difference = difference or _difference(entry, lines)
        entry = following
    return Replay(scheduler, writer, events, commands, unsent, missing, difference)


def recover(path: Path) -> Replay:
    """Rebuild a scheduler after a crash, and repair its journal so that both can continue.

    No line that is whole is lost, and a journal that cannot be read or does not replay is left as it is.
    """
    replayed = replay_file(path)
    if replayed.difference:
        raise JournalError(
            f"does not replay: {replayed.difference}", file=str(path), remedy="use the Horae that wrote it"
        )
    try:
        replayed.writer.go_on(reopen_journal(path), replayed.missing)
    except JournalError:
        with suppress(JournalError):
            replayed.writer.close()
        raise
    # Whatever was under way when it crashed, the engine knows.
    return replace(replayed, unsent=(*replayed.unsent, Survey()))


def _difference(entry: Entry, replayed: list[str]) -> str:
    for number, (was, now) in enumerate(zip_longest(entry.lines, replayed, fillvalue="nothing"), start=entry.line + 1):
        if was != now:
            return f"line {number}: recorded {was.strip()}, replayed {now.strip()}"
    return ""


def replay_file(path: Path) -> Replay:
    """Replay a journal; whatever in it cannot be used, such as a policy that is not installed, is a `JournalError`."""
    try:
        return replay(read_journal(path))
    except InputError as error:
        file = error.file or str(path)
        raise JournalError(error.problem, remedy=error.remedy, file=file, line=error.line, field=error.field) from None


def replay_text(text: str) -> Replay:
    return replay(parse_journal(io.StringIO(text)))
