"""Nodes of the cluster as the scheduler knows them: type, GPUs, levels, health, and GPUs that cannot be used."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

from horae.engines.kubernetes import names
from horae.engines.kubernetes.api import Json
from horae.model.cluster import Node
from horae.model.events import GpuState, Health

_NODE_LEVELS = {"rack": "topology.kubernetes.io/rack", "zone": "topology.kubernetes.io/zone"}
_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


@dataclass(frozen=True)
class Labels:
    """Which labels of a node say what."""

    product: str = "nvidia.com/gpu.product"
    above: Mapping[str, str] = field(default_factory=lambda: dict(_NODE_LEVELS))  # by level, finest first
    types: Mapping[str, str] = field(default_factory=dict)  # by product: the GPU type; otherwise from its name
    inside: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # by GPU type: GPUs per cell of each level


class NodeObject(NamedTuple):
    name: str
    version: str
    labels: Mapping[str, str]
    gpus: int  # in its capacity
    usable_gpus: int  # allocatable
    cpus: float
    memory_bytes: float
    is_ready: bool
    is_cordoned: bool
    taints: tuple[Json, ...]
    is_deleting: bool

    @property
    def is_out_of_service(self) -> bool:
        return any(taint.get("key") == _OUT_OF_SERVICE for taint in self.taints)

    @property
    def health(self) -> Health:
        if not self.is_ready or self.is_out_of_service:
            return Health.FAILED
        return Health.DRAINING if self.is_cordoned or self.is_deleting else Health.HEALTHY


def read_node(found: Json) -> NodeObject:
    metadata, spec, status = found["metadata"], found.get("spec") or {}, found.get("status") or {}
    capacity, allocatable = status.get("capacity") or {}, status.get("allocatable") or {}
    conditions = {each["type"]: each.get("status") for each in status.get("conditions") or ()}
    return NodeObject(
        name=metadata["name"],
        version=metadata["resourceVersion"],
        labels=metadata.get("labels") or {},
        gpus=int(quantity(capacity.get(names.GPU_RESOURCE, 0))),
        usable_gpus=int(quantity(allocatable.get(names.GPU_RESOURCE, 0))),
        cpus=quantity(allocatable.get("cpu", inf)),
        memory_bytes=quantity(allocatable.get("memory", inf)),
        is_ready=conditions.get("Ready") == "True",
        is_cordoned=bool(spec.get("unschedulable")),
        taints=tuple(spec.get("taints") or ()),
        is_deleting="deletionTimestamp" in metadata,
    )


def quantity(text: Any) -> float:
    """A quantity such as 96, 500m or 1Ti."""
    try:
        return float(text)
    except ValueError:
        pass
    text = str(text)
    if text.endswith("m"):
        return float(text[:-1]) / 1000.0
    unit = next((unit for unit in _UNITS if text.endswith(unit)), "")
    return float(text[: -len(unit)]) * _UNITS[unit] if unit else inf


def is_ours(node: NodeObject) -> bool:
    return node.gpus > 0 and names.IGNORE not in node.labels


def as_node(found: NodeObject, labels: Labels, type_of: Callable[[str], str]) -> Node:
    """The node as the scheduler has it. Levels that its labels do not name are left out."""
    product = found.labels.get(labels.product, "")
    kind = labels.types.get(product) or (type_of(product) if product else "gpu")
    inside = sorted(labels.inside.get(kind, {}).items(), key=lambda item: (item[1], item[0]))
    above = [(level, found.labels[label]) for level, label in labels.above.items() if found.labels.get(label)]
    return Node(
        name=found.name,
        accelerator=kind,
        gpus=found.gpus,
        cpus=found.cpus,
        memory_bytes=found.memory_bytes,
        levels=tuple((level, gpus) for level, gpus in inside if gpus < found.gpus and found.gpus % gpus == 0),
        above=tuple(above),
    )


def unusable(
    gpus: int, failed: int, foreign: int, ours: Collection[int], before: Mapping[int, GpuState]
) -> dict[int, GpuState]:
    """Which GPUs of a node to count as failed or used by others.

    Only their number is known. Those that were counted so stay, then come the highest that no lease of ours has: a GPU
    of ours that has failed is found by the end of its pod.
    """
    free = [number for number in range(gpus - 1, -1, -1) if number not in ours]
    found: dict[int, GpuState] = {}
    for state, count in ((GpuState.FAILED, failed), (GpuState.FOREIGN, foreign)):
        left = [number for number in free if number not in found]
        left.sort(key=lambda number: before.get(number) is not state)  # stable
        found |= dict.fromkeys(left[:count], state)
    return found


def count_by_node(pods: Iterable[tuple[str, int]]) -> dict[str, int]:
    """By node: the GPUs of these pods together."""
    found: dict[str, int] = {}
    for node, gpus in pods:
        found[node] = found.get(node, 0) + gpus
    return found
