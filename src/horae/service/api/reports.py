"""Reports of running jobs: they update a table, and the log gets what decisions depend on, at a bounded rate."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select

from horae.model.events import Event, JobProgressed, JobResumable, SpeedRevised
from horae.model.setup import Setup
from horae.model.shapes import Option
from horae.service.api.database import upsert
from horae.service.api.problems import Refused
from horae.service.api.services import compact, line
from horae.service.api.submissions import ModelOf, read_speeds
from horae.service.api.writer import put_in_inbox
from horae.service.job_file import options_of
from horae.service.models import ENDED, TRIAL_REPORTED, JobSpec, Progress
from horae.service.store import schema
from horae.service.sweeps import milestone

POINTS_MAX = 500  # per job
PROGRESS_SECONDS = 10.0  # saved steps of a job enter the log at most this often
SPEED_SECONDS = 30.0  # and a model's speed
SPEEDS_MAX = 1000  # that are kept per tenant
SPEED_TOLERANCE = 0.1  # a measured speed this close to the believed one is no news
SPEED_STEPS = 10  # of a lease, before its speed counts: the first ones are the slowest, and no two are alike
SPEED_REPORTS = 5  # the believed speed is a mean of about so many: jobs of one model differ
REMEMBERED_MAX = 100_000


class Throttle:
    """Says whether something of this name is due, at most once in a time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last: dict[str, float] = {}

    def is_due(self, name: str) -> bool:
        return time.monotonic() - self._last.get(name, -self._seconds) >= self._seconds

    def note(self, name: str) -> None:
        if len(self._last) >= REMEMBERED_MAX:
            self._last.clear()
        self._last[name] = time.monotonic()


class Reports:
    """Writes reports; for the writer's thread."""

    def __init__(self) -> None:
        self._progress = Throttle(PROGRESS_SECONDS)
        self._speed = Throttle(SPEED_SECONDS)
        self._rungs = Throttle(PROGRESS_SECONDS)
        self._told: dict[str, float] = {}  # by job: the saved steps that the log has
        self._began: dict[str, tuple[int, float]] = {}  # by job: the lease of its latest report, the steps at its first

    def take(self, connection: Connection, job_id: str, report: Progress, setup: Setup | None) -> None:
        job = _running_job(connection, job_id, report.epoch)
        known = connection.execute(select(schema.progress).where(schema.progress.c.job_id == job_id)).first()
        was_resumable = bool(job.resumable or (known is not None and known.resumable))
        saved = max(report.saved, known.saved if known is not None else 0.0)
        is_silent = report.loss is None and not report.diverged
        loss = known.loss if known is not None and is_silent else report.loss
        wall = time.time()
        row = {
            "job_id": job_id,
            "epoch": report.epoch,
            "wall": wall,
            "steps": report.steps,
            "saved": saved,
            "loss": loss,
        }
        row |= {"steps_per_second": report.steps_per_second, "resumable": was_resumable or report.resumable}
        upsert(connection, schema.progress, row)
        if report.loss is not None or not _has_point(connection, job_id, report.steps):
            _add_point(connection, job_id, report, wall)
        if report.resumable and not was_resumable:
            _send(connection, JobResumable(0.0, job_id))
        if saved > max(job.steps, self._told.get(job_id, 0.0)):
            self._saved(connection, job_id, report, saved)
        enough = self._steps_of_lease(job_id, report) >= SPEED_STEPS
        if enough and report.steps_per_second and job.model and setup is not None:
            self._measured(connection, job_id, job, report.steps_per_second, setup)
        self._rung(connection, job_id, job, report.steps, loss)

    def _steps_of_lease(self, job_id: str, report: Progress) -> float:
        """The steps between the first report of this lease and this one."""
        epoch, steps = self._began.get(job_id, (-1, 0.0))
        if epoch != report.epoch:
            if len(self._began) >= REMEMBERED_MAX:
                self._began.clear()
            self._began[job_id] = report.epoch, report.steps
            return 0.0
        return report.steps - steps

    def _rung(self, connection: Connection, job_id: str, job: Any, steps: float, loss: float | None) -> None:
        """Tells the loop that a trial has got to the end of its rung."""
        table = schema.trials.c
        query = select(table.size, table.rung, table.reached).where(table.job_id == job_id, table.state == "running")
        trial = connection.execute(query).first()
        if trial is None or trial.reached or steps < milestone(trial.size, trial.rung, job.steps_total):
            return
        name = f"{job_id} {trial.rung}"
        if self._rungs.is_due(name):
            payload = compact({"job_id": job_id, "steps": steps, "loss": loss})
            put_in_inbox(connection, TRIAL_REPORTED, payload, time.time())
            self._rungs.note(name)

    def _saved(self, connection: Connection, job_id: str, report: Progress, saved: float) -> None:
        if self._progress.is_due(job_id):
            _send(connection, JobProgressed(0.0, job_id, report.epoch, saved, report.steps))
            self._progress.note(job_id)
            if len(self._told) >= REMEMBERED_MAX:
                self._told.clear()
            self._told[job_id] = saved

    def _measured(self, connection: Connection, job_id: str, job: Any, speed: float, setup: Setup) -> None:
        """Tells the scheduler a speed that differs from the believed one."""
        name = f"{job.tenant}/{job.model}"
        if not self._speed.is_due(name):
            return
        option = _believed(connection, job_id, job, setup)
        table = schema.speeds
        key = {"tenant": job.tenant, "model": job.model, "gpu_type": job.held_type, "gpus": job.held_gpus}
        reports = connection.scalar(select(table.c.reports).filter_by(**key)) or 0
        revised = None if option is None else revised_speed(option.steps_per_second, speed, reports)
        if option is None or revised is None:
            return
        upsert(connection, table, {**key, "steps_per_second": revised, "reports": reports + 1, "wall": time.time()})
        if not reports:
            _forget_oldest(connection, job.tenant)
        _send(connection, SpeedRevised(0.0, job.model, option.shape, revised, job.tenant))
        self._speed.note(name)


def revised_speed(believed: float, measured: float, reports: int) -> float | None:
    """What to believe after so many reports and this one; None where it is no news."""
    if abs(measured - believed) <= SPEED_TOLERANCE * believed:
        return None
    return believed + (measured - believed) / min(reports + 1, SPEED_REPORTS)


def _forget_oldest(connection: Connection, tenant: str) -> None:
    """Keeps the latest speeds of a tenant only: names of models are its jobs' own choice."""
    table = schema.speeds.c
    latest = select(table.wall).where(table.tenant == tenant).order_by(table.wall.desc())
    oldest = connection.scalar(latest.offset(SPEEDS_MAX - 1).limit(1))
    if oldest is not None:
        connection.execute(delete(schema.speeds).where(table.tenant == tenant, table.wall < oldest))


def _running_job(connection: Connection, job_id: str, epoch: int) -> Any:
    """The row of a job; raises unless this is its present lease."""
    table = schema.jobs.c
    names = ("epoch", "state", "model", "tenant", "held_type", "held_gpus", "resumable", "steps", "steps_total")
    columns = [table[name] for name in names]
    job = connection.execute(select(*columns).where(table.id == job_id)).first()
    if job is None or job.epoch != epoch or job.state in ENDED:
        raise Refused(409, f"lease {epoch} of job {job_id} has ended", field="epoch", remedy="leave: exit now")
    return job


def _believed(connection: Connection, job_id: str, job: Any, setup: Setup) -> Option | None:
    """The shape in which a job runs, as it was requested, with the speed believed there."""
    spec = JobSpec.model_validate_json(
        connection.scalar(select(schema.jobs.c.spec).where(schema.jobs.c.id == job_id)) or "{}"
    )
    model = ModelOf(job.tenant, job.model)
    measured = read_speeds(connection, {model}).get(model, {})
    same = [
        option
        for option in options_of(spec, setup.cluster, measured)
        if (option.shape.accelerator, option.shape.gpus) == (job.held_type, job.held_gpus)
    ]
    if not same:
        return None
    levels = setup.cluster.levels
    got = connection.scalar(
        select(schema.leases.c.level).where(schema.leases.c.job_id == job_id, schema.leases.c.epoch == job.epoch)
    )
    least = levels.index(got) if got in levels else 0
    holding = [option for option in same if levels.index(option.shape.level) >= least]
    option = min(holding or same, key=lambda each: levels.index(each.shape.level))
    known = measured.get((job.held_type, job.held_gpus))
    return option if known is None else Option(option.shape, known)


def _send(connection: Connection, event: Event) -> None:
    put_in_inbox(connection, type(event).__name__, line(event), time.time())


def _has_point(connection: Connection, job_id: str, steps: float) -> bool:
    """Whether a report of the same steps is kept: one without a loss does not replace it."""
    table = schema.points.c
    return connection.scalar(select(table.steps).where(table.job_id == job_id, table.steps == steps)) is not None


def _add_point(connection: Connection, job_id: str, report: Progress, wall: float) -> None:
    """Adds progress and loss; beyond the maximum, every second point is dropped, so that the curve keeps its shape."""
    table = schema.points
    row = {"job_id": job_id, "steps": report.steps, "wall": wall, "loss": report.loss}
    upsert(connection, table, {**row, "steps_per_second": report.steps_per_second})
    count = connection.scalar(select(func.count()).where(table.c.job_id == job_id)) or 0
    if count <= POINTS_MAX:
        return
    rows = connection.execute(select(table).where(table.c.job_id == job_id).order_by(table.c.steps)).mappings().all()
    # Reports with and without a loss may alternate: each kind loses every second point.
    kinds = [[each for each in rows[:-1] if (each["loss"] is None) is without] for without in (False, True)]
    kept = [dict(each) for each in [*kinds[0][::2], *kinds[1][::2], rows[-1]]]
    connection.execute(delete(table).where(table.c.job_id == job_id))
    connection.execute(insert(table), kept)
