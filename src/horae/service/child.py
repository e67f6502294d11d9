"""Ties a process of the service to the one that has started it."""

from __future__ import annotations

import ctypes
import os
import signal

STARTED_BY = "HORAE_STARTED_BY"  # the number of the process that has started this one
_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Lets the kernel send SIGTERM to this process when its parent ends, also if that is killed."""
    _tie()
    if os.getppid() == 1:  # it has ended already
        os.kill(os.getpid(), signal.SIGTERM)


def end_with_starter() -> None:
    """The same for a process whose starter may itself be process 1, as in a container, and has told it its number."""
    end_with(int(os.environ.pop(STARTED_BY, os.getppid())))


def end_with(parent: int) -> None:
    """The same for a process that is still to become another program, whose parent is this one."""
    _tie()
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def _tie() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
