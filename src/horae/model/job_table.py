"""The live jobs of one pool as columns.

Rows are dense and unordered: a job that leaves is replaced by the last row. Code that needs an order sorts (by
`submitted_at`, then `serial`). Quantities that grow with time are stored as a base and the time since when they grow,
so that values do not depend on how often they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf, nan
from typing import Any, Generic, NamedTuple, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from horae.model.arrays import Bools, Floats, Ints
from horae.model.jobs import Job
from horae.model.serialization import Plain, array_from_plain
from horae.model.status import HOLDING, PENDING, RUNNING, STARTING, STOPPING

Value = TypeVar("Value")

NONE = -1  # no lease, no option, no hold
ALL = -3  # in place of a number: any

# Integers, one per job.
_INTS = (
    "serial",  # order of submission; the final tie-breaker
    "gpus",  # of the reference shape
    "priority",  # as the job was submitted with; negative: without a guarantee
    "app",  # number of its app, an index into the columns of `View.app`
    "tenant",  # index into `View.tenants`
    "user",  # jobs of one user have the same number
    "demand",  # jobs with the same number have equal placement needs
    "model",  # index into `View.models`
    "status",  # a `horae.model.status.Status`
    "epoch",  # of the present lease; -1: none
    "option",  # held under the present lease; -1: none
    "held_gpus",  # under the present lease
    "runs",  # leases that the engine has confirmed; a job with any of them resumes from a checkpoint
)
# Reals, one per job. The first of them are known when a job is submitted.
_FLOATS = (
    "submitted_at",  # seconds
    "weight",  # as the job was submitted with
    "steps_total",  # nan: unknown
    "deadline_at",  # inf: none
    "restart_seconds",  # cost of resuming from a checkpoint
    "preemptions_left",  # inf: no limit
    "limit_seconds",  # the run time that its user asked for at most; inf: none
    "cpus",  # of the gang in its reference shape
    "memory_bytes",  # of the gang in its reference shape
    "queued_at",  # when it last became pending
    "app_submitted_at",  # submission of the first job of its app
    "app_integral",  # integral of the number of apps up to the app's first job
    "curve_rate",  # its loss is estimated as 1 / (rate x step + start) + floor; nan: unknown
    "curve_start",  # see `curve_rate`
    "curve_floor",  # see `curve_rate`
    "steps_base",  # saved steps at the last report
    "since",  # start of the present lease
    "confirmed_at",  # when the engine began to run it; inf: not confirmed yet
    "protected_until",  # it is not preempted earlier
    "productive_at",  # end of its restart
    "lease_until",  # the lease is not contestable earlier
    "run_base",  # seconds on GPUs before this lease
    "service_base",  # GPU-seconds before this lease
    "service_mark",  # GPU-seconds at the last promotion
    "steps_ahead",  # estimated beyond the saved ones, when the pace or the speed last changed under this lease
    "pace",  # the fraction of its speed that it keeps under this lease, beside a job that shares its GPUs
    "isolated_base",  # seconds that its steps would have taken on an isolated share, up to the mark
    "isolated_mark",  # steps done when the shares in force were computed
    "isolated_speed",  # steps per second on an isolated share, as estimated by those shares; 0: not estimated
)
_FLOATS_AT_START = _FLOATS.index("steps_base")
# One for each option of a job. The shape is its number in the interning table, NONE beyond the last option.
_OPTION_INTS = (
    "shape",  # index into `View.shapes`; -1 beyond the last option
)
_OPTION_FLOATS = (
    "speed",  # estimated steps per second
    "received_base",  # seconds held before this lease
    "target",  # fraction of time under the shares in force
    "received_mark",  # seconds received when those were computed
    "deficit",  # seconds owed from earlier shares
)


_NO_CURVE = (nan, nan, nan)


class _Lazy(Generic[Value]):
    """An attribute computed on first access and stored from then on.

    Like functools.cached_property without its lock: a round reads a dozen of these, and there are many rounds.
    """

    def __init__(self, work_out: Callable[[Any], Value]) -> None:
        self._work_out = work_out
        self.__doc__ = work_out.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, owner: None, kind: type) -> _Lazy[Value]: ...
    @overload
    def __get__(self, owner: object, kind: type) -> Value: ...
    def __get__(self, owner: object | None, kind: type) -> _Lazy[Value] | Value:
        if owner is None:
            return self
        value = self._work_out(owner)
        owner.__dict__[self._name] = value
        return value


def _ints(name: str) -> _Lazy[Ints]:
    """A column of the table, restricted to the live rows."""
    return _Lazy(lambda rows: rows._columns[name][: rows._count])


def _floats(name: str) -> _Lazy[Floats]:
    return _Lazy(lambda rows: rows._columns[name][: rows._count])


class JobColumns:
    """The rows of a table at one moment, read-only. Rows are positions in these columns."""

    serial = _ints("serial")
    gpus = _ints("gpus")
    priority = _ints("priority")
    app = _ints("app")
    tenant = _ints("tenant")
    user = _ints("user")
    demand = _ints("demand")
    model = _ints("model")
    status = _ints("status")
    epoch = _ints("epoch")
    option = _ints("option")
    held_gpus = _ints("held_gpus")
    runs = _ints("runs")
    submitted_at = _floats("submitted_at")
    weight = _floats("weight")
    steps_total = _floats("steps_total")
    deadline_at = _floats("deadline_at")
    restart_seconds = _floats("restart_seconds")
    preemptions_left = _floats("preemptions_left")
    limit_seconds = _floats("limit_seconds")
    cpus = _floats("cpus")
    memory_bytes = _floats("memory_bytes")
    queued_at = _floats("queued_at")
    app_submitted_at = _floats("app_submitted_at")
    app_integral = _floats("app_integral")
    curve_rate = _floats("curve_rate")
    curve_start = _floats("curve_start")
    curve_floor = _floats("curve_floor")
    steps_base = _floats("steps_base")
    since = _floats("since")
    confirmed_at = _floats("confirmed_at")
    protected_until = _floats("protected_until")
    productive_at = _floats("productive_at")
    lease_until = _floats("lease_until")
    run_base = _floats("run_base")
    service_base = _floats("service_base")
    service_mark = _floats("service_mark")
    steps_ahead = _floats("steps_ahead")
    pace = _floats("pace")
    isolated_base = _floats("isolated_base")
    isolated_mark = _floats("isolated_mark")
    isolated_speed = _floats("isolated_speed")
    shape = _ints("shape")
    speed = _floats("speed")
    received_base = _floats("received_base")
    target = _floats("target")
    received_mark = _floats("received_mark")
    deficit = _floats("deficit")

    def __init__(self, now: float, columns: Mapping[str, NDArray[Any]], count: int, bundles: int = 1) -> None:
        self.now = now
        self.bundles = bundles
        self._columns = columns
        self._count = count

    def __len__(self) -> int:
        return self._count

    @_Lazy
    def running(self) -> Bools:
        """By job: whether it holds GPUs and was not told to stop."""
        return (self.status == RUNNING) | (self.status == STARTING)

    @_Lazy
    def pending(self) -> Bools:
        """By job: whether it is in the queue, without GPUs and without a hold."""
        return self.status == PENDING

    @_Lazy
    def waiting(self) -> Bools:
        """By job: whether it waits for GPUs: pending, about to be, or holding GPUs that other jobs are leaving."""
        return (self.status == PENDING) | (self.status == HOLDING) | (self.status == STOPPING)

    @_Lazy
    def on_gpus(self) -> Bools:
        """By job: whether it has a lease."""
        return self.epoch != NONE

    @_Lazy
    def partner(self) -> Ints:
        """By job: the row of the job that shares its GPUs; NONE where the GPUs are not shared."""
        partner = np.full(len(self), NONE)
        if not self.bundles:
            return partner
        rows = np.flatnonzero(self.on_gpus)
        rows = rows[np.argsort(self.epoch[rows], kind="stable")]
        twins = np.flatnonzero(np.diff(self.epoch[rows]) == 0)
        partner[rows[twins]], partner[rows[twins + 1]] = rows[twins + 1], rows[twins]
        return partner

    @_Lazy
    def contestable(self) -> Bools:
        """By job: whether it may be preempted: past its minimum run time and its lease,
        and within its preemption budget."""
        may = (
            (self.status == RUNNING)
            & (self.now >= self.protected_until)
            & (self.now >= self.lease_until)
            & (self.preemptions_left > 0)
        )
        if not self.bundles:
            return may
        # Two jobs that share GPUs are preempted together or not at all.
        return may & ((self.partner == NONE) | may[self.partner])

    @_Lazy
    def lease_seconds(self) -> Floats:
        """Seconds under the present lease; zero for jobs without one."""
        return np.where(self.on_gpus, self.now - self.since, 0.0)

    @_Lazy
    def run_seconds(self) -> Floats:
        """Seconds on GPUs over the job's life."""
        return self.run_base + self.lease_seconds

    @_Lazy
    def service_gpu_seconds(self) -> Floats:
        """Attained service: GPUs times seconds, over the job's life."""
        return self.service_base + self.held_gpus * self.lease_seconds

    @_Lazy
    def service_since_promotion(self) -> Floats:
        """Attained service since the job was last promoted."""
        return self.service_gpu_seconds - self.service_mark

    @_Lazy
    def waiting_seconds(self) -> Floats:
        """Seconds in the queue since the job last became pending; zero for jobs that do not wait."""
        return np.where(self.pending, self.now - self.queued_at, 0.0)

    @_Lazy
    def received_seconds(self) -> Floats:
        """By job and option: seconds held over the job's life."""
        received = self.received_base.copy()
        rows = self.on_gpus.nonzero()[0]
        received[rows, self.option[rows]] += self.lease_seconds[rows]
        return received

    @_Lazy
    def reference_speed(self) -> Floats:
        """Estimated steps per second in the first shape that the job accepts."""
        return self.speed[:, 0]

    @_Lazy
    def steps_done(self) -> Floats:
        """Estimated steps done."""
        rows = np.flatnonzero(self.on_gpus)
        done = self.steps_base + self.steps_ahead
        productive = np.maximum(self.now - self.productive_at[rows], 0.0)
        done[rows] += productive * self.speed[rows, self.option[rows]] * self.pace[rows]
        return done

    @_Lazy
    def steps_left(self) -> Floats:
        """Estimated steps left; nan where the total is unknown."""
        return np.maximum(self.steps_total - self.steps_done, 0.0)

    @_Lazy
    def isolated_seconds(self) -> Floats:
        """Seconds that the steps so far would have taken on an isolated share,
        as estimated by the shares in force at the time."""
        known = self.isolated_speed > 0
        fresh = (self.steps_done - self.isolated_mark) / np.where(known, self.isolated_speed, 1.0)
        return self.isolated_base + np.where(known, fresh, 0.0)

    @_Lazy
    def seconds_total(self) -> Floats:
        """Estimated run time in the reference shape; inf where unknown."""
        return _or_endless(self.steps_total / self.reference_speed)

    @_Lazy
    def seconds_left(self) -> Floats:
        """Estimated run time left in the reference shape; inf where unknown."""
        return _or_endless(self.steps_left / self.reference_speed)


def _or_endless(seconds: Floats) -> Floats:
    return np.where(
        np.isnan(seconds), inf, seconds
    )  # several times as fast as nan_to_num, and called in every round of decisions


class JobNumbers(NamedTuple):
    """The numbers that the scheduler assigns to a new job."""

    app: int
    tenant: int
    user: int
    demand: int
    shapes: tuple[int, ...]  # by option
    app_submitted_at: float
    app_integral: float
    model: int = 0


class JobTable:
    """The mutable table; only the scheduler writes to it.

    Columns are the rows of two blocks, one number per job or one per option, so that a job is moved with two copies.
    Integers and reals of a block are views of the same memory: both take eight bytes.
    Each column is an attribute of its name; `columns` has all of them, for code that treats them alike.
    """

    serial: Ints
    gpus: Ints
    priority: Ints
    app: Ints
    tenant: Ints
    user: Ints
    demand: Ints
    model: Ints
    status: Ints
    epoch: Ints
    option: Ints
    held_gpus: Ints
    runs: Ints
    submitted_at: Floats
    weight: Floats
    steps_total: Floats
    deadline_at: Floats
    restart_seconds: Floats
    preemptions_left: Floats
    limit_seconds: Floats
    cpus: Floats
    memory_bytes: Floats
    queued_at: Floats
    app_submitted_at: Floats
    app_integral: Floats
    curve_rate: Floats
    curve_start: Floats
    curve_floor: Floats
    steps_base: Floats
    since: Floats
    confirmed_at: Floats
    protected_until: Floats
    productive_at: Floats
    lease_until: Floats
    run_base: Floats
    service_base: Floats
    service_mark: Floats
    steps_ahead: Floats
    pace: Floats
    isolated_base: Floats
    isolated_mark: Floats
    isolated_speed: Floats
    shape: Ints
    speed: Floats
    received_base: Floats
    target: Floats
    received_mark: Floats
    deficit: Floats

    def __init__(self, options: int = 1, capacity: int = 64) -> None:
        self.count = 0
        self.bundles = 0  # leases of two jobs
        self.ids: list[str] = []
        self.jobs: list[Job] = []
        self.row: dict[int, int] = {}  # serial to row
        self.columns: dict[str, NDArray[Any]] = {}
        self._read_only: dict[str, NDArray[Any]] = {}
        self._blocks: tuple[Ints, ...] = ()
        self._parts: tuple[NDArray[Any], ...] = ()  # integers and reals, one per job and one per option
        self._grow(capacity, options)

    def _grow(self, capacity: int, options: int) -> None:
        fresh = (
            np.zeros((len(_INTS) + len(_FLOATS), capacity), dtype=np.int64),
            np.zeros((len(_OPTION_INTS) + len(_OPTION_FLOATS), capacity, options), dtype=np.int64),
        )
        fresh[1][: len(_OPTION_INTS)] = NONE
        for new, old in zip(fresh, self._blocks, strict=False):
            new[tuple(slice(size) for size in old.shape)] = old
        self._blocks = fresh
        self._parts = (
            *(fresh[0][: len(_INTS)], fresh[0][len(_INTS) :].view(np.float64)),
            *(fresh[1][: len(_OPTION_INTS)], fresh[1][len(_OPTION_INTS) :].view(np.float64)),
        )
        self._capacity, self._options = capacity, options
        for names, part in zip((_INTS, _FLOATS, _OPTION_INTS, _OPTION_FLOATS), self._parts, strict=True):
            for name, column in zip(names, part, strict=True):
                self.columns[name] = column
                setattr(self, name, column)
                self._read_only[name] = column.view()
                self._read_only[name].flags.writeable = False

    def add(self, serial: int, job: Job, entry: JobNumbers) -> None:
        """Append a pending job."""
        shapes, gpus = entry.shapes, job.gpus
        if self.count == self._capacity or len(shapes) > self._options:
            self._grow(max(self._capacity, 2 * self.count), max(self._options, len(shapes)))
        row = self.count
        self.count += 1
        self.ids.append(job.id)
        self.jobs.append(job)
        self.row[serial] = row
        ints, floats, option_ints, option_floats = self._parts
        # In the order of the columns; columns not named here are zero.
        ints[:, row] = (
            serial, gpus, job.priority, entry.app, entry.tenant, entry.user, entry.demand,
            entry.model, PENDING, NONE, NONE, 0, 0,
        )  # fmt: skip
        floats[:, row] = 0.0
        self.pace[row] = 1.0
        steps_total = nan if job.steps_total is None else job.steps_total
        floats[:_FLOATS_AT_START, row] = (
            job.submitted_at, job.weight, steps_total, job.deadline_at, job.restart_seconds,
            job.preemptions_max, job.limit_seconds,
            gpus * job.cpus_per_gpu, gpus * job.memory_bytes_per_gpu, job.submitted_at,
            entry.app_submitted_at, entry.app_integral, *(job.curve or _NO_CURVE),
        )  # fmt: skip
        option_ints[0, row] = NONE
        option_ints[0, row, : len(shapes)] = shapes
        option_floats[:, row] = 0.0
        option_floats[0, row, : len(shapes)] = [option.steps_per_second for option in job.options]

    def remove(self, serial: int) -> None:
        """Removes a job; the last row takes its place."""
        row = self.row.pop(serial)
        self.count -= 1
        last = self.count
        if row != last:
            for block in self._blocks:
                block[:, row] = block[:, last]
            self.ids[row] = self.ids[last]
            self.jobs[row] = self.jobs[last]
            self.row[int(self.serial[row])] = row
        self.ids.pop()
        self.jobs.pop()

    def has_run(self, row: int) -> bool:
        """Whether a job has a checkpoint to resume from: it was confirmed to run, or has reported progress."""
        return bool(self.runs[row] or self.steps_base[row])

    def revise(self, model: int, shape: int, steps_per_second: float, now: float, tenant: int = ALL) -> bool:
        """Sets a new estimated speed for a tenant's jobs of a model; the work done so far is kept at the former one."""
        changed = self.shape[: self.count] == shape
        changed[self.model[: self.count] != model] = False
        if tenant != ALL:
            changed[self.tenant[: self.count] != tenant] = False
        rows, options = np.nonzero(changed)
        if not len(rows):
            return False
        ahead = self.view(now).steps_done - self.steps_base[: self.count]
        self.steps_ahead[: self.count] = ahead
        productive_at = self.productive_at[: self.count]
        np.maximum(productive_at, now, out=productive_at, where=self.epoch[: self.count] != NONE)
        self.speed[rows, options] = steps_per_second
        return True

    def restore(self, jobs: list[Job], columns: Mapping[str, Plain], bundles: int) -> None:
        """Fills an empty table with dumped rows."""
        values = {name: array_from_plain(column.dtype, columns[name]) for name, column in self.columns.items()}
        self._grow(max(self._capacity, len(jobs)), max(self._options, values["shape"].shape[-1]))
        for name, value in values.items():
            self.columns[name][: len(jobs)] = value
        self.count, self.bundles = len(jobs), bundles
        self.jobs, self.ids = jobs, [job.id for job in jobs]
        self.row = {serial: row for row, serial in enumerate(self.serial[: len(jobs)].tolist())}

    def view(self, now: float) -> JobColumns:
        return JobColumns(now, self._read_only, self.count, self.bundles)
