"""The API server, as far as Horae uses it: JSON objects as they come, and problems with their reason."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx

from horae.engines.kubernetes.connection import Connection
from horae.model.errors import HoraeError

Json = dict[str, Any]

TIMEOUT_SECONDS = 15.0
PAGE = 500
CONNECTIONS_MAX = 32
LOG_BYTES_MAX = 1 << 20
NOT_FOUND, CONFLICT, GONE, UNPROCESSABLE, FORBIDDEN = 404, 409, 410, 422, 403
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"


class ApiProblem(HoraeError):
    """The server's refusal of a request, or (status 0) the failure to reach it."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}" if status else f"the API server cannot be reached: {message}")
        self.status = status
        self.reason = reason
        self.message = message

    @property
    def is_temporary(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status == 0 or self.status == 429 or self.status >= 500  # noqa: PLR1714


class Kind(NamedTuple):
    group: str  # "api/v1", "apis/batch/v1"
    plural: str

    def path(self, namespace: str | None = None, name: str = "", part: str = "") -> str:
        where = f"/namespaces/{namespace}" if namespace else ""
        return f"/{self.group}{where}/{self.plural}" + (f"/{name}" if name else "") + (f"/{part}" if part else "")


JOBS = Kind("apis/batch/v1", "jobs")
PODS = Kind("api/v1", "pods")
NODES = Kind("api/v1", "nodes")
NAMESPACES = Kind("api/v1", "namespaces")
EVENTS = Kind("api/v1", "events")


class Listed(NamedTuple):
    items: list[Json]
    version: str  # from which a watch continues


class KubernetesApi:
    """Safe to use from several threads."""

    def __init__(self, connection: Connection) -> None:
        self._client = httpx.Client(
            base_url=connection.url,
            verify=connection.context,
            auth=connection.auth,
            timeout=TIMEOUT_SECONDS,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=CONNECTIONS_MAX),
            headers={"User-Agent": "horae", "Accept": "application/json"},
            trust_env=False,
        )

    def close(self) -> None:
        self._client.close()

    def get(self, kind: Kind, namespace: str | None, name: str) -> Json:
        return self._ask("GET", kind.path(namespace, name))

    def list(self, kind: Kind, namespace: str | None = None, **selectors: str) -> Listed:
        """All objects, page by page; `labelSelector` and `fieldSelector` as the API has them."""
        items: list[Json] = []
        query: dict[str, str] = {**selectors, "limit": str(PAGE)}
        while True:
            page = self._ask("GET", kind.path(namespace), query=query)
            items += page["items"]
            following = page["metadata"].get("continue")
            if not following:
                return Listed(items, page["metadata"]["resourceVersion"])
            query["continue"] = following

    def create(self, kind: Kind, namespace: str | None, body: Json) -> Json:
        return self._ask("POST", kind.path(namespace), body=body)

    def patch(self, kind: Kind, namespace: str | None, name: str, body: Json, part: str = "") -> Json:
        """A merge patch. With `metadata.resourceVersion` in it, it fails with 409 if the object has changed since."""
        return self._ask("PATCH", kind.path(namespace, name, part), body=body, content_type=MERGE_PATCH)

    def merge_lists(self, kind: Kind, namespace: str | None, name: str, body: Json, part: str = "") -> Json:
        """A patch that adds to lists such as conditions, and replaces in them what has the same key."""
        return self._ask("PATCH", kind.path(namespace, name, part), body=body, content_type=STRATEGIC_PATCH)

    def bind(self, namespace: str, pod: str, binding: Json) -> None:
        self._ask("POST", PODS.path(namespace, pod, "binding"), body=binding)

    def delete(self, kind: Kind, namespace: str | None, name: str, options: Json | None = None) -> Json:
        return self._ask("DELETE", kind.path(namespace, name), body=options)

    def log_tail(self, namespace: str, pod: str, lines: int) -> str:
        query = {"tailLines": str(lines), "limitBytes": str(LOG_BYTES_MAX)}
        return self._send("GET", PODS.path(namespace, pod, "log"), query, None, "").text

    @contextmanager
    def watch(
        self, kind: Kind, version: str, timeout_seconds: float, namespace: str | None = None, **selectors: str
    ) -> Iterator[Iterator[Json]]:
        """The changes since a version, each with `type` and `object`, until the server ends the answer."""
        query = {
            **selectors,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(int(timeout_seconds)),
        }
        # A connection that is silent for longer than the server would be is broken.
        timeout = httpx.Timeout(TIMEOUT_SECONDS, read=timeout_seconds + TIMEOUT_SECONDS)
        try:
            with self._client.stream("GET", kind.path(namespace), params=query, timeout=timeout) as answer:
                if answer.status_code >= 400:
                    answer.read()
                    raise _problem(answer)
                yield (json.loads(line) for line in answer.iter_lines() if line)
        except httpx.HTTPError as error:
            raise ApiProblem(0, "Unreachable", str(error) or type(error).__name__) from None

    def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Json | None = None,
        content_type: str = "application/json",
    ) -> Json:
        answer = self._send(method, path, query, body, content_type)
        found: Json = answer.json()
        return found

    def _send(
        self, method: str, path: str, query: Mapping[str, str] | None, body: Json | None, content_type: str
    ) -> httpx.Response:
        content = None if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"Content-Type": content_type}
        try:
            answer = self._client.request(method, path, params=query, content=content, headers=headers)
        except httpx.HTTPError as error:
            raise ApiProblem(0, "Unreachable", str(error) or type(error).__name__) from None
        if answer.status_code >= 400:
            raise _problem(answer)
        return answer


def _problem(answer: httpx.Response) -> ApiProblem:
    try:
        status = answer.json()
        return ApiProblem(answer.status_code, str(status.get("reason", "")), str(status.get("message", "")))
    except ValueError:
        return ApiProblem(answer.status_code, answer.reason_phrase, answer.text[:200])
