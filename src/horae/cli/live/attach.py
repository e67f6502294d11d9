"""The terminal of an interactive job: its output here, and Ctrl-C to it."""

from __future__ import annotations

import sys

from horae.cli.live.follow import follow_output
from horae.client import Client
from horae.model.safe_text import printable
from horae.service.models import JobView


def attach(client: Client, job: str, *, has_terminal: bool) -> JobView:
    """Connects this terminal with a job until it ends; Ctrl-C stops the job, a second one leaves it.

    Engines offer no terminals yet: with or without one, the output of the job is printed.
    """
    del has_terminal
    try:
        return follow_output(client, job)
    except KeyboardInterrupt:
        print(printable(f"horae: stopping {job}; Ctrl-C again leaves it"), file=sys.stderr)
        client.stop(job)
    return follow_output(client, job, tail_bytes=0)
