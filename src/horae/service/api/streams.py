"""Bounds the number of answers that stay open."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TypeVar

from horae.service.api.problems import Refused
from horae.service.api.services import Services

T = TypeVar("T")


def counted(all_: Services, stream: AsyncIterator[T]) -> AsyncIterator[T]:
    """The stream, counted while it is open; raises if too many are."""
    memory = all_.memory
    if memory.get("streams", 0) >= all_.context.streams_max:
        raise Refused(429, "too many streams are open", remedy="close some", headers={"Retry-After": "10"})
    memory["streams"] = memory.get("streams", 0) + 1

    async def inner() -> AsyncIterator[T]:
        try:
            async for item in stream:
                yield item
        finally:
            memory["streams"] -= 1

    return inner()
