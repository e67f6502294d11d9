"""The output of jobs of the local engine, as one sequence of bytes from the first that a job has written.

All leases of a job write to one file. When it is full, it is renamed to `output.log.POSITION`, where the position is
that of its first byte, and another one is begun; the one before it is deleted. Positions therefore never change, and a
reader that was slower than the job knows how much it has missed.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from horae.engines.local.job_files import JobFolder

TAIL_BYTES = 64 << 10
TAIL_BYTES_MAX = 16 << 20
READ_BYTES = 64 << 10
_TRIES_MAX = 100  # a job that begins a file between any two looks at its folder writes faster than disks are


class _Part(NamedTuple):
    """An open file with a part of the output."""

    start: int
    file: int

    @property
    def end(self) -> int:
        return self.start + os.fstat(self.file).st_size

    def read(self, position: int, bytes_max: int) -> bytes:
        return os.pread(self.file, bytes_max, position - self.start) if position >= self.start else b""


class JobOutput:
    def __init__(self, state: Path, job_id: str) -> None:
        self._path = JobFolder.of(state / "engine", job_id).output

    def size(self) -> int:
        """The position after the last byte."""
        parts = self.open()
        try:
            return max((part.end for part in parts), default=0)
        finally:
            _close(parts)

    def read(self, position: int, bytes_max: int) -> bytes:
        """What there is from this position on; without its beginning, where that is deleted."""
        return self.read_from(position, bytes_max)[1]

    def read_from(self, position: int, bytes_max: int) -> tuple[int, bytes]:
        """The position of the first byte from this one on that is still there, and what follows it."""
        parts, data = self.open(), b""
        try:
            position = max(position, min((part.start for part in parts), default=position))
            for part in parts:
                data += part.read(position + len(data), bytes_max - len(data))
        finally:
            _close(parts)
        return position, data

    def open(self) -> list[_Part]:
        """The files in order. If the older one is the same before and after, the newer one follows it."""
        for _ in range(_TRIES_MAX):
            before, parts = self._older(), list[_Part]()
            if before is not None:
                older = open_output(self._path.with_name(f"{self._path.name}.{before}"))
                parts += [] if older is None else [_Part(before, older)]
            newer = open_output(self._path)
            if newer is not None:
                parts.append(_Part(parts[0].end if parts else 0, newer))
            if self._older() == before and (before is None or parts):
                return parts
            _close(parts)
        return []

    def _older(self) -> int | None:
        """The position at which the file before the present one begins."""
        found: list[int] = []
        with suppress(OSError):
            names = os.listdir(self._path.parent)  # noqa: PTH208  only names are needed
            ends = [name.removeprefix(f"{self._path.name}.") for name in names if name.startswith(self._path.name)]
            found = [int(end) for end in ends if end.isascii() and end.isdecimal()]
        return max(found, default=None)


def open_output(path: Path) -> int | None:
    """The file if it is one: the job's user may have put a link or a pipe in its place."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return descriptor


def _close(parts: list[_Part]) -> None:
    for part in parts:
        os.close(part.file)


class Follower:
    """Reads what is appended to a job's output.

    It keeps the file open that it has come to, so that two more may be begun between two looks; more than that only if
    the caller reads more slowly than the job writes, and then it says how much was missed.
    """

    def __init__(self, state: Path, job_id: str, position: int) -> None:
        self._output = JobOutput(state, job_id)
        self._position = position
        self._part: _Part | None = None

    def read(self) -> bytes:
        """The next bytes, none if all that there is has been read."""
        while True:
            parts = self._output.open()  # first: nothing is appended to a file after the next one was begun
            data = b"" if self._part is None else self._part.read(self._position, READ_BYTES)
            self._position += len(data)
            following = next((part for part in parts if part.end > self._position), None)
            if following is None and self._part is None and parts:
                following = parts[-1]
            is_known = following is None or (self._part is not None and following.start == self._part.start)
            if data or is_known:
                _close(parts)
                if data or following is None:
                    return data
            else:
                assert following is not None
                _close([part for part in parts if part is not following])
                self.close()
                self._part, missed = following, following.start - self._position
                if missed > 0:
                    self._position = following.start
                    return f"\n[{missed:,} bytes of output were deleted before they were read]\n".encode()

    def close(self) -> None:
        if self._part is not None:
            os.close(self._part.file)
            self._part = None
