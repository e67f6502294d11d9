"""The files of a job of the local engine: its folder, what is in there, and how that is read."""

from __future__ import annotations

import os
from hashlib import sha256
from math import inf, isfinite
from pathlib import Path
from urllib.parse import quote

from horae.engines.search.loss_forecast import Report

_NAME_CHARACTERS_MAX = 120
_MESSAGE_BYTES_MAX = 400


def folder_name(job_id: str) -> str:
    """A file name for any id: readable where possible, different for different ids, never outside the directory."""
    name = quote(job_id, safe="", errors="surrogatepass")
    if name.startswith("."):
        name = "%2E" + name[1:]
    if len(name) > _NAME_CHARACTERS_MAX:
        # A plus is always quoted, so that no other id has this name.
        name = f"{name[:_NAME_CHARACTERS_MAX]}+{sha256(name.encode()).hexdigest()}"
    return name


def output_file(folder: Path) -> Path:
    return folder / "output.log"


def checkpoint_file(folder: Path) -> Path:
    return folder / "checkpoint"


def reports_file(folder: Path) -> Path:
    return folder / "reports"


def read_steps(checkpoint: Path) -> float:
    try:
        steps = float(checkpoint.read_text())
    except (OSError, ValueError):
        return 0.0
    return steps if isfinite(steps) else 0.0


def last_line(output: Path, start_bytes: int) -> str:
    """The last line that says something, of what was written from there on."""
    try:
        with output.open("rb") as file:
            end_bytes = file.seek(0, os.SEEK_END)
            file.seek(max(start_bytes, end_bytes - _MESSAGE_BYTES_MAX))
            written = file.read(_MESSAGE_BYTES_MAX).decode(errors="replace")
    except OSError:
        return ""
    lines = [line.strip() for line in written.splitlines() if line.strip()]
    return lines[-1] if lines else ""


# The losses that jobs of the local engine report: lines `steps loss` in a file of each, see `HORAE_REPORTS`.


class LocalReports:
    """`directory` is that of the engine. A report is told once, unless its file has shrunk or vanished meanwhile."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read_bytes: dict[str, int] = {}  # by job: how far its file was read

    def until(self, job_id: str, steps: float) -> list[Report]:
        """What is new; also of steps that are not safe yet, for what was measured is known."""
        path = reports_file(self._directory / folder_name(job_id))
        try:
            with path.open("rb") as file:
                start = self._read_bytes.get(job_id, 0)
                file.seek(start if start <= file.seek(0, os.SEEK_END) else 0)
                written = file.read()
                end = file.tell()
        except OSError:
            self._read_bytes.pop(job_id, None)
            return []
        whole, _, half = written.rpartition(b"\n")
        self._read_bytes[job_id] = end - len(half)  # what is half written will be read again
        found = (_report(job_id, line) for line in whole.splitlines())
        return [report for report in found if report is not None]


def _report(job_id: str, line: bytes) -> Report | None:
    """None if it says nothing. A loss that is not a number does: that something has gone wrong."""
    try:
        steps, loss = map(float, line.split())
    except ValueError:
        return None
    return Report(job_id, steps, loss) if 0 <= steps < inf else None


def spoil_half_a_line(path: Path) -> None:
    """A run that was killed while it wrote leaves half a line, which must not become one with the next run's first."""
    try:
        with path.open("r+b") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
            if file.read(1) not in (b"", b"\n"):
                file.write(b" cut\n")
    except OSError:
        return  # there is none, or nobody may write it
