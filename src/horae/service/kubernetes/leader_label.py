"""Which replica leads, for the cluster's Service: the leader's pod has a label, which the Service selects.

A replica that waits for the lead serves nothing, and one that has lost it must be asked nothing.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress

import structlog

from horae.engines.kubernetes import names
from horae.engines.kubernetes.api import PODS, ApiProblem, KubernetesApi
from horae.service.config import KubernetesEntry
from horae.service.kubernetes.discovery import open_api

LEADER = names.PREFIX + "leader"
LOOK_SECONDS = 5.0
RETRY_SECONDS = 1.0

log = structlog.get_logger("kubernetes")


class LeaderLabel:
    """Keeps the label on this pod, and on no other of its namespace, until this process ends.

    Then it stays until the next leader removes it: without a leader there is nothing to select.
    """

    def __init__(self, api: KubernetesApi, namespace: str, pod: str) -> None:
        self._api = api
        self._namespace = namespace
        self._pod = pod

    def keep(self) -> None:
        has_failed = False
        while True:
            try:
                self.look()
                has_failed = False
            except ApiProblem as problem:
                if not has_failed:
                    log.warning("the leader's pod cannot be labelled", pod=self._pod, problem=str(problem))
                has_failed = True
            time.sleep(RETRY_SECONDS if has_failed else LOOK_SECONDS)

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


def label_own_pod(entry: KubernetesEntry) -> None:
    """Does nothing outside of the Deployment, which says in which pod this process runs."""
    namespace, pod = os.environ.get("HORAE_POD_NAMESPACE"), os.environ.get("HORAE_POD")
    if namespace and pod:
        label = LeaderLabel(open_api(entry), namespace, pod)
        threading.Thread(target=label.keep, name="leader label", daemon=True).start()
