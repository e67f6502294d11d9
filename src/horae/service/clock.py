"""The time of the log: seconds since its first event, by a clock that only runs forward.

It continues from the last logged time by the clock that counts since boot, including suspension. The wall clock is for
display only, so that a wall clock that jumps changes no decision.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class ClockReading(NamedTuple):
    """The time of the log beside the other clocks at the same moment."""

    at: float
    boot_id: str
    boot_seconds: float
    wall: float


def boot_id() -> str:
    """Identifies this boot of the machine; processes and locks of another one are gone."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def boot_seconds() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True)
class Clocks:
    """The clocks of the machine; tests replace them."""

    boot_id: Callable[[], str] = boot_id
    boot_seconds: Callable[[], float] = boot_seconds
    wall: Callable[[], float] = time.time


class LogClock:
    def __init__(self, last: ClockReading | None = None, clocks: Clocks = Clocks()) -> None:  # noqa: B008  frozen
        self._clocks = clocks
        self._boot_id = clocks.boot_id()
        self._started = clocks.boot_seconds()
        self._at = 0.0 if last is None else last.at + self._elapsed(last)

    def _elapsed(self, last: ClockReading) -> float:
        """The time since the last reading. After a reboot it is that since the boot, or on another machine, which may
        have been up for long before, that by the wall clocks, if that is less."""
        if last.boot_id == self._boot_id:
            return max(self._started - last.boot_seconds, 0.0)
        return min(self._started, max(self._clocks.wall() - last.wall, 0.0))

    def now(self) -> float:
        return self._at + max(self._clocks.boot_seconds() - self._started, 0.0)

    def read(self) -> ClockReading:
        return ClockReading(self.now(), self._boot_id, self._clocks.boot_seconds(), self._clocks.wall())
