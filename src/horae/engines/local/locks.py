"""Locks, one per GPU and one per job, that are held by open descriptors.

The service takes them, passes the descriptors to supervisor and job, and closes its own. A lock is therefore free only
when supervisor and job are gone, and never because the service is.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from horae.engines.local.job_files import folder_name
from horae.engines.local.processes import all_pids, describe
from horae.model.cluster import Gpu
from horae.model.errors import HoraeError

_DESCRIPTOR_MIN = 100  # scripts use small numbers for their own files, which would close a lock


class LockTaken(HoraeError):
    """Another process holds a lock. The message may be shown to any user; `holder` names the process, which may be
    another user's, for operators."""

    def __init__(self, what: str, holder: str) -> None:
        super().__init__(f"{what} is still in use by another process")
        self.what = what
        self.holder = holder


class Locks:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def of_gpu(self, gpu: Gpu) -> Path:
        return self._folder / f"gpu-{folder_name(str(gpu))}"

    def of_job(self, job_id: str) -> Path:
        return self._folder / f"job-{folder_name(job_id)}"

    def take_gpu(self, gpu: Gpu) -> int:
        return _take(self.of_gpu(gpu), f"GPU {gpu}")

    def take_job(self, job_id: str) -> int:
        return _take(self.of_job(job_id), f"job {job_id}")

    def are_free(self, job_id: str, gpus: Iterable[Gpu]) -> bool:
        """Whether nothing holds the lock of this job, nor that of any of these GPUs."""
        return is_free(self.of_job(job_id)) and all(is_free(self.of_gpu(gpu)) for gpu in gpus)


def _take(path: Path, what: str) -> int:
    """A descriptor that holds the lock; raises LockTaken if another one does."""
    opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        file = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, _DESCRIPTOR_MIN)
    finally:
        os.close(opened)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise LockTaken(what, held_by(path)) from None
    return file


def is_free(path: Path) -> bool:
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(file)
    return True


def held_by(path: Path) -> str:
    """What holds a lock, in words."""
    return "held by " + (", ".join(describe(pid) for pid in holders(path)) or "a process that cannot be seen")


def holders(path: Path) -> list[int]:
    """The processes with a descriptor that holds this lock, as far as this user may see them."""
    try:
        inode = path.stat().st_ino
    except OSError:
        return []
    return [pid for pid in all_pids() if _holds(pid, str(path), inode)]


def _holds(pid: int, path: str, inode: int) -> bool:
    with suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if os.readlink(link) == path:  # noqa: PTH115  as a string, because a path would be many times slower
                    # Others may have the file open to see whether it is locked.
                    information = Path(f"/proc/{pid}/fdinfo/{link.name}").read_text()
                    if any("FLOCK" in line and f":{inode} " in line for line in information.splitlines()):
                        return True
    return False
