"""How long a test waits before it reports a hang.

No test depends on the speed of the machine: what it waits for comes after milliseconds on an idle machine and after
minutes on one that is twenty times slower and busy. A limit is there only so that a hang becomes a failure.
"""

from __future__ import annotations

import time
from collections.abc import Callable

HANG_SECONDS = 1800.0


def wait_until(condition: Callable[[], bool], poll_seconds: float = 0.01) -> None:
    """Return once the condition holds; fail after HANG_SECONDS."""
    give_up_at = time.monotonic() + HANG_SECONDS
    while not condition():
        assert time.monotonic() < give_up_at, "waited in vain"
        time.sleep(poll_seconds)
