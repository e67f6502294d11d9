"""`horae submit`: jobs from a file, or a command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from horae.cli.live.arguments import CommandAfterDashes, command_after_dashes
from horae.cli.live.completion import complete_jobs
from horae.cli.live.follow import exit_code, follow_output, left_running, report_end
from horae.cli.live.plain import plain
from horae.cli.live.spec_options import (
    Env,
    Gpus,
    JobName,
    TenantOfJob,
    Types,
    WorkDir,
    chosen,
    command_fields,
    sweep_values,
)
from horae.cli.output import Output, OutputFormat
from horae.cli.text import examples
from horae.client import Client
from horae.client.job_files import changed, read_job_file
from horae.client.user_input import checked
from horae.model.errors import InputError
from horae.model.safe_text import printable
from horae.service.models import JobSpec

app = typer.Typer(add_completion=False)


@app.command(
    cls=CommandAfterDashes,
    epilog=examples(
        "horae submit job.yaml",
        "horae submit --gpus 2 --type A100 -- python train.py --lr 0.1",
        "horae submit --sweep lr=0.1,0.01 --wait -- python train.py --lr '{lr}'",
    ),
)
def submit(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="A job file in YAML; - for standard input.")] = None,
    gpus: Gpus = None,
    type_: Types = None,
    tenant: TenantOfJob = None,
    name: JobName = None,
    workdir: WorkDir = None,
    env: Env = None,
    app: Annotated[str | None, typer.Option(help="The app that the job belongs to; else one of its own.")] = None,
    after: Annotated[
        list[str] | None,
        typer.Option(help="A job that must have finished before. Repeat for several.", autocompletion=complete_jobs),
    ] = None,
    array: Annotated[int | None, typer.Option(help="So many jobs, each with its own HORAE_ARRAY_INDEX.")] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            help="A parameter with its values: lr=0.1,0.01, or a file with several, and `stop: hyperband`. Repeat."
        ),
    ] = None,
    max_duration: Annotated[str | None, typer.Option(help="The job is stopped after this time, such as 24h.")] = None,
    checkpoint: Annotated[
        bool, typer.Option("--checkpoint", help="The job saves its work on SIGTERM and resumes from it.")
    ] = False,
    priority: Annotated[str | None, typer.Option(help="A named class: 'low', 'normal', 'high', ...")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end; exit code 1 unless all finish.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print its output until it ends.")] = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Submit a job file, or the command after '--', and print the id of the job.

    Options replace what the file says. A command runs in the present folder.
    """
    changes: dict[str, object] = {
        **chosen(gpus, type_, tenant, name, workdir, env),
        "app": app,
        "after": after or None,
        "array": array,
        "sweep": sweep_values(sweep),
        "max_duration": max_duration,
        "checkpoint": {} if checkpoint else None,
        "priority": priority,
    }
    specs = _specs(file, command_after_dashes(context), {k: v for k, v in changes.items() if v is not None})
    if follow and (len(specs) > 1 or specs[0].array or specs[0].sweep):
        raise InputError("follows one job", field="--follow", remedy="use --wait, and `horae logs -f` for one of them")
    with Client() as client:
        ids = client.submit(specs)
        _print(client, ids, output)
        if wait or follow:
            raise typer.Exit(_wait(client, ids, follow))


def _specs(file: Path | None, command: list[str], changes: dict[str, object]) -> list[JobSpec]:
    if (file is None) == (not command):
        problem = "a job file and a command are given" if command else "neither a job file nor a command is given"
        raise InputError(problem, remedy="use `horae submit FILE`, or `horae submit -- COMMAND`")
    if file is None:
        return [checked(JobSpec, {**command_fields(command), **changes})]
    return [changed(spec, _merged(spec, changes)) for spec in read_job_file(file)]


def _merged(spec: JobSpec, changes: dict[str, object]) -> dict[str, object]:
    """Variables are added to those of the file."""
    env = changes.get("env")
    return {**changes, "env": {**spec.env, **env}} if isinstance(env, dict) else changes


def _print(client: Client, ids: list[str], output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        jobs = [plain(client.job(each)) for each in ids]
        print(json.dumps(jobs[0] if len(jobs) == 1 else jobs, indent=2), flush=True)
    else:
        print("\n".join(printable(each) for each in ids), flush=True)


def _wait(client: Client, ids: list[str], follow: bool) -> int:
    """The exit code, once all jobs have ended."""
    try:
        ended = [follow_output(client, ids[0])] if follow else [client.wait(each) for each in ids]
    except KeyboardInterrupt:
        raise left_running(ids) from None
    for job in ended:
        report_end(job)
    return exit_code(ended)
