"""SIGTERM means "save and leave": the first one is remembered, a second one ends the process."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from types import FrameType
from typing import Any


class Termination:
    """Whether this process was asked to leave.

    The handler only sets a flag, because it may interrupt any code, also code that holds a lock.
    """

    def __init__(self) -> None:
        self.asked = False
        self._process = os.getpid()
        self._previous: Any = None
        self._installed = False

    def install(self) -> None:
        """Handle SIGTERM from now on; does nothing outside of the main thread, where Python allows no handlers."""
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGTERM, self._handle)
            self._installed = True

    def restore(self) -> None:
        """Handle SIGTERM as before, unless another handler was installed since."""
        in_main_thread = threading.current_thread() is threading.main_thread()
        if self._installed and in_main_thread and signal.getsignal(signal.SIGTERM) == self._handle:
            signal.signal(signal.SIGTERM, signal.SIG_DFL if self._previous is None else self._previous)
        self._installed = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            self._handle_in_child(number)
            return
        self.asked = True
        signal.signal(number, signal.SIG_DFL)
        if callable(self._previous):
            # Leaving at once would lose the work since the last checkpoint: the run leaves after the next.
            with contextlib.suppress(SystemExit):
                self._previous(number, frame)

    def _handle_in_child(self, number: int) -> None:
        """A forked process, such as a worker that loads data, ends as if it had never inherited the handler."""
        signal.signal(number, self._previous if callable(self._previous) else signal.SIG_DFL)
        os.kill(os.getpid(), number)
