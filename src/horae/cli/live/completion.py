"""Completion of job ids and names by the shell: quick, and silent where the service does not answer."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from horae.client import Client

LIMIT_SECONDS = 0.3
SHOWN_MAX = 50
JOBS_MAX = 200


def complete_jobs(incomplete: str) -> list[str]:
    """Ids and names of the newest jobs that begin with what was typed."""
    return _proposals(incomplete, _jobs)


def complete_nodes(incomplete: str) -> list[str]:
    return _proposals(incomplete, lambda client: [node.name for node in client.nodes()])


def _jobs(client: Client) -> list[str]:
    return [word for job in islice(client.jobs(limit=JOBS_MAX), JOBS_MAX) for word in (job.id, job.name)]


def _proposals(incomplete: str, read: Callable[[Client], list[str]]) -> list[str]:
    from horae.client import Client  # noqa: PLC0415  (its import does not count for the limit)

    def ask() -> list[str]:
        with Client(timeout_seconds=LIMIT_SECONDS) as client:
            words = dict.fromkeys(read(client))
        return [word for word in words if word.startswith(incomplete) and word.isprintable()][:SHOWN_MAX]

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
