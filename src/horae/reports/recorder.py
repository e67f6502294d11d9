"""Records the outcome of each job: a fold over events and commands, the same for a live run and for a journal.

A run may have a million jobs, so ended jobs are kept in typed columns; only live jobs are objects.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf, nan
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from horae.model.arrays import Bools, Floats, Ints
from horae.model.chain_layout import layout_of
from horae.model.cluster import Gpu
from horae.model.commands import Start
from horae.model.events import Ending, Event, JobCancelled, JobEnded, JobSubmitted, Surveyed
from horae.model.jobs import Arrival, Job, Truth
from horae.model.plans import Reaction
from horae.model.setup import PoolOfJob, PoolSpec, Setup
from horae.model.shapes import Option
from horae.reports.run_log import (
    CANCELLED,
    ENDINGS,
    FAILED,
    FINISHED,
    OUTCOMES,
    REFUSED,
    UNFINISHED,
    ClusterLog,
    JobLog,
    LeaseLog,
    RunLog,
)

_ENDING = {ending: ENDINGS.index(ending.value) for ending in Ending}
_STOPPED, _LOST, _RUNNING = ENDINGS.index("stopped"), ENDINGS.index("lost"), ENDINGS.index("running")
_BY_OWNER = ENDINGS.index("cancelled")
# Rows as the recorder writes them: integers, then reals.
_JOB_INTS = ("serial", "user", "tenant", "app", "model", "pool", "gpus", "outcome")
_JOB_FLOATS = ("submitted_at", "started_at", "ended_at", "deadline_at", "ideal_seconds", "fastest_seconds")
_LEASE_INTS = ("serial", "accelerator", "ending", "gpus")
_LEASE_FLOATS = ("started_at", "ended_at", "restart_seconds", "shared_seconds")


class _Form:
    """Packs a row of columns into bytes, and unpacks many of them into columns."""

    def __init__(self, ints: tuple[str, ...], floats: tuple[str, ...], more: tuple[str, int] | None = None) -> None:
        """`more` is the length of an additional column of reals."""
        self.pack = Struct(f"={len(ints)}q{len(floats) + (more[1] if more else 0)}d").pack
        columns: list[Any] = [*((name, np.int64) for name in ints), *((name, np.float64) for name in floats)]
        self._rows = np.dtype([*columns, (more[0], np.float64, (more[1],))] if more else columns)

    def columns(self, packed: bytes) -> dict[str, NDArray[Any]]:
        rows = np.frombuffer(packed, dtype=self._rows)
        return {name: np.ascontiguousarray(rows[name]) for name in self._rows.names or ()}


@dataclass(slots=True)
class Life:
    """A job that has not ended."""

    job: Job
    truth: Truth | None
    serial: int  # in the order of submission
    start: Start | None = None  # its present lease
    since: float = 0.0
    shared_until: float = 0.0  # when its partner on these GPUs left; inf: still there
    first_started_at: float = nan
    starts: int = 0
    failures: int = 0
    steps: float = 0.0  # safe when its last lease ended
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class JobRecord:
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


class Recorder:
    """An observer that keeps one row per job and per lease that has ended."""

    def __init__(self, setup: Setup) -> None:
        self.live: dict[str, Life] = {}
        self._site = Site(setup)
        self._expected: dict[str, Truth] = {}
        self._submitted_count = 0
        self._now = self._surveyed_at = 0.0
        # Names and their numbers, in the order of first occurrence.
        self._users: dict[str, int] = {}
        self._tenants: dict[str, int] = {}
        self._apps: dict[str, int] = {}
        self._models: dict[str, int] = {}
        self._job_form = _Form(_JOB_INTS, _JOB_FLOATS, ("least_gpu_seconds", len(self._site.accelerator)))
        self._lease_form = _Form(_LEASE_INTS, _LEASE_FLOATS)
        self._ids: dict[str, None] = {}  # of jobs that ended, in the order of their ends
        self._jobs, self._leases, self._gpus = bytearray(), bytearray(), array("q")

    def expecting(self, arrivals: Iterable[Arrival]) -> Iterator[Arrival]:
        """The same arrivals; the truth about each is recorded on its way to the engine."""
        for arrival in arrivals:
            self.expect(arrival)
            yield arrival

    def expect(self, arrival: Arrival) -> None:
        self._expected[arrival.job.id] = arrival.truth

    def admit(self, job: Job) -> None:
        """Begins with a job that was submitted before this record."""
        self._submitted(job)

    def resume(self, job_id: str, start: Start, since: float) -> None:
        """Begins with a job that runs already, on these GPUs since then."""
        if job_id in self.live:
            self._started(self.live[job_id], start, since)

    def reacted(self, event: Event, reaction: Reaction) -> None:
        self._now = event.at
        kind = type(event)
        if kind is JobEnded:
            self._ended(event)  # type: ignore[arg-type]
        elif kind is JobSubmitted:
            self._submitted(event.job)  # type: ignore[union-attr]
        elif kind is JobCancelled:
            self._cancelled(event.job_id, event.at)  # type: ignore[union-attr]
        elif kind is Surveyed:
            self._surveyed_at = event.at
        for command in reaction.commands:
            if type(command) is Start:
                for job_id in command.job_ids:
                    self._started(self.live[job_id], command, event.at)

    def _submitted(self, job: Job) -> None:
        if job.id not in self.live and job.id not in self._ids:  # otherwise a duplicate
            self.live[job.id] = Life(job, self._expected.pop(job.id, None), self._submitted_count)
            self._submitted_count += 1
            if job.lazy:
                self._site.admit_lazy(job)

    def _cancelled(self, job_id: str, at: float) -> None:
        life = self.live.get(job_id)
        if life is not None:
            life.cancelled = True
            if life.start is None:
                self._close(life, CANCELLED, at)

    def _started(self, life: Life, command: Start, at: float) -> None:
        if life.start is not None:
            if life.start.epoch == command.epoch:
                return  # a duplicate
            # The message of its end was lost; a survey found that nothing runs.
            self._end_lease(life, _LOST, self._surveyed_at if self._surveyed_at > life.since else at)
        if not life.starts:
            life.first_started_at = at
        life.start, life.since = command, at
        life.shared_until = at if len(command.job_ids) == 1 else inf
        life.starts += 1

    def _ended(self, event: JobEnded) -> None:
        life = self.live.get(event.job_id)
        if life is None or life.start is None or life.start.epoch != event.epoch:
            return
        ending = _ENDING[event.ending]
        self._end_lease(life, _BY_OWNER if life.cancelled and ending == _STOPPED else ending, event.at)
        life.start, life.steps = None, event.steps
        life.failures += event.ending is Ending.FAILED
        if event.ending is Ending.FINISHED:
            self._close(life, FINISHED, event.at)
        elif life.cancelled:
            self._close(life, CANCELLED, event.at)
        elif life.failures > life.job.retries_max:
            self._close(life, FAILED, event.at)

    def _end_lease(self, life: Life, ending: int, at: float) -> None:
        assert life.start is not None
        self._leases += self._lease_row(life, life.start, ending, at)
        self._gpus.extend(self._site.positions(life.start.gpus))
        if len(life.start.job_ids) > 1:
            for other in map(self.live.get, life.start.job_ids):
                if other is not None and other.start is not None and other.start.epoch == life.start.epoch:
                    other.shared_until = min(other.shared_until, at)

    def _lease_row(self, life: Life, start: Start, ending: int, at: float) -> bytes:
        resumes = start.resumes[start.job_ids.index(life.job.id)]
        restart_seconds = life.job.restart_seconds if resumes else 0.0
        accelerator = self._site.accelerator[start.shape.accelerator]
        shared_seconds = min(life.shared_until, at) - life.since
        return self._lease_form.pack(
            life.serial, accelerator, ending, len(start.gpus), life.since, at, restart_seconds, shared_seconds
        )

    def _close(self, life: Life, outcome: int, at: float) -> None:
        del self.live[life.job.id]
        self._ids[life.job.id] = None
        self._jobs += self._job_row(life, outcome, at)

    def _job_row(self, life: Life, outcome: int, at: float) -> bytes:
        job, truth = life.job, life.truth
        users, tenants, apps, models = self._users, self._tenants, self._apps, self._models
        pool = self._site.pool_of(job)
        options = job.options if truth is None or truth.options is job.options else _true_options(job, truth)
        steps = _steps(life, outcome)
        fastest_seconds, least_gpu_seconds = self._site.least(steps, options, pool)
        return self._job_form.pack(
            life.serial,
            users.setdefault(job.user, len(users)),
            tenants.setdefault(job.tenant, len(tenants)),
            apps.setdefault(job.app, len(apps)) if job.app else -1,
            models.setdefault(job.model, len(models)),
            pool,
            job.gpus,
            outcome,
            job.submitted_at,
            life.first_started_at,
            at,
            job.deadline_at,
            steps / options[0].steps_per_second,
            fastest_seconds,
            *least_gpu_seconds,
        )

    @property
    def ended_count(self) -> int:
        return len(self._ids)

    def log(self, refused: Collection[str] = ()) -> RunLog:
        """The log of everything known so far; `refused` are the live jobs that can never run."""
        live = list(self.live.values())
        rows = [self._job_row(life, REFUSED if life.job.id in refused else UNFINISHED, nan) for life in live]
        columns = self._job_form.columns(b"".join((self._jobs, *rows)))
        row_of_job = np.empty(self._submitted_count, dtype=np.int64)
        row_of_job[columns.pop("serial")] = np.arange(len(self._ids) + len(live))
        return RunLog(
            jobs=JobLog(id=(*self._ids, *(life.job.id for life in live)), **columns),
            leases=self._lease_columns(row_of_job),
            cluster=self._site.columns,
            users=tuple(self._users),
            tenants=tuple(self._tenants),
            apps=tuple(self._apps),
            models=tuple(self._models),
            until=self._now,
            kept_max=self._site.kept_max,
            kept_together_max=self._site.kept_together_max,
        )

    def _lease_columns(self, row_of_job: Ints) -> LeaseLog:
        running = [(life, life.start) for life in self.live.values() if life.start is not None]
        rows = [self._lease_row(life, start, _RUNNING, self._now) for life, start in running]
        columns = self._lease_form.columns(b"".join((self._leases, *rows)))
        offset = np.concatenate(([0], np.cumsum(columns.pop("gpus"))))
        # A copy: an array that lends its memory could not grow.
        now = [gpu for _, start in running for gpu in self._site.positions(start.gpus)]
        gpu = np.array([*self._gpus, *now] if running else self._gpus)
        return LeaseLog(
            job=row_of_job[columns.pop("serial")], **columns, offset=offset, gpu=gpu.astype(np.int64, copy=False)
        )

    def records(self) -> list[JobRecord]:
        """One record per job that ended, in the order of their ends."""
        log, count = self.log(), self.ended_count
        jobs = log.jobs
        columns = (
            jobs.id, jobs.tenant, jobs.app, jobs.gpus, jobs.outcome, jobs.submitted_at, jobs.started_at, jobs.ended_at,
            log.run_seconds, log.gpu_seconds, log.starts,
        )  # fmt: skip
        rows = zip(*(column if isinstance(column, tuple) else column[:count].tolist() for column in columns))  # noqa: B905
        return [
            JobRecord(
                job_id, log.tenants[tenant], log.apps[app] if app >= 0 else job_id, gpus, OUTCOMES[outcome], *rest
            )
            for job_id, tenant, app, gpus, outcome, *rest in rows
        ]

    def column(self, name: str, outcome: str = "finished") -> Floats:
        """One number per job with that outcome, in the order of their ends."""
        log = self.log()
        column = getattr(log if hasattr(log, name) else log.jobs, name)
        return np.asarray(column[log.jobs.outcome == OUTCOMES.index(outcome)], dtype=np.float64)


def _steps(life: Life, outcome: int) -> float:
    """The steps that a job did or, if it has not ended, will do; nan: unknown.

    True values take precedence over estimates.
    """
    if outcome == CANCELLED or (outcome == FAILED and life.truth is None):
        return life.steps
    if life.truth is not None:
        return min(life.truth.steps_total, life.truth.fails_at_step)
    if outcome == FINISHED and life.steps:
        return life.steps
    return nan if life.job.steps_total is None else life.job.steps_total


def _true_options(job: Job, truth: Truth) -> Sequence[Option]:
    """The true speeds in the shapes that the job accepts, its reference shape first."""
    accepted = {(shape.accelerator, shape.gpus) for shape, _ in job.options}
    reference = job.options[0]
    options = [option for option in truth.options if option.shape[:2] in accepted]
    first = next((option for option in options if option.shape == reference.shape), reference)
    return [first, *(option for option in options if option is not first)]


# The recorder's view of the cluster: its GPUs as columns, which pools may use them, and lower bounds per job


class Site:
    def __init__(self, setup: Setup) -> None:
        cluster = setup.cluster
        self.accelerator = {name: index for index, name in enumerate(cluster.accelerators)}
        self._pool_of_job = PoolOfJob(setup.pools)
        self._could_leave = self._leaving(setup.pools)
        first = cluster.first_gpu[cluster.node_level].tolist()
        self._first_gpu = {node.name: first[index] for index, node in enumerate(cluster.nodes)}
        owner = {name: index for index, pool in enumerate(setup.pools) for name in pool.nodes}
        apart = [bool(pool.nodes or pool.reserves or pool.quota) for pool in setup.pools]
        rest = apart.index(False) if False in apart else -1
        node = cluster.node_of_gpu
        accelerator = np.array([self.accelerator[each.accelerator] for each in cluster.nodes])[node]
        pool = np.array([owner.get(each.name, rest) for each in cluster.nodes])[node]
        counts = self._counts(setup, accelerator, pool)
        self.columns = ClusterLog(
            accelerators=cluster.accelerators,
            pools=tuple(each.name for each in setup.pools),
            accelerator=accelerator,
            node=node,
            pool=pool,
            price_per_hour=np.array([each.price_per_hour for each in cluster.nodes])[node],
            pool_gpus=counts[:-1],
            borrows=np.array([each.borrow for each in setup.pools]) & self._could_leave,
        )
        self._gpus = [dict(zip(cluster.accelerators, row, strict=True)) for row in counts.tolist()]
        self._all_gpus = dict(zip(cluster.accelerators, self.columns.gpus_by_accelerator.tolist(), strict=True))
        self._nowhere = [inf] * len(self.accelerator)
        self.kept_max = max((max(row.kept) for row in setup.sharing), default=1.0)
        self.kept_together_max = max((sum(row.kept) for row in setup.sharing), default=1.0)

    def _leaving(self, pools: Sequence[PoolSpec]) -> Bools:
        """By pool: whether its jobs could continue outside its own GPUs."""
        return np.array([each.reserves and self._pool_of_job.open_pool is not None for each in pools], dtype=bool)

    def admit_lazy(self, job: Job) -> None:
        """Registers a job that continues outside its tenant's cells when it loses them."""
        pool, borrows = self.pool_of(job), self.columns.borrows
        if pool >= 0 and self._could_leave[pool] and not borrows[pool]:
            self.columns = replace(self.columns, borrows=borrows | (np.arange(len(borrows)) == pool))

    def _counts(self, setup: Setup, accelerator: Ints, pool: Ints) -> Ints:
        """By pool and accelerator: GPUs that it may use at a time. The last row is for jobs without a pool."""
        counts = np.zeros((len(setup.pools) + 1, len(self.accelerator)), dtype=np.int64)
        np.add.at(counts, (pool, accelerator), 1)
        counts[-1] = 0
        reserving = [each for each in setup.pools if each.reserves]
        layout = layout_of(
            setup.cluster,
            {each.name: each.cells for each in reserving},
            {each.name: each.pinned for each in reserving},
        )
        reserved = {each.tenant: dict(each.cells) for each in layout.territory.reservations}
        tenant_of = {name: each.tenant for each in layout.territory.reservations for name in each.pinned}
        for pin in layout.territory.pins:
            cells = reserved[tenant_of[pin.name]]
            cells[pin.kind] = cells.get(pin.kind, 0) + 1
        for index, each in enumerate(setup.pools):
            for name, gpus in each.quota.items():
                counts[index, self.accelerator[name]] = gpus
            for kind, count in reserved.get(each.name, {}).items():
                chain = layout.territory.chains[kind.chain]
                counts[index, self.accelerator[chain.accelerator]] += count * chain.gpus[kind.level]
        return counts

    def pool_of(self, job: Job) -> int:
        """The index of a job's pool; -1: no pool serves it."""
        pool = self._pool_of_job.find(job)
        return -1 if pool is None else pool

    def positions(self, gpus: Iterable[Gpu]) -> list[int]:
        return [self._first_gpu[node] + number for node, number in gpus]

    def least(self, steps: float, options: Sequence[Option], pool: int) -> tuple[float, list[float]]:
        """The least seconds for this much work in this pool, and by accelerator the least GPU-seconds.

        A job that may borrow also runs in shapes for which its own pool is too small.
        """
        gpus_of = self._all_gpus if pool >= 0 and self.columns.borrows[pool] else self._gpus[pool]
        fastest_seconds = inf
        least_gpu_seconds = self._nowhere.copy()
        for (accelerator, gpus, _), speed in options:
            if gpus <= gpus_of.get(accelerator, 0):
                seconds = steps / speed
                if not seconds >= fastest_seconds:  # so that an unknown time stays unknown
                    fastest_seconds = seconds
                index = self.accelerator[accelerator]
                if not seconds * gpus >= least_gpu_seconds[index]:
                    least_gpu_seconds[index] = seconds * gpus
        return fastest_seconds, least_gpu_seconds
