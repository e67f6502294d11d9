"""Policies that are one sort of the queue: FIFO, SJF, SRTF, SRSF, LAS and strict priorities."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np

from horae.model.decisions import Ranking
from horae.model.view import View


@dataclass(frozen=True)
class Fifo:
    """First in, first out: no job starts before earlier ones, unless backfilling is allowed."""

    name: ClassVar[str] = "fifo"
    backfill: bool = False  # let later jobs pass a head that does not fit

    def decide(self, view: View) -> Ranking:
        waiting = view.jobs.pending.nonzero()[0]
        return Ranking(waiting[view.jobs.serial[waiting].argsort()], blocking=not self.backfill)


@dataclass(frozen=True)
class Sjf:
    """Shortest job first, by the estimated run time in the job's reference shape; never preempts."""

    name: ClassVar[str] = "sjf"
    uses_lengths: ClassVar[bool] = True
    backfill: bool = False  # let longer jobs pass a head that does not fit

    def decide(self, view: View) -> Ranking:
        jobs = view.jobs
        waiting = jobs.pending.nonzero()[0]
        order = np.lexsort((jobs.serial[waiting], jobs.seconds_total[waiting]))
        return Ranking(waiting[order], blocking=not self.backfill)


@dataclass(frozen=True)
class Srtf:
    """Shortest remaining time first, by the estimated time left in the job's reference shape; preempts."""

    name: ClassVar[str] = "srtf"
    uses_lengths: ClassVar[bool] = True
    backfill: bool = True  # let longer jobs pass a head that does not fit

    def decide(self, view: View) -> Ranking:
        jobs = view.jobs
        order = np.lexsort((jobs.serial, jobs.seconds_left))
        # The order stands until an event: a running job only gets further ahead of waiting ones.
        return Ranking(order, preemptive=True, blocking=not self.backfill)


@dataclass(frozen=True)
class Srsf:
    """Shortest remaining service first: the estimated time left times the GPUs of the gang; preempts."""

    name: ClassVar[str] = "srsf"
    uses_lengths: ClassVar[bool] = True
    backfill: bool = True  # let larger jobs pass a head that does not fit

    def decide(self, view: View) -> Ranking:
        jobs = view.jobs
        order = np.lexsort((jobs.serial, jobs.seconds_left * jobs.gpus))
        # The order stands until an event: a running job only gets further ahead of waiting ones.
        return Ranking(order, preemptive=True, blocking=not self.backfill)


@dataclass(frozen=True)
class Las:
    """Least attained service: the job with the fewest GPU-seconds so far runs first."""

    name: ClassVar[str] = "las"

    def decide(self, view: View) -> Ranking:
        jobs = view.jobs
        order = np.lexsort((jobs.serial, jobs.submitted_at, jobs.service_gpu_seconds))
        # A running job falls back continuously; with no job waiting that changes nothing.
        stands_until = view.now if jobs.waiting.any() else inf
        return Ranking(order, preemptive=True, stands_until=stands_until)


@dataclass(frozen=True)
class Priority:
    """Strict priorities, FIFO within each; preempts only lower priorities (HiveD, OSDI'20, section 4)."""

    name: ClassVar[str] = "priority"
    backfill: bool = True  # let jobs pass one of higher or equal priority that does not fit

    def decide(self, view: View) -> Ranking:
        jobs = view.jobs
        order = np.lexsort((jobs.serial, jobs.submitted_at, ~jobs.running, -jobs.priority))
        return Ranking(order, preemptive=True, blocking=not self.backfill)
