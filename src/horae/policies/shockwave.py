"""Shockwave (NSDI'23): a plan of a window of rounds, carried out until a job arrives or ends.

Of a window of `rounds` rounds, each job j is given n(j), to maximise

    mean over jobs of weight(j) x U(fraction of its work done when the window ends) / rounds
        - makespan_weight x longest time left of any job when the window ends

U is the logarithm, interpolated between 0, 20, 40, 60, 80 and 100% as in the authors' code, with 1e-6 in place of 0:
the interpolation decides which of two young jobs comes first. A job is entitled to end within `rho_max` times its fair
finish time: its run time, times the contention max(1, jobs / GPUs), of which nine tenths are the average over its life
and one tenth is the present value. If all jobs can be kept on course for that, the plan does so; otherwise a job that
is expected to be late by the factor r > `rho_max` weighs r to the power of `fairness_power`, or to that of 100 if less
than a round of it is left. Within the window, jobs of large weight and small plans come first (Smith's rule for the
average round that the authors minimise); GPUs that a round leaves idle go to the jobs with most time left.

The plan and the history of the contention are the decision's memory. A job that arrives during a round may use idle
GPUs, and is planned at the next boundary.

Simplifications: the authors solve an integer program with one variable per job and round, with a gap and a time limit;
here rounds are counted, and allocated by what each adds per GPU, once for every makespan that the window allows, of
which the best is taken, and then laid out round by round. That is exact for gangs of one size. All GPU types count as
one, at the speed of the reference shape. The authors predict when jobs change their batch sizes; here the time left is
the estimate of the view, and a job of unknown length is assumed to run for as long as it has so far plus a round.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, inf
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np

from horae.model.arrays import Bools, Floats, Ints
from horae.model.decisions import Grants, Ranking
from horae.model.errors import PolicyError
from horae.model.view import View
from horae.policies.elastic.optimus import check_interval
from horae.policies.elastic.sizes import until_boundary

_DONE = np.array([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])  # where the logarithm is exact
_UTILITY = np.log([1e-6, 0.2, 0.4, 0.6, 0.8, 1.0])
_PRESENT = 0.1  # the part of the contention that is the present value
_POWER_AT_THE_END = 100.0  # of a job that needs less than a round
_HAIR = 1e-9  # of a round


@dataclass(frozen=True)
class Shockwave:
    name: ClassVar[str] = "shockwave"
    uses_lengths: ClassVar[bool] = True
    rounds: int = 20  # per window
    interval_seconds: float = 120.0  # length of a round: jobs change at multiples of this
    makespan_weight: float = 0.001  # per second of the makespan, against the mean utility per round
    fairness_power: float = 12.0  # how much more a late job weighs
    rho_max: float = 1.0  # the finish-time bound, relative to the fair finish time; larger is looser

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise PolicyError(f"rounds is {self.rounds}", field="rounds", remedy="give 1 or more")
        check_interval("interval_seconds", self.interval_seconds)
        for field, value in (("makespan_weight", self.makespan_weight), ("fairness_power", self.fairness_power)):
            if not 0 <= value < inf:
                raise PolicyError(f"{field} is {value}", field=field, remedy="give 0 or more")
        if not self.rho_max > 0:
            raise PolicyError(f"rho_max is {self.rho_max}", field="rho_max", remedy="give a positive number")

    def decide(self, view: View) -> Grants:
        jobs = view.jobs
        rows = np.argsort(jobs.serial)
        contention = _contention(view, jobs.serial[rows])
        work = self._work(view, rows, contention)
        memory = self._plan(view, rows, work, contention)
        now = floor(view.now / self.interval_seconds + _HAIR) - memory["begins"]
        planned = memory["plan"][now] if now < len(memory["plan"]) else []
        turn = np.full(len(rows), len(planned))
        where = {serial: place for place, serial in enumerate(planned)}
        turn[:] = [where.get(serial, len(planned)) for serial in jobs.serial[rows].tolist()]
        order = rows[np.lexsort((jobs.serial[rows], ~jobs.running[rows], -work.left_seconds, turn))]
        boundary_at, lease_seconds = until_boundary(view.now, self.interval_seconds)
        no_job = np.empty(0, dtype=np.int64)
        rest = Ranking(order, preemptive=True, stands_until=boundary_at)
        return Grants(no_job, no_job, np.empty(0), rest, rest_lease_seconds=lease_seconds, memory=memory)

    def _plan(self, view: View, rows: Ints, work: PlannedWork, contention: _Contention) -> dict[str, Any]:
        """The memory of the decision: the plan in force, or a new one at a boundary after jobs have come or gone."""
        memory = cast("dict[str, Any]", view.memory or {})
        serials = view.jobs.serial[rows].tolist()
        at_round = view.now / self.interval_seconds
        round_ = floor(at_round + _HAIR)
        plan, begins, known = memory.get("plan", []), memory.get("begins", round_), memory.get("known", [])
        # The round in which jobs have come or gone since the plan was made; a boundary belongs to the round before.
        changed = memory.get("changed")
        if changed is None and serials != known:
            changed = round_ - 1 if at_round - round_ < _HAIR else round_
        if round_ - begins >= len(plan) or (changed is not None and round_ > changed):
            counts, weight = self.counts(view, work, contention.now)
            running = view.jobs.running[rows]
            plan = _laid_out(view.jobs.serial[rows], counts, work.gpus, weight, running, _room(view), self.rounds)
            begins, known, changed = round_, serials, None
        return {"plan": plan, "begins": begins, "known": known, "changed": changed, "contention": contention.plain()}

    def counts(self, view: View, work: PlannedWork, contention: float) -> tuple[Ints, Floats]:
        """By job: the number of rounds of the window in which it should run, and its weight."""
        if not len(work.gpus):
            return work.gpus, work.left_seconds
        room = _room(view) * self.rounds
        needed = self._needed(view, work, contention)
        weight = np.ones(len(work.gpus))
        if needed is None:
            rho = (view.now + work.left_seconds * contention) / np.maximum(work.fair_at, 1.0)
            power = np.where(work.left_seconds < self.interval_seconds, _POWER_AT_THE_END, self.fairness_power)
            with np.errstate(over="ignore"):
                weight = np.where(rho > self.rho_max, np.minimum(rho**power, 1e100), 1.0)
            needed = np.zeros(len(work.gpus))
        best, best_value = np.zeros(len(work.gpus), dtype=np.int64), -inf
        gain = weight[:, None] * np.diff(work.utility, axis=1) / work.gpus[:, None]
        # Candidate makespans are some number of rounds of the window below the longest time left of a job.
        longest = float(work.left_seconds.max())
        for saved in range(self.rounds + 1):
            makespan = longest - saved * self.interval_seconds
            at_least = np.maximum(np.ceil((work.left_seconds - makespan) / self.interval_seconds - _HAIR), needed)
            if (work.gpus * at_least).sum() > room:
                break
            counts = _filled(at_least.astype(np.int64), gain, work.gpus, room)
            value = self._value(work, counts, weight)
            if value > best_value + 1e-12:
                best, best_value = counts, value
            if makespan <= 0:
                break
        return best, weight

    def _work(self, view: View, rows: Ints, contention: _Contention) -> PlannedWork:
        jobs = view.jobs
        done = jobs.steps_done[rows] / jobs.reference_speed[rows]
        total = jobs.seconds_total[rows]
        total = np.maximum(np.where(np.isfinite(total), total, 2 * done + self.interval_seconds), done)
        after = np.minimum(done[:, None] + np.arange(self.rounds + 1) * self.interval_seconds, total[:, None])
        utility = np.interp(after / np.maximum(total, 1e-300)[:, None], _DONE, _UTILITY)
        fair_at = jobs.submitted_at[rows] + total * contention.of_job
        return PlannedWork(jobs.gpus[rows], total - done, utility, fair_at)

    def _needed(self, view: View, work: PlannedWork, contention: float) -> Floats | None:
        """By job: the rounds that keep it on course for its fair finish time; None if not all jobs can be."""
        window = self.rounds * self.interval_seconds
        later = (self.rho_max * work.fair_at - view.now - window) / contention
        needed = np.ceil(np.maximum(work.left_seconds - later, 0.0) / self.interval_seconds - _HAIR)
        feasible = (later >= 0).all() and (needed <= self.rounds).all()
        return needed if feasible and (needed * work.gpus).sum() <= _room(view) * self.rounds else None

    def _value(self, work: PlannedWork, counts: Ints, weight: Floats) -> float:
        reached = weight * work.utility[np.arange(len(counts)), counts]
        makespan = float(np.maximum(work.left_seconds - counts * self.interval_seconds, 0.0).max())
        return float(reached.mean()) / self.rounds - self.makespan_weight * makespan


class PlannedWork(NamedTuple):
    """By job, in order of submission."""

    gpus: Ints
    left_seconds: Floats
    utility: Floats  # by number of rounds of the window
    fair_at: Floats  # its fair finish time


class _Contention(NamedTuple):
    """How many times longer a job takes on its fair share: the integral over time, and what of it each job has seen."""

    at: float
    integral: float
    now: float
    serial: Ints
    since: Floats  # by job: when it was first seen,
    seen: Floats  # and the integral then

    @property
    def of_job(self) -> Floats:
        """By job: nine tenths of the average since it arrived, and one tenth of the present value."""
        age = self.at - self.since
        average = np.where(age > 0, (self.integral - self.seen) / np.where(age > 0, age, 1.0), self.now)
        return (1 - _PRESENT) * average + _PRESENT * self.now

    def plain(self) -> list[Any]:
        return [self.at, self.integral, self.now, self.serial.tolist(), self.since.tolist(), self.seen.tolist()]


def _contention(view: View, serials: Ints) -> _Contention:
    """The contention of these jobs up to now, continued from the memory."""
    now = max(1.0, len(serials) / max(_room(view), 1))
    memory = cast("dict[str, Any]", view.memory or {})
    at, integral, factor, known, since, seen = memory.get("contention", [view.now, 0.0, now, [], [], []])
    integral += factor * (view.now - at)
    before = {serial: (since[place], seen[place]) for place, serial in enumerate(known)}
    pairs = [before.get(serial, (view.now, integral)) for serial in serials.tolist()]
    since_seen = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    return _Contention(view.now, integral, now, serials, since_seen[:, 0], since_seen[:, 1])


def _room(view: View) -> int:
    return int(view.capacity.sum())


def _filled(at_least: Ints, gain: Floats, gpus: Ints, room: int) -> Ints:
    """By job: at least these rounds, and as many more as the window has room for, the most useful per GPU first."""
    job, round_ = np.nonzero((gain > 0) & (np.arange(gain.shape[1]) >= at_least[:, None]))
    order = np.lexsort((round_, job, -gain[job, round_]))
    job = job[order]
    fits = np.cumsum(gpus[job]) <= room - int((at_least * gpus).sum())
    return at_least + np.bincount(job[fits], minlength=len(gpus))


def _laid_out(
    serials: Ints, counts: Ints, gpus: Ints, weight: Floats, running: Bools, room: int, rounds: int
) -> list[list[int]]:
    """By round: the jobs that run in it, so that each runs as often as planned; of the orders of rounds that allow
    this, one in which large weights and small plans come early."""
    left = counts.copy()
    by_weight = np.lexsort((serials, ~running, -weight / np.maximum(counts * gpus, 1)))
    plan: list[list[int]] = []
    for round_ in range(rounds):
        # A job that must run in all rounds from here on comes first, or its plan could not be carried out.
        waits = left[by_weight] < rounds - round_
        chosen = _fitting(by_weight[np.argsort(waits, kind="stable")], left, gpus, room)
        left[chosen] -= 1
        plan.append(serials[chosen].tolist())
    return plan


def _fitting(order: Ints, left: Ints, gpus: Ints, room: int) -> list[int]:
    """The jobs of this order that have rounds left and fit together."""
    chosen: list[int] = []
    for place in order[left[order] > 0].tolist():
        if gpus[place] <= room:
            room -= int(gpus[place])
            chosen.append(place)
            if not room:
                break
    return chosen
