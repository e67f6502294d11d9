"""The status of a pod at each step of its life, as a kubelet writes it."""

from __future__ import annotations

from datetime import UTC, datetime

from kubernetes.client import Json
from kubernetes.kubelets.pods import Refusal


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def waiting(pod: Json, reason: str, message: str = "") -> Json:
    detail = {"message": message} if message else {}
    return _status(pod, "Pending", {"waiting": {"reason": reason, **detail}})


def running(pod: Json) -> Json:
    return _status(pod, "Running", {"running": {"startedAt": now()}})


def ended(pod: Json, exit_code: int, reason: str = "") -> Json:
    reason = reason or ("Error" if exit_code else "Completed")
    terminated = {"exitCode": exit_code, "reason": reason, "startedAt": _started(pod), "finishedAt": now()}
    return _status(pod, "Failed" if exit_code else "Succeeded", {"terminated": terminated})


def rejected(refusal: Refusal) -> Json:
    return {"phase": "Failed", "reason": refusal.reason, "message": refusal.message, "startTime": now()}


def is_reported(pod: Json, status: Json) -> bool:
    """Whether the API server has this status, as far as a kubelet's clients look at it."""
    return _essence(pod.get("status") or {}) == _essence(status)


def _status(pod: Json, phase: str, state: Json) -> Json:
    is_ready = phase == "Running"
    conditions = {"Initialized": True, "ContainersReady": is_ready, "Ready": is_ready}
    return {
        "phase": phase,
        "startTime": _started(pod),
        "conditions": [
            {"type": kind, "status": str(holds), "lastTransitionTime": now()} for kind, holds in conditions.items()
        ],
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "ready": is_ready,
                "started": is_ready,
                "restartCount": 0,
                "state": state,
            }
            for container in pod["spec"]["containers"]
        ],
    }


def _started(pod: Json) -> str:
    return str((pod.get("status") or {}).get("startTime") or now())


def _essence(status: Json) -> object:
    containers = [(each["name"], each["ready"], each["state"]) for each in status.get("containerStatuses") or ()]
    ready = [each["status"] for each in status.get("conditions") or () if each["type"] == "Ready"]
    return status.get("phase"), status.get("reason"), containers, ready
