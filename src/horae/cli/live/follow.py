"""The output of a job while it is written, until the job ends."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterable

import typer

from horae.cli.live.times import duration
from horae.client import Client
from horae.model.safe_text import printable
from horae.service.models import JobView


def follow_output(client: Client, job: str, tail_bytes: int | None = None) -> JobView:
    """Prints the output of a job until it ends, from the start or from so many bytes ago; the job once it has ended."""
    write(client.logs(job, follow=True, tail=tail_bytes))
    return client.wait(job)


def write(chunks: Iterable[bytes]) -> bool:
    """Writes output of a job as it is, with its progress bars and colours. Returns whether there was any."""
    buffer = getattr(sys.stdout, "buffer", None)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    is_any = False
    for chunk in chunks:
        is_any = is_any or bool(chunk)
        if buffer is None:
            sys.stdout.write(decoder.decode(chunk))
        else:
            buffer.write(chunk)
        sys.stdout.flush()
    return is_any


def report_end(job: JobView) -> None:
    """Tells on standard error how a job ended."""
    reason = f": {job.reason}" if job.reason else ""
    line = f"{job.id} {job.name} {job.state} after {duration(job.run_seconds)}{reason}"
    print(printable(line), file=sys.stderr)


def exit_code(jobs: Iterable[JobView]) -> int:
    """0 if all jobs have finished, or were stopped by their search for better ones; 1 otherwise."""
    return 0 if all(job.state in ("finished", "stopped") for job in jobs) else 1


def left_running(job_ids: list[str]) -> typer.Exit:
    """Says that jobs go on although waiting for them was interrupted."""
    ids = " ".join(job_ids[:5])
    print(f"horae: interrupted; the job goes on: `horae stop {printable(ids)}` would stop it", file=sys.stderr)
    return typer.Exit(130)
