"""Serves the API on loopback and on a Unix socket, in one process."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import structlog
import uvicorn

from horae.service.api.app import create_app
from horae.service.api.context import Context
from horae.service.api.services import Services
from horae.service.api.unix_peer import PeerProtocol

BACKLOG = 2048
GRACE_SECONDS = 5  # open requests and streams are cut after this time at shutdown
log = structlog.get_logger("horae.api")


def serve(context: Context, host: str = "127.0.0.1", port: int = 8642, uds: Path | None = None) -> None:
    """Serves until SIGTERM or SIGINT. Port 0 takes a free one; `uds` is the path of the Unix socket."""
    if not structlog.is_configured():
        _configure_log()
    listening = [_tcp(host, port)]
    if uds is not None:
        listening.append(_unix(uds))
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
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
    names = [each.getsockname() for each in listening]
    log.info("api serves", addresses=[f"{name[0]}:{name[1]}" if isinstance(name, tuple) else name for name in names])
    try:
        asyncio.run(server.serve(sockets=listening))
    finally:
        if uds is not None:
            uds.unlink(missing_ok=True)


def _configure_log() -> None:
    """One JSON object per line; errors with their traceback, without the values of variables, which may be secret."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


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

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._services.memory["stopping"] = True
        super().handle_exit(sig, frame)


def _tcp(host: str, port: int) -> socket.socket:
    made = socket.create_server((host, port), backlog=BACKLOG, reuse_port=False)
    made.setblocking(False)
    return made


def _unix(path: Path) -> socket.socket:
    """A socket that every user of the machine may connect to: requests are identified by the kernel."""
    path.unlink(missing_ok=True)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.bind(str(path))
    os.chmod(path, 0o666)  # noqa: PTH101
    made.listen(BACKLOG)
    made.setblocking(False)
    return made
