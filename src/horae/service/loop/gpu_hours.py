"""Sums up GPU-seconds by hour and type, for a view over time; written once per minute."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from math import inf
from operator import add
from typing import Any

from sqlalchemy import Connection, delete, func
from sqlalchemy.dialects import postgresql, sqlite

from horae.service.store.schema import gpu_hours

HOUR = 3600.0
KEPT_SECONDS = 90 * 86_400.0
WRITE_SECONDS = 60.0
KINDS = ("held", "idle", "unusable")


class GpuHours:
    """What is not in the table yet."""

    def __init__(self) -> None:
        self._sums: defaultdict[tuple[float, str], tuple[float, float, float]] = defaultdict(lambda: (0.0, 0.0, 0.0))
        self._unused: dict[tuple[float, str], float] = {}
        self._now = self._written_at = -inf
        self._writes_at: float | None = None  # the time of a write that is not known to be durable yet

    def add(self, now: float, seconds: Mapping[tuple[str, str], float]) -> None:
        """`seconds`: GPU-seconds by GPU type and kind."""
        self._now = now
        for (gpu_type, kind), each in seconds.items():
            key = (now // HOUR * HOUR, gpu_type)
            added = (each if kind == name else 0.0 for name in KINDS)
            self._sums[key] = tuple(map(add, self._sums[key], added))  # three of them

    def add_unused(self, now: float, gpu_type: str, seconds: float) -> None:
        key = (now // HOUR * HOUR, gpu_type)
        self._unused[key] = self._unused.get(key, 0.0) + seconds

    def write(self, connection: Connection) -> None:
        """Adds the sums to the table; they are forgotten by `written`, once that is durable."""
        now = self._now
        if not (self._sums or self._unused) or now < self._written_at + WRITE_SECONDS:
            return
        upsert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
        for key in sorted(self._sums.keys() | self._unused.keys()):
            values = dict(zip(KINDS, self._sums.get(key, (0.0, 0.0, 0.0)), strict=True))
            new = upsert(gpu_hours).values(at=key[0], gpu_type=key[1], **values, unused=self._unused.get(key))
            sums: dict[str, Any] = {name: gpu_hours.c[name] + new.excluded[name] for name in KINDS}
            if key in self._unused:
                sums["unused"] = func.coalesce(gpu_hours.c.unused, 0.0) + new.excluded.unused
            connection.execute(new.on_conflict_do_update(index_elements=["at", "gpu_type"], set_=sums))
        if now // HOUR != self._written_at // HOUR:
            connection.execute(delete(gpu_hours).where(gpu_hours.c.at < now - KEPT_SECONDS))
        self._writes_at = now

    def written(self) -> None:
        if self._writes_at is not None:
            self._written_at, self._writes_at = self._writes_at, None
            self._sums.clear()
            self._unused.clear()
