"""A simulated node: whether it is served, and the condition that its kubelet reports."""

from __future__ import annotations

import asyncio

from kubernetes.client import Json
from kubernetes.kubelets.api import Api
from kubernetes.kubelets.pods import notes_of
from kubernetes.kubelets.statuses import now

_HEARTBEAT_SECONDS = 60.0


class Node:
    """`is_served` is clear while the node is cut off or its object is gone: then nothing of it is heard, and it hears
    nothing."""

    def __init__(self) -> None:
        self.found: Json = {}  # as last seen
        self.is_served = asyncio.Event()
        self._change = asyncio.Event()

    def apply(self, found: Json | None) -> None:
        """The node as it is now; None if there is none."""
        self.found = found or self.found
        if found is None or "horae.test/broken" in notes_of(found):
            self.is_served.clear()
        else:
            self.is_served.set()
        self._change.set()

    async def report(self, api: Api) -> None:
        """Writes the condition when the API server has another one, and heartbeats, for ever."""
        while True:
            try:
                async with asyncio.timeout(_HEARTBEAT_SECONDS):
                    await self._change.wait()
            except TimeoutError:
                is_due = self.is_served.is_set()
            else:
                is_due = not self._is_reported
            self._change.clear()
            if is_due:
                await api.patch(f"/api/v1/nodes/{self.found['metadata']['name']}/status", {"status": self._status()})

    @property
    def product(self) -> str:
        labels = self.found["metadata"].get("labels") or {}
        return str(labels.get("nvidia.com/gpu.product", ""))

    @property
    def _is_reported(self) -> bool:
        conditions = (self.found.get("status") or {}).get("conditions") or ()
        return any(each["type"] == "Ready" and each["status"] == self._readiness for each in conditions)

    @property
    def _readiness(self) -> str:
        broken = notes_of(self.found).get("horae.test/broken")
        if broken is None:
            return "True"
        return "Unknown" if broken == "Unknown" else "False"

    def _status(self) -> Json:
        condition = {"type": "Ready", "status": self._readiness, "reason": "Simulated", "lastHeartbeatTime": now()}
        return {"conditions": [condition if self._is_reported else {**condition, "lastTransitionTime": now()}]}
