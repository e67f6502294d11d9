"""Words that `horae why` uses, whether it explains a journal or a job of the service."""

from __future__ import annotations

from collections.abc import Sequence

NAMES_MAX = 5  # names that are listed
STORY_MAX = 12
_STATES = {
    "submitted": "was submitted and waits for the scheduler",
    "waiting": "waits for other jobs",
    "pending": "waits",
    "holding": "is about to start",
    "starting": "is starting",
    "running": "runs",
    "stopping": "is leaving its GPUs",
    "cancelling": "is leaving for good",
    "suspended": "is on hold",
    "borrowing": "runs on borrowed GPUs",
    "cancelled": "was cancelled",
    "refused": "was refused",
}


def state_in_words(state: str) -> str:
    return _STATES.get(state, f"has {state}")


def several(names: Sequence[str]) -> str:
    """The first names, and how many there are besides."""
    more = f" and {len(names) - NAMES_MAX:,} more" if len(names) > NAMES_MAX else ""
    return ", ".join(names[:NAMES_MAX]) + more
