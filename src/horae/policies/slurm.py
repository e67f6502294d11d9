"""Slurm as it is usually configured: multifactor priority and EASY backfill (`sched/backfill`), without preemption.

The priority of a job is `age_weight` x age, up to `age_max_seconds`, plus `size_weight` x its part of the pool's GPUs,
plus `fair_share_weight` x fair share. Fair share is Slurm's Fair Tree: tenants are ranked by their share, by weight,
over their use, and the users of each tenant in the same way; the factor is the rank, from 1 down to near 0. Use is
GPU-seconds, of which half is forgotten every `half_life_seconds`; it is kept in the decision's memory.

Jobs start in order of priority. The first that does not fit gets a reservation: the earliest time at which enough GPUs
of a type that it accepts will be free, if running jobs end at their time limits. A later job starts only if it will end
before that, or if it leaves the reservation enough GPUs. Where a trace has no time limits, users are assumed to ask for
the next of 1, 4, 12, 24 hours or 7 days above the true length of the job.

Slurm reserves nodes; a policy sees GPUs by type, so that a gang that needs GPUs close together may find them scattered
at the time of its reservation, and waits on with a new one.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np

from horae.model.arrays import Bools, Floats, Ints
from horae.model.decisions import Ranking
from horae.model.errors import PolicyError
from horae.model.view import View

_HOUR = 3600.0
_LIMITS = np.array([1.0, 4.0, 12.0, 24.0, 7 * 24.0]) * _HOUR  # of which users ask for the next


@dataclass(frozen=True)
class Slurm:
    name: ClassVar[str] = "slurm"
    uses_lengths: ClassVar[bool] = True  # where a job has no time limit, it is guessed from its length
    limits_suffice: ClassVar[bool] = True  # with the time limits of all jobs it uses no lengths
    age_weight: float = 1000.0
    size_weight: float = 1000.0
    fair_share_weight: float = 10000.0
    age_max_seconds: float = 7 * 24 * _HOUR  # PriorityMaxAge
    half_life_seconds: float = 7 * 24 * _HOUR  # PriorityDecayHalfLife
    interval_seconds: float = 300.0  # PriorityCalcPeriod: priorities are computed at least this often
    backfill: bool = True  # let later jobs start if that delays no reservation

    def __post_init__(self) -> None:
        for field in ("age_weight", "size_weight", "fair_share_weight"):
            if not 0 <= getattr(self, field) < inf:
                raise PolicyError(f"{field} is {getattr(self, field)}", field=field, remedy="give 0 or more")
        for field in ("age_max_seconds", "half_life_seconds", "interval_seconds"):
            if not 0 < getattr(self, field) < inf:
                raise PolicyError(f"{field} is {getattr(self, field)}", field=field, remedy="give seconds above 0")

    def decide(self, view: View) -> Ranking:
        use = _use(view, self.half_life_seconds)
        waiting = np.flatnonzero(view.jobs.pending)
        again_at = view.now + self.interval_seconds if len(waiting) else inf
        order = waiting[np.lexsort((view.jobs.serial[waiting], -self.priority(view, use)[waiting]))]
        starting = self._starting(view, order)
        return Ranking(starting, stands_until=again_at, memory=use.plain(view, starting))

    def priority(self, view: View, use: _Use) -> Floats:
        jobs = view.jobs
        age = np.minimum((view.now - jobs.submitted_at) / self.age_max_seconds, 1.0)
        size = jobs.gpus / max(int(view.capacity.sum()), 1)
        return self.age_weight * age + self.size_weight * size + self.fair_share_weight * use.fair_share(view)

    def _starting(self, view: View, order: Ints) -> Ints:
        """The jobs that may start, best first: those that fit one after the other, the first that does not, which has
        the reservation, and those that may be backfilled."""
        queue = _Queue(view, order)
        place = 0
        while place < len(order):
            option = queue.fitting(place)
            if option is None:
                break
            queue.start(place, option)
            place += 1
        if place == len(order) or not self.backfill:
            return order[: place + 1]
        reserved = queue.reservation(place)
        chosen = [place, *queue.backfill(place + 1, reserved)]
        return np.concatenate([order[:place], order[chosen]])


class _Reservation(NamedTuple):
    accelerator: int  # -1: no running job could free enough GPUs of any type
    at: float
    spare: int  # GPUs of the type that are free then, and not reserved


class _Queue:
    """Waiting jobs in order, and the GPUs of each type that are free as they start one after the other."""

    def __init__(self, view: View, order: Ints) -> None:
        jobs = view.jobs
        self._view = view
        self._shape = jobs.shape[order]
        accelerator = np.where(self._shape >= 0, view.shape_accelerator[self._shape], -1)
        self._accelerator = accelerator
        self._gpus = np.where(accelerator >= 0, view.shape_gpus[self._shape], np.iinfo(np.int64).max)
        self._seconds = limit_seconds(view)[order]
        held = np.zeros(len(view.capacity), dtype=np.int64)
        rows = np.flatnonzero(jobs.on_gpus)
        kinds = view.shape_accelerator[jobs.shape[rows, jobs.option[rows]]]
        np.add.at(held, kinds[kinds >= 0], jobs.held_gpus[rows][kinds >= 0])
        self.free = np.maximum(view.capacity - held, 0)
        left = np.maximum(limit_seconds(view)[rows] - jobs.run_seconds[rows], 0.0)
        self._ends = list(zip((view.now + left).tolist(), kinds.tolist(), jobs.held_gpus[rows].tolist(), strict=True))

    def fitting(self, place: int) -> int | None:
        """The first option of a job for which there are GPUs now."""
        for option in np.flatnonzero(self._fits(place)).tolist():
            shape = self._view.shapes[self._shape[place, option]]
            level = self._view.fit(shape.accelerator, shape.gpus)
            if level is not None and self._view.levels.index(level) <= self._view.levels.index(shape.level):
                return int(option)
        return None

    def _fits(self, place: int) -> Bools:
        kinds = self._accelerator[place]
        return (kinds >= 0) & (self._gpus[place] <= self.free[kinds])

    def start(self, place: int, option: int) -> None:
        kind, gpus = int(self._accelerator[place, option]), int(self._gpus[place, option])
        self.free[kind] -= gpus
        self._ends.append((self._view.now + float(self._seconds[place]), kind, gpus))

    def reservation(self, place: int) -> _Reservation:
        """The earliest time at which a job of this place can start, if jobs end at their limits."""
        best = _Reservation(-1, inf, 0)
        wanted = sorted(set(zip(self._accelerator[place].tolist(), self._gpus[place].tolist(), strict=True)))
        for kind, gpus in wanted:
            free = int(self.free[kind]) if kind >= 0 else 0
            for at, theirs, freed in sorted(self._ends):
                if theirs != kind or kind < 0:
                    continue
                free += freed
                if free >= gpus:
                    best = min(best, _Reservation(kind, at, free - gpus), key=lambda one: one.at)
                    break
        return best

    def backfill(self, first: int, reserved: _Reservation) -> list[int]:
        """Later places that may start now: they end before the reservation, or leave it its GPUs."""
        chosen: list[int] = []
        spare = reserved.spare
        kinds, gpus = self._accelerator, self._gpus
        ends_in_time = self._view.now + self._seconds <= reserved.at
        open_ = np.arange(len(kinds)) >= first
        while self.free.any():
            fits = (kinds >= 0) & (gpus <= np.append(self.free, 0)[kinds]) & open_[:, None]
            harmless = (kinds != reserved.accelerator) | ends_in_time[:, None] | (gpus <= spare)
            places = np.flatnonzero((fits & harmless).any(axis=1))
            if not len(places):
                break
            place = int(places[0])
            option = int(np.flatnonzero((fits & harmless)[place])[0])
            kind, taken = int(kinds[place, option]), int(gpus[place, option])
            self.free[kind] -= taken
            if kind == reserved.accelerator and not ends_in_time[place]:
                spare -= taken
            open_[place] = False
            chosen.append(place)
        return chosen


def limit_seconds(view: View) -> Floats:
    """By job: its time limit; where it has none, the next usual one above its length."""
    length = view.jobs.seconds_total
    usual = np.append(_LIMITS, inf)[np.searchsorted(_LIMITS, np.where(np.isfinite(length), length, inf))]
    usual = np.where(np.isinf(usual), np.where(np.isfinite(length), length, _LIMITS[-1]), usual)
    limit: Floats = np.where(np.isfinite(view.jobs.limit_seconds), view.jobs.limit_seconds, usual)
    return limit


class _Use(NamedTuple):
    """GPU-seconds by user, of which older ones count less."""

    of_user: dict[tuple[int, int], float]  # by tenant and user

    def fair_share(self, view: View) -> Floats:
        """By job: the rank of its user in the Fair Tree, from 1 down to 1 / users."""
        jobs = view.jobs
        users = sorted({*self.of_user, *zip(jobs.tenant.tolist(), jobs.user.tolist(), strict=True)})
        of_tenant: dict[int, list[tuple[int, int]]] = {}
        for user in users:
            of_tenant.setdefault(user[0], []).append(user)
        used = {tenant: sum(self.of_user.get(user, 0.0) for user in mine) for tenant, mine in of_tenant.items()}
        # More share for each unit of use ranks higher; the smaller use of equals.
        tenants = sorted(of_tenant, key=lambda tenant: (used[tenant] / view.tenant_weight[tenant], tenant))
        ranked = [
            user
            for tenant in tenants
            for user in sorted(of_tenant[tenant], key=lambda user: (self.of_user.get(user, 0.0), user))
        ]
        rank = {user: 1 - place / len(ranked) for place, user in enumerate(ranked)}
        return np.array([rank[user] for user in zip(jobs.tenant.tolist(), jobs.user.tolist(), strict=True)])

    def plain(self, view: View, starting: Ints) -> dict[str, Any]:
        """The memory: the use, and the jobs that have GPUs, or may have from now on."""
        jobs = view.jobs
        rows = np.concatenate([np.flatnonzero(jobs.on_gpus), starting])
        rows = rows[np.argsort(jobs.serial[rows])]
        gpus = np.where(jobs.on_gpus, jobs.held_gpus, jobs.gpus)
        columns = [column[rows] for column in (jobs.serial, jobs.tenant, jobs.user, gpus)]
        use = [[*user, amount] for user, amount in sorted(self.of_user.items())]
        return {"at": view.now, "use": use, "holding": np.stack(columns, axis=1).tolist()}


def _use(view: View, half_life_seconds: float) -> _Use:
    """The use so far: what was remembered, decayed, and what jobs have held GPUs for since."""
    memory = cast("dict[str, Any]", view.memory or {"at": view.now, "use": [], "holding": []})
    at = memory["at"]
    decay = 0.5 ** ((view.now - at) / half_life_seconds)
    use = {(tenant, user): amount * decay for tenant, user, amount in memory["use"]}
    jobs = view.jobs
    since = dict(zip(jobs.serial.tolist(), np.where(jobs.on_gpus, jobs.since, inf).tolist(), strict=True))
    for serial, tenant, user, gpus in memory["holding"]:
        # A job that is gone has ended now: a policy with memory is asked after every event.
        seconds = max(view.now - max(since.get(serial, at), at), 0.0)
        use[tenant, user] = use.get((tenant, user), 0.0) + gpus * seconds
    return _Use({user: amount for user, amount in use.items() if amount >= 1.0})
