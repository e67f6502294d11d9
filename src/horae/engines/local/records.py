"""The records of leases: files that are replaced as a whole and survive a crash, from which a service that starts
learns what runs, what has ended, and what must not start."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from horae.engines.local.job_files import JobFolder, LeaseFolder
from horae.engines.local.processes import ProcessId, boot_id
from horae.engines.local.untrusted_files import read_json
from horae.model.cluster import Gpu
from horae.model.events import Ending, JobEnded
from horae.model.serialization import Plain, from_plain, to_plain
from horae.model.shapes import Shape

_RESERVED_BYTES = 4096
_BYTES_MAX = 64 << 20  # a specification may be long
Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class StartRecord:
    """A lease that was started, and how its supervisor can be found."""

    job_id: str
    epoch: int
    gpus: tuple[Gpu, ...]
    cells: tuple[str, ...]
    shape: Shape
    steps_at_start: float
    steps_total: float | None
    grace_seconds: float
    boot_id: str
    supervisor: ProcessId
    started_at: float  # Unix time
    cgroup: str = ""  # "": none
    specification: Plain = None


@dataclass(frozen=True, slots=True)
class StopRecord:
    """A lease was told to stop. The supervisor reads it: this must stay the only field."""

    grace_seconds: float


@dataclass(frozen=True, slots=True)
class ExitRecord:
    """How a job ended, from its supervisor."""

    status: int | None  # None: it was killed by a signal, or never ran
    signal: int | None
    told: bool  # to stop, before it ended
    error: str  # why it could not start
    ended_at: int  # Unix time
    ended_boot_seconds: float | None = None  # since the boot of the start, including suspension
    last_line: str = ""
    dropped_bytes: int = 0  # of output that could not be written
    never_started: bool = False
    is_left: bool = False  # no program was attached to its terminal for too long


@dataclass(frozen=True, slots=True)
class EndMoment:
    """When a lease ended, on clocks that run on while the service is down."""

    boot_id: str
    boot_seconds: float  # since that boot, including suspension
    wall: float

    def seconds_ago(self) -> float:
        """How long ago that was. What belongs to another boot had ended when this one began; how long before, only the
        wall clock can tell."""
        since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
        if self.boot_id == boot_id():
            return max(since_boot - self.boot_seconds, 0.0)
        return max(since_boot, time.time() - self.wall)


@dataclass(frozen=True, slots=True)
class EndRecord:
    """What was reported as the end of a lease; also a tombstone, which is the end of a lease that never starts."""

    job_id: str
    epoch: int
    ending: Ending
    steps: float
    message: str = ""
    ended: EndMoment | None = None  # None: when it was found, or refused

    def event(self, now: float) -> JobEnded:
        """Its report: of the time when the job left its GPUs, which a service that was down learns late."""
        at = now if self.ended is None else max(now - self.ended.seconds_ago(), 0.0)
        return JobEnded(at, self.job_id, self.epoch, self.ending, self.steps, self.message)


def write_record(path: Path, record: object, *, durable: bool = True) -> None:
    """Replaces a record by rename. Space that was reserved for it is used."""
    content = json.dumps(to_plain(record)).encode()
    new = path.with_name(path.name + ".new")
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        left = content.ljust(os.fstat(file).st_size)
        while left:
            left = left[os.write(file, left) :]
        if durable:
            os.fsync(file)
    finally:
        os.close(file)
    new.rename(path)
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def reserve(path: Path) -> None:
    """Reserves space for a record, so that it can be written when the disk is full."""
    new = path.with_name(path.name + ".new")
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, b" " * _RESERVED_BYTES)
    finally:
        os.close(file)


def read_record(kind: type[Record], path: Path) -> Record | None:
    """A record, or None if there is none that can be read."""
    plain = read_json(path, _BYTES_MAX)
    if plain is None:
        return None
    try:
        found: Record = from_plain(kind, plain)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return found


def read_sessions(lease: LeaseFolder) -> list[ProcessId]:
    """The leaders of the sessions of a job; each session has the number of its leader."""
    found: list[ProcessId] = []
    with suppress(ValueError, TypeError):
        found = [ProcessId(int(pid), int(ticks)) for pid, ticks in read_json(lease.sessions) or ()]
    return found


@dataclass(frozen=True, slots=True)
class History:
    """What is on record about a job that does not run."""

    ended: EndRecord | None  # its latest lease
    tombstone: EndRecord | None  # the latest lease that must not start


def history(job: JobFolder) -> History:
    tombstone = None
    for epoch in reversed(job.epochs()):
        lease = job.lease(epoch)
        tombstone = tombstone or read_record(EndRecord, lease.tombstone)
        ended = read_record(EndRecord, lease.ended)
        if ended is not None:
            return History(ended, tombstone)  # what is older does not matter
    return History(None, tombstone)
