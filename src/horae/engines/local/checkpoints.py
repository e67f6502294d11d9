"""Checkpoints that jobs have published: which one is the newest, and which ones may go.

A job publishes a checkpoint by renaming a file to `saved.json` in the folder of its lease. One folder per lease, so
that two runs can never write to the same checkpoint.
"""

from __future__ import annotations

import os
import shutil
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from horae.engines.local.job_files import JobFolder
from horae.engines.local.untrusted_files import read_json, sound_number

_UNUSED = ".unused"  # the end of the name of a folder that is being deleted


@dataclass(frozen=True, slots=True)
class Checkpoint:
    epoch: int
    steps: float
    path: Path


def published(folder: Path, epoch: int) -> Checkpoint | None:
    """The checkpoint that a lease has published in this folder; None if there is none, or it is unsound."""
    saved = read_json(folder / "saved.json")
    if not isinstance(saved, dict):
        return None
    steps, name = sound_number(saved.get("steps")), saved.get("path")
    if steps is None or not isinstance(name, str) or not name:
        return None
    try:
        path = Path(os.path.realpath(folder / name, strict=True))
    except (OSError, ValueError):
        return None
    inside = Path(os.path.realpath(folder)) in path.parents
    return Checkpoint(epoch, steps, path) if inside else None


def newest_published(job: JobFolder) -> Checkpoint | None:
    """The published checkpoint of the newest lease that has one."""
    found = (published(job.lease(epoch).checkpoint, epoch) for epoch in reversed(job.epochs()))
    return next((each for each in found if each is not None), None)


def delete_unused(job: JobFolder, newest: int, kept: int | None) -> None:
    """Deletes all leases before the newest one, except the one with the kept checkpoint, in the background: their
    checkpoints may be large."""
    unused = []
    for epoch in job.epochs():
        if epoch < newest and epoch != kept:
            folder = job.lease(epoch).path
            away = folder.with_name(folder.name + _UNUSED)
            with suppress(OSError):
                folder.rename(away)
                unused.append(away)
    if unused:
        threading.Thread(target=_delete, args=(unused,), daemon=True).start()


def _delete(folders: list[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
