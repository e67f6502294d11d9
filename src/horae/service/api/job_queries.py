"""Lists of jobs: filters, order, and pages that stay the same while jobs are added."""

from __future__ import annotations

import base64
import json
from typing import Any, Literal, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, and_, func, or_, select, tuple_

from horae.model.safe_text import shown
from horae.service.api.database import LogClock
from horae.service.api.identity import Identity, require
from horae.service.api.job_views import job_rows
from horae.service.api.problems import Refused, no_such
from horae.service.models import State
from horae.service.store.schema import jobs

Sort = Literal[
    "number", "-number", "name", "-name", "user", "-user", "tenant", "-tenant", "state", "-state", "gpus", "-gpus",
    "rho", "-rho", "ended_at", "-ended_at",
]  # fmt: skip
PAGE_MAX = 1000


class JobFilter(NamedTuple):
    state: list[State] | None = None
    tenant: str | None = None
    user: str | None = None
    app: str | None = None
    name: str | None = None
    since: float | None = None  # submitted at or after, Unix time
    until: float | None = None
    text: str | None = None  # words, each of which one of the job's names has
    id: list[str] | None = None


def filtered(query: Select[Any], wanted: JobFilter, who: Identity, clock: LogClock) -> Select[Any]:
    table = jobs.c
    conditions: list[ColumnElement[bool]] = [] if who.sees_all else [table.tenant == who.tenant]
    if wanted.state:
        conditions.append(table.state.in_(wanted.state))
    for column, value in ((table.tenant, wanted.tenant), (table.user, wanted.user), (table.name, wanted.name)):
        if value is not None:
            conditions.append(column == value)
    if wanted.app is not None:
        conditions.append(or_(table.app == wanted.app, table.app == table.tenant + "/" + wanted.app))
    if wanted.id is not None:
        conditions.append(table.id.in_(wanted.id))
    named = (table.id, table.name, table.app, table.tenant, table.user, table.model)
    words = (wanted.text or "").split()
    conditions += [or_(*[column.icontains(word, autoescape=True) for column in named]) for word in words]
    if wanted.since is not None:
        conditions.append(table.submitted_at >= clock.log(wanted.since))
    if wanted.until is not None:
        conditions.append(table.submitted_at < clock.log(wanted.until))
    return query.where(and_(True, *conditions))


def page_of_jobs(query: Select[Any], sort: Sort, cursor: str | None, limit: int) -> Select[Any]:
    """One row more than a page, so that the last page is known as such."""
    keys = _keys(sort)
    if cursor is not None:
        after = tuple_(*_values(cursor, sort, len(keys)))
        query = query.where(tuple_(*keys) < after if sort.startswith("-") else tuple_(*keys) > after)
    order = [key.desc() if sort.startswith("-") else key.asc() for key in keys]
    return query.order_by(*order).limit(limit + 1)


def _keys(sort: Sort) -> list[Any]:
    """The columns of the order; elements of an array have the same number, and are in the order of their index."""
    name = sort.removeprefix("-")
    unique = [jobs.c.number, func.length(jobs.c.id), jobs.c.id]
    if name == "number":
        return unique
    column: Any = jobs.c[name]
    return [func.coalesce(column, 0.0) if column.nullable else column, *unique]


def cursor_after(row: Any, sort: Sort) -> str:
    name = sort.removeprefix("-")
    values = [row.number, len(row.id), row.id]
    if name != "number":
        values.insert(0, 0.0 if getattr(row, name) is None else getattr(row, name))
    return base64.urlsafe_b64encode(json.dumps([sort, *values]).encode()).decode().rstrip("=")


def _values(cursor: str, sort: Sort, count: int) -> list[Any]:
    try:
        given, *values = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        number, length, job_id = values[-3:]
        is_right = given == sort and len(values) == count and type(number) is int and type(length) is int
        if is_right and isinstance(job_id, str) and isinstance(values[0], str | int | float):
            return values
    except (ValueError, TypeError):
        pass
    raise Refused(
        422, f"is {shown(cursor)}", field="cursor", remedy="use `next` of the page before, with the same sort"
    )


def find_job(connection: Connection, who: Identity, job_id: str) -> Any:
    """The row of one job; jobs of other tenants do not exist for the requester."""
    row = connection.execute(job_rows().where(jobs.c.id == job_id)).first()
    if row is None or not who.sees(row.tenant):
        raise no_such("job", job_id)
    return row


def find_spec(connection: Connection, job_id: str) -> str:
    return str(connection.scalar(select(jobs.c.spec).where(jobs.c.id == job_id)))


def changeable_job(connection: Connection, who: Identity, job_id: str, what: str) -> Any:
    """The row of a job that the requester may change."""
    row = find_job(connection, who, job_id)
    require(who, "user", what)
    if not who.may_change_job(row.tenant, row.user):
        raise Refused(403, f"job {shown(job_id)} is another user's", remedy="ask its user or your tenant's admin")
    return row
