"""Jobs, pods and namespaces as Horae sees them: frozen values, made from what the API server sends."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any, NamedTuple

from horae.engines.kubernetes import names
from horae.engines.kubernetes.api import Json
from horae.model.cluster import Gpu
from horae.model.events import Ending
from horae.model.serialization import Plain

# A pull that has failed once (ErrImagePull) is tried again at once; with the back-off it has failed repeatedly.
_PULLING = ("ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
_MISCONFIGURED = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
_DISRUPTED = "DisruptionTarget"
_UNREADABLE = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
)  # users may write anything
GRACE_SECONDS = 30.0  # of pods that do not say it, as Kubernetes has it


class LeaseNote(NamedTuple):
    """A lease as it stands in the annotations of its Job."""

    term: int
    epoch: int
    gpus: tuple[Gpu, ...]
    cells: tuple[str, ...]
    until: float
    specification: Plain | None  # what the service needs to adopt the job
    job: str = ""  # its id

    def as_json(self) -> str:
        plain = self._replace(gpus=tuple(map(str, self.gpus)))  # type: ignore[arg-type]
        return json.dumps(plain._asdict(), separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> LeaseNote | None:
        """None if the annotation is not as Horae writes it."""
        try:
            plain = json.loads(text)
            gpus = tuple(map(Gpu.parse, plain["gpus"]))
            cells = tuple(map(str, plain["cells"]))
            if len(cells) not in (0, len(gpus)):
                return None
            return cls(
                term=int(plain["term"]),
                epoch=int(plain["epoch"]),
                gpus=gpus,
                cells=cells,
                until=float(plain["until"]),
                specification=plain["specification"],
                job=str(plain.get("job", "")),
            )
        except _UNREADABLE:
            return None


class EndNote(NamedTuple):
    """The last lease of a Job that has ended or shall end, and how. No lease of this epoch or before may start."""

    epoch: int
    ending: Ending
    message: str = ""
    false_starts: int = 0  # leases in a row that ended because a container could not start

    def as_json(self) -> str:
        return json.dumps({**self._asdict(), "ending": self.ending.value}, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> EndNote | None:
        try:
            plain = json.loads(text)
            message, false_starts = str(plain.get("message", "")), int(plain.get("false_starts", 0))
            return cls(int(plain["epoch"]), Ending(plain["ending"]), message, false_starts)
        except _UNREADABLE:
            return None


NEVER = EndNote(-1, Ending.STOPPED)


class JobObject(NamedTuple):
    namespace: str
    name: str
    uid: str
    version: str
    scheduler: str
    annotations: Mapping[str, str]
    suspend: bool
    parallelism: int
    pod_gpus: int
    is_deleting: bool
    is_suspended: bool  # the job controller has carried the suspension out
    active: int  # pods that the job controller counts
    succeeded: int  # pods that need not run again, also those of earlier leases
    finished: bool
    failed: bool
    failure: str
    job_id: str
    lease: LeaseNote | None
    ended: EndNote
    is_recorded: bool  # the service knows its end
    term: int  # of the leader that has written last
    saved_steps: float
    waits_for: str  # the reason that the Job shows; "": it does not say that it waits
    was_started: bool  # its status has the time of its last start

    @property
    def path(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def reference(self) -> Json:
        return _reference("batch/v1", "Job", self)

    @property
    def is_over(self) -> bool:
        return self.finished or self.failed

    @property
    def epoch(self) -> int:
        """Of the lease under which its pods may run; -1 without one."""
        runs = not self.suspend and not self.is_over
        active = runs and self.lease is not None and self.lease.epoch > self.ended.epoch
        return self.lease.epoch if active and self.lease is not None else -1


class PodObject(NamedTuple):
    namespace: str
    name: str
    uid: str
    version: str
    owner: str  # the uid of its Job, or ""
    scheduler: str
    rank: int  # its completion index; -1 without one
    node: str  # "": not bound
    phase: str
    is_ready: bool
    is_deleting: bool
    resource_gpus: int
    term: int  # of the leader that has taken it over, or has placed it; -1: none
    epoch: int
    gpu_numbers: tuple[int, ...]
    cells: tuple[str, ...]
    saved_steps: float
    trouble: str  # the reason for which a container cannot start, such as ErrImagePull; "": none so far
    reason: str
    message: str
    exit_code: int | None  # of a container that has failed
    is_disrupted: bool
    annotations: Mapping[str, str]
    grace_seconds: float
    node_selector: Mapping[str, str]

    @property
    def is_terminal(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def path(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def reference(self) -> Json:
        return _reference("v1", "Pod", self)


class NamespaceObject(NamedTuple):
    name: str
    tenants: tuple[str, ...]  # the first is the default


def _reference(version: str, kind: str, found: JobObject | PodObject) -> Json:
    """The object, as an event names it."""
    named = {"namespace": found.namespace, "name": found.name, "uid": found.uid}
    return {"apiVersion": version, "kind": kind, **named}


def read_job(found: Json) -> JobObject:
    metadata, spec, status = found["metadata"], found["spec"], found.get("status") or {}
    notes: dict[str, str] = metadata.get("annotations") or {}
    conditions = {each["type"]: each for each in status.get("conditions") or () if each.get("status") == "True"}
    template = (spec.get("template") or {}).get("spec") or {}
    failure = conditions.get("Failed", {})
    own = notes if notes.get(names.UID) == metadata["uid"] else {}  # a copy of a Job has its annotations, too
    lease = LeaseNote.parse(own[names.LEASE]) if names.LEASE in own else None
    return JobObject(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        version=metadata["resourceVersion"],
        scheduler=template.get("schedulerName") or "",
        annotations=notes,
        suspend=bool(spec.get("suspend")),
        parallelism=int(spec.get("parallelism") or 0),
        pod_gpus=gpus_of(template),
        is_deleting="deletionTimestamp" in metadata,
        is_suspended="Suspended" in conditions,
        active=int(status.get("active") or 0),
        succeeded=int(status.get("succeeded") or 0),
        finished="Complete" in conditions,
        failed="Failed" in conditions,
        failure=f"{failure.get('reason', '')}: {failure.get('message', '')}" if failure else "",
        job_id=own.get(names.JOB, "") or ("" if lease is None else lease.job),
        lease=lease,
        ended=(EndNote.parse(own[names.ENDED]) if names.ENDED in own else None) or NEVER,
        is_recorded=names.RECORDED in own,
        term=_number(own.get(names.TERM), -1),
        saved_steps=_steps(own),
        waits_for=str(conditions.get(names.WAITING, {}).get("message", "")),
        was_started=bool(status.get("startTime")),
    )


def read_pod(found: Json) -> PodObject:
    metadata, spec, status = found["metadata"], found["spec"], found.get("status") or {}
    notes: dict[str, str] = metadata.get("annotations") or {}
    conditions = {each["type"] for each in status.get("conditions") or () if each.get("status") == "True"}
    states = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    waiting = [each["state"]["waiting"].get("reason", "") for each in states if "waiting" in each.get("state", {})]
    codes = [each["state"]["terminated"]["exitCode"] for each in states if "terminated" in each.get("state", {})]
    trouble = [each for each in waiting if each in _PULLING + _MISCONFIGURED]
    return PodObject(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        version=metadata["resourceVersion"],
        owner=next((each["uid"] for each in metadata.get("ownerReferences") or () if each.get("controller")), ""),
        scheduler=spec.get("schedulerName") or "",
        rank=_number(notes.get("batch.kubernetes.io/job-completion-index"), -1),
        node=spec.get("nodeName") or "",
        phase=status.get("phase") or "Pending",
        is_ready="Ready" in conditions,
        is_deleting="deletionTimestamp" in metadata,
        resource_gpus=gpus_of(spec),
        term=_number(notes.get(names.TERM), -1),
        epoch=_number(notes.get(names.EPOCH), -1),
        gpu_numbers=tuple(n for each in notes.get(names.GPUS, "").split(",") if (n := _number(each, -1)) >= 0),
        cells=tuple(each for each in notes.get(names.CELLS, "").split(",") if each),
        saved_steps=_steps(notes),
        trouble=(trouble or [""])[0],
        reason=status.get("reason") or "",
        message=status.get("message") or "",
        exit_code=next((int(code) for code in codes if code), None),
        is_disrupted=_DISRUPTED in conditions,
        annotations=notes,
        grace_seconds=float(spec.get("terminationGracePeriodSeconds", GRACE_SECONDS)),
        node_selector=spec.get("nodeSelector") or {},
    )


def read_namespace(found: Json) -> NamespaceObject:
    metadata = found["metadata"]
    own = (metadata.get("labels") or {}).get(names.TENANT, "")
    more = (metadata.get("annotations") or {}).get(names.TENANTS, "").split(",")
    tenants = dict.fromkeys(each.strip() for each in (own, *more) if each.strip())
    return NamespaceObject(metadata["name"], tuple(tenants))


def gpus_of(pod_spec: Mapping[str, Any]) -> int:
    """GPUs that a pod asks for: of its containers together, or of one initialising container if that is more."""

    def asked(container: Mapping[str, Any]) -> int:
        resources = container.get("resources") or {}
        amounts = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        return _number(str(amounts.get(names.GPU_RESOURCE, 0)), 0)

    beside = sum(asked(each) for each in pod_spec.get("containers") or ())
    return max([beside, *(asked(each) for each in pod_spec.get("initContainers") or ())])


def _number(text: str | None, otherwise: int) -> int:
    try:
        return otherwise if text is None else int(text)
    except ValueError:
        return otherwise


def _steps(notes: Mapping[str, str]) -> float:
    try:
        steps = float(notes.get(names.SAVED_STEPS, 0.0))
    except ValueError:
        return 0.0
    return steps if isfinite(steps) and steps >= 0 else 0.0
