"""`horae logs`: the output of a job."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from horae.cli.live.arguments import JobArgument
from horae.cli.live.follow import follow_output, report_end, write
from horae.cli.text import examples
from horae.client import Client
from horae.model.errors import InputError
from horae.model.safe_text import printable
from horae.service.models import JobView

app = typer.Typer(add_completion=False)
LINE_BYTES = 200  # of one line, as a first guess
TAIL_BYTES_MAX = 16 << 20


@app.command(epilog=examples("horae logs bert", "horae logs -f bert", "horae logs --tail 20 17"))
def logs(
    job: JobArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    tail: Annotated[int | None, typer.Option(help="The last lines only, so many.")] = None,
) -> None:
    """Print the output of a job, as the job wrote it."""
    if tail is not None and tail < 0:
        raise InputError(f"is {tail}", field="--tail", remedy="give a number of lines")
    with Client() as client:
        found = client.find(job)
        text = None if tail is None else last_lines(client, found.id, tail)
        if follow:
            _follow(client, found.id, None if text is None else len(text))
        else:
            _write(client, found, text)


def _write(client: Client, job: JobView, text: bytes | None) -> None:
    is_any = write(client.logs(job) if text is None else [text])
    if not is_any and text is None and job.first_started_at is None:
        print(printable(f"{job.id} {job.name} has no output: it is {job.state} and has not started"), file=sys.stderr)


def _follow(client: Client, job: str, tail_bytes: int | None) -> None:
    try:
        report_end(follow_output(client, job, tail_bytes))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def last_lines(client: Client, job: str, count: int) -> bytes:
    """The last lines of the output so far: more bytes are asked for while they hold too few lines."""
    size = max(count, 1) * LINE_BYTES
    while True:
        text = b"".join(client.logs(job, tail=size))
        lines = text.splitlines(keepends=True)
        if len(lines) > count or len(text) < size or size >= TAIL_BYTES_MAX:
            return b"".join(lines[-count:] if count else [])
        size = min(size * 8, TAIL_BYTES_MAX)
