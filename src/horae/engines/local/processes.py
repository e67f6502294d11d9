"""Processes of this machine, identified so that a reused process id is not mistaken for them."""

from __future__ import annotations

import os
import pwd
import signal
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple


class ProcessId(NamedTuple):
    """A process of the current boot: the kernel reuses ids, but not together with the start time."""

    pid: int
    start_ticks: int  # since boot


class ProcessStat(NamedTuple):
    process: ProcessId
    state: str
    parent: int
    session: int


@cache
def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def stat_of(pid: int) -> ProcessStat | None:
    """What the kernel says about a process; None if there is none of this id."""
    try:
        # The name of the program may contain anything, even a parenthesis.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    if len(fields) < 20:
        return None
    return ProcessStat(ProcessId(pid, int(fields[19])), fields[0].decode(), int(fields[1]), int(fields[3]))


def identify(pid: int) -> ProcessId | None:
    found = stat_of(pid)
    return None if found is None else found.process


def is_running(process: ProcessId) -> bool:
    """Whether the process still runs; one that has ended and is not reaped does not."""
    found = stat_of(process.pid)
    return found is not None and found.process == process and found.state not in "ZX"


def open_process(process: ProcessId) -> int | None:
    """A descriptor of a running process that becomes readable when it ends; None if it has ended, or there can be no
    descriptor."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:  # it has ended, the kernel is old, or there are too many open files
        return None
    if is_running(process):  # checked afterwards: the descriptor cannot change its process
        return descriptor
    os.close(descriptor)
    return None


def send(process: ProcessId, *numbers: signal.Signals) -> None:
    """Sends signals to this process, and to no other that has its id by now."""
    descriptor = open_process(process)
    try:
        for number in numbers:
            with suppress(ProcessLookupError, PermissionError):
                if descriptor is not None:
                    signal.pidfd_send_signal(descriptor, number)
                elif is_running(process):
                    os.kill(process.pid, number)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def all_pids() -> Iterator[int]:
    for each in Path("/proc").iterdir():
        if each.name.isdecimal():
            yield int(each.name)


def environment_of(pid: int) -> bytes:
    """The environment with which a process was started, each variable between zero bytes; empty if not readable."""
    try:
        return b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def describe(pid: int) -> str:
    """A process in words: its id, its program and its user."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
        owner = user_name(Path(f"/proc/{pid}").stat().st_uid)
    except OSError:
        return f"process {pid}"
    return f"process {pid} ({name}) of {owner}"


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
