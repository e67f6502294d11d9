"""The API server as the simulated kubelets see it: requests that wait for it, and lists that are kept up to date."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import httpx

from kubernetes.client import STRATEGIC, Json, connection

Apply = Callable[[Sequence[Json], Sequence[Json]], None]  # what is gone, what is there or has changed
_TRANSIENT = (httpx.codes.UNAUTHORIZED, httpx.codes.TOO_MANY_REQUESTS)  # the first: it has just started
_EXPECTED = (httpx.codes.NOT_FOUND, httpx.codes.CONFLICT)  # the object is gone, or another has its name
_AT_A_TIME = 32
_RETRY_SECONDS = 0.2
_WATCH_SECONDS = 300
_SILENCE_SECONDS = 90.0  # bookmarks come every minute


class Api:
    def __init__(self, kubeconfig: Path) -> None:
        self._http = httpx.AsyncClient(**connection(kubeconfig), timeout=httpx.Timeout(30.0, pool=None))
        self._turns = asyncio.Semaphore(_AT_A_TIME)  # the queue of httpx takes quadratic time

    async def patch(self, path: str, body: Json) -> bool:
        """Whether the object is still there; waits for a server that is down."""
        return await self._send("PATCH", path, body, STRATEGIC)

    async def delete(self, path: str, uid: str) -> bool:
        """Removes an object without grace."""
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        return await self._send("DELETE", path, options, "application/json")

    async def follow(self, path: str, apply: Apply, **selectors: str) -> None:
        """Applies all there is, then all changes, for ever.

        Whenever a watch ends, whatever the reason, everything is listed anew: a server that was set back to an older
        state would continue a watch from a version of its future, and keep all changes until then to itself.
        """
        known: dict[str, Json] = {}
        while True:
            try:
                listed = await self._get(path, selectors)
                found = {item["metadata"]["uid"]: item for item in listed["items"]}
                apply([known[uid] for uid in known.keys() - found.keys()], list(found.values()))
                known = found
                async for gone, item in self._watch(path, listed["metadata"]["resourceVersion"], selectors):
                    uid = item["metadata"]["uid"]
                    if gone:
                        known.pop(uid, None)
                    else:
                        known[uid] = item
                    apply([item] * gone, [item] * (not gone))
            except (httpx.HTTPError, json.JSONDecodeError):
                await asyncio.sleep(_RETRY_SECONDS)

    async def _get(self, path: str, params: dict[str, str]) -> Json:
        answer = await self._http.get(path, params=params)
        answer.raise_for_status()
        tree: Json = answer.json()
        return tree

    async def _watch(self, path: str, version: str, selectors: dict[str, str]) -> AsyncIterator[tuple[bool, Json]]:
        params: dict[str, Any] = {
            **selectors,
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": _WATCH_SECONDS,
        }
        timeout = httpx.Timeout(30.0, read=_SILENCE_SECONDS, pool=None)
        async with self._http.stream("GET", path, params=params, timeout=timeout) as answer:
            answer.raise_for_status()
            async for line in answer.aiter_lines():
                event = json.loads(line)
                if event["type"] == "ERROR":  # the version is too old, for instance
                    return
                if event["type"] != "BOOKMARK":
                    yield event["type"] == "DELETED", event["object"]

    async def _send(self, method: str, path: str, body: Json, kind: str) -> bool:
        while True:
            try:
                async with self._turns:
                    answer = await self._http.request(
                        method, path, content=json.dumps(body), headers={"Content-Type": kind}
                    )
            except httpx.TransportError:
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            if answer.is_success:
                return True
            if answer.status_code in _EXPECTED:
                return False
            if not answer.is_server_error and answer.status_code not in _TRANSIENT:
                print(f"{method} {path}: {answer.status_code} {answer.text}", file=sys.stderr, flush=True)
                return False
            await asyncio.sleep(_RETRY_SECONDS)
