"""Waits for a store that is full or away as long as it takes. Nothing is decided meanwhile; running jobs run on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import structlog

from horae.service.store.database import StoreFull, StoreUnavailable

T = TypeVar("T")
RETRY_SECONDS = 1.0  # between two attempts
POLL_SECONDS = 0.1

log = structlog.get_logger("loop")


class Patience:
    def __init__(self, meanwhile: Callable[[], None], is_stopping: Callable[[], bool]) -> None:
        """`meanwhile` is called often while the store is waited for; a process that is stopping does not wait."""
        self._meanwhile = meanwhile
        self._is_stopping = is_stopping

    def __call__(self, action: Callable[[], T]) -> T:
        """The result of this access to the store, repeated until it succeeds."""
        failed_at: float | None = None
        while True:
            try:
                result = action()
            except (StoreFull, StoreUnavailable) as error:
                if self._is_stopping():
                    raise
                if failed_at is None:
                    failed_at = time.monotonic()
                    log.error(
                        "the store is full" if isinstance(error, StoreFull) else "the store is away", error=str(error)
                    )
                self._pause()
            else:
                if failed_at is not None:
                    log.warning("the store is back", seconds=round(time.monotonic() - failed_at, 1))
                return result

    def _pause(self) -> None:
        ends_at = time.monotonic() + RETRY_SECONDS
        while time.monotonic() < ends_at and not self._is_stopping():
            self._meanwhile()
            time.sleep(POLL_SECONDS)
