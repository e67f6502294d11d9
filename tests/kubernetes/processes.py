"""A program that a test runs, with its log, which can be killed and paused and ends with the test."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from patience import HANG_SECONDS

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1
_LAST_LINES = 15


class ProcessEnded(RuntimeError):
    """A program has ended by itself; the message names its log and has the last lines of it."""


class Process:
    """Is killed by the kernel when the thread that has started it ends, however the test ends."""

    def __init__(self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None):
        self.name = name
        self.log = log
        self._command = tuple(command)
        self._environment = None if environment is None else dict(environment)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError(f"{self.name} does not run: start it first")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """One that is paused continues, one that runs is left alone."""
        if self.is_running:
            self.resume()
            return
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                preexec_fn=_end_with_parent,  # noqa: PLW1509 - it only makes system calls
            )

    def kill(self) -> None:
        """Returns when it has ended, also if it was paused."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def interrupt(self) -> None:
        """Ends it with SIGINT, as Ctrl+C does, and returns when it has ended."""
        if self._process is not None:
            self.resume()
            self._process.send_signal(signal.SIGINT)
            self._process.wait(HANG_SECONDS)
            self._process = None

    def pause(self) -> None:
        """Returns when it stands still."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def resume(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def check(self) -> None:
        """Raises ProcessEnded if it has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            raise ProcessEnded(f"{self.name} has ended with {self._process.returncode}: read {self.log}{self._tail()}")

    def _tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-_LAST_LINES:]
        return "".join(f"\n    {line}" for line in lines)


def _end_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # what a shell runs in the background ignores it, and so would this
