"""Replays a journal and compares it, or folds it into the state at a crash."""

from __future__ import annotations

import io
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from horae.journal import (
    EffectsReader,
    JournalEntry,
    JournalFile,
    JournalWriter,
    parse_journal,
    read_journal,
    reopen_journal,
)
from horae.model.commands import Command, Survey
from horae.model.errors import BrokenInvariant, InputError, JournalError
from horae.scheduler import Scheduler


@dataclass(frozen=True)
class Replay:
    """A fresh scheduler that has handled every event of a journal again, and whether its decisions were the same."""

    scheduler: Scheduler
    events: int
    commands: int
    difference: str  # the first line that differs; empty: identical, bit for bit


def replay(journal: JournalFile) -> Replay:
    """Calls the policies again. That is a test; `recover` does not depend on what they decide today."""
    scheduler = Scheduler(journal.setup)
    page = io.StringIO()
    writer = JournalWriter(page)
    events, commands, difference = 0, 0, ""
    entry = next(journal.entries, None)
    while entry is not None:
        reaction = scheduler.handle(entry.event)
        events, commands = events + 1, commands + len(reaction.commands)
        page.seek(0)
        page.truncate()
        writer.reacted(entry.event, reaction)
        lines = page.getvalue().splitlines(keepends=True)
        following = next(journal.entries, None)
        if following is None:
            lines = lines[: len(entry.lines)]  # the writer may have been interrupted
        difference = difference or _difference(entry, lines)
        entry = following
    return Replay(scheduler, events, commands, difference)


@dataclass(frozen=True)
class Recovery:
    """A scheduler in the state at the end of its journal."""

    scheduler: Scheduler
    writer: JournalWriter  # continues where the journal ended
    unsent: tuple[Command, ...]  # commands that may not have been sent, and a survey


def fold(journal: JournalFile) -> tuple[Scheduler, list[JournalEntry], EffectsReader, tuple[Command, ...], int]:
    """Rebuilds a scheduler from recorded effects, without its last event if the effects of that are incomplete.

    Returns that event, the commands of the last complete one, and the number of lines up to there.
    """
    scheduler, reader = Scheduler(journal.setup), EffectsReader()
    unsent: tuple[Command, ...] = ()
    lines = 1
    entry = next(journal.entries, None)
    while entry is not None:
        following = next(journal.entries, None)
        if following is None and not entry.is_whole:
            return scheduler, [entry], reader, unsent, lines
        reaction = scheduler.handle(entry.event, reader.read(entry))
        unsent = reaction.commands
        lines = entry.line + len(entry.lines)
        entry = following
    return scheduler, [], reader, unsent, lines


def recover(path: Path) -> Recovery:
    """Rebuilds a scheduler after a crash from its journal, and repairs the journal so that both can continue.

    Nothing is decided again except for the last event, if its effects are incomplete: then none of its commands was
    sent. No complete line is lost, and a journal that cannot be read is left as it is.
    """
    try:
        scheduler, cut_short, reader, unsent, lines = fold(read_journal(path))
        for entry in cut_short:
            reaction = scheduler.handle(entry.event)
            unsent, lines = reaction.commands, entry.line
    except InputError as error:
        raise as_journal_error(error, path) from None
    except BrokenInvariant as error:
        raise JournalError(f"contradicts itself: {error}", file=str(path), remedy="take a whole copy of it") from None
    writer = JournalWriter(reopen_journal(path, lines), flush=True)
    writer.go_on(writer.file, reader.last_decisions)
    try:
        for entry in cut_short:
            writer.reacted(entry.event, reaction)
        writer.flush()
    except JournalError:
        with suppress(JournalError):
            writer.close()
        raise
    # The engine knows what was in progress at the crash.
    return Recovery(scheduler, writer, (*unsent, Survey()))


def _difference(entry: JournalEntry, replayed: list[str]) -> str:
    for number, (was, now) in enumerate(zip_longest(entry.lines, replayed, fillvalue="nothing"), start=entry.line + 1):
        if was != now:
            return f"line {number}: recorded {was.strip()}, replayed {now.strip()}"
    return ""


def replay_file(path: Path) -> Replay:
    """Replays a journal file; unusable content, such as a policy that is not installed, is a `JournalError`."""
    try:
        return replay(read_journal(path))
    except InputError as error:
        raise as_journal_error(error, path) from None


def as_journal_error(error: InputError, path: Path) -> JournalError:
    file = error.file or str(path)
    return JournalError(error.problem, remedy=error.remedy, file=file, line=error.line, field=error.field)


def replay_text(text: str) -> Replay:
    return replay(parse_journal(io.StringIO(text)))
