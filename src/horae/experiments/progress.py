"""The interface to which a comparison reports its progress."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Protocol

from horae.experiments.compare.run_spec import RunSpec
from horae.model.events import Event, JobEnded
from horae.model.plans import Reaction

REPORT_SECONDS = 0.2


class Progress(Protocol):
    """Receives progress; runs are identified by their index among the tasks."""

    watches_jobs: bool  # whether `advanced` is wanted; counting jobs costs a little

    def begins(self, tasks: Sequence[RunSpec], missing: Sequence[int], jobs: int) -> None:
        """Announces the runs still to be made, with about this many jobs each."""
        ...

    def started(self, index: int) -> None: ...

    def advanced(self, index: int, jobs: int) -> None: ...

    def finished(self, index: int, jobs: int) -> None: ...


class Silent:
    watches_jobs = False

    def begins(self, tasks: Sequence[RunSpec], missing: Sequence[int], jobs: int) -> None: ...

    def started(self, index: int) -> None: ...

    def advanced(self, index: int, jobs: int) -> None: ...

    def finished(self, index: int, jobs: int) -> None: ...


SILENT = Silent()


class Counter:
    """An observer of a run that periodically reports how many of its leases have ended by themselves."""

    def __init__(self, tell: Callable[[int], None]) -> None:
        self._tell = tell
        self._ended = 0
        self._due_at = 0.0

    def reacted(self, event: Event, reaction: Reaction) -> None:
        if isinstance(event, JobEnded) and event.ending.name == "FINISHED":
            self._ended += 1
            now = monotonic()
            if now >= self._due_at:
                self._due_at = now + REPORT_SECONDS
                self._tell(self._ended)
