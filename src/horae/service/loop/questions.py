"""Answers questions that only the scheduler can answer, between two events: one JSON object per line, each way.

The sockets are in the state folder, which only the service's user may enter. Their descriptors are watched by the
engine's wait, so that a question is answered at once; a slow or broken client delays nothing.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

_BYTES_MAX = 1 << 20
_BACKLOG = 64

Answer = Callable[[dict[str, Any]], dict[str, Any]]


class Questions:
    def __init__(self, folder: Path) -> None:
        self._selector = selectors.EpollSelector()
        self._stream = _bind(folder / "loop.sock", socket.SOCK_STREAM)
        self._stream.listen(_BACKLOG)
        self._wake = _bind(folder / "loop-wake", socket.SOCK_DGRAM)
        self._selector.register(self._stream, selectors.EVENT_READ)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._pending: dict[socket.socket, bytes] = {}

    def fileno(self) -> int:
        """Readable when a question or a request has arrived."""
        return self._selector.fileno()

    def serve(self, answer: Answer) -> None:
        """Answers all complete questions."""
        for key, _ in self._selector.select(0):
            source = key.fileobj
            if source is self._stream:
                with suppress(OSError):
                    client, _ = self._stream.accept()
                    client.setblocking(False)
                    self._pending[client] = b""
                    self._selector.register(client, selectors.EVENT_READ)
            elif source is self._wake:
                with suppress(OSError):
                    while self._wake.recv(64):
                        pass
            elif isinstance(source, socket.socket):
                self._read(source, answer)

    def close(self) -> None:
        for client in list(self._pending):
            self._drop(client)
        for listener in (self._stream, self._wake):
            self._selector.unregister(listener)
            listener.close()
        self._selector.close()

    def _read(self, client: socket.socket, answer: Answer) -> None:
        try:
            received = client.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        text = self._pending[client] + received
        if not received or len(text) > _BYTES_MAX:
            self._drop(client)
            return
        *lines, rest = text.split(b"\n")
        self._pending[client] = rest
        for line in lines:
            if not self._reply(client, line, answer):
                return

    def _reply(self, client: socket.socket, line: bytes, answer: Answer) -> bool:
        try:
            question = json.loads(line)
            reply = answer(question) if isinstance(question, dict) else {"error": "not an object"}
        except ValueError:
            reply = {"error": "not JSON"}
        try:
            client.settimeout(0.2)  # answers are small; a client that does not read them is dropped
            client.sendall(json.dumps(reply).encode() + b"\n")
            client.setblocking(False)
        except OSError:
            self._drop(client)
            return False
        return True

    def _drop(self, client: socket.socket) -> None:
        self._pending.pop(client, None)
        with suppress(KeyError, ValueError):
            self._selector.unregister(client)
        client.close()


def _bind(path: Path, kind: socket.SocketKind) -> socket.socket:
    """A socket at this path; one left over from a former process is replaced."""
    bound = socket.socket(socket.AF_UNIX, kind)
    bound.setblocking(False)
    with suppress(FileNotFoundError):
        path.unlink()
    # Addresses of sockets are limited to 107 bytes; the folder's descriptor makes any path short enough.
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        bound.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)
    path.chmod(0o600)
    return bound
