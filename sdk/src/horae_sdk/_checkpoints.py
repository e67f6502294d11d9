"""The checkpoints of one epoch: a subfolder for each save, and one file that names the newest complete one.

    saved.json    {"steps": 1200, "path": "save-000003"}, replaced by rename
    save-000003/  what the script wrote, durable before it is named in saved.json
    save-000004/  the save under way, if there is one

A crash at any point leaves saved.json, and the subfolder that it names, as they were before or after a save.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import NamedTuple

from horae_sdk._files import sync_folder, sync_tree, write_json

_NAME = re.compile(r"save-(\d+)")


class Published(NamedTuple):
    """A complete checkpoint."""

    steps: float
    path: Path


class Checkpoints:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._next: Path | None = None

    @property
    def published(self) -> Published | None:
        """The newest complete checkpoint in this folder, if there is one."""
        record = self.folder / "saved.json"
        try:
            content = json.loads(record.read_text(encoding="utf-8"))
            found = Published(content["steps"], self.folder / content["path"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{record} is damaged ({error!r}); delete it to train from the start") from error
        return found if found.path.is_dir() else None

    @property
    def next(self) -> Path:
        """The subfolder for the next save, made when it is first asked for."""
        if self._next is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._next = self.folder / f"save-{max(self._numbered(), default=0) + 1:06d}"
            self._next.mkdir()
        return self._next

    def publish(self, steps: float) -> Published:
        """Make the next subfolder durable and the newest checkpoint, then delete older ones."""
        path = self._next
        if path is None or not any(path.iterdir()):
            raise ValueError(
                "nothing was saved: before saved(), write into run.checkpoint_dir, read anew for each save"
            )
        sync_tree(path)
        sync_folder(self.folder)
        write_json(self.folder / "saved.json", {"steps": steps, "path": path.name})
        self._next = None
        for number, older in self._numbered().items():
            if number < int(path.name[5:]):
                shutil.rmtree(str(older), ignore_errors=True)  # if it stays, the next save tries again
        return Published(steps, path)

    def _numbered(self) -> dict[int, Path]:
        found = ((_NAME.fullmatch(path.name), path) for path in self.folder.iterdir())
        return {int(match[1]): path for match, path in found if match}
