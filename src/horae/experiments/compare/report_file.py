"""What must be known of a report before hours of work: whether it can be written, and by which groups it is divided."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from horae.model.errors import InputError
from horae.model.jobs import Job

SUFFIXES = (".html", ".htm")


def check_report_file(path: Path, field: str = "--report") -> None:
    if path.suffix not in SUFFIXES:
        raise InputError("is no page", file=str(path), field=field, remedy="name it .html")
    if path.is_dir():
        raise InputError("is a folder", file=str(path), field=field, remedy="name a file")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        problem = f"cannot be written: {error.strerror}"
        raise InputError(problem, file=str(path), field=field, remedy="name a file in a folder of yours") from None


def natural_groups(jobs: Iterable[Job]) -> str:
    """Tenants where there are several, otherwise users, otherwise nothing."""
    tenants, users = set(), set()
    for job in jobs:
        tenants.add(job.tenant)
        users.add(job.user)
    return "tenants" if len(tenants) > 1 else "users" if len(users) > 1 else ""
