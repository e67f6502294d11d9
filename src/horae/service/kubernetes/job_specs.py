"""Jobs of Kubernetes as job files: what their annotations and pods ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from horae.engines.kubernetes import names
from horae.engines.kubernetes.api import Json
from horae.engines.kubernetes.hardware import quantity
from horae.engines.kubernetes.objects import JobObject
from horae.model.cluster import CLUSTER
from horae.model.errors import JobError
from horae.model.safe_text import shown
from horae.service.models import JobSpec
from horae.traces.yaml_files import first_complaint

BACKOFF_LIMIT = 6  # of Jobs that do not say it, as Kubernetes has it
GRACE_SECONDS = 30.0
_DIGITS_MAX = 9
_TEXTS = {  # annotations that are fields of a job file, with the same text
    "app": "app",
    "model": "model",
    "priority": "priority",
    "deadline": "deadline",
    "max-duration": "max_duration",
    "min-runtime": "min_runtime",
}
_NUMBERS = {"steps": "steps", "retries": "retries"}
_OWN = {"tenant", "gpu-types", "locality", "prefer", "pods", "speed", "checkpoint", *_TEXTS, *_NUMBERS}
_BY_HORAE = {each.removeprefix(names.PREFIX) for each in (names.JOB, names.LEASE, names.ENDED, names.RECORDED)} | {
    "uid",
    "term",
    "reason",
    "saved-steps",
}


def spec_of(job: JobObject, raw: Json, tenants: Sequence[str]) -> JobSpec:
    """The job file that says the same; errors name the annotation or field of the Job."""
    notes = {
        key.removeprefix(names.PREFIX): value for key, value in job.annotations.items() if key.startswith(names.PREFIX)
    }
    unknown = sorted(notes.keys() - _OWN - _BY_HORAE)
    if unknown:
        raise JobError("is not known", field=_named(unknown[0]), remedy=f"use {', '.join(sorted(_OWN))}")
    _check_gang(job, raw["spec"])
    pod = raw["spec"]["template"]["spec"]
    several = job.parallelism > 1 or "pods" in notes
    fields: dict[str, Any] = {field: notes[name] for name, field in _TEXTS.items() if name in notes}
    fields |= {field: _number(name, notes[name]) for name, field in _NUMBERS.items() if name in notes}
    fields.setdefault("retries", int(raw["spec"].get("backoffLimit", BACKOFF_LIMIT)))
    fields |= {
        "name": job.name,
        "tenant": tenant_of_namespace(notes.get("tenant", ""), job.namespace, tenants, _named("tenant")),
        "user": job.namespace,
        "run": f"job/{job.namespace}/{job.name}",
        "workload": f"{job.namespace}/{job.name}/{job.uid}",
        "gpus": _gpus(job, notes.get("pods", "")),
        "member_gpus": job.pod_gpus,
        "gpu_type": [each.strip() for each in notes.get("gpu-types", "").split(",") if each.strip()],
        "locality": {
            "require": notes.get("locality", CLUSTER if several and "prefer" not in notes else None),
            "prefer": notes.get("prefer"),
        },
        "speed": _speeds(notes.get("speed", "")),
        "grace": float(pod.get("terminationGracePeriodSeconds", GRACE_SECONDS)),
        "checkpoint": {} if _is_true("checkpoint", notes.get("checkpoint", "false")) else None,
        "cpus_per_gpu": _requested(pod, "cpu") / job.pod_gpus,
        "memory_per_gpu": _requested(pod, "memory") / job.pod_gpus,
    }
    try:
        return JobSpec.model_validate(fields)
    except ValidationError as error:
        details, problem, remedy = first_complaint(error)
        field = next((name for name, field in _TEXTS.items() if field == details["loc"][0]), str(details["loc"][0]))
        raise JobError(problem, field=_named(field) if field in _OWN else field, remedy=remedy) from None


def _check_gang(job: JobObject, spec: Mapping[str, Any]) -> None:
    if job.pod_gpus < 1:
        remedy = f"add a limit for {names.GPU_RESOURCE} to a container, or use another schedulerName"
        raise JobError("its pods ask for no GPU", field="spec.template.spec.containers", remedy=remedy)
    if spec["template"]["spec"].get("nodeName"):
        remedy = "leave it out: Horae chooses the nodes"
        raise JobError("names a node", field="spec.template.spec.nodeName", remedy=remedy)
    if job.parallelism < 1:
        raise JobError("is 0", field="spec.parallelism", remedy="give the number of pods of the gang")
    completions = spec.get("completions")
    if completions is not None and completions != job.parallelism:
        problem = f"{completions} completions of {job.parallelism} pods at a time are no gang"
        raise JobError(problem, field="spec.completions", remedy=f"set it to {job.parallelism}, as parallelism")
    if spec.get("managedBy") not in (None, "kubernetes.io/job-controller"):
        raise JobError(f"is {shown(spec['managedBy'])}", field="spec.managedBy", remedy="leave it out")


def tenant_of_namespace(chosen: str, namespace: str, tenants: Sequence[str], field: str) -> str:
    """The chosen one of the namespace's tenants, or the first."""
    if not tenants:
        remedy = f"ask an administrator for: kubectl label namespace {namespace} {names.TENANT}=TENANT"
        raise JobError(f"namespace {namespace} belongs to no tenant", field="metadata.namespace", remedy=remedy)
    if chosen and chosen not in tenants:
        problem = f"namespace {namespace} may not use tenant {shown(chosen)}"
        raise JobError(problem, field=field, remedy=f"use {', '.join(tenants)}")
    return chosen or tenants[0]


def _gpus(job: JobObject, pods: str) -> int | dict[str, int]:
    """All GPUs of the gang; with a range of pods such as 2-8, a range."""
    if not pods:
        return job.parallelism * job.pod_gpus
    least, _, most = pods.partition("-")
    are_numbers = all(each.isdecimal() and len(each) < _DIGITS_MAX for each in (least, most))
    if not are_numbers or not 0 < int(least) <= int(most):
        raise JobError(f"is {shown(pods)}", field=_named("pods"), remedy="give the least and the most, such as 2-8")
    return {"min": int(least) * job.pod_gpus, "max": int(most) * job.pod_gpus}


def _speeds(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in filter(None, (each.strip() for each in text.split(";"))):
        kind, _, speed = part.partition("=")
        found[kind.strip()] = _number("speed", speed)
    return found


def _number(name: str, text: str) -> float | int:
    try:
        return int(text) if text.strip().isdecimal() else float(text)
    except ValueError:
        raise JobError(f"is {shown(text)}", field=_named(name), remedy="give a number") from None


def _is_true(name: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise JobError(f"is {shown(text)}", field=_named(name), remedy='give "true" or "false"')
    return text == "true"


def _requested(pod: Mapping[str, Any], resource: str) -> float:
    """What the containers of a pod request of a resource together; a limit counts where there is no request."""
    amounts = 0.0
    for container in pod.get("containers") or ():
        resources = container.get("resources") or {}
        asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        amounts += quantity(asked.get(resource, 0))
    return amounts


def _named(name: str) -> str:
    return f"metadata.annotations.{names.PREFIX}{name}"
