"""The files of a job of the local engine: its folder, what is in there, and how that is read."""

from __future__ import annotations

import os
from hashlib import sha256
from math import isfinite
from pathlib import Path
from urllib.parse import quote

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
