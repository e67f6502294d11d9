"""Messages between the terminal of an interactive job and the programs that attach to it.

A message is a byte for its kind, four bytes for its length, and its content. The supervisor of the job is the other
end; `horae.engines.local.supervisor_terminal` says what it understands. The API passes messages on as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

_HEADER_BYTES = 5
ATTACH, INPUT, WINDOW, POSITION, OUTPUT, END = b"A", b"I", b"W", b"P", b"O", b"E"


class Message(NamedTuple):
    kind: bytes
    content: bytes

    @property
    def number(self) -> int:
        return int.from_bytes(self.content, "big")

    def encoded(self) -> bytes:
        return self.kind + len(self.content).to_bytes(4, "big") + self.content


def attach(position: int) -> bytes:
    """Asks for the output from this byte on, and for all that follows."""
    return Message(ATTACH, position.to_bytes(8, "big")).encoded()


def typed(data: bytes) -> bytes:
    return Message(INPUT, data).encoded()


def window(rows: int, columns: int) -> bytes:
    return Message(WINDOW, min(rows, 65535).to_bytes(2, "big") + min(columns, 65535).to_bytes(2, "big")).encoded()


def at_position(position: int) -> bytes:
    return Message(POSITION, position.to_bytes(8, "big")).encoded()


def output(data: bytes) -> bytes:
    return Message(OUTPUT, data).encoded()


def end(status: int) -> bytes:
    return Message(END, status.to_bytes(4, "big")).encoded()


class Decoder:
    """Makes messages of bytes that arrive in parts of any size."""

    def __init__(self) -> None:
        self._received = b""

    def feed(self, data: bytes) -> Iterator[Message]:
        self._received += data
        while len(self._received) >= _HEADER_BYTES:
            stop = _HEADER_BYTES + int.from_bytes(self._received[1:_HEADER_BYTES], "big")
            if len(self._received) < stop:
                return
            message = Message(self._received[:1], self._received[_HEADER_BYTES:stop])
            self._received = self._received[stop:]
            yield message
