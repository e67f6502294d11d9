"""A client of the API server for tests: JSON in and out, and what tests do with pods and Jobs."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import httpx
import yaml
from patience import HANG_SECONDS

Json = dict[str, Any]
T = TypeVar("T")
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
_SERVER_ERROR = 500


class ApiError(Exception):
    """An answer that is no success."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


def connection(kubeconfig: Path) -> dict[str, Any]:
    """What an httpx client needs to reach the server that one of our kubeconfig files names."""
    tree = yaml.safe_load(kubeconfig.read_text())
    cluster, user = tree["clusters"][0]["cluster"], tree["users"][0]["user"]
    return {
        "base_url": cluster["server"],
        "verify": ssl.create_default_context(cafile=cluster["certificate-authority"]),
        "headers": {"Authorization": f"Bearer {user['token']}"},
        "trust_env": False,
    }


class Client:
    def __init__(self, kubeconfig: Path) -> None:
        self._http = httpx.Client(**connection(kubeconfig), timeout=60.0)

    def request(self, method: str, path: str, body: object = None, kind: str = "", **params: str) -> Json:
        headers = {"Content-Type": kind or "application/json"}
        content = None if body is None else json.dumps(body)
        answer = self._http.request(method, path, content=content, headers=headers, params=params)
        tree: Json = answer.json() if answer.headers.get("Content-Type", "").startswith("application/json") else {}
        if not answer.is_success:
            raise ApiError(answer.status_code, tree.get("reason", ""), tree.get("message", answer.text))
        return tree

    def get(self, path: str, **params: str) -> Json:
        return self.request("GET", path, **params)

    def post(self, path: str, body: Json) -> Json:
        return self.request("POST", path, body)

    def patch(self, path: str, body: Json, kind: str = MERGE) -> Json:
        return self.request("PATCH", path, body, kind)

    def delete(self, path: str, **options: object) -> None:
        """What is gone already is left alone."""
        try:
            self.request("DELETE", path, options)
        except ApiError as error:
            if error.status != httpx.codes.NOT_FOUND:
                raise

    def find(self, path: str) -> Json | None:
        """None if there is no such object."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status == httpx.codes.NOT_FOUND:
                return None
            raise

    def items(self, path: str, **params: str) -> list[Json]:
        found: list[Json] = self.get(path, **params)["items"]
        return found

    def create_node(self, node: Json) -> None:
        self.post("/api/v1/nodes", node)

    def create_pod(self, namespace: str, pod: Json) -> Json:
        return self.post(f"/api/v1/namespaces/{namespace}/pods", pod)

    def create_job(self, namespace: str, job: Json) -> Json:
        return self.post(f"/apis/batch/v1/namespaces/{namespace}/jobs", job)

    def job(self, namespace: str, name: str) -> Json:
        return self.get(f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}")

    def patch_job(self, namespace: str, name: str, body: Json) -> Json:
        return self.patch(f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}", body)

    def pods(self, namespace: str, job: str = "") -> list[Json]:
        """All of a namespace, or of one of its Jobs, by completion index and name."""
        selector = {"labelSelector": f"batch.kubernetes.io/job-name={job}"} if job else {}
        return sorted(self.items(f"/api/v1/namespaces/{namespace}/pods", **selector), key=_index)

    def bind(self, pod: Json, node: str, annotations: Mapping[str, str] | None = None) -> None:
        metadata, target = pod["metadata"], {"kind": "Node", "name": node}
        named = {"name": metadata["name"], "uid": metadata["uid"], "annotations": dict(annotations or {})}
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/binding"
        self.post(path, {"apiVersion": "v1", "kind": "Binding", "metadata": named, "target": target})


def _index(pod: Json) -> tuple[int, str]:
    annotations = pod["metadata"].get("annotations") or {}
    return int(annotations.get("batch.kubernetes.io/job-completion-index", -1)), pod["metadata"]["name"]


def condition(found: Json, kind: str) -> bool:
    """Whether a Job, a pod or a node has a condition that is True."""
    conditions = found.get("status", {}).get("conditions") or ()
    return any(each["type"] == kind and each["status"] == "True" for each in conditions)


def eventually(sought: Callable[[], T | None], check: Callable[[], None] = lambda: None) -> T:
    """The first value that is true; a server that is down or starts is asked again.

    `check` is called meanwhile, and raises if there is nothing to wait for.
    """
    give_up_at = time.monotonic() + HANG_SECONDS
    while True:
        check()
        try:
            if found := sought():
                return found
        except httpx.TransportError:
            pass
        except ApiError as error:
            if error.status < _SERVER_ERROR and error.status != httpx.codes.TOO_MANY_REQUESTS:
                raise
        assert time.monotonic() < give_up_at, "waited in vain"
        time.sleep(0.02)
