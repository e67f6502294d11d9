"""Files that a crash leaves either old or new, never half written."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path

# Some network file systems cannot sync a folder; they make a rename durable by themselves.
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP)
_WINDOWS = os.name == "nt"


def write_json(path: Path, content: object) -> None:
    """Replace a file: a reader, and the next process after a crash, finds the old or the new content."""
    temporary = path.with_name(f"{path.name}.tmp")  # one writer: rank 0
    descriptor = os.open(str(temporary), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        _write_all(descriptor, json.dumps(content).encode() + b"\n")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(str(temporary), str(path))  # noqa: PTH105  (tests make each call of os fail)
    sync_folder(path.parent)


def sync_tree(folder: Path) -> None:
    """Make a folder durable, with everything in it."""
    for parent, _, names in os.walk(str(folder), topdown=False):
        for name in names:
            path = os.path.join(parent, name)  # noqa: PTH118  (os.walk gives strings)
            if stat.S_ISREG(os.lstat(path).st_mode):  # opening a pipe would block, a link may lead nowhere
                _sync(path, os.O_RDWR if _WINDOWS else os.O_RDONLY)
        sync_folder(Path(parent))


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    if _WINDOWS:  # which cannot open a folder
        return
    try:
        _sync(str(folder), os.O_RDONLY)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise


def _sync(path: str, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
