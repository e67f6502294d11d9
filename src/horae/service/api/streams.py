"""Bounds the number of answers that stay open, of each user and of all together."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import TypeVar

from horae.service.api.identity import Identity
from horae.service.api.problems import Refused
from horae.service.api.services import Services

T = TypeVar("T")


def counted(all_: Services, who: Identity, stream: AsyncIterator[T]) -> AsyncIterator[T]:
    """The stream, counted while it is open; raises if too many are.

    It counts from its first item on: that of a client which has left before is never asked for one.
    """
    is_open: Counter[tuple[str, str]] = all_.memory.setdefault("streams", Counter())  # by tenant and user
    key = who.tenant, who.user
    for number, limit, whose in (
        (is_open[key], all_.context.streams_per_user_max, "of yours "),
        (is_open.total(), all_.context.streams_max, ""),
    ):
        if number >= limit:
            detail = f"{number} streams {whose}are open, and {limit} may be"
            raise Refused(429, detail, remedy="close some", headers={"Retry-After": "10"})

    async def inner() -> AsyncIterator[T]:
        is_open[key] += 1
        try:
            async for item in stream:
                yield item
        finally:
            is_open[key] -= 1
            if not is_open[key]:
                del is_open[key]

    return inner()
