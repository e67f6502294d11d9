"""Identities: what a request may see and change."""

from __future__ import annotations

import pwd
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from fastapi import Request

from horae.model.safe_text import shown
from horae.service.api.context import Context, User
from horae.service.api.problems import Refused
from horae.service.models import Role

RANK: dict[str, int] = {"viewer": 0, "user": 1, "tenant-admin": 2, "operator": 3}


@dataclass(frozen=True, slots=True)
class Identity:
    user: str
    role: Role
    tenant: str  # "": none of its own, for operators and viewers of all tenants
    via: Literal["token", "socket", "cluster"] = "token"  # cluster: by a Job of Kubernetes
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
    user = context.users.get(name)
    if user is None and not context.runs_as_submitter:  # its jobs would run as the service's user
        detail = f"{shown(name)} is not a user of this service"
        raise Refused(403, detail, remedy="ask the operator to list you under `users:` in horae.yaml")
    user = user or User()
    return Identity(name, user.role, user.tenant, "socket", uid)


def may_act_for(who: Identity, user: str, context: Context) -> bool:
    """Whether an identity may make jobs and tokens of this user: its own; a tenant-admin also those of users that the
    configuration lists in its tenant, unless they have more rights."""
    if who.role == "operator" or user == who.user:
        return True
    listed = context.users.get(user)
    is_member = listed is not None and listed.tenant == who.tenant and RANK[listed.role] <= RANK[who.role]
    return who.role == "tenant-admin" and is_member


@lru_cache(maxsize=4096)  # the account may be in a directory on another machine
def is_root(user: str) -> bool:
    """Whether this is the name of an account with all rights on this machine."""
    try:
        return pwd.getpwnam(user).pw_uid == 0
    except (KeyError, ValueError):
        return user in ("0", "root")


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
