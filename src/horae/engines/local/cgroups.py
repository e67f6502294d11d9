"""Control groups (version 2) for jobs, where this process may make them: no process of a job can leave its group.

Without the right to make them there are none, and jobs are found by other means.
"""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path


def own_cgroup() -> Path | None:
    """The group of this process, if it may make groups in it; None otherwise."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        mount = next(fields for fields in mounts if fields[fields.index("-") + 1] == "cgroup2")
        groups = Path("/proc/self/cgroup").read_text().splitlines()
        name = next(line.removeprefix("0::") for line in groups if line.startswith("0::"))
    except (OSError, StopIteration, ValueError):
        return None
    root, place = mount[3], mount[4]
    group = Path(place + name.removeprefix(root.rstrip("/")))
    return group if (group / "cgroup.procs").exists() and os.access(group, os.W_OK) else None


def make_group(parent: Path | None, engine: Path, job_id: str, epoch: int) -> Path | None:
    """A new group for one lease; None if there can be none."""
    if parent is None:
        return None
    name = sha256(f"{engine}\0{job_id}".encode(errors="surrogatepass")).hexdigest()[:24]
    group = parent / f"horae-{name}-{epoch}"
    try:
        group.mkdir(exist_ok=True)
    except OSError:
        return None
    return group


def is_empty(group: Path | None) -> bool:
    """Whether no process is in the group or below it."""
    if group is None:
        return True
    try:
        return "populated 1" not in (group / "cgroup.events").read_text()
    except OSError:
        return True  # it is removed only when it is empty


def kill_group(group: Path | None) -> None:
    if group is not None:
        with suppress(OSError):
            (group / "cgroup.kill").write_text("1")


def remove_group(group: Path | None) -> None:
    if group is not None:
        with suppress(OSError):
            group.rmdir()
