"""Which replica leads, for the cluster's Service: the leader's pod has a label, which the Service selects.

A replica that waits for the lead serves nothing, and one that has lost it must be asked nothing.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress

import structlog

from horae.engines.kubernetes import names
from horae.engines.kubernetes.api import PODS, ApiProblem, KubernetesApi

LEADER = names.PREFIX + "leader"
LOOK_SECONDS = 5.0
RETRY_SECONDS = 1.0

log = structlog.get_logger("kubernetes")


class LeaderLabel:
    """Keeps the label on this pod, and on no other of its namespace, while this process leads."""

    def __init__(self, api: KubernetesApi, namespace: str, pod: str) -> None:
        self._api = api
        self._namespace = namespace
        self._pod = pod
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leader label", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """The label stays until the next leader removes it: without a leader there is nothing to select."""
        self._stopped.set()

    def _run(self) -> None:
        has_failed = False
        while not self._stopped.is_set():
            try:
                self.look()
                has_failed = False
            except ApiProblem as problem:
                if not has_failed:
                    log.warning("the leader's pod cannot be labelled", pod=self._pod, problem=str(problem))
                has_failed = True
            self._stopped.wait(RETRY_SECONDS if has_failed else LOOK_SECONDS)
        self._api.close()

    def look(self) -> None:
        """Another leader's label is removed first, so that requests never go to two pods."""
        found = self._api.list(PODS, self._namespace, labelSelector=LEADER).items
        labelled = {pod["metadata"]["name"] for pod in found}
        for name in sorted(labelled - {self._pod}):
            with suppress(ApiProblem):  # it has gone meanwhile; otherwise it is tried again
                self._set(name, None)
        if self._pod not in labelled:
            self._set(self._pod, "true")

    def _set(self, pod: str, value: str | None) -> None:
        self._api.patch(PODS, self._namespace, pod, {"metadata": {"labels": {LEADER: value}}})


def own_pod() -> tuple[str, str] | None:
    """The namespace and the name of the pod that this process runs in; None outside of a Deployment."""
    namespace, pod = os.environ.get("HORAE_POD_NAMESPACE"), os.environ.get("HORAE_POD")
    return (namespace, pod) if namespace and pod else None
