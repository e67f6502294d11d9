"""What became of each job: a fold over events and commands, the same for a live run and for a journal."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from horae.model.arrays import Floats
from horae.model.commands import Start
from horae.model.events import Ending, Event, JobCancelled, JobEnded, JobSubmitted
from horae.model.jobs import Job
from horae.model.plans import Reaction


@dataclass(slots=True)
class _Life:
    job: Job
    epoch: int = -1
    gpus: int = 0
    since: float = 0.0
    first_started_at: float = float("nan")
    run_seconds: float = 0.0
    gpu_seconds: float = 0.0
    starts: int = 0
    failures: int = 0
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    job_id: str
    tenant: str
    app: str
    gpus: int
    outcome: str  # finished, failed, cancelled
    submitted_at: float
    started_at: float  # nan: never
    ended_at: float
    run_seconds: float
    gpu_seconds: float
    starts: int


@dataclass
class Recorder:
    """An observer that keeps one row for each job that has ended."""

    rows: list[tuple[str, str, str, int, str, float, float, float, float, float, int]] = field(default_factory=list)
    live: dict[str, _Life] = field(default_factory=dict)

    def reacted(self, event: Event, reaction: Reaction) -> None:
        if isinstance(event, JobSubmitted):
            self.live.setdefault(event.job.id, _Life(event.job))
        elif isinstance(event, JobEnded):
            self._ended(event)
        elif isinstance(event, JobCancelled) and event.job_id in self.live:
            life = self.live[event.job_id]
            life.cancelled = True
            if life.epoch < 0:
                self._close(life, "cancelled", event.at)
        for command in reaction.commands:
            if isinstance(command, Start):
                for job_id in command.job_ids:
                    self._started(self.live[job_id], command, event.at)

    def _started(self, life: _Life, command: Start, at: float) -> None:
        if life.epoch == command.epoch:
            return  # sent again
        if not life.starts:
            life.first_started_at = at
        life.epoch, life.gpus, life.since = command.epoch, len(command.gpus), at
        life.starts += 1

    def _ended(self, event: JobEnded) -> None:
        life = self.live.get(event.job_id)
        if life is None or life.epoch != event.epoch:
            return
        seconds = event.at - life.since
        life.run_seconds += seconds
        life.gpu_seconds += seconds * life.gpus
        life.epoch = -1
        life.failures += event.ending is Ending.FAILED
        if event.ending is Ending.FINISHED:
            self._close(life, "finished", event.at)
        elif life.cancelled:
            self._close(life, "cancelled", event.at)
        elif life.failures > life.job.retries_max:
            self._close(life, "failed", event.at)

    def _close(self, life: _Life, outcome: str, at: float) -> None:
        job = life.job
        del self.live[job.id]
        self.rows.append(
            (
                job.id,
                job.tenant,
                job.app_id,
                job.gpus,
                outcome,
                job.submitted_at,
                life.first_started_at,
                at,
                life.run_seconds,
                life.gpu_seconds,
                life.starts,
            )
        )

    def records(self) -> list[Record]:
        return [Record(*row) for row in self.rows]

    def column(self, name: str, outcome: str = "finished") -> Floats:
        """One number of each job with that outcome, in the order in which they ended."""
        index = list(Record.__dataclass_fields__).index(name)
        return np.array([row[index] for row in self.rows if row[4] == outcome], dtype=np.float64)
