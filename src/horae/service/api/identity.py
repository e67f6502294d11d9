"""Identities: what a request may see and change."""

from __future__ import annotations

import pwd
from dataclasses import dataclass
from typing import Literal

from fastapi import Request

from horae.service.api.context import Context, User
from horae.service.api.problems import Refused
from horae.service.models import Role

RANK: dict[str, int] = {"viewer": 0, "user": 1, "tenant-admin": 2, "operator": 3}


@dataclass(frozen=True, slots=True)
class Identity:
    user: str
    role: Role
    tenant: str  # "": none of its own, for operators and viewers of all tenants
    via: Literal["token", "socket"] = "token"
    uid: int | None = None  # on the Unix socket

    @property
    def sees_all(self) -> bool:
        return self.role == "operator" or (self.role == "viewer" and not self.tenant)

    def sees(self, tenant: str) -> bool:
        return self.sees_all or tenant == self.tenant

    def has_role(self, role: Role) -> bool:
        return RANK[self.role] >= RANK[role]

    def may_change_job(self, tenant: str, user: str) -> bool:
        if self.role == "operator" or (self.role == "tenant-admin" and tenant == self.tenant):
            return True
        return self.role == "user" and tenant == self.tenant and user == self.user


@dataclass(frozen=True, slots=True)
class JobBearer:
    """A running job, by the token of one of its leases: it may report its own progress, and nothing else."""

    job_id: str
    epoch: int


def of_peer(uid: int, context: Context) -> Identity:
    """The identity of a process of this machine, by the credentials of the Unix socket."""
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    if uid in (0, context.own_uid):
        known = context.users.get(name)
        return Identity(name, "operator", known.tenant if known else "", "socket", uid)
    user = context.users.get(name, User())
    return Identity(name, user.role, user.tenant, "socket", uid)


async def identity(request: Request) -> Identity:  # not a plain function: FastAPI would run it in another thread
    """The identity of a request, for routes; the middleware has authenticated it."""
    found = request.scope["state"]["identity"]
    if not isinstance(found, Identity):
        raise not_authenticated()
    return found


def require(who: Identity, role: Role, what: str) -> None:
    if not who.has_role(role):
        raise Refused(403, f"{what} needs the role {role}; yours is {who.role}", remedy="ask an operator")


def not_authenticated() -> Refused:
    return Refused(
        401,
        "no valid token was sent",
        remedy="send Authorization: Bearer <token>, or connect by the Unix socket of the service",
        headers={"WWW-Authenticate": "Bearer"},
    )
