"""The settings of the API process, as `horae up` reads them from its configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from horae.service.models import GRACE_SECONDS_MAX, Role

if TYPE_CHECKING:
    from horae.service.config import ServiceConfig

DEFAULT_TENANT = "default"


@dataclass(frozen=True, slots=True)
class User:
    """A user of this machine, identified by the Unix socket."""

    tenant: str = DEFAULT_TENANT
    role: Role = "user"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one user may ask for. Operators are exempt."""

    jobs_per_user: int | None = 10_000  # that have not ended
    gpus_per_user: int | None = None  # of one job
    max_duration: float | None = None  # of one job, in seconds; jobs that ask for none get this one
    grace: float = GRACE_SECONDS_MAX  # of one job, in seconds
    interactive_jobs: int = 2  # that have not ended
    interactive_gpus: int = 1  # of one interactive job
    interactive_duration: float = 4 * 3600.0  # in seconds; interactive jobs that ask for none get this one


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where the notices of a tenant are sent; the secret signs them."""

    url: str
    secret: str = ""


@dataclass(slots=True)
class Context:
    """All settings of the process. Limits and users are replaced when the configuration is read again."""

    url: str  # of the store, as SQLAlchemy names it: sqlite:////var/lib/horae/store.db
    state: Path  # the folder with the sockets of the loop and the files of the local engine
    limits: Limits = Limits()
    users: Mapping[str, User] = field(default_factory=dict)  # by name: users that connect by the Unix socket
    own_uid: int = field(default_factory=os.getuid)  # the service's own user is an operator, as is root
    webhooks: Mapping[str, Webhook] = field(default_factory=dict)  # by tenant
    runs_jobs_of_kubernetes: bool = False  # they are submitted to the cluster, not to the API
    body_bytes_max: int = 64 << 20  # of one request
    streams_max: int = 200  # open at a time
    streams_per_user_max: int = 20
    answer_seconds: float = 5.0  # how long a request waits for the loop's answer
    loop_seconds: float = 3.0  # how long a question to the loop may take

    @property
    def runs_as_submitter(self) -> bool:
        """Whether jobs run as the Unix users that submit them: a service of root does nothing else."""
        return self.own_uid == 0


def context_of(config: ServiceConfig) -> Context:
    """The settings in the configuration of the service."""
    users = {name: User(entry.tenant, entry.role) for name, entry in config.users.items()}
    hooks = {tenant: Webhook(hook.url, hook.secret) for tenant, hook in config.webhooks.items()}
    limits = Limits(**config.limits.model_dump())
    is_kubernetes = config.engine == "kubernetes"
    return Context(config.store, config.state, limits, users, webhooks=hooks, runs_jobs_of_kubernetes=is_kubernetes)
