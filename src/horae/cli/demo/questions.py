"""Asks the service `why` and `eta` about jobs of the demo while it runs, and compares answers with what happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from horae.cli.demo.snapshot import Snapshot
from horae.cli.live.why import describe
from horae.client import Client
from horae.model.errors import ServiceError
from horae.service.models import EtaView, JobView, Why

FIRST_SECONDS, EVERY_SECONDS = 4.0, 8.0
BUDGET_SECONDS, DRAWS = 4.0, 5  # the processors have jobs to run, too
WHY_LINES = ("why", "unblocks", "share")  # of the answer; all of it is on the page of the job


@dataclass(frozen=True)
class Asked:
    """Both answers about one job, which waited."""

    job: JobView
    at_seconds: float
    why: Why
    eta: EtaView

    def why_lines(self) -> list[str]:
        first, *others = describe(self.why)
        shown = [line.strip() for line in others if line.strip().startswith(WHY_LINES)]
        return [f"{self.job.name}, job {first}", *shown]


class Questions:
    """Asks about one waiting job at a time, in a thread: an answer may take its time budget."""

    def __init__(self, state: Path) -> None:
        self.answers: list[Asked] = []
        self._client = Client(state=state)
        self._thread = ThreadPoolExecutor(1)
        self._pending: Future[Asked | None] | None = None
        self._due_at = FIRST_SECONDS
        self._seen: set[str] = set()

    def ask(self, now: Snapshot) -> None:
        """Takes the answer that has come, and asks about another job if it is time."""
        if self._pending is not None and self._pending.done():
            found = self._pending.result()
            self.answers += [] if found is None else [found]
            self._pending = None
        fresh = [job for job in now.waiting if job.id not in self._seen and job.state != "submitted"]
        if self._pending is None and fresh and now.seconds >= self._due_at:
            job = min(fresh, key=lambda each: each.submitted_at)
            self._seen.add(job.id)
            self._due_at = now.seconds + EVERY_SECONDS
            self._pending = self._thread.submit(self._answers, job, now.seconds)

    def _answers(self, job: JobView, seconds: float) -> Asked | None:
        try:
            why = self._client.why(job)
            return Asked(job, seconds, why, self._client.eta(job, seconds=BUDGET_SECONDS, draws=DRAWS))
        except ServiceError:  # it has ended by now, or the service is being started anew
            return None

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)
        self._client.close()


@dataclass(frozen=True)
class Outcome:
    """What an `eta` said about the end of a job, in seconds from when it was asked, and what happened."""

    asked: Asked
    predicted: float | None  # the median; None: no end was found within the time budget
    low: float | None
    high: float | None
    happened: float | None  # None: the job had not ended when the demo did
    watched: float  # how long that was

    @property
    def error(self) -> float | None:
        return None if self.predicted is None or self.happened is None else abs(self.predicted - self.happened)


def outcomes(answers: Sequence[Asked], jobs: Mapping[str, JobView], now: float) -> list[Outcome]:
    """Every answer beside what happened, in the order in which they were asked; `now` is in Unix time."""
    found = []
    for asked in answers:
        at, ends = asked.eta.asked_at, asked.eta.ends
        predicted, low, high = (None if each is None else each - at for each in (ends.median, ends.low, ends.high))
        job = jobs.get(asked.job.id)
        happened = job.ended_at - at if job is not None and job.state == "finished" and job.ended_at else None
        found.append(Outcome(asked, predicted, low, high, happened, now - at))
    return found


def example(found: Sequence[Outcome]) -> Outcome | None:
    """The one to show: the first with an estimate whose job has ended, else the first."""
    return next((each for each in found if each.error is not None), found[0] if found else None)
