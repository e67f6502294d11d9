"""The terminal of an interactive job, from afar: its output as it comes, input, and the size of the window."""

from __future__ import annotations

import time
from collections.abc import Iterator

from horae.client.connection import NOT_ANSWERED, OUTAGE_SECONDS_MAX, Connection
from horae.model.errors import ServiceError
from horae.service import terminal_messages as messages

RETRY_SECONDS = 0.3


class Terminal:
    """`status` is the exit code of the job, once it has ended."""

    def __init__(self, connection: Connection, path: str) -> None:
        self._connection = connection
        self._path = path
        self._position = 0
        self.status: int | None = None

    def output(self) -> Iterator[bytes]:
        """What the job writes, until it ends; a connection that breaks is made anew, at the same position.

        A `ServiceError` of status 409 tells that the job does not run.
        """
        answered_at = time.monotonic()
        while self.status is None:
            try:
                for message in self._messages():
                    answered_at = time.monotonic()
                    if message.kind == messages.POSITION:
                        self._position = message.number
                    elif message.kind == messages.OUTPUT:
                        self._position += len(message.content)
                        yield message.content
                    elif message.kind == messages.END:
                        self.status = message.number
                        return
            except ServiceError as error:
                if error.status not in NOT_ANSWERED or time.monotonic() - answered_at > OUTAGE_SECONDS_MAX:
                    raise
            self._connection.sleep(RETRY_SECONDS)

    def _messages(self) -> Iterator[messages.Message]:
        decoder = messages.Decoder()
        with self._connection.stream(self._path, {"position": self._position}) as response:
            for data in response.iter_raw():
                yield from decoder.feed(data)

    def send(self, data: bytes) -> None:
        """Types into the terminal. It is not sent again if the service does not answer: a key counts once."""
        self._connection.send("POST", self._path, messages.typed(data))

    def resize(self, rows: int, columns: int) -> None:
        self._connection.send("POST", self._path, messages.window(rows, columns))
