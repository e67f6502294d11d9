"""Loops that must end: each has a bound, and one that reaches it is a typed error instead of a process that hangs."""

from __future__ import annotations

from collections.abc import Iterator

from horae.model.errors import LimitReached


def bounded(limit: int, what: str) -> Iterator[int]:
    """Count up to the limit; a loop that is still running then raises, naming what it was doing."""
    yield from range(limit)
    raise LimitReached(f"{what} did not end within {limit} steps")
