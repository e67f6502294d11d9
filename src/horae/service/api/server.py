"""Serves the API on loopback and on a Unix socket, in one process."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import structlog
import uvicorn

from horae.model.errors import InputError
from horae.service.api.app import create_app
from horae.service.api.context import Context
from horae.service.api.services import Services
from horae.service.api.unix_peer import PeerProtocol
from horae.service.log_output import configure_log
from horae.service.unix_socket import short_address

BACKLOG = 2048
BIND_SECONDS = 10.0
SWITCH_SECONDS = 0.0005  # the writer, back from the disk, waits at most this long for the thread of requests
GRACE_SECONDS = 5  # open requests and streams are cut after this time at shutdown
log = structlog.get_logger("horae.api")


def serve(context: Context, host: str = "127.0.0.1", port: int = 8642, uds: Path | None = None) -> None:
    """Serves until SIGTERM or SIGINT. Port 0 takes a free one; `uds` is the path of the Unix socket."""
    if not structlog.is_configured():
        configure_log()
    listening = [_tcp(host, port)]
    if uds is not None:
        listening.append(_unix(uds))
    inode = 0 if uds is None else uds.stat().st_ino
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    sys.setswitchinterval(SWITCH_SECONDS)
    app = create_app(context)
    config = uvicorn.Config(
        app,
        http=PeerProtocol,
        ws="none",
        access_log=False,
        log_config=None,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        backlog=BACKLOG,
    )
    server = _Server(config, app.state.services)
    named = [":".join(map(str, listening[0].getsockname()[:2])), *([] if uds is None else [str(uds)])]
    log.info("api serves", addresses=named)
    try:
        asyncio.run(server.serve(sockets=listening))
    finally:
        if uds is not None:
            _remove(uds, inode)


class _Server(uvicorn.Server):
    """Ends streams when it is told to stop, so that open ones do not delay it."""

    def __init__(self, config: uvicorn.Config, services: Services) -> None:
        super().__init__(config)
        self._services = services

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but the signal that has ended the service is not raised again, so that it ends cleanly."""
        signals = (signal.SIGINT, signal.SIGTERM)
        before = {each: signal.signal(each, self.handle_exit) for each in signals}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        print("ready", flush=True)  # for `horae up`

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._services.memory["stopping"] = True
        super().handle_exit(sig, frame)


def _bound(host: str, port: int) -> socket.socket:
    """Waits for a while where the address is in use: after a failover the former leader's API may still have it."""
    ends_at = time.monotonic() + BIND_SECONDS
    while True:
        try:
            return socket.create_server((host, port), backlog=BACKLOG, reuse_port=False)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() >= ends_at:
                remedy = "stop the process that uses it, or choose another with --port"
                problem = f"{host}:{port} cannot be used: {error.strerror}"
                raise InputError(problem, field="--port", remedy=remedy) from None
            time.sleep(0.1)


def _tcp(host: str, port: int) -> socket.socket:
    made = _bound(host, port)
    # Inherited by connections: head and body of an answer are two packets, and the second would wait for the client's
    # delayed acknowledgement of the first, 40 ms. asyncio sets it for sockets that it has made itself.
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setblocking(False)
    return made


def _remove(path: Path, inode: int) -> None:
    """Removes the socket, unless another process has put its own there."""
    with suppress(FileNotFoundError):
        if path.stat().st_ino == inode:
            path.unlink()


def _unix(path: Path) -> socket.socket:
    """A socket that every user of the machine may connect to: requests are identified by the kernel."""
    path.unlink(missing_ok=True)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with short_address(path) as address:
        made.bind(address)
    os.chmod(path, 0o666)  # noqa: PTH101
    made.listen(BACKLOG)
    made.setblocking(False)
    return made
