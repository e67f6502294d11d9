"""The output of a job, of any size, and while it is written.

All leases of a job write to one output. A part of it is read by its position, which an answer states for the next part.
"""

from __future__ import annotations

from collections.abc import Iterator

from horae.client.connection import NOT_ANSWERED, SUBMIT_DELAYS, Connection
from horae.model.errors import ServiceError

NEXT = "Horae-Log-Next"


class JobOutput:
    """Reads the output of one job; `position` is where it goes on."""

    def __init__(self, connection: Connection, path: str) -> None:
        self._connection = connection
        self._path = path
        self._position = 0

    def tail(self, size: int) -> Iterator[bytes]:
        """The last bytes of what there is, at most so many."""
        content, headers = self._connection.read_bytes(self._path, {"tail": size})
        self._position = _whole(headers.get(NEXT), len(content))
        yield content

    def all(self) -> Iterator[bytes]:
        """What there is, part by part."""
        while True:
            content, headers = self._connection.read_bytes(self._path, {"offset": self._position})
            position = _whole(headers.get(NEXT), 0)
            if content:
                yield content
            if position <= self._position:
                return
            self._position = position

    def follow(self) -> Iterator[bytes]:
        """What follows, until the job ends; a connection that breaks is made anew, at the same position."""
        failures = 0
        while True:
            params = {"follow": True, "offset": self._position}
            try:
                with self._connection.stream(self._path, params) as response:
                    for chunk in response.iter_bytes():
                        self._position += len(chunk)
                        failures = 0
                        yield chunk
                return
            except ServiceError as error:
                if error.status not in NOT_ANSWERED or failures == len(SUBMIT_DELAYS):
                    raise
            self._connection.sleep(SUBMIT_DELAYS[failures])
            failures += 1


def _whole(text: str | None, otherwise: int) -> int:
    return int(text) if text and text.isascii() and text.isdigit() else otherwise
