"""The configuration of the service: `horae.yaml`, a cluster file with settings of the service beside it."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from horae.cells.binding import CellBinding
from horae.engines.kubernetes import names
from horae.engines.kubernetes.hardware import Labels
from horae.engines.kubernetes.hived_notes import HivedNode
from horae.model.cluster import Cluster, Node
from horae.model.errors import InputError
from horae.model.serialization import from_plain, to_plain
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.policies.registry import make_policy
from horae.service.hived_file import read_hived_cluster
from horae.service.models import GRACE_SECONDS_MAX, Role
from horae.service.store.database import sqlite_url
from horae.traces.clusters.file import ClusterFile, Name, NodeGroup, PoolEntry, Tenant, setup_of
from horae.traces.clusters.hived import is_hived
from horae.traces.clusters.shorthand import parse_cluster
from horae.traces.units import seconds
from horae.traces.yaml_files import YamlFile, compose, read_yaml

_WEBHOOK = {"webhook", "webhook_secret"}  # fields of a tenant that need no nodes
POLICY, ROUND_SECONDS = "max-min", 300.0
RETENTION_SECONDS = 3600.0  # ended jobs stay in the scheduler's memory for this long; the tables keep them
SURVEY_SECONDS = 60.0
EVENTS_KEPT_SECONDS = 30 * 86400.0  # in the log; older ones are in files
ARCHIVE = "archive"  # the folder of these files, within the state folder
PORT = 7070

Seconds = Annotated[float, BeforeValidator(seconds)]
EngineName = Literal["local", "kubernetes"]


def _web_address(text: str) -> str:
    found = urlsplit(text)
    if found.scheme not in ("http", "https") or not found.hostname:
        raise ValueError("is no web address; give one that begins with https:// or http://")
    return text


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Limits(_Strict):
    """What one user may ask for."""

    jobs_per_user: Annotated[int, Field(gt=0)] = 10_000  # that have not ended
    gpus_per_user: Annotated[int, Field(gt=0)] | None = None  # of one job
    max_duration: Seconds | None = None  # of one job; jobs that ask for none get this one
    grace: Seconds = GRACE_SECONDS_MAX  # of one job, from the signal to the kill
    interactive_jobs: Annotated[int, Field(gt=0)] = 2  # that have not ended
    interactive_gpus: Annotated[int, Field(gt=0)] = 1  # of one interactive job
    interactive_duration: Annotated[Seconds, Field(gt=0)] = 4 * 3600.0  # interactive jobs that ask for none get this


class Webhook(_Strict):
    """Where the notices of a tenant are sent."""

    url: str
    secret: str = ""


class TenantEntry(Tenant):
    webhook: Annotated[str, AfterValidator(_web_address)] | None = None
    webhook_secret: str = ""  # signs what is sent


class UserEntry(_Strict):
    tenant: str = "default"
    role: Role = "user"


class Address(_Strict):
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = PORT


class KubernetesEntry(_Strict):
    """How the cluster is reached, and which labels of its nodes say what."""

    kubeconfig: Path | None = None  # none: the pod's service account, KUBECONFIG, or ~/.kube/config
    context: str | None = None
    scheduler: Name = names.SCHEDULER  # the schedulerName of the pods that are ours
    hived: Path | None = None  # HiveD's configuration: its cells and virtual clusters are the nodes and tenants
    product_label: Name = Labels().product
    types: dict[str, Name] = Field(default_factory=dict)  # by product: the GPU type
    topology: dict[Name, Name] = Field(default_factory=lambda: dict(Labels().above))  # by level: the label
    levels: dict[Name, dict[Name, Annotated[int, Field(gt=0, strict=True)]]] = Field(default_factory=dict)
    unreachable: Annotated[Seconds, Field(gt=0)] = 300.0  # after that, gangs leave a node that does not answer
    start_deadline: Annotated[Seconds, Field(gt=0)] = 1800.0  # from the binding to all pods being ready

    @property
    def labels(self) -> Labels:
        return Labels(self.product_label, self.topology, self.types, self.levels)


class ServiceFile(ClusterFile):
    """`horae.yaml`."""

    nodes: list[NodeGroup] = Field(default_factory=list)  # none: the GPUs of this machine, or the nodes of Kubernetes
    tenants: dict[Name, TenantEntry] = Field(default_factory=dict)  # type: ignore[assignment]  # it is only read
    engine: EngineName = "local"
    kubernetes: KubernetesEntry = Field(default_factory=KubernetesEntry)
    store: str | None = None
    api: Address = Address()
    limits: Limits = Limits()
    users: dict[str, UserEntry] = Field(default_factory=dict)
    events_kept: Seconds = EVENTS_KEPT_SECONDS
    bid_seconds: Annotated[Seconds, Field(ge=0, le=60)] = 5.0  # how long an auction waits for the agents of its apps


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
    events_kept_seconds: float = EVENTS_KEPT_SECONDS
    webhooks: dict[str, Webhook] = field(default_factory=dict)  # by tenant
    engine: EngineName = "local"
    kubernetes: KubernetesEntry = field(default_factory=KubernetesEntry)
    hived: dict[str, HivedNode] = field(default_factory=dict)  # by node: as HiveD's configuration names it

    @property
    def is_embedded(self) -> bool:
        return self.store.startswith("sqlite")

    def save(self, path: Path) -> None:
        """Writes the configuration for the processes of the service, which read it at their start."""
        plain = {
            "setup": to_plain(self.setup),
            "state": str(self.state),
            "store": self.store,
            "host": self.host,
            "port": self.port,
            "limits": self.limits.model_dump(),
            "users": {name: user.model_dump() for name, user in self.users.items()},
            "emulated": self.emulated,
            "events_kept_seconds": self.events_kept_seconds,
            "webhooks": {tenant: hook.model_dump() for tenant, hook in self.webhooks.items()},
            "engine": self.engine,
            "kubernetes": self.kubernetes.model_dump(mode="json"),
            "hived": to_plain(self.hived),
        }
        temporary = path.with_suffix(".new")
        temporary.unlink(missing_ok=True)  # it would keep its rights
        # The address of the store may hold a password: at no moment others may read it.
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(json.dumps(plain))
        temporary.replace(path)


def load_config(path: Path) -> ServiceConfig:
    """The configuration that `save` has written."""
    plain = json.loads(path.read_text())
    return ServiceConfig(
        from_plain(Setup, plain["setup"]),
        Path(plain["state"]),
        plain["store"],
        plain["host"],
        plain["port"],
        Limits.model_validate(plain["limits"]),
        {name: UserEntry.model_validate(user) for name, user in plain["users"].items()},
        plain["emulated"],
        plain["events_kept_seconds"],
        {tenant: Webhook.model_validate(hook) for tenant, hook in plain["webhooks"].items()},
        plain["engine"],
        KubernetesEntry.model_validate(plain["kubernetes"]),
        from_plain(dict[str, HivedNode], plain["hived"]),
    )


def default_state() -> Path:
    """The folder of the service: HORAE_STATE, or one in the user's home."""
    chosen = os.environ.get("HORAE_STATE")
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(chosen) if chosen else (Path(base) / "horae").expanduser()


def configure(
    state: Path,
    file: Path | None,
    emulate: list[str],
    detected: list[Node],
    store: str | None,
    port: int | None,
    *,
    engine: EngineName | None = None,
    discover: Callable[[KubernetesEntry], list[Node]] = lambda _: [],
) -> ServiceConfig:
    """The configuration from `horae.yaml`, emulated nodes such as `1x8:A100`, or the GPUs of this machine.

    With Kubernetes the nodes are those that `discover` finds in its cluster.
    """
    value, read = ServiceFile(), None
    if file is not None and is_hived(file):
        value = ServiceFile(engine="kubernetes", kubernetes=KubernetesEntry(hived=file.absolute()))
    elif file is not None:
        read = read_yaml(file, ServiceFile)
        value = read.value
    chosen, hived = engine or value.engine, dict[str, HivedNode]()
    if chosen == "kubernetes":
        found = discover(value.kubernetes)
        if value.kubernetes.hived is None:
            _take_nodes(value, file, emulate, found)
        else:
            hived = _take_hived(value, file, emulate, value.kubernetes.hived)
        detected = []
    if emulate and value.nodes:
        raise InputError("both --emulate and a file with nodes", field="--emulate", remedy="give one of the two")
    if value.nodes:
        own_pools = [tenant for tenant in value.tenants.values() if tenant.reserves or tenant.nodes]
        for entry in (value.spare, *own_pools):
            _default_policy(entry)
        tree = compose("{}") if read is None else read.tree
        assert tree is not None
        described = YamlFile[ClusterFile](file or Path("the cluster"), tree, value)
        setup = setup_of(described, make_policy, CellBinding)
    elif any(tenant.model_fields_set - _WEBHOOK for tenant in value.tenants.values()):
        raise InputError("are missing", file=str(file), field="nodes", remedy="list the nodes that tenants share")
    else:
        setup = _quick_setup(emulate, detected)
    if chosen == "kubernetes":
        setup = replace(setup, start_seconds=value.kubernetes.start_deadline)
    return ServiceConfig(
        replace(_live(setup), bid_seconds=value.bid_seconds),
        state,
        store or value.store or sqlite_url(state / "store.db"),
        value.api.host,
        value.api.port if port is None else port,
        value.limits,
        dict(value.users),
        emulated=bool(emulate or value.nodes) and not detected and chosen == "local",
        events_kept_seconds=value.events_kept,
        webhooks={
            name: Webhook(url=tenant.webhook, secret=tenant.webhook_secret)
            for name, tenant in value.tenants.items()
            if tenant.webhook is not None
        },
        engine=chosen,
        kubernetes=value.kubernetes,
        hived=hived,
    )


def _take_hived(value: ServiceFile, file: Path | None, emulate: list[str], hived: Path) -> dict[str, HivedNode]:
    """Fills in the cells and virtual clusters of HiveD's configuration, which the file may give policies and weights.

    Left out, they are HiveD's own: strict priorities in a virtual cluster, first come first served outside of them.
    """
    _check_no_nodes(value, file, emulate)
    value.kubernetes.hived = ((Path() if file is None else file.parent) / hived).absolute()
    found = read_hived_cluster(value.kubernetes.hived)
    for name, given in found.tenants.items():
        entry = value.tenants.get(name, TenantEntry())
        taken = entry.model_fields_set & {"nodes", "cells", "pinned"}
        if taken:
            problem, remedy = f"is that of {hived}", f"remove it here, or {hived} under kubernetes.hived"
            raise InputError(problem, file=str(file), field=f"tenants.{name}.{min(taken)}", remedy=remedy)
        own = {"policy": ("priority", {}), "borrow": False} if given else {}
        kept = {key: each for key, each in own.items() if key not in entry.model_fields_set}
        value.tenants[name] = entry.model_copy(update={**given, **kept})
    if "policy" not in value.spare.model_fields_set:
        value.spare = value.spare.model_copy(update={"policy": ("fifo", {"backfill": True})})
    value.nodes = found.nodes
    return found.named


def _check_no_nodes(value: ServiceFile, file: Path | None, emulate: list[str]) -> None:
    if value.nodes or emulate:
        field, path = ("--emulate", "") if emulate else ("nodes", str(file))
        raise InputError("the nodes are those of the Kubernetes cluster", file=path, field=field, remedy="remove it")


def _take_nodes(value: ServiceFile, file: Path | None, emulate: list[str], found: list[Node]) -> None:
    """Fills in the nodes of the cluster."""
    _check_no_nodes(value, file, emulate)
    if not found:
        remedy = "install the device plug-in of its GPUs, or remove the label horae.io/ignore from nodes"
        raise InputError(f"no node of the cluster has {names.GPU_RESOURCE}", field="engine", remedy=remedy)
    value.nodes = [
        NodeGroup(
            name=[node.name],
            gpu=node.accelerator,
            gpus=node.gpus,
            cpus=node.cpus,
            memory=node.memory_bytes,
            levels=dict(node.levels),
            above=dict(node.groups),
        )
        for node in found
    ]


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
