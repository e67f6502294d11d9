"""Queries on a journal: what blocked a job at some time, and its history."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from math import inf, nan
from pathlib import Path

from horae.experiments.log_time import LogTime
from horae.journal import EffectsReader, read_journal
from horae.model.cluster import Gpu
from horae.model.commands import Start
from horae.model.errors import InputError, JobError
from horae.model.events import Ending, Event, JobCancelled, JobEnded, JobStarted, JobSubmitted
from horae.model.explanations import Explanation
from horae.model.jobs import Job
from horae.model.plans import Reaction, Round
from horae.model.safe_text import counted
from horae.model.status import Status
from horae.scheduler import Scheduler


@dataclass(frozen=True)
class JournalExplanation:
    explanation: Explanation
    story: tuple[tuple[float, str], ...]  # (seconds, what happened)
    time: LogTime = field(default_factory=LogTime)  # converts seconds to dates, where the log has any
    started_at: float = nan  # of a job that waits at that time: when it started later, according to the same journal


def explain_journal(path: Path, job_id: str, at: float | str = inf) -> JournalExplanation:
    """Replays the journal in a fresh scheduler up to a time (inclusive), and queries it.

    The time is in seconds from the start of the log, or a text: `10m`, `2h`, `1d` from there, or a date.
    """
    try:
        journal = read_journal(path)
        time = LogTime(journal.origin)
        if isinstance(at, str):
            at = time.seconds(at)
        if at < 0:
            problem = f"{time.text(at)} is before the log begins"
            raise InputError(problem, field="--at", remedy=f"ask for a moment from {time.text(0.0)} on")
        scheduler = Scheduler(replace(journal.setup, retention_seconds=inf))  # ended jobs can be asked about, too
        story, reader = Story(job_id), EffectsReader(str(path))
        known: list[str] = []
        later = nan
        for entry in journal.entries:
            if isinstance(entry.event, JobSubmitted):
                known.append(entry.event.job.id)
            effects = reader.read(entry)
            if entry.event.at > at:
                later = min(entry.event.at, later) if _starts(entry.event, job_id) else later
            else:
                story.reacted(entry.event, scheduler.handle(entry.event, effects if entry.is_whole else None))
    except InputError as error:
        raise (error if error.field == "--at" else error.located(file=str(path))) from None
    explanation = scheduler.explain(job_id)
    if explanation is None:
        raise _nobody(path, job_id, at, time, known)
    explanation = replace(explanation, at=at if at < inf else explanation.at)
    waits = explanation.status in (Status.PENDING, Status.HOLDING)
    return JournalExplanation(explanation, tuple(story.lines), time, later if waits else nan)


def _starts(event: Event, job_id: str) -> bool:
    return isinstance(event, JobStarted) and event.job_id == job_id


def _nobody(path: Path, job_id: str, at: float, time: LogTime, known: list[str]) -> InputError:
    if job_id in known:
        return JobError(
            f"{job_id!r} was submitted after {time.text(at)} ({at:,.0f} s)",
            file=str(path),
            field="--at",
            remedy="ask for a later moment",
        )
    close = get_close_matches(job_id, known, n=3)
    remedy = (
        f"did you mean {' or '.join(close)}?"
        if close
        else f"it knows {counted(len(known), 'job')}, such as {', '.join(known[:3])}"
    )
    return JobError(f"there is no job {job_id!r}", file=str(path), field="JOB", remedy=remedy)


# The history of one job: a fold over events and reactions, the same for a live run and for a journal

_ENDINGS = {
    Ending.FINISHED: "finished",
    Ending.FAILED: "failed",
    Ending.STOPPED: "left its GPUs, its work saved",
    Ending.LOST: "was lost with its hardware",
}


@dataclass
class Story:
    """An observer that records the history of one job, in words."""

    job_id: str
    lines: list[tuple[float, str]] = field(default_factory=list)  # (seconds, what happened)

    def reacted(self, event: Event, reaction: Reaction) -> None:
        if isinstance(event, JobSubmitted) and event.job.id == self.job_id:
            self._add(event.at, _submission(event.job))
        elif isinstance(event, JobEnded) and event.job_id == self.job_id:
            self._add(event.at, _ENDINGS[event.ending] + (f": {event.message}" if event.message else ""))
        elif isinstance(event, JobCancelled) and event.job_id == self.job_id:
            self._add(event.at, "cancelled by its owner")
        for round_ in reaction.rounds:
            self._planned(round_)
        for command in reaction.commands:
            if isinstance(command, Start) and self.job_id in command.job_ids:
                self._add(event.at, f"started on {command.shape} ({self._nodes(command.gpus)})")

    def _planned(self, round_: Round) -> None:
        if not round_.plan.departures or self.job_id not in round_.job_ids:
            return
        serial = int(round_.serials[round_.job_ids.index(self.job_id)])
        for departure in round_.plan.departures:
            if departure.serial == serial:
                self._add(round_.at, str(departure.reason))

    def _nodes(self, gpus: tuple[Gpu, ...]) -> str:
        unique = list(dict.fromkeys(gpu.node for gpu in gpus))
        return ", ".join(unique[:4]) + (f" and {len(unique) - 4} more nodes" if len(unique) > 4 else "")

    def _add(self, at: float, line: str) -> None:
        if (at, line) not in self.lines[-1:]:  # a command may be sent twice
            self.lines.append((at, line))


def _submission(job: Job) -> str:
    others = len(job.options) - 1
    more = f" or {others} other shape{'s' if others > 1 else ''}" if others else ""
    return f"submitted by {job.owner}: {job.options[0].shape}{more}"
