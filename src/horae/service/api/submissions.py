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
from horae.service.api.context import Context
from horae.service.api.database import LogClock
from horae.service.api.identity import Identity, is_root, may_act_for
from horae.service.api.limits import check_limits
from horae.service.api.problems import Refused, invalid
from horae.service.api.services import compact
from horae.service.job_file import EXAMPLE, Element, Speeds, check_fits, check_processes, check_workdir, expand, to_job
from horae.service.models import BULK_MAX, JobSpec
from horae.service.store import schema

BYTES_MAX = 64 << 20  # of all job files of a request: each element of an array has its own
PLAIN_MAX = 4096  # shapes of jobs that are remembered


class ModelOf(NamedTuple):
    """A tenant's model: another tenant may use the name for something else."""

    tenant: str
    model: str


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


def tenant_of(spec: JobSpec, who: Identity) -> str:
    return spec.tenant or who.tenant or "default"


def owned(spec: JobSpec, who: Identity, context: Context) -> JobSpec:
    """The job file with tenant and user filled in; raises unless the identity may submit for them."""
    if context.runs_jobs_of_kubernetes and who.via != "cluster":
        remedy = "create a Job with schedulerName: horae, for instance by kubectl apply"
        raise Refused(422, "this service schedules the Jobs of a Kubernetes cluster", field="run", remedy=remedy)
    if spec.workload and who.via != "cluster":
        raise Refused(422, "is filled in by the service", field="workload", remedy="leave it out")
    tenant = tenant_of(spec, who)
    user = spec.user or who.user or None
    if who.role != "operator" and tenant != who.tenant:
        detail = f"you may not submit jobs of tenant {shown(tenant)}"
        raise Refused(403, detail, field="tenant", remedy=f"use {who.tenant!r}")
    if not may_act_for(who, user or "", context):
        detail = f"you may not submit jobs of user {shown(user)}"
        raise Refused(403, detail, field="user", remedy="leave it out, or name a listed user of your tenant")
    if context.runs_as_submitter and who.via != "cluster":
        _check_account(user, who)
    return spec.model_copy(update={"tenant": tenant, "user": user})


def _check_account(user: str | None, who: Identity) -> None:
    """Raises unless a job may run under the account of this name."""
    if not user:
        raise Refused(422, "is missing", field="user", remedy="name the Unix user as which the job shall run")
    if is_root(user) and not (who.role == "operator" and who.via == "socket"):
        detail = f"jobs of {shown(user)} are accepted only from operators over the Unix socket"
        raise Refused(403, detail, field="user", remedy="name another user, or submit on the machine itself")


def prepare(
    specs: Sequence[JobSpec],
    who: Identity,
    checker: Checker,
    clock: LogClock,
    speeds: dict[ModelOf, Speeds],
    context: Context,
) -> list[list[Prepared]]:
    """The jobs of all files; the first problem is raised, with the number of its file where there are several.

    `as_submitter`: jobs run as the Unix users who submit them.
    """
    groups: list[list[Prepared]] = []
    total, size, folders = 0, 0, set[str]()
    for number, given in enumerate(specs):
        try:
            spec = check_limits(owned(given, who, context), who, context.limits)
            check_processes(spec)
            if spec.workdir not in folders:
                # Where jobs run as other users, root's answer would tell what private folders exist; a job that
                # cannot enter its own fails with the reason.
                check_workdir(spec.workdir, is_own=not context.runs_as_submitter)
                folders.add(spec.workdir)
            elements = expand(spec)
            total += len(elements)
            if total > BULK_MAX:
                raise Refused(422, f"more than {BULK_MAX:,} jobs in one request", remedy="split the request")
            size += len(elements) * _bytes(spec)
            if size > BYTES_MAX:
                detail = f"the job files of one request take more than {BYTES_MAX >> 20} MiB"
                raise Refused(422, detail, remedy="put large values into files, or split the request")
            measured = speeds.get(ModelOf(tenant_of(spec, who), spec.model), {})
            groups.append(_group(elements, who, checker, clock, measured))
        except (JobError, Refused) as error:
            raise _located(error, number if len(specs) > 1 else None) from None
    return groups


def _bytes(spec: JobSpec) -> int:
    return len(spec.run) + sum(len(name) + len(value) for name, value in spec.env.items())


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


def read_speeds(connection: Connection, models: set[ModelOf]) -> dict[ModelOf, Speeds]:
    """By tenant and model: the speeds that the tenant's jobs have measured, by GPU type and number of GPUs."""
    found: dict[ModelOf, dict[tuple[str, int], float]] = {}
    table = schema.speeds.c
    for each in sorted(each for each in models if each.model):
        query = select(schema.speeds).where(table.tenant == each.tenant, table.model == each.model)
        for row in connection.execute(query):
            found.setdefault(each, {})[row.gpu_type, row.gpus] = row.steps_per_second
    return dict(found)
