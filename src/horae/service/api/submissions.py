"""Submissions are checked against the cluster, and prepared to be written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, select

from horae.model.cluster import Cluster
from horae.model.errors import JobError
from horae.model.jobs import Job
from horae.model.safe_text import shown
from horae.model.serialization import Plain, to_plain
from horae.model.setup import PoolOfJob, Setup
from horae.model.shapes import Option
from horae.service.api.context import Limits
from horae.service.api.database import LogClock
from horae.service.api.identity import Identity
from horae.service.api.limits import check_limits
from horae.service.api.problems import Refused, invalid
from horae.service.api.services import compact
from horae.service.job_file import EXAMPLE, Element, Speeds, check_fits, check_workdir, expand, to_job
from horae.service.models import BULK_MAX, JobSpec
from horae.service.store import schema

PLAIN_MAX = 4096  # shapes of jobs that are remembered


class Prepared(NamedTuple):
    """One job, ready to be numbered: what takes time is done before the transaction, which blocks other writers."""

    element: Element
    job: Job  # with the number 0
    spec: str  # the job file as JSON
    event: str  # the end of the event's line, after the job's id and app


class Checker:
    """Checks submissions against one setup; what it finds about the cluster is kept for the next submission."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self._pools = PoolOfJob(setup.pools)
        self._clusters: dict[int, Cluster] = {}
        self._plain: dict[tuple[Option, ...], Plain] = {}

    def check(self, job: Job) -> None:
        pool = self._pools.find(job)
        if pool is None:
            raise JobError(f"no pool serves tenant {shown(job.tenant)}", field="tenant", remedy="ask an operator")
        check_fits(job.options, [self._cluster(pool)])

    def plain_options(self, options: tuple[Option, ...]) -> Plain:
        """The plain form of a job's shapes; many jobs have the same."""
        if options not in self._plain:
            if len(self._plain) >= PLAIN_MAX:
                self._plain.clear()
            self._plain[options] = to_plain(options)
        return self._plain[options]

    def _cluster(self, pool: int) -> Cluster:
        """The nodes on which jobs of a pool may run."""
        if pool not in self._clusters:
            spec = self.setup.pools[pool]
            taken = {name for other in self.setup.pools if other is not spec for name in other.nodes}
            nodes = [
                node
                for node in self.setup.cluster.nodes
                if (node.name in spec.nodes if spec.nodes else node.name not in taken)
            ]
            is_whole = len(nodes) == len(self.setup.cluster.nodes) or not nodes
            self._clusters[pool] = self.setup.cluster if is_whole else Cluster("pool", tuple(nodes))
        return self._clusters[pool]


def owned(spec: JobSpec, who: Identity) -> JobSpec:
    """The job file with tenant and user filled in; raises unless the identity may submit for them."""
    tenant = spec.tenant or who.tenant or "default"
    user = spec.user or who.user or None
    if who.role != "operator":
        if tenant != who.tenant:
            raise Refused(
                403, f"you may not submit jobs of tenant {shown(tenant)}", field="tenant", remedy=f"use {who.tenant!r}"
            )
        if (user or "") != who.user and who.role != "tenant-admin":
            raise Refused(403, "you may not submit jobs of other users", field="user", remedy="leave it out")
    return spec.model_copy(update={"tenant": tenant, "user": user})


def prepare(
    specs: Sequence[JobSpec],
    who: Identity,
    checker: Checker,
    clock: LogClock,
    speeds: dict[str, Speeds],
    limits: Limits,
) -> list[list[Prepared]]:
    """The jobs of all files; the first problem is raised, with the number of its file where there are several."""
    groups: list[list[Prepared]] = []
    total, folders = 0, set[str]()
    for number, given in enumerate(specs):
        try:
            spec = check_limits(owned(given, who), who, limits)
            if spec.workdir not in folders:
                check_workdir(spec.workdir)
                folders.add(spec.workdir)
            elements = expand(spec)
            total += len(elements)
            if total > BULK_MAX:
                raise Refused(422, f"more than {BULK_MAX:,} jobs in one request", remedy="split the request")
            groups.append(_group(elements, who, checker, clock, speeds.get(spec.model, {})))
        except (JobError, Refused) as error:
            raise _located(error, number if len(specs) > 1 else None) from None
    return groups


def _group(
    elements: Sequence[Element], who: Identity, checker: Checker, clock: LogClock, speeds: Speeds
) -> list[Prepared]:
    """The jobs of one file: its elements differ in their command and environment only."""
    job = to_job(elements[0].spec, "0", who.user, checker.setup, clock.now, unix_offset=clock.offset, speeds=speeds)
    checker.check(job)
    plain = to_plain(_with(job, options=()))
    plain["options"] = checker.plain_options(job.options)
    del plain["id"]
    plain.pop("app", None)
    made: list[Prepared] = []
    for element in elements:
        event = compact({**plain, "command": element.spec.run})
        made.append(Prepared(element, job, element.spec.model_dump_json(exclude_none=True), event[1:]))
    return made


def _located(error: JobError | Refused, number: int | None) -> Refused:
    refused = invalid(error, example=EXAMPLE) if isinstance(error, JobError) else error
    if number is not None:
        field = refused.problem.field
        refused.problem.field = f"{number}.{field}" if field else str(number)
    return refused


def _with(job: Job, **changes: Any) -> Job:
    """A copy with other values, which skips the checks that the job has passed."""
    copy = object.__new__(Job)
    for name in Job.__slots__:
        object.__setattr__(copy, name, changes.get(name, getattr(job, name)))
    return copy


def read_speeds(connection: Connection, models: set[str]) -> dict[str, Speeds]:
    """By model: its measured speeds by GPU type and number of GPUs."""
    found: dict[str, dict[tuple[str, int], float]] = {}
    table = schema.speeds
    for model in sorted(models - {""}):
        for row in connection.execute(select(table).where(table.c.model == model)):
            found.setdefault(model, {})[row.gpu_type, row.gpus] = row.steps_per_second
    return dict(found)
