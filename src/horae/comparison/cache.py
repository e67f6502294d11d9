"""Results that are there already. One file a run, its log, named after all that determines it."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from pathlib import Path

from horae.model.errors import InputError
from horae.reports.log import RunLog


def default_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "horae"


class Cache:
    """A cache that cannot be used is no reason to stop: it is said once, and the comparison goes on without it."""

    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
        self.folder = folder
        self.failed = False
        self.kept_count = 0  # results of this comparison that are in it
        self._warn = warn

    def has(self, key: str) -> bool:
        """Whether there is a file; `load` finds out what it is worth."""
        return self._path(key).is_file()

    def load(self, key: str) -> RunLog | None:
        """None where there is none, or only a part of one: then it is run, and written, again."""
        try:
            log = RunLog.load(self._path(key))
        except (InputError, zlib.error):
            return None
        self.kept_count += 1
        return log

    def save(self, key: str, log: RunLog) -> None:
        if self.failed:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            log.save(self._path(key))
            self.kept_count += 1
        except OSError as error:
            self._give_up(f"cannot be written: {error.strerror}")
        except InputError as error:
            self._give_up(error.problem)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.npz"

    def _give_up(self, problem: str) -> None:
        self.failed = True
        remedy = "results are not kept; name another folder with --cache, or use --no-cache"
        self._warn(str(InputError(problem, file=str(self.folder), remedy=remedy)))
