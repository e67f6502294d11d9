"""Questions to a journal: what stood in a job's way at some moment, and how it got there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches
from math import inf
from pathlib import Path

from horae.journal import EffectsReader, read_journal
from horae.model.errors import InputError, JobError
from horae.model.events import JobSubmitted
from horae.model.explanations import Explanation
from horae.reports.story import Story
from horae.scheduler import Scheduler


@dataclass(frozen=True)
class Hindsight:
    explanation: Explanation
    story: tuple[tuple[float, str], ...]  # (seconds, what happened)


def look_back(path: Path, job_id: str, at: float = inf) -> Hindsight:
    """Let a fresh scheduler live through the journal up to a moment (that included), and ask it."""
    try:
        journal = read_journal(path)
        scheduler = Scheduler(journal.setup)
        story, reader = Story(job_id), EffectsReader(str(path))
        known: list[str] = []
        for entry in journal.entries:
            if isinstance(entry.event, JobSubmitted):
                known.append(entry.event.job.id)
            effects = reader.read(entry)
            if entry.event.at <= at:
                story.reacted(entry.event, scheduler.handle(entry.event, effects if entry.is_whole else None))
    except InputError as error:
        raise error.located(file=str(path)) from None
    explanation = scheduler.explain(job_id)
    if explanation is None:
        raise _nobody(path, job_id, at, known)
    return Hindsight(replace(explanation, at=at if at < inf else explanation.at), tuple(story.lines))


def _nobody(path: Path, job_id: str, at: float, known: list[str]) -> InputError:
    if job_id in known:
        return JobError(
            f"{job_id!r} was submitted after {at:g} s", file=str(path), field="--at", remedy="ask for a later moment"
        )
    close = get_close_matches(job_id, known, n=3)
    remedy = f"did you mean {' or '.join(close)}?" if close else f"it knows {len(known):,} jobs, such as {known[:3]}"
    return JobError(f"there is no job {job_id!r}", file=str(path), field="JOB", remedy=remedy)
