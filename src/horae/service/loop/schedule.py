"""What the service does at given times or after given jobs: time limits, dependencies, drains."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from horae.model.events import TIME_IS_UP, Event, Health, JobCancelled, NodeChanged
from horae.service.loop.job_rows import JobRow
from horae.service.models import JobSpec


class TimeLimits:
    """Cancels jobs that have run for longer than their `max_duration`, over all their leases."""

    def __init__(self) -> None:
        self._limit: dict[str, float] = {}  # by job

    def add(self, row: JobRow, spec: JobSpec) -> None:
        if spec.max_duration is not None:
            self._limit[row.id] = spec.max_duration

    def drop(self, job_id: str) -> None:
        self._limit.pop(job_id, None)

    def next_at(self, rows: dict[str, JobRow]) -> float:
        return min((self._ends_at(job_id, rows) for job_id in self._limit), default=inf)

    def due(self, rows: dict[str, JobRow], now: float) -> list[Event]:
        late = [job_id for job_id in self._limit if self._ends_at(job_id, rows) <= now]
        return [JobCancelled(now, each, f"{TIME_IS_UP} {self._limit.pop(each):g} s") for each in late]

    def _ends_at(self, job_id: str, rows: dict[str, JobRow]) -> float:
        row = rows.get(job_id)
        if row is None or row.started_at is None:
            return inf
        return row.started_at + self._limit[job_id] - row.run_seconds


class Dependencies:
    """Jobs that wait for others: they are submitted when all of these have finished, and cancelled if one does not."""

    def __init__(self) -> None:
        self._awaited: dict[str, set[str]] = {}  # by waiting job
        self._waiting: dict[str, list[str]] = {}  # by awaited job

    def add(self, job_id: str, after: Iterable[str]) -> None:
        self._awaited[job_id] = set(after)
        for other in self._awaited[job_id]:
            self._waiting.setdefault(other, []).append(job_id)

    def waits(self, job_id: str) -> bool:
        return job_id in self._awaited

    def drop(self, job_id: str) -> None:
        for other in self._awaited.pop(job_id, set()):
            self._waiting[other].remove(job_id)

    def ended(self, job_id: str, *, finished: bool) -> tuple[list[str], list[str]]:
        """The jobs that are ready now, and those that can never be."""
        ready, never = [], []
        for waiting in self._waiting.pop(job_id, []):
            awaited = self._awaited.get(waiting)
            if awaited is None:
                continue
            awaited.discard(job_id)
            if not finished:
                never.append(waiting)
                self.drop(waiting)
            elif not awaited:
                ready.append(waiting)
                del self._awaited[waiting]
        return ready, never


class Drains:
    """Nodes that shall be drained at given times."""

    def __init__(self, at: dict[str, float]) -> None:
        self.at = at

    def next_at(self) -> float:
        return min(self.at.values(), default=inf)

    def due(self, now: float) -> list[Event]:
        late = [node for node, at in self.at.items() if at <= now]
        for node in late:
            del self.at[node]
        return [NodeChanged(now, node, Health.DRAINING) for node in late]
