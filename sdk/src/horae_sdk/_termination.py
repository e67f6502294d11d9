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
        self._previous: Any = None
        self._installed = False
        self._forking = threading.local()

    def install(self) -> None:
        """Handle SIGTERM from now on; does nothing outside of the main thread, where Python allows no handlers."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._previous = signal.signal(signal.SIGTERM, self._handle)
        self._installed = True
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self._before_fork, after_in_parent=self._after_fork, after_in_child=self._after_fork_in_child
            )

    def restore(self) -> None:
        """Handle SIGTERM as before, unless another handler was installed since."""
        in_main_thread = threading.current_thread() is threading.main_thread()
        if self._installed and in_main_thread and signal.getsignal(signal.SIGTERM) == self._handle:
            signal.signal(signal.SIGTERM, signal.SIG_DFL if self._previous is None else self._previous)
        self._installed = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        signal.signal(number, signal.SIG_DFL)
        if callable(self._previous):
            # Leaving at once would lose the work since the last checkpoint: the run leaves after the next.
            with contextlib.suppress(SystemExit):
                self._previous(number, frame)

    # A forked process, such as a worker that loads data, must end when its parent terminates it. Until it has given the
    # handler back the signal is blocked: Python forgets signals that arrive while it forks.

    def _before_fork(self) -> None:
        if self._installed:
            self._forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])

    def _after_fork_in_child(self) -> None:
        self.restore()
        self._after_fork()

    def _after_fork(self) -> None:
        mask = self._forking.__dict__.pop("mask", None)
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
