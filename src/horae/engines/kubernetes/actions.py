"""What the engine does in the cluster: each action is one write that fails if its object has changed meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from horae.engines.kubernetes import names
from horae.engines.kubernetes.api import JOBS, NODES, PODS, Json, KubernetesApi
from horae.engines.kubernetes.objects import EndNote, JobObject, LeaseNote, PodObject
from horae.model.cluster import Gpu

_MESSAGE_CHARACTERS_MAX = 1024
OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "value": "horae", "effect": "NoExecute"}


class Unsuspend(NamedTuple):
    """Lets the job controller create the pods of a lease."""

    job: JobObject
    lease: LeaseNote
    pods: int

    def body(self) -> Json:
        sizes = {} if self.pods == self.job.parallelism else {"parallelism": self.pods, "completions": self.pods}
        notes = {names.LEASE: self.lease.as_json(), names.TERM: str(self.lease.term)}
        of_pods = {names.EPOCH: str(self.lease.epoch)}
        template = {"metadata": {"annotations": of_pods}}
        return {**_of(self.job, notes), "spec": {"suspend": False, **sizes, "template": template}}


class ClearStart(NamedTuple):
    """Removes the time of the last start: a server before 1.36 then lets the template of the Job be changed again."""

    job: JobObject

    def body(self) -> Json:
        return {**_of(self.job, {}), "status": {"startTime": None}}


class Suspend(NamedTuple):
    """Ends the lease of a Job: its pods are deleted with their grace."""

    job: JobObject
    ended: EndNote | None  # None: the Job has no lease, it was started by another client

    def body(self) -> Json:
        return {**_of(self.job, _ended(self.ended)), "spec": {"suspend": True}}


class NoteEnd(NamedTuple):
    """Records on the Job that a lease has ended that did not run, so that it cannot start any more."""

    job: JobObject
    ended: EndNote

    def body(self) -> Json:
        return _of(self.job, _ended(self.ended))


class Annotate(NamedTuple):
    """Writes annotations of a Job, whatever else changes."""

    job: JobObject
    notes: dict[str, str | None]

    def body(self) -> Json:
        return {"metadata": {"uid": self.job.uid, "annotations": self.notes}}


class GiveUp(NamedTuple):
    """Tells the job controller that the Job has failed for good, so that it shows the condition Failed."""

    job: JobObject

    def body(self) -> Json:
        # The job controller judges by the pods that have failed; where none has, the Job stays suspended.
        return {"metadata": {"uid": self.job.uid, "annotations": {names.RECORDED: "true"}}, "spec": {"backoffLimit": 0}}


class Explain(NamedTuple):
    """Shows on the Job why it waits, or that it does not."""

    job: JobObject
    message: str
    waits: bool

    def body(self) -> Json:
        condition = {
            "type": names.WAITING,
            "status": "True" if self.waits else "False",
            "reason": "InQueue" if self.waits else "Ended" if self.message else "Started",
            "message": self.message[:_MESSAGE_CHARACTERS_MAX],
            "lastTransitionTime": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        }
        return {"metadata": {"uid": self.job.uid}, "status": {"conditions": [condition]}}


def claim(job: JobObject, job_id: str) -> Annotate:
    """Writes the id of a Job; what was copied from another Job is removed."""
    notes: dict[str, str | None] = {names.JOB: job_id, names.UID: job.uid}
    if job.annotations.get(names.UID, job.uid) != job.uid:
        notes |= dict.fromkeys((names.LEASE, names.ENDED, names.RECORDED, names.SAVED_STEPS, names.TERM))
    return Annotate(job, notes)


class Bind(NamedTuple):
    """Places a pod on the node of its GPUs."""

    pod: PodObject
    term: int
    epoch: int
    gpus: tuple[Gpu, ...]
    cells: tuple[str, ...]
    further: Mapping[str, str] = MappingProxyType({})  # annotations

    def body(self) -> Json:
        notes = {
            names.TERM: str(self.term),
            names.EPOCH: str(self.epoch),
            names.GPUS: ",".join(str(gpu.number) for gpu in self.gpus),
            names.CELLS: ",".join(self.cells),
            **self.further,
        }
        metadata = {
            "name": self.pod.name,
            "uid": self.pod.uid,
            "resourceVersion": self.pod.version,
            "annotations": notes,
        }
        target = {"kind": "Node", "name": self.gpus[0].node}
        return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}


class Delete(NamedTuple):
    """Ends a pod, with its grace."""

    pod: PodObject


class Touch(NamedTuple):
    """Writes the term of a new leader, so that writes of the former one fail."""

    object: JobObject | PodObject
    term: int


class ForceDelete(NamedTuple):
    """Removes a pod of a node that is gone or out of service: its kubelet cannot confirm the end."""

    pod: PodObject


class PutOutOfService(NamedTuple):
    """Tells the cluster that a node is down, so that its pods may be removed."""

    node: str
    version: str
    taints: tuple[Json, ...]  # that it has


class PutInService(NamedTuple):
    """Takes the mark of `PutOutOfService` back."""

    node: str
    version: str
    taints: tuple[Json, ...]

    @staticmethod
    def is_own(taint: Json) -> bool:
        return all(taint.get(key) == value for key, value in OUT_OF_SERVICE.items())


Action: TypeAlias = (
    Unsuspend
    | ClearStart
    | Suspend
    | NoteEnd
    | Annotate
    | GiveUp
    | Explain
    | Bind
    | Touch
    | Delete
    | ForceDelete
    | PutOutOfService
    | PutInService
)


def perform(action: Action, api: KubernetesApi) -> Json | None:
    """Carries an action out; returns the object as it is afterwards, where the server says it."""
    match action:
        case Unsuspend(job) | Suspend(job) | NoteEnd(job) | Annotate(job) | GiveUp(job):
            return api.patch(JOBS, job.namespace, job.name, action.body())
        case ClearStart(job):
            return api.patch(JOBS, job.namespace, job.name, action.body(), "status")
        case Explain(job):
            return api.merge_lists(JOBS, job.namespace, job.name, action.body(), "status")
        case Bind(pod):
            api.bind(pod.namespace, pod.name, action.body())
            return None
        case Touch(object=found):
            kind = JOBS if isinstance(found, JobObject) else PODS
            body = {"metadata": {"uid": found.uid, "annotations": {names.TERM: str(action.term)}}}
            return api.patch(kind, found.namespace, found.name, body)
        case Delete(pod):
            api.delete(PODS, pod.namespace, pod.name, {"preconditions": {"uid": pod.uid}})
            return None  # the answer has a pod that may be gone
        case ForceDelete(pod):
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.uid}}
            api.delete(PODS, pod.namespace, pod.name, options)
            return None
        case PutOutOfService():
            return _taint(api, action.node, action.version, [*action.taints, OUT_OF_SERVICE])
        case PutInService():
            kept = [taint for taint in action.taints if not action.is_own(taint)]
            return _taint(api, action.node, action.version, kept)


def _taint(api: KubernetesApi, node: str, version: str, taints: list[Json]) -> Json:
    body: Json = {"metadata": {"resourceVersion": version}, "spec": {"taints": taints}}
    return api.patch(NODES, None, node, body)


def _of(job: JobObject, notes: dict[str, str]) -> Json:
    return {"metadata": {"uid": job.uid, "resourceVersion": job.version, "annotations": notes}}


def _ended(note: EndNote | None) -> dict[str, str]:
    return {} if note is None else {names.ENDED: note.as_json()}
