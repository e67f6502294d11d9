"""`horae stop`, `horae hold`, `horae release`: what is done to jobs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer

from horae.cli.live.arguments import JobArguments
from horae.cli.text import examples
from horae.client import Client
from horae.model.safe_text import printable
from horae.service.models import JobView

stop_app = typer.Typer(add_completion=False)
hold_app = typer.Typer(add_completion=False)
release_app = typer.Typer(add_completion=False)


@stop_app.command(epilog=examples("horae stop bert", "horae stop 17 18 19", "horae stop 17 --now"))
def stop(
    jobs: JobArguments,
    now: Annotated[bool, typer.Option("--now", help="Kill jobs at once, also those that are leaving.")] = False,
) -> None:
    """Stop jobs for good. A job that runs gets a signal, and may save its work within its grace."""
    _change(jobs, "stop now" if now else "stop")


@hold_app.command(epilog=examples("horae hold bert", "horae release bert"))
def hold(jobs: JobArguments) -> None:
    """Keep jobs from running until they are released; jobs that run are preempted."""
    _change(jobs, "hold")


@release_app.command(epilog=examples("horae hold bert", "horae release bert"))
def release(jobs: JobArguments) -> None:
    """Let jobs run that are on hold."""
    _change(jobs, "release")


def _change(names: list[str], verb: str) -> None:
    """All names are looked up before anything is changed."""
    with Client() as client:
        changes: dict[str, Callable[[JobView], JobView]] = {
            "stop": client.stop,
            "stop now": partial(client.stop, grace=0.0),
            "hold": client.hold,
            "release": client.release,
        }
        for job in [client.find(name) for name in names]:
            print(printable(f"{job.id} {job.name}: {verb} accepted, now {changes[verb](job).state}"))
