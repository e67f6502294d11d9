"""`horae stop`, `horae hold`, `horae release`: what is done to jobs."""

from __future__ import annotations

from collections.abc import Callable

import typer

from horae.cli.live.arguments import JobArguments
from horae.cli.text import examples
from horae.client import Client
from horae.model.safe_text import printable
from horae.service.models import JobView

stop_app = typer.Typer(add_completion=False)
hold_app = typer.Typer(add_completion=False)
release_app = typer.Typer(add_completion=False)


@stop_app.command(epilog=examples("horae stop bert", "horae stop 17 18 19"))
def stop(jobs: JobArguments) -> None:
    """Stop jobs for good. A job that runs gets a signal, and may save its work within its grace."""
    with Client() as client:
        _change(client, jobs, client.stop, "stopped")


@hold_app.command(epilog=examples("horae hold bert", "horae release bert"))
def hold(jobs: JobArguments) -> None:
    """Keep jobs from running until they are released; jobs that run are preempted."""
    with Client() as client:
        _change(client, jobs, client.hold, "on hold")


@release_app.command(epilog=examples("horae hold bert", "horae release bert"))
def release(jobs: JobArguments) -> None:
    """Let jobs run that are on hold."""
    with Client() as client:
        _change(client, jobs, client.release, "released")


def _change(client: Client, names: list[str], change: Callable[[JobView], bool], done: str) -> None:
    """All names are looked up before anything is changed."""
    for job in [client.find(name) for name in names]:
        applied = change(job)
        print(printable(f"{job.id} {job.name}: {done if applied else 'accepted, the scheduler has not seen it yet'}"))
