"""The output of jobs of the local engine: all leases of a job write to one file, and there is the one before it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from horae.engines.local.job_files import JobFolder

TAIL_BYTES = 64 << 10
TAIL_BYTES_MAX = 16 << 20
READ_BYTES = 64 << 10


def output_path(state: Path, job_id: str) -> Path:
    return JobFolder.of(state / "engine", job_id).output


def open_output(path: Path) -> BinaryIO | None:
    """The file if it is one: the job's user may have put a link or a pipe in its place."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        return None
    return file


class JobOutput:
    """The output of a job as one sequence of bytes, from where the older file begins."""

    def __init__(self, state: Path, job_id: str) -> None:
        self._newer = output_path(state, job_id)
        self._older = self._newer.with_name(self._newer.name + ".1")

    def size(self) -> int:
        return sum(_size(path) for path in (self._older, self._newer))

    def read(self, offset: int, bytes_max: int) -> bytes:
        data = b""
        for path in (self._older, self._newer):
            size = _size(path)
            if offset < size and len(data) < bytes_max:
                file = open_output(path)
                if file is not None:
                    with file:
                        file.seek(offset)
                        data += file.read(bytes_max - len(data))
            offset = max(0, offset - size)
        return data


def _size(path: Path) -> int:
    try:
        found = path.lstat()
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


class Follower:
    """Reads what is appended to a job's output, also when a new file is begun."""

    def __init__(self, state: Path, job_id: str, offset: int) -> None:
        self._path = output_path(state, job_id)
        older = _size(self._path.with_name(self._path.name + ".1"))
        self._file: BinaryIO | None = None
        self._older = self._path.with_name(self._path.name + ".1") if offset < older else None
        self._position = offset if offset < older else offset - older

    def read(self) -> bytes:
        """The next bytes, none if all files of the job have been read to their end."""
        while True:
            if self._file is None:
                self._file = open_output(self._older or self._path)
                if self._file is None:
                    return b""
                self._file.seek(self._position)
            is_replaced = self._is_replaced()  # asked first: nothing is appended to a file after that
            data = self._file.read(READ_BYTES)
            if data or not is_replaced:
                return data
            self.close()
            self._older, self._position = None, 0

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _is_replaced(self) -> bool:
        """Whether a new file was begun since this one was opened."""
        assert self._file is not None
        try:
            return self._path.lstat().st_ino != os.fstat(self._file.fileno()).st_ino
        except OSError:
            return False
