"""The apps that contend in a pool: since when, and what is known about each as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isnan, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from horae.model.arrays import Ints
from horae.model.job_table import JobTable
from horae.model.jobs import Job
from horae.model.serialization import Plain, array_from_plain, array_to_plain, from_plain, to_plain
from horae.model.view import AppColumns

_DEAD_APPS_MAX = 4096  # apps that have ended and still have a number


@dataclass
class App:
    """An app while any of its jobs is alive."""

    number: int
    jobs: int
    gpus: int
    bids: bool  # it has its own agent
    submitted_at: float
    integral: float
    finished_seconds: float = 0.0  # of the longest chain of which a job has finished


class AppLedger:
    def __init__(self) -> None:
        self._apps: dict[str, App] = {}
        self._next = 0
        self.is_sparse = False  # most numbers belong to apps that have ended
        self._seconds = 0.0
        self._counted_at = 0.0
        self._floats = np.zeros((5, 16))  # GPU-seconds, those to come, seconds to come, closed until, the longest chain
        self._gpus: Ints = np.zeros(16, dtype=np.int64)
        self._read_only = self._frozen()

    def __len__(self) -> int:
        return len(self._apps)

    def seconds(self, now: float) -> float:
        """The integral of the number of contending apps over time."""
        return self._seconds + len(self._apps) * (now - self._counted_at)

    def join(self, job: Job, now: float) -> App:
        self._count(now)
        app = self._apps.get(job.app_id)
        gpus = job.gpus
        if app is None:
            number = self._next
            app = self._apps[job.app_id] = App(number, 1, gpus, job.bids, now, self._seconds)
            self._next += 1
            if self._next > len(self._gpus):
                self._grow()
            seconds = _seconds(job)
            chain_seconds = _longer(0.0, seconds + job.later_seconds)
            self._gpus[number] = gpus
            self._floats[:, number] = gpus * seconds, job.later_gpu_seconds, job.later_seconds, -inf, chain_seconds
            return app
        app.jobs += 1
        app.gpus += gpus
        app.bids = job.bids
        number = app.number
        self._gpus[number] = max(self._gpus[number], app.gpus)
        self._floats[0, number] += gpus * _seconds(job)
        self._floats[1:3, number] = job.later_gpu_seconds, job.later_seconds
        self._floats[4, number] = _longer(float(self._floats[4, number]), _chain_seconds(job))
        return app

    def leave(self, job: Job, now: float) -> None:
        self._count(now)
        app = self._apps[job.app_id]
        app.jobs -= 1
        app.gpus -= job.gpus
        app.finished_seconds = _longer(app.finished_seconds, _chain_seconds(job))
        if not app.jobs:
            del self._apps[job.app_id]
            self.is_sparse = self._next - len(self._apps) > max(_DEAD_APPS_MAX, 3 * len(self._apps))

    def drop(self, job: Job, now: float, undone_gpu_seconds: float, others: Sequence[Job]) -> None:
        """Removes the work and the time of a job that leaves before its end from what its app has yet to do."""
        app = self._apps[job.app_id]
        before = app.finished_seconds
        self.leave(job, now)
        app.finished_seconds = before
        self._floats[0, app.number] -= undone_gpu_seconds
        self._floats[4, app.number] = np.max([before, *(_chain_seconds(other) for other in others)])  # nan stays

    def rho(self, name: str, now: float, capacity_gpus: int, received_gpu_seconds: float) -> float | None:
        """The finish-time fairness of a live app if it ended now (as `rho_paper` in reports); None: not defined yet.

        Where the work of its jobs is not known, the work is what it has received.
        """
        app = self._apps.get(name)
        if app is None or now <= app.submitted_at:
            return None
        contending = (self.seconds(now) - app.integral) / (now - app.submitted_at)
        known = float(self._floats[0, app.number])
        work = received_gpu_seconds if isnan(known) else known
        gpus = min(capacity_gpus, int(self._gpus[app.number]))
        return (now - app.submitted_at) / (work / gpus * contending) if work > 0 and gpus > 0 else None

    def with_agents(self) -> dict[int, str]:
        """By number: the apps with agents that bid for them."""
        return {app.number: name for name, app in self._apps.items() if app.bids}

    def number(self, name: str) -> int | None:
        app = self._apps.get(name)
        return None if app is None else app.number

    def close(self, numbers: Ints, until: float) -> None:
        """Bars these apps from winning GPUs until the given time."""
        self._floats[3, numbers] = until

    def columns(self) -> AppColumns:
        count = self._next
        return AppColumns(*[column[:count] for column in self._read_only])

    def dump(self) -> Plain:
        return {
            "apps": {name: to_plain(app) for name, app in self._apps.items()},
            "next": self._next,
            "seconds": [self._seconds, self._counted_at],
            "floats": array_to_plain(self._floats[:, : self._next]),
            "gpus": array_to_plain(self._gpus[: self._next]),
        }

    def restore(self, plain: Plain) -> None:
        self._apps = {name: from_plain(App, app) for name, app in plain["apps"].items()}
        self._next = plain["next"]
        self.is_sparse = self._next - len(self._apps) > max(_DEAD_APPS_MAX, 3 * len(self._apps))
        self._seconds, self._counted_at = plain["seconds"]
        while self._next > len(self._gpus):
            self._grow()
        self._floats[:, : self._next] = array_from_plain(np.float64, plain["floats"])
        self._gpus[: self._next] = array_from_plain(np.int64, plain["gpus"])

    def compact(self, table: JobTable) -> None:
        """Renumbers live apps from 0 in the same order; apps that have ended are forgotten."""
        alive = sorted(self._apps.values(), key=lambda app: app.number)
        numbers = np.array([app.number for app in alive], dtype=np.int64)
        self._floats[:, : len(alive)] = self._floats[:, numbers]
        self._gpus[: len(alive)] = self._gpus[numbers]
        self._floats[:, len(alive) :] = 0.0
        self._gpus[len(alive) :] = 0
        table.app[: table.count] = np.searchsorted(numbers, table.app[: table.count])
        for number, app in enumerate(alive):
            app.number = number
        self._next = len(alive)
        self.is_sparse = False

    def _count(self, now: float) -> None:
        self._seconds = self.seconds(now)
        self._counted_at = now

    def _grow(self) -> None:
        self._gpus = np.concatenate([self._gpus, np.zeros_like(self._gpus)])
        self._floats = np.concatenate([self._floats, np.zeros_like(self._floats)], axis=1)
        self._read_only = self._frozen()

    def _frozen(self) -> tuple[NDArray[Any], ...]:
        """The columns as policies see them, in the order of `AppColumns`."""
        floats, gpus = self._floats.view(), self._gpus.view()
        floats.flags.writeable = gpus.flags.writeable = False
        return floats[0], gpus, floats[1], floats[2], floats[4], floats[3]


def _longer(one: float, other: float) -> float:
    """The longer of two lengths; nan if either is unknown."""
    return one if isnan(one) or one >= other else other


def _seconds(job: Job) -> float:
    """Run time of a job in its reference shape; nan if unknown."""
    return nan if job.steps_total is None else job.steps_total / job.options[0].steps_per_second


def _chain_seconds(job: Job) -> float:
    """Run time of a job including the work that its app submits after it."""
    return _seconds(job) + job.later_seconds
