"""The files of a job of the local engine: its folder, what is in it, and the losses that the job has reported.

jobs/<job>/output.log                 what it has written; the file before it is output.log.<position of its first byte>
jobs/<job>/reports                    the losses that it has reported, see `HORAE_REPORTS`
jobs/<job>/work/                      where it runs, unless it names a folder
jobs/<job>/leases/<epoch>/            the records of a lease, and `checkpoint/`, which belongs to the job
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from math import inf
from pathlib import Path
from urllib.parse import quote

from horae.engines.local.untrusted_files import open_regular
from horae.engines.search.loss_forecast import Report

_NAME_CHARACTERS_MAX = 120
_REPORTS_BYTES_MAX = 1 << 22  # of one reading


def folder_name(job_id: str) -> str:
    """A file name for any id: readable where possible, unique per id, never outside the directory."""
    name = quote(job_id, safe="", errors="surrogatepass")
    if name.startswith("."):
        name = "%2E" + name[1:]
    if len(name) > _NAME_CHARACTERS_MAX:
        # A plus is always quoted, so that no other id has this name.
        name = f"{name[:_NAME_CHARACTERS_MAX]}+{sha256(name.encode()).hexdigest()}"
    return name


@dataclass(frozen=True, slots=True)
class LeaseFolder:
    path: Path

    def make(self) -> None:
        """Makes the folder and those that hold it. Users of jobs can pass through them to what is their own."""
        for folder in (*reversed(self.path.parents[:3]), self.path):
            if not folder.is_dir():
                folder.mkdir()
                folder.chmod(0o711)  # whatever the service usually gives

    @property
    def start(self) -> Path:
        return self.path / "start.json"

    @property
    def stop(self) -> Path:
        return self.path / "stop.json"

    @property
    def exit(self) -> Path:
        return self.path / "exit.json"

    @property
    def ended(self) -> Path:
        return self.path / "ended.json"

    @property
    def tombstone(self) -> Path:
        return self.path / "tombstone"

    @property
    def sessions(self) -> Path:
        return self.path / "sessions.json"

    @property
    def terminal(self) -> Path:
        """The socket of the terminal of an interactive job, while it runs."""
        return self.path / "terminal"

    @property
    def supervisor_log(self) -> Path:
        return self.path / "supervisor.log"

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    @property
    def sdk(self) -> Path:
        """A file that the SDK writes when it starts: such a job saves and resumes."""
        return self.checkpoint / "sdk.json"


@dataclass(frozen=True, slots=True)
class JobFolder:
    path: Path

    @classmethod
    def of(cls, engine: Path, job_id: str) -> JobFolder:
        return cls(engine / "jobs" / folder_name(job_id))

    @property
    def output(self) -> Path:
        return self.path / "output.log"

    @property
    def reports(self) -> Path:
        return self.path / "reports"

    @property
    def work(self) -> Path:
        return self.path / "work"

    @property
    def leases(self) -> Path:
        return self.path / "leases"

    def lease(self, epoch: int) -> LeaseFolder:
        return LeaseFolder(self.leases / str(epoch))

    def epochs(self) -> list[int]:
        """The epochs of all leases on record, in order."""
        try:
            return sorted(int(each.name) for each in self.leases.iterdir() if each.name.isdecimal())
        except OSError:
            return []


# Losses reported by jobs of the local engine: lines `steps loss` in a file per job, see `HORAE_REPORTS`


class LocalReports:
    """Reads loss reports from the engine's folder.

    A report is returned once, unless its file has since shrunk or vanished.
    """

    def __init__(self, engine: Path) -> None:
        self._engine = engine
        self._read_bytes: dict[str, int] = {}  # by job: how far its file was read

    def until(self, job_id: str, steps: float) -> list[Report]:
        """New reports of a job, including those of steps that are not saved yet, because a measured loss is known."""
        path = JobFolder.of(self._engine, job_id).reports
        try:
            with os.fdopen(open_regular(path), "rb", buffering=0) as file:
                start = self._read_bytes.get(job_id, 0)
                start = file.seek(start if start <= file.seek(0, os.SEEK_END) else 0)
                written = file.read(_REPORTS_BYTES_MAX) or b""
        except OSError:
            self._read_bytes.pop(job_id, None)
            return []
        whole, _, half = written.rpartition(b"\n")
        if len(half) == _REPORTS_BYTES_MAX:
            half = b""  # not a line: read on behind it
        self._read_bytes[job_id] = start + len(written) - len(half)  # a partly written line will be read again
        found = (_report(job_id, line) for line in whole.splitlines())
        return [report for report in found if report is not None]


def _report(job_id: str, line: bytes) -> Report | None:
    """The report in a line, or None. A loss that is not a number is a report: training has diverged."""
    try:
        steps, loss = map(float, line.split())
    except ValueError:
        return None
    return Report(job_id, steps, loss) if 0 <= steps < inf else None


def spoil_half_a_line(path: Path) -> None:
    """Terminates the half line of a run that was killed while writing,
    so that the next run's first line is separate."""
    with suppress(OSError), os.fdopen(open_regular(path, os.O_RDWR), "r+b") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
        if file.read(1) not in (b"", b"\n"):
            file.write(b" cut\n")


def highest_number(engine: Path) -> int:
    """The highest number that begins the id of a job with a folder here, as in `17` and `17_3`; 0: none."""
    try:
        names = [each.name.partition("_")[0] for each in (engine / "jobs").iterdir()]
    except OSError:
        return 0
    return max((int(name) for name in names if name.isascii() and name.isdecimal()), default=0)
