"""How the time of the log relates to the wall clock: it changes when the machine was off, or its clock was set."""

from __future__ import annotations

import json
from math import inf
from typing import NamedTuple

from sqlalchemy import Connection

from horae.service.clock import ClockReading
from horae.service.store.log import get_meta, set_meta

DRIFT_SECONDS = 2.0  # smaller changes of the wall clock are not recorded
KEPT = 1000
_KEY = "offsets"


class Stretch(NamedTuple):
    """From a time of the log on, the wall clock was so much ahead of it."""

    begins_at: float
    offset: float


Stretches = tuple[Stretch, ...]  # in order


def read_offsets(connection: Connection) -> Stretches:
    return tuple(Stretch(*each) for each in json.loads(get_meta(connection, _KEY) or "[]"))


class Offsets:
    """Records changes of the offset, for the loop."""

    def __init__(self, connection: Connection) -> None:
        self._known = self._new = read_offsets(connection)

    def write(self, connection: Connection, clock: ClockReading) -> None:
        """Adds a stretch as part of a transaction if the wall clock has jumped; `written` once that is durable."""
        offset = clock.wall - clock.at
        if self._known and abs(offset - self._known[-1].offset) <= DRIFT_SECONDS:
            return
        self._new = (*self._known, Stretch(clock.at if self._known else 0.0, offset))[-KEPT:]
        set_meta(connection, _KEY, json.dumps(self._new))

    def written(self) -> None:
        self._known = self._new


def to_unix(at: float, stretches: Stretches) -> float:
    for begins_at, offset in reversed(stretches):
        if at >= begins_at:
            return at + offset
    return at + (stretches[0].offset if stretches else 0.0)


def to_log(unix: float, stretches: Stretches) -> float:
    """The time of the log at a Unix time; while the log's clock stood still, the time at which it did."""
    ends_at = inf
    for begins_at, offset in reversed(stretches):
        if unix - offset >= begins_at:
            return min(unix - offset, ends_at)
        ends_at = begins_at
    return unix - (stretches[0].offset if stretches else 0.0)
