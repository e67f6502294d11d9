"""Whole runs: a workload through a scheduler on an engine, and the replay of a journal."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from horae.driver import Observer, run
from horae.engines.simulated import SimulatedEngine
from horae.journal import Entry, Journal, JournalWriter, parse_journal, read_journal
from horae.model.commands import Command
from horae.model.events import Event
from horae.model.jobs import Arrival
from horae.model.pools import Setup
from horae.reports.records import Recorder
from horae.scheduler import Scheduler


def simulate(
    setup: Setup,
    arrivals: Iterable[Arrival],
    outside: Iterable[Event] = (),
    *,
    checkpoint_seconds: float = 0.0,
    journal: Path | None = None,
    observers: Sequence[Observer] = (),
) -> Recorder:
    """Run a workload to its end in virtual time. The scheduler is made first: bad input leaves no file behind."""
    recorder = Recorder()
    scheduler = Scheduler(setup)
    engine = SimulatedEngine(setup.cluster, arrivals, outside, checkpoint_seconds)
    if journal is None:
        run(scheduler, engine, [recorder, *observers])
        return recorder
    with journal.open("w", encoding="utf-8", newline="\n") as file:
        writer = JournalWriter(file)
        writer.open(setup)
        run(scheduler, engine, [writer, recorder, *observers])
    return recorder


@dataclass(frozen=True)
class Replay:
    """What came of feeding a journal's events to a fresh scheduler."""

    scheduler: Scheduler
    unsent: tuple[Command, ...]  # the last event's commands: after a crash nobody knows whether they were sent
    events: int
    commands: int
    difference: str = ""  # the first line that came out otherwise; empty: all of it is the same, bit for bit


def replay(journal: Journal) -> Replay:
    scheduler = Scheduler(journal.setup)
    page = io.StringIO()
    writer = JournalWriter(page)
    events, commands = 0, 0
    unsent: tuple[Command, ...] = ()
    difference = ""
    entry = next(journal.entries, None)
    while entry is not None:
        reaction = scheduler.handle(entry.event)
        events, commands, unsent = events + 1, commands + len(reaction.commands), reaction.commands
        page.seek(0)
        page.truncate()
        writer.reacted(entry.event, reaction)
        following = next(journal.entries, None)
        difference = difference or _difference(entry, page.getvalue().splitlines(keepends=True), last=following is None)
        entry = following
    return Replay(scheduler, unsent, events, commands, difference)


def _difference(entry: Entry, replayed: list[str], *, last: bool) -> str:
    """The first line that differs. A crash may have cut the last entry short; it is compared as far as it goes."""
    expected = replayed[: len(entry.lines)] if last else replayed
    for number, (was, now) in enumerate(zip_longest(entry.lines, expected, fillvalue="nothing"), start=entry.line + 1):
        if was != now:
            return f"line {number}: recorded {was.strip()}, replayed {now.strip()}"
    return ""


def replay_file(path: Path) -> Replay:
    return replay(read_journal(path))


def replay_text(text: str) -> Replay:
    return replay(parse_journal(io.StringIO(text)))
