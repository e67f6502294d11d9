"""`horae run`: an interactive job, with its output here and Ctrl-C for it."""

from __future__ import annotations

from typing import Annotated

import typer

from horae.cli.live.arguments import CommandAfterDashes, command_after_dashes
from horae.cli.live.attach import attach
from horae.cli.live.follow import exit_code, report_end
from horae.cli.live.spec_options import (
    Env,
    Gpus,
    JobName,
    TenantOfJob,
    Types,
    WorkDir,
    command_fields,
    environment,
    gpu_count,
    gpu_types,
)
from horae.cli.text import examples
from horae.client import Client
from horae.client.user_input import checked
from horae.model.errors import InputError
from horae.service.models import JobSpec

app = typer.Typer(add_completion=False)
MAX_DURATION = "2h"


@app.command(
    cls=CommandAfterDashes,
    epilog=examples("horae run --pty -- bash", "horae run --gpus 1 --type A100 --max-duration 30m -- python train.py"),
)
def run(
    context: typer.Context,
    pty: Annotated[bool, typer.Option("--pty", help="Give the job a terminal; for now its output is printed.")] = False,
    gpus: Gpus = None,
    type_: Types = None,
    tenant: TenantOfJob = None,
    name: JobName = None,
    workdir: WorkDir = None,
    env: Env = None,
    max_duration: Annotated[str, typer.Option(help="The job is stopped after this time.")] = MAX_DURATION,
) -> None:
    """Run a command as an interactive job, print its output, and stop it on Ctrl-C.

    Such a job is never preempted for fairness; it is small and ends after --max-duration.
    """
    command = command_after_dashes(context)
    if not command:
        raise InputError("no command is given", remedy="use `horae run -- COMMAND`")
    spec = checked(
        JobSpec,
        {
            **command_fields(command),
            "priority": "interactive",
            "max_duration": max_duration,
            **_given(gpus=gpu_count(gpus), gpu_type=gpu_types(type_), tenant=tenant, name=name, env=environment(env)),
            **_given(workdir=None if workdir is None else str(workdir.expanduser().absolute())),
        },
    )
    with Client() as client:
        (job_id,) = client.submit(spec)
        ended = attach(client, job_id, has_terminal=pty)
    report_end(ended)
    raise typer.Exit(exit_code([ended]))


def _given(**fields: object) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}
