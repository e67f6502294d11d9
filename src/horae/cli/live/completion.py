"""Completion of job ids and names by the shell: quick, and silent where the service does not answer."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from threading import Thread

LIMIT_SECONDS = 0.3
SHOWN_MAX = 50


def complete_jobs(incomplete: str) -> list[str]:
    """Ids and names of the newest jobs that begin with what was typed."""
    from horae.client import Client  # noqa: PLC0415  (help and other completions do not need it)

    def ask() -> list[str]:
        with Client(timeout_seconds=LIMIT_SECONDS) as client:
            jobs = list(islice(client.jobs(limit=200), 200))
        words = [word for job in jobs for word in (job.id, job.name)]
        return [word for word in dict.fromkeys(words) if word.startswith(incomplete) and word.isprintable()][:SHOWN_MAX]

    return within(LIMIT_SECONDS, ask)


def within(seconds: float, ask: Callable[[], list[str]]) -> list[str]:
    """The answer, or nothing where it takes longer or fails: a shell shows whatever completion prints."""
    found: list[str] = []

    def run() -> None:
        try:
            found.extend(ask())
        except Exception:  # any problem means: no proposals
            return

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    return list(found)
