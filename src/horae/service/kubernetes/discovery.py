"""What a cluster has when the service begins: its nodes, and what earlier services have left in it."""

from __future__ import annotations

from typing import NamedTuple

from horae.engines.kubernetes import names
from horae.engines.kubernetes.api import JOBS, NODES, PODS, ApiProblem, KubernetesApi
from horae.engines.kubernetes.connection import connect
from horae.engines.kubernetes.hardware import as_node, is_ours, read_node
from horae.engines.kubernetes.objects import read_job, read_pod
from horae.engines.local.nvml import type_of
from horae.model.cluster import Node
from horae.model.errors import InputError
from horae.scheduler.leases import INCARNATION_BITS
from horae.service.config import KubernetesEntry

TERMS_MAX = 1 << 12  # as many leaders as one cluster has seen
DIGITS_MAX = 12


class Records(NamedTuple):
    """The highest numbers that the cluster knows; those of this service are above."""

    term: int
    job: int


def open_api(entry: KubernetesEntry) -> KubernetesApi:
    return KubernetesApi(connect(entry.kubeconfig, entry.context))


def nodes_of(entry: KubernetesEntry) -> list[Node]:
    """The nodes with GPUs, as the scheduler has them."""
    api = open_api(entry)
    try:
        found = map(read_node, api.list(NODES).items)
        return [as_node(node, entry.labels, type_of) for node in found if is_ours(node)]
    except ApiProblem as problem:
        remedy = "check the kubeconfig file, and that its user may list nodes"
        raise InputError(str(problem), field="kubernetes", remedy=remedy) from None
    finally:
        api.close()


def records_of(api: KubernetesApi) -> Records:
    terms, numbers = [0], [0]
    for pod in map(read_pod, api.list(PODS).items):
        terms += [pod.term, pod.epoch >> INCARNATION_BITS]
        numbers.append(_number(pod.annotations.get(names.JOB, "")))
    for job in map(read_job, api.list(JOBS).items):
        epochs = [job.ended.epoch, -1 if job.lease is None else job.lease.epoch]
        terms += [job.term, 0 if job.lease is None else job.lease.term, *(each >> INCARNATION_BITS for each in epochs)]
        numbers.append(_number(job.job_id))
    # Without the admission policies, users can write these annotations: what no service has written counts for nothing.
    return Records(max(term for term in terms if term <= TERMS_MAX), max(numbers))


def _number(job_id: str) -> int:
    first = job_id.partition("_")[0]
    return int(first) if first.isdecimal() and len(first) <= DIGITS_MAX else 0
