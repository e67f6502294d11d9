"""A proxy between a service and its database that a test can cut: with a reset, or by swallowing what is sent."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum


class Mode(Enum):
    FORWARD = "forward"
    RESET = "reset"  # connections are reset, and new ones as well
    SWALLOW = "swallow"  # what is sent is acknowledged and never arrives


class Proxy:
    """Forwards connections from a port of this machine to a Unix socket."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._mode = Mode.FORWARD
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, mode: Mode) -> None:
        with self._lock:
            self._mode = mode
            if mode is Mode.RESET:
                self._reset_all()

    def restore(self) -> None:
        """New connections work again; those that were cut stay cut."""
        with self._lock:
            self._mode = Mode.FORWARD

    def close(self) -> None:
        self._listener.close()
        with self._lock:
            self._reset_all()

    def _reset_all(self) -> None:
        for each in self._open:
            _reset(each)
        self._open.clear()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with self._lock:
                    if self._mode is Mode.RESET:
                        _reset(client)
                        continue
                    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                    server.connect(self._target)
                    self._open += [client, server]
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        is_cut = False
        with suppress(OSError):
            while data := source.recv(65536):
                is_cut = is_cut or self._mode is not Mode.FORWARD
                if not is_cut:
                    sink.sendall(data)
            if not is_cut:
                sink.shutdown(socket.SHUT_RDWR)


def _reset(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


@contextmanager
def proxy(target: str) -> Iterator[Proxy]:
    made = Proxy(target)
    try:
        yield made
    finally:
        made.close()
