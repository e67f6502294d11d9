"""Room on the disk: submissions are refused before it is full, so that accepted jobs and their reports go on."""

from __future__ import annotations

import os
import time
from pathlib import Path

from horae.service.api.problems import Refused

BYTES_MIN = 16 << 20  # kept for what follows from jobs that were accepted: events, reports, the engine's records
BYTES_PER_JOB = 8 << 10
LOOK_SECONDS = 0.25  # the disk is asked at most this often; jobs that are accepted meanwhile are counted


class Room:
    def __init__(self, state: Path) -> None:
        self._state = state
        self._looked_at, self._bytes = 0.0, 0

    def require(self, jobs: int) -> None:
        """Refuses so many new jobs if the disk of the state folder has no room for them."""
        now = time.monotonic()
        if not self._looked_at <= now < self._looked_at + LOOK_SECONDS:
            found = os.statvfs(self._state)
            self._looked_at, self._bytes = now, found.f_bavail * found.f_frsize
        if self._bytes < BYTES_MIN + jobs * BYTES_PER_JOB:
            self._looked_at = 0.0  # there may be room by the next request
            remedy = f"make room on the disk of {self._state}, or tell the operator"
            raise Refused(507, "the disk of the service is full; nothing was changed", remedy=remedy)
        self._bytes -= jobs * BYTES_PER_JOB
