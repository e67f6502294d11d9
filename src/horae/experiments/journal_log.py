"""The log of a run from its journal: what was submitted, started and ended, without deciding anything again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from horae.journal import JournalEntry, read_journal
from horae.model.commands import Command, Start
from horae.model.errors import InputError, JournalError
from horae.model.events import ClusterChanged, JobSubmitted
from horae.model.plans import Reaction
from horae.model.serialization import from_plain
from horae.model.setup import Setup
from horae.reports.recorder import Recorder
from horae.reports.run_log import RunLog
from horae.scheduler import Scheduler


class JournalRun(NamedTuple):
    setup: Setup
    origin: str
    log: RunLog
    has_limits: bool  # all jobs have time limits


def journal_run(path: Path) -> JournalRun:
    try:
        return _read(path)
    except InputError as error:
        raise error.located(file=str(path)) from None
    except (KeyError, TypeError, ValueError) as error:
        problem = f"contradicts itself: {' '.join(str(error).split())}"
        raise JournalError(problem, file=str(path), remedy="take a whole copy of it") from None


def _read(path: Path) -> JournalRun:
    journal = read_journal(path)
    recorder, has_limits = Recorder(journal.setup), True
    for entry in journal.entries:
        event = entry.event
        if isinstance(event, ClusterChanged):
            raise InputError(
                f"the cluster changed at second {event.at:,.0f}, and a report is about one cluster",
                line=entry.line,
                remedy="take a journal that begins later, or the commands `horae usage` and `horae history`",
            )
        if isinstance(event, JobSubmitted):
            has_limits &= event.job.limit_seconds < float("inf")
        recorder.reacted(event, Reaction(tuple(_starts(entry)), ()))
    return JournalRun(journal.setup, journal.origin, recorder.log(_refused(recorder, journal.setup)), has_limits)


def _starts(entry: JournalEntry) -> list[Command]:
    """Starts whose event was written completely; others were never sent."""
    if not entry.is_whole:
        return []
    lines = [json.loads(line) for line in entry.lines[1:] if '"command":"Start"' in line]
    return [
        from_plain(Start, {name: value for name, value in plain.items() if name != "command"})
        for plain in lines
        if plain.get("command") == Start.__name__
    ]


def _refused(recorder: Recorder, setup: Setup) -> set[str]:
    """Jobs that never started because they never can: a journal has no line for that, but the setup decides it."""
    never = [life.job for life in recorder.live.values() if not life.starts]
    if not never:
        return set()
    scheduler = Scheduler(replace(setup, retention_seconds=float("inf")))
    for job in sorted(never, key=lambda job: job.submitted_at):
        scheduler.handle(JobSubmitted(job.submitted_at, job))
    return {job.id for job in never if job.id in scheduler.jobs.refused}
