"""Questions to the process that runs the scheduler: one JSON line each way over a Unix socket."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

from horae.service.unix_socket import short_address

ANSWER_BYTES_MAX = 64 << 20
PAUSE_SECONDS = 1.0  # after a question without an answer, those that can do without are not asked


class LoopAway(Exception):
    """The loop does not answer."""


class LoopClient:
    def __init__(self, path: Path, timeout_seconds: float = 3.0) -> None:
        self._path = path
        self._timeout_seconds = timeout_seconds
        self._away_until = 0.0

    async def ask(self, question: dict[str, Any], timeout_seconds: float | None = None) -> dict[str, Any]:
        """The loop's answer; raises `LoopAway` if there is none in time."""
        limit = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        try:
            answer = await asyncio.wait_for(self._exchange(question), limit)
        except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError) as error:
            self._away_until = time.monotonic() + PAUSE_SECONDS
            raise LoopAway(str(error) or type(error).__name__) from None
        if not isinstance(answer, dict) or "error" in answer:
            raise LoopAway("the loop could not answer")
        return answer

    async def ask_if_quick(self, question: dict[str, Any], timeout_seconds: float = 0.5) -> dict[str, Any]:
        """The loop's answer, or nothing: for lists, which are useful without it."""
        if time.monotonic() < self._away_until:
            return {}
        try:
            return await self.ask(question, timeout_seconds)
        except LoopAway:
            return {}

    async def _exchange(self, question: dict[str, Any]) -> Any:
        with short_address(self._path) as address:
            reader, writer = await asyncio.open_unix_connection(address, limit=ANSWER_BYTES_MAX)
        try:
            writer.write(json.dumps(question).encode() + b"\n")
            await writer.drain()
            line = await reader.readline()
            if not line.endswith(b"\n"):
                raise ValueError("the answer is incomplete")
            return json.loads(line)
        finally:
            writer.close()
