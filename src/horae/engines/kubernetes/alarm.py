"""A wait that other threads, signal handlers and readable descriptors interrupt."""

from __future__ import annotations

import os
import selectors
from contextlib import suppress

_SLEEP_SECONDS_MAX = 60.0


class Alarm:
    def __init__(self) -> None:
        self.is_woken = False  # by `wake` or by a descriptor that is watched
        self._read, self._write = os.pipe()
        for descriptor in (self._read, self._write):
            os.set_blocking(descriptor, False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._read, selectors.EVENT_READ)

    def close(self) -> None:
        self._selector.close()
        for descriptor in (self._read, self._write) if self._write >= 0 else ():
            os.close(descriptor)
        self._read = self._write = -1

    def wake(self) -> None:
        self.is_woken = True
        self.ring()

    def ring(self) -> None:
        """Ends the present wait, or the next one."""
        with suppress(OSError):  # full: it is awake anyway; closed: this thread has outlived the engine
            if self._write >= 0:
                os.write(self._write, b"\0")

    def watch(self, descriptor: int) -> None:
        self._selector.register(descriptor, selectors.EVENT_READ)

    def wait(self, seconds: float) -> None:
        for key, _ in self._selector.select(max(min(seconds, _SLEEP_SECONDS_MAX), 0.0)):
            if key.fd == self._read:
                with suppress(BlockingIOError):
                    os.read(self._read, 1 << 16)
            else:
                self.is_woken = True
