"""What is known of a report before the runs: its file, by which groups it is divided, what it assumes."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from horae.experiments.compare.run_spec import NO_FAILURES, Failures
from horae.model.errors import InputError
from horae.model.jobs import Job
from horae.model.setup import Setup

SUFFIXES = (".html", ".htm")


@dataclass(frozen=True)
class ReportFacts:
    """What a report tells besides the numbers of a comparison."""

    setup: Setup
    source: str = ""  # where the jobs are from
    origin: str = ""  # the date and time of second 0, where the trace has dates
    rows_broken: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)  # rows of the trace by reason
    changed: Mapping[str, int] = field(default_factory=dict)
    failures: Failures = NO_FAILURES
    notes: tuple[str, ...] = ()  # further assumptions, each a sentence


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
    """By what to divide jobs: tenants where there are several, otherwise users, otherwise nothing."""
    tenants, users = set(), set()
    for job in jobs:
        tenants.add(job.tenant)
        users.add(job.user)
    return several_names(tenants, users)


def several_names(tenants: Collection[str], users: Collection[str]) -> str:
    return "tenants" if len(tenants) > 1 else "users" if len(users) > 1 else ""
