"""Shockwave (NSDI'23), its windowed planning: in how many of the coming rounds each job should run.

Of a window of `rounds` rounds, each job j is given n(j), to maximise

    the sum of log(fraction of its work done when the window ends) - makespan_weight x makespan / window

The makespan is the longest time left of any job when the window ends. Rounds that a job needs in the window to keep its
finish-time bound come first: it must end within `rho_max` times its run time times the average number of apps
contending over its life. Where not all of these fit, the worst-off jobs are served first.

Simplifications compared to the paper: it has one variable for each job and round and solves an integer program; here
rounds are counted, and allocated in the order of what each adds to the sum per GPU, once for every makespan that the
window allows, of which the best is taken. The logarithm is concave, so that is exact where gangs are of one size;
otherwise the last gang that does not fit leaves some GPUs of the window unplanned. All GPU types count as one, at the
speed of the reference shape. The paper predicts when jobs change their batch sizes, from a posterior over regimes; that
is not available here: the time left is the estimate of the view, and a job of unknown length is assumed to run for as
long as it has so far plus a round. Only the coming round is carried out: the jobs with the most rounds in the plan run,
at equal counts the running ones first; then the plan is recomputed. Leases end at multiples of `interval_seconds`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar, NamedTuple

import numpy as np

from horae.model.arrays import Floats, Ints
from horae.model.decisions import Grants, Ranking
from horae.model.errors import PolicyError
from horae.model.view import View
from horae.policies.elastic.optimus import check_interval
from horae.policies.elastic.sizes import until_boundary

_BOUND, _MAKESPAN = 1e12, 1e6  # rounds needed for a bound come before useful ones: gains of a round are far below


@dataclass(frozen=True)
class Shockwave:
    name: ClassVar[str] = "shockwave"
    rounds: int = 20  # per window
    interval_seconds: float = 120.0  # length of a round: jobs change at multiples of this
    makespan_weight: float = 1.0  # weight of the makespan in windows, against the sum of logarithms
    rho_max: float = 1.0  # the finish-time bound, relative to an equal share among the apps; larger is looser

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise PolicyError(f"rounds is {self.rounds}", field="rounds", remedy="give 1 or more")
        check_interval("interval_seconds", self.interval_seconds)
        if not 0 <= self.makespan_weight < inf:
            raise PolicyError(
                f"makespan_weight is {self.makespan_weight}", field="makespan_weight", remedy="give 0 or more"
            )
        if not self.rho_max > 0:
            raise PolicyError(f"rho_max is {self.rho_max}", field="rho_max", remedy="give a positive number")

    def decide(self, view: View) -> Grants:
        jobs = view.jobs
        rows = np.argsort(jobs.serial)
        planned = np.zeros(len(jobs), dtype=np.int64)
        planned[rows] = self.plan(view, rows)
        order = np.lexsort((jobs.serial, ~jobs.running, -planned))
        boundary_at, lease_seconds = until_boundary(view.now, self.interval_seconds)
        no_job = np.empty(0, dtype=np.int64)
        rest = Ranking(order, preemptive=True, stands_until=boundary_at)
        return Grants(no_job, no_job, np.empty(0), rest, rest_lease_seconds=lease_seconds)

    def plan(self, view: View, rows: Ints) -> Ints:
        """By row of these: the number of rounds of the window in which it should run."""
        work = self._work(view, rows)
        if not len(rows):
            return work.gpus
        needed = self._needed_rounds(view, rows, work)
        room = int(view.capacity.sum()) * self.rounds
        best, best_value = np.zeros(len(rows), dtype=np.int64), -inf
        # Candidate makespans are some number of rounds of the window below the longest time left of a job.
        longest = float(work.left_seconds.max())
        for saved in range(self.rounds + 1):
            makespan = longest - saved * self.interval_seconds
            if makespan < 0:
                break
            at_least = np.ceil((work.left_seconds - makespan) / self.interval_seconds - 1e-9)
            key = _keys(work.gain, np.maximum(at_least, 0.0), needed, work.rho)
            planned = _given(key, work.gpus, room)
            value = self._value(work, planned)
            if value > best_value + 1e-12:
                best, best_value = planned, value
        return best

    def _work(self, view: View, rows: Ints) -> _Work:
        jobs = view.jobs
        done = jobs.steps_done[rows] / jobs.reference_speed[rows]
        total = jobs.seconds_total[rows]
        total = np.maximum(np.where(np.isfinite(total), total, 2 * done + self.interval_seconds), done)
        left = total - done
        after = np.minimum(done[:, None] + np.arange(self.rounds + 1) * self.interval_seconds, total[:, None])
        # Less than one second of progress counts as one second, because the logarithm of zero is undefined.
        progress = np.log(np.maximum(after, 1.0) / np.maximum(total, 1.0)[:, None])
        gpus = jobs.gpus[rows]
        alone = np.maximum(total * view.apps_average()[rows], 1.0)
        rho = (view.now - jobs.submitted_at[rows] + left) / alone
        return _Work(gpus, left, progress, np.diff(progress, axis=1) / gpus[:, None], rho, alone)

    def _needed_rounds(self, view: View, rows: Ints, work: _Work) -> Floats:
        """By row: the rounds it must run in this window to keep its bound; all of them where it is too late."""
        due_at = view.jobs.submitted_at[rows] + self.rho_max * work.alone_seconds
        later_seconds = np.maximum(due_at - view.now - self.rounds * self.interval_seconds, 0.0)
        return np.ceil(np.maximum(work.left_seconds - later_seconds, 0.0) / self.interval_seconds - 1e-9)

    def _value(self, work: _Work, planned: Ints) -> float:
        reached = work.progress[np.arange(len(planned)), planned]
        makespan = float(np.maximum(work.left_seconds - planned * self.interval_seconds, 0.0).max())
        return float(reached.sum()) - self.makespan_weight * makespan / (self.rounds * self.interval_seconds)


class _Work(NamedTuple):
    """By job: its gang, its time left, and what rounds of the window add."""

    gpus: Ints
    left_seconds: Floats
    progress: Floats  # by number of rounds: the logarithm of the fraction done
    gain: Floats  # by round: what it adds to that per GPU
    rho: Floats  # if it ran from now on without interruption
    alone_seconds: Floats  # on an equal share among the apps


def _keys(gain: Floats, at_least: Floats, needed: Floats, rho: Floats) -> Floats:
    """By job and round, larger is earlier: needed for a bound, needed for the makespan, useful."""
    round_ = np.arange(gain.shape[1])
    key = np.where(gain > 0, gain, -inf)
    # The first rounds of the jobs that need some come before the second ones.
    key = np.where((round_ < at_least[:, None]) & (gain > 0), _MAKESPAN - round_ + key / _MAKESPAN, key)
    bound = _BOUND + rho[:, None] * _MAKESPAN - round_
    return np.where((round_ < needed[:, None]) & (gain > 0), bound, key)


def _given(key: Floats, gpus: Ints, room: int) -> Ints:
    """By job: its number of rounds when they are allocated by these keys until the window is full."""
    job, round_ = np.nonzero(key > -inf)
    order = np.lexsort((round_, job, -key[job, round_]))
    job = job[order]
    fits = np.cumsum(gpus[job]) <= room
    return np.bincount(job[fits], minlength=len(gpus))
