"""HTTP over a Unix socket, with the user id of the process at the other end."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from horae.service.api.middleware import PEER

_CREDENTIALS = struct.Struct("3i")  # process, user, group


def peer_uid(connection: Any) -> int | None:
    """The user id of the other end of a Unix socket, told by the kernel; None for other sockets."""
    if connection is None or connection.family != socket.AF_UNIX:
        return None
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(data)[1])


class PeerProtocol(HttpToolsProtocol):
    """uvicorn's protocol; the ASGI scope of each request tells the peer's user id."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        uid = peer_uid(transport.get_extra_info("socket"))
        if uid is not None:
            inner = self.app

            async def app(scope: Any, receive: Any, send: Any) -> None:
                scope[PEER] = uid
                await inner(scope, receive, send)

            self.app = app
