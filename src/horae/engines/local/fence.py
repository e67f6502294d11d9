"""The fence: of several services on one folder only the latest may start and stop jobs.

Each service has a term, a number that grows. The highest one is on record, together with the process that has it;
every command is carried out under a shared lock after checking that the record is still its own. A new service writes
its record under the exclusive lock, so no command of a former one is half done or comes later. A former service that
was stopped in the middle of a command is killed: it could never go on.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from horae.engines.local import processes
from horae.engines.local.processes import ProcessId
from horae.engines.local.records import read_record, reserve, write_record
from horae.model.errors import HoraeError

_PATIENCE_SECONDS = 2.0  # for a former service that carries out a command
_DEATH_SECONDS_MAX = 30.0  # for one that was killed
_POLL_SECONDS = 0.02


class Fenced(HoraeError):
    """Another service has taken over; this one may not start or stop jobs."""


@dataclass(frozen=True, slots=True)
class FenceRecord:
    term: int
    nonce: str  # distinguishes services of equal terms
    boot_id: str
    process: ProcessId


def term_on_record(folder: Path) -> int:
    """The highest term that has used an engine's folder; 0 for a new one."""
    found = read_record(FenceRecord, folder / "fence")
    return 0 if found is None else found.term


class Fence:
    def __init__(self, folder: Path, term: int, patience_seconds: float = _PATIENCE_SECONDS) -> None:
        """Takes over the folder; raises Fenced if a service of a higher term has it."""
        self._record = folder / "fence"
        self._file = os.open(folder / "fence.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._lock_exclusively(patience_seconds)
            self._own = self._take_over(term)
        except BaseException:
            os.close(self._file)
            raise
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keeps other services from taking over meanwhile; raises Fenced if one has done so before."""
        fcntl.flock(self._file, fcntl.LOCK_SH)
        try:
            found = read_record(FenceRecord, self._record)
            if found != self._own:
                term = "unknown" if found is None else found.term
                raise Fenced(f"a service of term {term} has taken over from the one of term {self._own.term}")
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _take_over(self, term: int) -> FenceRecord:
        former = read_record(FenceRecord, self._record)
        if former is not None and former.term > term:
            raise Fenced(f"term {former.term} is on record, which is higher than {term}")
        process = processes.identify(os.getpid())
        assert process is not None, "/proc must be mounted"
        own = FenceRecord(term, uuid4().hex, processes.boot_id(), process)
        write_record(self._record, own)
        with suppress(OSError):
            reserve(self._record)  # for the next service, which must start even if the disk is full by then
        return own

    def _lock_exclusively(self, patience_seconds: float) -> None:
        if self._try_until(time.monotonic() + patience_seconds):
            return
        former = read_record(FenceRecord, self._record)
        if former is not None and former.boot_id == processes.boot_id() and former.process.pid != os.getpid():
            processes.send(former.process, signal.SIGKILL)
            if self._try_until(time.monotonic() + _DEATH_SECONDS_MAX):
                return
        raise Fenced(f"{self._record}.lock is held by a process that is not the former service; end that process")

    def _try_until(self, give_up_at: float) -> bool:
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if time.monotonic() >= give_up_at:
                    return False
                time.sleep(_POLL_SECONDS)
