"""The log of a process of the service."""

from __future__ import annotations

import sys

import structlog


def configure_log() -> None:
    """One JSON object per line; errors with their traceback, without the values of variables, which may be secret.

    Standard output would not do: it is a pipe that `horae up` reads only until the process is ready.
    """
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
