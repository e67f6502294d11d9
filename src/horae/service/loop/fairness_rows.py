"""Samples how tenants and their apps are treated, for a view over time.

A tenant gets at most one row per minute, and none while nothing of it changes; so do its oldest live apps. Rows of the
last day are all kept; of former ones the first of each hour, those after which nothing changed for an hour, because
they stand until then, and those with a wait.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, delete, exists, insert, not_

from horae.scheduler import Scheduler
from horae.service.loop.job_rows import JobRow
from horae.service.store.schema import fairness

SAMPLE_SECONDS = 60.0
APPS_SAMPLED = 5  # per tenant
HOUR = 3600.0
ALL_KEPT_SECONDS = 86_400.0
HOURLY_KEPT_SECONDS = 90 * 86_400.0
WHOLE = ""  # in place of an app: the tenant as a whole
_WAITING = frozenset({"submitted", "waiting", "pending", "holding"})
RHO_DIGITS = 4  # a smaller change of rho is none


class _Sample(NamedTuple):
    """What is compared with the last row."""

    rho: float | None
    rho_max: float | None
    gpus: int
    guaranteed_gpus: int
    waiting_jobs: int


_NOTHING = _Sample(None, None, 0, 0, 0)


@dataclass(slots=True)
class _Total:
    number: float = inf  # of its first job
    rho: float | None = None
    gpus: int = 0
    guaranteed_gpus: int = 0
    waiting_jobs: int = 0

    def add(self, row: JobRow, rho: float | None) -> None:
        self.number = min(self.number, row.number)
        self.gpus += row.held_gpus
        self.guaranteed_gpus += row.held_gpus if row.guaranteed else 0
        self.waiting_jobs += row.state in _WAITING
        if rho is not None:
            self.rho = rho if self.rho is None else max(self.rho, rho)

    def sample(self) -> _Sample:
        return _Sample(self.rho, self.rho, self.gpus, self.guaranteed_gpus, self.waiting_jobs)


@dataclass(slots=True)
class FairnessRows:
    """The rows that were not written yet, and the last ones of each tenant."""

    _at: float | None = None
    _last: dict[tuple[str, str], _Sample] = field(default_factory=dict)
    _hour: dict[tuple[str, str], float] = field(default_factory=dict)  # of the last hourly row
    _waited: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    _new: list[dict[str, Any]] = field(default_factory=list)
    _cleaned_at: float = -inf
    _is_to_clean: bool = False

    def waited(self, rows: Iterable[JobRow], seconds: float) -> None:
        """Counts time that these jobs waited although cells of their own tenant had room."""
        for row in rows:
            self._waited[row.tenant] += seconds

    def is_due(self, now: float) -> bool:
        return self._at is None or now >= self._at + SAMPLE_SECONDS

    def sample(self, scheduler: Scheduler, rows: Mapping[str, JobRow], now: float) -> None:
        is_first = self._at is None  # what a former process wrote last is not known
        self._at = now
        if now >= self._cleaned_at + HOUR:
            self._cleaned_at, self._is_to_clean = now, True
        found = dict(_samples(live_rho(scheduler, now), rows))
        known = {(tenant, WHOLE) for pool in scheduler.pools for tenant in pool.spec.tenants} if is_first else set()
        gone = {key for key in self._last.keys() | known if key not in found and key[1] == WHOLE}
        for key in self._last.keys() - found.keys() - gone:
            del self._last[key], self._hour[key]
        for key, sample in (found | dict.fromkeys(gone, _NOTHING)).items():
            waited = self._waited.pop(key[0], 0.0) if key[1] == WHOLE else 0.0
            if self._last.get(key) != sample or waited:
                self._add(key, sample, waited, now)

    def _add(self, key: tuple[str, str], sample: _Sample, waited: float, now: float) -> None:
        hour = now // HOUR
        is_hourly = self._hour.get(key) != hour
        self._last[key], self._hour[key] = sample, hour
        values = {"at": now, "tenant": key[0], "app": key[1], "own_wait_seconds": waited, "is_hourly": is_hourly}
        self._new.append({**values, **sample._asdict()})

    def write(self, connection: Connection) -> None:
        if self._is_to_clean and self._at is not None:
            now = self._at
            is_old = (fairness.c.at < now - ALL_KEPT_SECONDS) & _is_between()
            connection.execute(delete(fairness).where(is_old | (fairness.c.at < now - HOURLY_KEPT_SECONDS)))
        if self._new:
            connection.execute(insert(fairness), self._new)

    def written(self) -> None:
        self._new, self._is_to_clean = [], False


def _is_between() -> ColumnElement[bool]:
    """Whether a row is neither the first of an hour nor followed by an hour without a change."""
    row, later = fairness.c, fairness.alias().c
    follows = (later.tenant == row.tenant) & (later.app == row.app) & (later.at > row.at) & (later.at < row.at + HOUR)
    return not_(row.is_hourly) & (row.own_wait_seconds == 0.0) & exists().where(follows)


def _samples(rho: Mapping[str, float], rows: Mapping[str, JobRow]) -> Iterator[tuple[tuple[str, str], _Sample]]:
    by_tenant: defaultdict[str, defaultdict[str, _Total]] = defaultdict(lambda: defaultdict(_Total))
    for row in rows.values():
        if not row.has_ended:
            by_tenant[row.tenant][row.app].add(row, rho.get(row.id))
    for tenant, apps in by_tenant.items():
        yield (tenant, WHOLE), _sum(apps.values())
        oldest = sorted(apps, key=lambda name: (apps[name].number, name))[:APPS_SAMPLED]
        yield from (((tenant, name), apps[name].sample()) for name in oldest)


def _sum(apps: Iterable[_Total]) -> _Sample:
    apps = list(apps)
    rho = [each.rho for each in apps if each.rho is not None]
    return _Sample(
        round(sum(rho) / len(rho), RHO_DIGITS) if rho else None,
        max(rho, default=None),
        sum(each.gpus for each in apps),
        sum(each.guaranteed_gpus for each in apps),
        sum(each.waiting_jobs for each in apps),
    )


def live_rho(scheduler: Scheduler, now: float) -> dict[str, float]:
    """By live job: the rho of its app if it ended now, as `Scheduler.rho` gives it for one job."""
    found = {}
    received = [pool.table.view(now).service_gpu_seconds for pool in scheduler.pools]
    for pool in scheduler.pools:
        gpus = int(pool.capacity.sum())
        for serial, row in pool.table.row.items():
            job = pool.table.jobs[row]
            if scheduler.jobs.live.get(job.id) != (pool, serial):
                continue  # a loan: the job is in the table of its own pool, too
            running, number = scheduler.jobs.on_gpus(job.id) or (pool, serial)
            seconds = float(received[running.index][running.table.row[number]])
            rho = pool.apps.rho(job.app_id, now, gpus, seconds)
            if rho is not None:
                found[job.id] = round(rho, RHO_DIGITS)
    return found
