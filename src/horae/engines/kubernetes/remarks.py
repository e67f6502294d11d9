"""What Horae tells the owner of a Job or a pod, as events of Kubernetes: `kubectl describe` shows them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple
from uuid import uuid4

from horae.engines.kubernetes.api import EVENTS, Json, KubernetesApi

_MESSAGE_CHARACTERS_MAX = 1024


class Remark(NamedTuple):
    reason: str  # one word
    message: str
    is_warning: bool = False


def event_of(namespace: str, reference: Json, remark: Remark, api: KubernetesApi) -> None:
    """Writes an event about an object."""
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    body: Json = {
        "metadata": {"name": f"{reference['name'][:200]}.{uuid4().hex[:16]}", "namespace": namespace},
        "involvedObject": reference,
        "reason": remark.reason,
        "message": remark.message[:_MESSAGE_CHARACTERS_MAX],
        "type": "Warning" if remark.is_warning else "Normal",
        "source": {"component": "horae"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    api.create(EVENTS, namespace, body)
