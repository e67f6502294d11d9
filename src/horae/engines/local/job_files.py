"""The files of a job of the local engine: its folder, the contents, and how they are read."""

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
    """A file name for any id: readable where possible, unique per id, never outside the directory."""
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
    """The last non-empty line written after this position."""
    try:
        with output.open("rb") as file:
            end_bytes = file.seek(0, os.SEEK_END)
            file.seek(max(start_bytes, end_bytes - _MESSAGE_BYTES_MAX))
            written = file.read(_MESSAGE_BYTES_MAX).decode(errors="replace")
    except OSError:
        return ""
    lines = [line.strip() for line in written.splitlines() if line.strip()]
    return lines[-1] if lines else ""


# Losses reported by jobs of the local engine: lines `steps loss` in a file per job, see `HORAE_REPORTS`


class LocalReports:
    """Reads loss reports from the engine's `directory`.

    A report is returned once, unless its file has since shrunk or vanished.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read_bytes: dict[str, int] = {}  # by job: how far its file was read

    def until(self, job_id: str, steps: float) -> list[Report]:
        """New reports of a job, including those of steps that are not saved yet, because a measured loss is known."""
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
        self._read_bytes[job_id] = end - len(half)  # a partly written line will be read again
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
    try:
        with path.open("r+b") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
            if file.read(1) not in (b"", b"\n"):
                file.write(b" cut\n")
    except OSError:
        return  # the file does not exist, or is not writable
