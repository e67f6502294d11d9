"""Pods that ask HiveD for GPUs as job files: one job for the pods of a group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from horae.engines.kubernetes import names
from horae.engines.kubernetes.objects import PodObject
from horae.engines.kubernetes.pod_gangs import GroupObject, Request
from horae.model.cluster import CLUSTER, NODE, Cluster
from horae.model.errors import JobError
from horae.model.safe_text import shown
from horae.model.setup import PoolSpec, Setup
from horae.service.kubernetes.job_specs import tenant_of_namespace
from horae.service.models import GRACE_SECONDS_MAX, NAME_CHARACTERS_MAX, JobSpec
from horae.traces.readers.hived_pod import HivedGang, Pod, read_pod
from horae.traces.yaml_files import first_complaint

NodesWith = Callable[[Mapping[str, str]], Sequence[str]]  # names of the nodes that have these labels
_FIELD = names.HIVED_REQUEST


def read_request(pod: PodObject) -> Request | str:
    """What a pod asks for, or what is wrong with it."""
    try:
        found = _read(pod)
    except JobError as error:
        return str(error)
    gang = found.gang
    if pod.resource_gpus not in (0, found.gpus):
        asked = f"{pod.resource_gpus} {names.GPU_RESOURCE}"
        return f"the pod has a limit of {asked} and leafCellNumber {found.gpus}: give the same number, or no limit"
    is_alone = gang.name == pod.name and gang.members == (found.gpus,)
    text = f"{gang} {sorted(pod.node_selector.items()) if found.heeds_suggestions else ''}"
    return Request("" if is_alone else gang.name, gang.members, found.gpus, text)


def _read(pod: PodObject) -> Pod:
    return read_pod(pod.name, pod.annotations.get(names.HIVED_REQUEST, ""))


def spec_of_pods(group: GroupObject, tenants: Sequence[str], setup: Setup, nodes_with: NodesWith) -> JobSpec:
    """The job file that asks for the same; errors name the field of the annotation."""
    first = group.pods[0]
    asked = _read(first)
    gang = asked.gang
    tenant = tenant_of_namespace(gang.tenant, group.namespace, tenants, f"{_FIELD}.virtualCluster")
    pool = _pool_of(setup, tenant, gang.priority)
    name = gang.name.replace("/", ".")[:NAME_CHARACTERS_MAX]
    fields: dict[str, Any] = {
        "name": name,
        "app": name,
        "tenant": tenant,
        "user": group.namespace,
        "run": f"pods/{group.namespace}/{gang.name}",
        "workload": f"pods/{group.namespace}/{group.uid}",
        "gpus": sum(gang.members),
        "members": list(gang.members) if len(gang.members) > 1 else [],
        "gpu_type": [gang.accelerator] if gang.accelerator else [],
        "locality": {"require": CLUSTER if len(gang.members) > 1 else NODE},
        "nodes": _nodes(first, asked, nodes_with),
        "priority": gang.priority,
        "lazy": gang.lazy,
        # Pods cannot resume: only a higher priority may stop them, or a guarantee, which needs no leave.
        "preemptible": pool is not None and pool.policy == "priority",
        "grace": min(max(pod.grace_seconds for pod in group.pods), GRACE_SECONDS_MAX),
    }
    if gang.pin and gang.priority >= 0:
        fields |= {"pinned": gang.pin, "gpu_type": _pinned_types(setup.cluster, gang, pool)}
    try:
        return JobSpec.model_validate(fields)
    except ValidationError as error:
        details, problem, remedy = first_complaint(error)
        raise JobError(problem, field=f"{_FIELD}.{details['loc'][0]}", remedy=remedy) from None


def _pool_of(setup: Setup, tenant: str, priority: int) -> PoolSpec | None:
    own = next((pool for pool in setup.pools if tenant in pool.tenants), None)
    if own is None or (own.reserves and priority < 0):
        return next((pool for pool in setup.pools if not pool.tenants), None)
    return own


def _pinned_types(cluster: Cluster, gang: HivedGang, pool: PoolSpec | None) -> list[str]:
    """A pinned cell has one GPU type, whichever the pod names."""
    place = None if pool is None else pool.pinned.get(gang.pin)
    if place is None:
        known = ", ".join(pool.pinned) if pool is not None and pool.pinned else "none"
        problem = f"{shown(gang.tenant)} has no pinned cell {shown(gang.pin)}"
        raise JobError(problem, field=f"{_FIELD}.pinnedCellId", remedy=f"use one of its own: {known}")
    node = place.rsplit("/", 2)[0] if place.count("/") > 1 else place
    return sorted(
        {
            each.accelerator
            for each in cluster.nodes
            if each.name in (place, node) or any(place in (name, f"{level}/{name}") for level, name in each.groups)
        }
    )


def _nodes(pod: PodObject, asked: Pod, nodes_with: NodesWith) -> list[str]:
    """The nodes that a pod's selector allows, where it does not say that these do not matter."""
    if not asked.heeds_suggestions or not pod.node_selector:
        return []
    found = list(nodes_with(pod.node_selector))
    if not found:
        remedy = "correct it, or set ignoreK8sSuggestedNodes: true"
        raise JobError("no node has these labels", field="spec.nodeSelector", remedy=remedy)
    return found
