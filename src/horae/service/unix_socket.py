"""Addresses of Unix sockets at paths of any length."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_BYTES_MAX = 107  # of an address


class ShortAddress:
    """An address of the socket at this path; it may be used until this is closed.

    Where the path is too long, the descriptor of its folder makes it short enough.
    """

    def __init__(self, path: Path) -> None:
        self._folder = -1
        self.text = str(path)
        if len(os.fsencode(path)) > _BYTES_MAX:
            self._folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self.text = f"/proc/self/fd/{self._folder}/{path.name}"

    def close(self) -> None:
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1


@contextmanager
def short_address(path: Path) -> Iterator[str]:
    address = ShortAddress(path)
    try:
        yield address.text
    finally:
        address.close()
