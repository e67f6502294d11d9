"""The configuration of the service: `horae.yaml`, a cluster file with settings of the service beside it."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from horae.cells.binding import CellBinding
from horae.model.cluster import Cluster, Node
from horae.model.errors import InputError
from horae.model.serialization import from_plain, to_plain
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.policies.registry import make_policy
from horae.service.models import Role
from horae.service.store.database import sqlite_url
from horae.traces.clusters.file import ClusterFile, NodeGroup, PoolEntry, setup_of
from horae.traces.clusters.shorthand import parse_cluster
from horae.traces.units import seconds
from horae.traces.yaml_files import YamlFile, read_yaml

POLICY, ROUND_SECONDS = "max-min", 300.0
RETENTION_SECONDS = 3600.0  # ended jobs stay in the scheduler's memory for this long; the tables keep them
SURVEY_SECONDS = 60.0
PORT = 7070

Seconds = Annotated[float, BeforeValidator(seconds)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Limits(_Strict):
    """What one user may ask for."""

    jobs_per_user: Annotated[int, Field(gt=0)] = 10_000  # that have not ended
    gpus_per_user: Annotated[int, Field(gt=0)] | None = None  # of one job
    max_duration: Seconds | None = None  # of one job; jobs that ask for none get this one
    interactive_gpus: Annotated[int, Field(gt=0)] = 1
    interactive_duration: Seconds = 7200.0


class UserEntry(_Strict):
    tenant: str = "default"
    role: Role = "user"


class Address(_Strict):
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = PORT


class ServiceFile(ClusterFile):
    """`horae.yaml`."""

    nodes: list[NodeGroup] = Field(default_factory=list)  # none: the GPUs of this machine
    engine: Literal["local"] = "local"
    store: str | None = None
    api: Address = Address()
    limits: Limits = Limits()
    users: dict[str, UserEntry] = Field(default_factory=dict)


@dataclass(frozen=True)
class ServiceConfig:
    setup: Setup
    state: Path
    store: str
    host: str = "127.0.0.1"
    port: int = PORT
    limits: Limits = field(default_factory=Limits)
    users: dict[str, UserEntry] = field(default_factory=dict)
    emulated: bool = True  # the GPUs are only numbers

    @property
    def is_embedded(self) -> bool:
        return self.store.startswith("sqlite")

    def save(self) -> None:
        """Writes the configuration for the processes of the service, which read it at their start."""
        plain = {
            "setup": to_plain(self.setup),
            "store": self.store,
            "host": self.host,
            "port": self.port,
            "limits": self.limits.model_dump(),
            "users": {name: user.model_dump() for name, user in self.users.items()},
            "emulated": self.emulated,
        }
        path = self.state / "config.json"
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(plain))
        temporary.chmod(0o600)
        temporary.replace(path)


def load_config(state: Path) -> ServiceConfig:
    """The configuration that `save` has written."""
    plain = json.loads((state / "config.json").read_text())
    return ServiceConfig(
        from_plain(Setup, plain["setup"]),
        state,
        plain["store"],
        plain["host"],
        plain["port"],
        Limits.model_validate(plain["limits"]),
        {name: UserEntry.model_validate(user) for name, user in plain["users"].items()},
        plain["emulated"],
    )


def default_state() -> Path:
    """The folder of the service: HORAE_STATE, or one in the user's home."""
    chosen = os.environ.get("HORAE_STATE")
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(chosen) if chosen else (Path(base) / "horae").expanduser()


def configure(
    state: Path, file: Path | None, emulate: list[str], detected: list[Node], store: str | None, port: int | None
) -> ServiceConfig:
    """The configuration from `horae.yaml`, emulated nodes such as `1x8:A100`, or the GPUs of this machine."""
    value = ServiceFile()
    if file is not None:
        read = read_yaml(file, ServiceFile)
        value = read.value
        if value.nodes:
            for entry in (value.spare, *value.tenants.values()):
                _default_policy(entry)
            described = YamlFile[ClusterFile](read.path, read.tree, value)
            setup = setup_of(described, make_policy, CellBinding)
        elif value.tenants:
            raise InputError("are missing", file=str(file), field="nodes", remedy="list the nodes that tenants share")
    if not value.nodes:
        setup = _quick_setup(emulate, detected)
    if emulate and value.nodes:
        raise InputError("both --emulate and a file with nodes", field="--emulate", remedy="give one of the two")
    return ServiceConfig(
        _live(setup),
        state,
        store or value.store or sqlite_url(state / "store.db"),
        value.api.host,
        value.api.port if port is None else port,
        value.limits,
        dict(value.users),
        emulated=bool(emulate or value.nodes) and not detected,
    )


def _default_policy(entry: PoolEntry) -> None:
    """Fair shares in rounds of five minutes, where the file names no policy."""
    if "policy" not in entry.model_fields_set:
        entry.policy = (POLICY, {})
        if "cadence" not in entry.model_fields_set:
            entry.cadence = Cadence.ROUNDS
        if "round_seconds" not in entry.model_fields_set:
            entry.round_seconds = ROUND_SECONDS


def _quick_setup(emulate: list[str], detected: list[Node]) -> Setup:
    if emulate:
        setup = parse_cluster(emulate)
        return replace(setup, pools=tuple(_pool(pool) for pool in setup.pools))
    if not detected:
        remedy = "try it with emulated ones, --emulate 1x8:A100, or list nodes in horae.yaml"
        raise InputError("this machine has no GPUs that NVML knows", field="--config", remedy=remedy)
    cluster = Cluster(socket.gethostname(), tuple(detected), 45.0)
    return Setup(cluster, (_pool(PoolSpec("all")),))


def _pool(pool: PoolSpec) -> PoolSpec:
    return replace(pool, policy=POLICY, cadence=Cadence.ROUNDS, round_seconds=ROUND_SECONDS)


def _live(setup: Setup) -> Setup:
    """Jobs that arrive between two rounds start at once where GPUs are free."""
    pools = tuple(replace(pool, admits_between_rounds=pool.cadence is Cadence.ROUNDS) for pool in setup.pools)
    return replace(setup, pools=pools, retention_seconds=RETENTION_SECONDS, survey_seconds=SURVEY_SECONDS)
