"""Reads files that jobs write. A FIFO, a directory, a link or a huge file in their place must not harm the engine."""

from __future__ import annotations

import json
import os
import stat
from math import isfinite
from pathlib import Path

from horae.model.serialization import Plain

_BYTES_MAX = 1 << 16


def open_regular(path: Path, flags: int = os.O_RDONLY) -> int:
    """A descriptor of a regular file; raises OSError for anything else, and never blocks."""
    file = os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(f"{path} is not a regular file")
    return file


def read_bytes(path: Path, bytes_max: int = _BYTES_MAX) -> bytes | None:
    """The content of a regular file of limited size; None if there is none."""
    try:
        file = open_regular(path)
    except (OSError, ValueError):
        return None
    try:
        size = os.fstat(file).st_size
        return os.read(file, size) if size <= bytes_max else None
    except OSError:
        return None
    finally:
        os.close(file)


def read_json(path: Path, bytes_max: int = _BYTES_MAX) -> Plain:
    """The content of a small JSON file; None if it is missing or unsound."""
    content = read_bytes(path, bytes_max)
    if content is None:
        return None
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False


def sound_number(value: Plain) -> float | None:
    """A finite number of 0 or more; None for anything else."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) and number >= 0 else None
