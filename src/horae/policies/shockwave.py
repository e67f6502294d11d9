"""Shockwave (NSDI'23), its windowed planning: how many of the coming rounds each job should run.

Of a window of `rounds` rounds, each job j is given n(j), so that

    the sum of log(part of its work that is done when the window ends) - makespan_weight x makespan / window

is largest. The makespan is the longest time left of any job when the window ends. Rounds that a job needs in the window
to keep its finish-time bound come first: it must end within `rho_max` times its run time times the average number of
apps contending over its life. Where not all of these fit, those who are worst off are served first.

What is simpler than in the paper. It has one variable for each job and round and solves an integer program; here rounds
are counted, and given out in the order of what each adds to the sum for each GPU, once for every makespan that the
window allows, the best of which is taken. The logarithm is concave, so that is exact where gangs are of one size;
otherwise the last gang that does not fit leaves some GPUs of the window unplanned. All GPU types count as one, at the
speed of the reference shape. The paper foresees when jobs change their batch sizes, from a posterior over regimes;
nobody tells that here: the time left is what the view believes, and a job of unknown length is believed to go on for as
long as it has and a round more. Only the coming round is carried out: those with the most rounds in the plan run, of
equals who runs already; then the plan is made anew. Leases end at multiples of `interval_seconds`.
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

_BOUND, _MAKESPAN = 1e12, 1e6  # what is needed comes before what is good: gains of a round are far below


@dataclass(frozen=True)
class Shockwave:
    name: ClassVar[str] = "shockwave"
    rounds: int = 20  # of a window
    interval_seconds: float = 120.0  # a round: jobs change at multiples of this
    makespan_weight: float = 1.0  # of the makespan in windows, against the sum of logarithms
    rho_max: float = 1.0  # the finish-time bound, of an equal share among the apps; larger is looser

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
        nobody = np.empty(0, dtype=np.int64)
        rest = Ranking(order, preemptive=True, stands_until=boundary_at)
        return Grants(nobody, nobody, np.empty(0), rest, rest_lease_seconds=lease_seconds)

    def plan(self, view: View, rows: Ints) -> Ints:
        """By row of these: the rounds of the window in which it should run."""
        work = self._work(view, rows)
        if not len(rows):
            return work.gpus
        needed = self._needed_rounds(view, rows, work)
        room = int(view.capacity.sum()) * self.rounds
        best, best_value = np.zeros(len(rows), dtype=np.int64), -inf
        # A makespan is worth trying if it is some rounds of the window less than the longest job has left.
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
        # Before its first second a job counts as having done that, for there is no logarithm of nothing.
        progress = np.log(np.maximum(after, 1.0) / np.maximum(total, 1.0)[:, None])
        gpus = jobs.gpus[rows]
        alone = np.maximum(total * view.apps_average()[rows], 1.0)
        rho = (view.now - jobs.submitted_at[rows] + left) / alone
        return _Work(gpus, left, progress, np.diff(progress, axis=1) / gpus[:, None], rho, alone)

    def _needed_rounds(self, view: View, rows: Ints, work: _Work) -> Floats:
        """By row: the rounds that it must run in this window to keep its bound, all of them where it is too late."""
        due_at = view.jobs.submitted_at[rows] + self.rho_max * work.alone_seconds
        later_seconds = np.maximum(due_at - view.now - self.rounds * self.interval_seconds, 0.0)
        return np.ceil(np.maximum(work.left_seconds - later_seconds, 0.0) / self.interval_seconds - 1e-9)

    def _value(self, work: _Work, planned: Ints) -> float:
        reached = work.progress[np.arange(len(planned)), planned]
        makespan = float(np.maximum(work.left_seconds - planned * self.interval_seconds, 0.0).max())
        return float(reached.sum()) - self.makespan_weight * makespan / (self.rounds * self.interval_seconds)


class _Work(NamedTuple):
    """By job: its gang, its time left, and what rounds of the window bring."""

    gpus: Ints
    left_seconds: Floats
    progress: Floats  # by number of rounds: the logarithm of the part that is done
    gain: Floats  # by round: what it adds to that for each GPU
    rho: Floats  # if it ran from now on without a break
    alone_seconds: Floats  # on an equal share among the apps


def _keys(gain: Floats, at_least: Floats, needed: Floats, rho: Floats) -> Floats:
    """By job and round, the larger the earlier: needed for a bound, needed for the makespan, good."""
    round_ = np.arange(gain.shape[1])
    key = np.where(gain > 0, gain, -inf)
    # The first rounds of those who need some come before the second ones.
    key = np.where((round_ < at_least[:, None]) & (gain > 0), _MAKESPAN - round_ + key / _MAKESPAN, key)
    bound = _BOUND + rho[:, None] * _MAKESPAN - round_
    return np.where((round_ < needed[:, None]) & (gain > 0), bound, key)


def _given(key: Floats, gpus: Ints, room: int) -> Ints:
    """By job: the rounds that it has when they are given out by these keys until the window is full."""
    job, round_ = np.nonzero(key > -inf)
    order = np.lexsort((round_, job, -key[job, round_]))
    job = job[order]
    fits = np.cumsum(gpus[job]) <= room
    return np.bincount(job[fits], minlength=len(gpus))
