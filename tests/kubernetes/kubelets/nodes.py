"""A simulated node: whether it is served, and the condition that its kubelet reports."""

from __future__ import annotations

import asyncio

from kubernetes.client import Json
from kubernetes.kubelets.pods import notes_of
from kubernetes.kubelets.statuses import now


class Node:
    """`is_served` is clear while the node is cut off or its object is gone: then nothing of it is heard, and it hears
    nothing."""

    def __init__(self) -> None:
        self.found: Json = {}
        self.is_served = asyncio.Event()

    def apply(self, found: Json | None) -> None:
        """The node as it is now; None if there is none."""
        self.found = found or self.found
        if found is None or "horae.test/broken" in notes_of(found):
            self.is_served.clear()
        else:
            self.is_served.set()

    @property
    def product(self) -> str:
        labels = self.found["metadata"].get("labels") or {}
        return str(labels.get("nvidia.com/gpu.product", ""))

    @property
    def is_reported(self) -> bool:
        conditions = (self.found.get("status") or {}).get("conditions") or ()
        return any(each["type"] == "Ready" and each["status"] == self._readiness for each in conditions)

    @property
    def _readiness(self) -> str:
        broken = notes_of(self.found).get("horae.test/broken")
        if broken is None:
            return "True"
        return "Unknown" if broken == "Unknown" else "False"

    def status(self) -> Json:
        """The condition with a heartbeat of now."""
        condition = {"type": "Ready", "status": self._readiness, "reason": "Simulated", "lastHeartbeatTime": now()}
        return {"conditions": [condition if self.is_reported else {**condition, "lastTransitionTime": now()}]}
