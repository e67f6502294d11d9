"""How ranks do the same thing after the same step, without communication of their own.

Ranks that train together are never more than one step apart, because no rank finishes a step before every rank began
it. What rank 0 announces before it begins step n is therefore seen by every rank that has finished step n. The
announcement is a file, because all ranks see the folder for checkpoints anyway.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from horae_sdk._files import write_json


class Announcement(NamedTuple):
    step: float  # after which it is carried out
    leave: bool  # or only save


class Agreement:
    def __init__(self, folder: Path, rank: int, world_size: int) -> None:
        self._path = folder / "ranks.json"
        self._is_first = rank == 0
        self._alone = world_size == 1
        self._announced: Announcement | None = None
        if self._is_first and not self._alone and self._path.exists():
            self._path.unlink()  # of an earlier run in the same folder

    def announce(self, step: float, leave: bool) -> None:
        """Called by rank 0, before it begins this step. The first announcement to leave is final."""
        if self._announced is not None and self._announced.leave:
            return
        if not self._alone:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._path, {"step": step, "leave": leave})
        self._announced = Announcement(step, leave)

    def pending(self, step: float) -> bool:
        """Whether rank 0 announced this step or a later one."""
        return self._announced is not None and self._announced.step >= step

    def after(self, step: float) -> Announcement | None:
        """What all ranks do now that this step is finished, if it was announced."""
        announced = self._announced if self._is_first or self._alone else self._read()
        return announced if announced is not None and announced.step <= step else None

    def _read(self) -> Announcement | None:
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return Announcement(content["step"], content["leave"])
