"""`horae run`: an interactive job, with its output here and Ctrl-C for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from horae.cli.live.arguments import CommandAfterDashes, command_after_dashes
from horae.cli.live.attach import follow_interactive, use_terminal
from horae.cli.live.follow import exit_code, report_end
from horae.cli.live.spec_options import (
    Env,
    Gpus,
    JobName,
    TenantOfJob,
    Types,
    WorkDir,
    chosen,
    command_fields,
    environment,
)
from horae.cli.text import examples
from horae.client import Client
from horae.client.user_input import checked
from horae.model.errors import InputError
from horae.service.models import JobSpec

app = typer.Typer(add_completion=False)
SHELL = 'exec "${SHELL:-/bin/sh}"'


@app.command(
    cls=CommandAfterDashes,
    epilog=examples("horae run --pty", "horae run --pty -- python", "horae run --max-duration 30m -- python train.py"),
)
def run(
    context: typer.Context,
    pty: Annotated[
        bool, typer.Option("--pty", help="Give the job this terminal; without a command, run a shell.")
    ] = False,
    gpus: Gpus = None,
    type_: Types = None,
    tenant: TenantOfJob = None,
    name: JobName = None,
    workdir: WorkDir = None,
    env: Env = None,
    max_duration: Annotated[
        str | None, typer.Option(help="The job is stopped after this time; else the service's limit, 4h.")
    ] = None,
) -> None:
    """Run a command as an interactive job: with its output here, or with --pty on this terminal.

    Such a job is never preempted for fairness; it is small and ends after --max-duration. The exit code of the command
    is that of `horae run --pty`. If the terminal is closed, the job goes on for five minutes: `horae attach` takes it
    back.
    """
    command = command_after_dashes(context)
    if not command and not pty:
        raise InputError("no command is given", remedy="use `horae run -- COMMAND`, or --pty for a shell")
    shell = {"run": SHELL, "name": "shell", "workdir": str(Path.cwd())}
    options = chosen(gpus, type_, tenant, name, workdir, env)
    terminal = {"TERM": os.environ.get("TERM", "dumb")} if pty else {}
    spec = checked(
        JobSpec,
        {
            **(command_fields(command) if command else shell),
            "priority": "interactive",
            "pty": pty,
            "max_duration": max_duration,
            **options,
            "env": terminal | (environment(env) or {}),
        },
    )
    with Client() as client:
        (job_id,) = client.submit(spec)
        if pty:
            raise typer.Exit(use_terminal(client, job_id))
        ended = follow_interactive(client, job_id)
    report_end(ended)
    raise typer.Exit(exit_code([ended]))
