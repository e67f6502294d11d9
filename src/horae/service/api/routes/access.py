"""Tokens, and the audit of all changes."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from sqlalchemy import Connection, and_, delete, select

from horae.model.safe_text import shown
from horae.service.api.context import Context
from horae.service.api.identity import RANK, Identity, may_act_for, require
from horae.service.api.job_queries import PAGE_MAX
from horae.service.api.problems import Refused, no_such
from horae.service.api.routes.jobs import All, Who
from horae.service.api.services import record
from horae.service.api.tokens import make_token
from horae.service.models import AuditRow, TokenRequest, TokenView
from horae.service.store.schema import audit, tokens

router = APIRouter(tags=["access"])


def _own(who: Identity) -> Any:
    """The tokens that the requester may see and revoke."""
    if who.role == "operator":
        return and_(True)
    if who.role == "tenant-admin":
        return and_(tokens.c.tenant == who.tenant, tokens.c.role != "operator")
    return and_(tokens.c.tenant == who.tenant, tokens.c.user == who.user, tokens.c.role.in_(("viewer", who.role)))


@router.get("/tokens")
async def list_tokens(who: Who, all_: All) -> list[TokenView]:
    def query(connection: Connection) -> list[TokenView]:
        rows = connection.execute(select(tokens).where(_own(who)).order_by(tokens.c.wall, tokens.c.id))
        names = ("id", "name", "role", "tenant", "user")
        return [
            TokenView(**{name: getattr(row, name) for name in names}, created_at=row.wall, expires_at=row.expires_wall)
            for row in rows
        ]

    return await all_.read(query)


@router.post("/tokens", status_code=201)
async def create_token(body: TokenRequest, who: Who, all_: All) -> TokenView:
    """A new token, shown only now. Its role is at most the requester's own; users make tokens for themselves,
    tenant-admins for users of their tenant that the configuration lists, too."""
    request = _allowed(body, who, all_.context)

    def change(connection: Connection) -> TokenView:
        made = make_token(connection, request)
        record(connection, who, "token", made.id, f"{made.role} {made.tenant} {made.user} {made.name}")
        return made

    return await all_.write(change)


def _allowed(body: TokenRequest, who: Identity, context: Context) -> TokenRequest:
    if RANK[body.role] > RANK[who.role]:
        raise Refused(403, f"you may not make tokens of role {body.role}", field="role", remedy=f"use {who.role}")
    if who.role == "operator":
        needs_tenant = body.role in ("user", "tenant-admin") and not body.tenant
        if needs_tenant:
            raise Refused(422, "is missing", field="tenant", remedy="name the tenant of the token's user")
        return body.model_copy(update={"user": body.user or who.user})
    if body.tenant not in ("", who.tenant):
        raise Refused(403, "you may not make tokens of other tenants", field="tenant", remedy="leave it out")
    if body.user and not may_act_for(who, body.user, context):
        detail = f"you may not make tokens of user {shown(body.user)}"
        raise Refused(403, detail, field="user", remedy="leave it out, or name a listed user of your tenant")
    return body.model_copy(update={"tenant": who.tenant, "user": body.user or who.user})


@router.delete("/tokens/{token_id}", status_code=204)
async def revoke_token(token_id: Annotated[str, Path(min_length=1, max_length=100)], who: Who, all_: All) -> Response:
    def change(connection: Connection) -> None:
        if connection.scalar(select(tokens.c.id).where(tokens.c.id == token_id, _own(who))) is None:
            raise no_such("token", token_id)
        connection.execute(delete(tokens).where(tokens.c.id == token_id))
        record(connection, who, "revoke", token_id)

    await all_.write(change)
    all_.tokens.forget()
    return Response(status_code=204)


@router.get("/audit")
async def list_audit(
    who: Who,
    all_: All,
    before: Annotated[int | None, Query(ge=0, le=2**62, description="id of the oldest row seen")] = None,
    user: Annotated[str | None, Query(max_length=300)] = None,
    action: Annotated[str | None, Query(max_length=100)] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 100,
) -> list[AuditRow]:
    """Every change that was requested, newest first. For operators."""
    require(who, "operator", "reading the audit")

    def query(connection: Connection) -> list[AuditRow]:
        wanted = select(audit).order_by(audit.c.id.desc()).limit(limit)
        for column, value in ((audit.c.user, user), (audit.c.action, action)):
            wanted = wanted if value is None else wanted.where(column == value)
        wanted = wanted if before is None else wanted.where(audit.c.id < before)
        return [AuditRow(at=row.wall, **_without_time(row)) for row in connection.execute(wanted).mappings()]

    return await all_.read(query)


def _without_time(row: Any) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "wall"}
