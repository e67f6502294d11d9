"""`horae eta` and `horae plan`: the service runs its own state forward."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from horae.cli.live.arguments import CommandAfterDashes, JobArgument, command_after_dashes
from horae.cli.live.plain import plain
from horae.cli.live.spec_options import Gpus, TenantOfJob, Types, chosen, command_fields
from horae.cli.live.times import NONE, ago, duration, local
from horae.cli.output import Output, OutputFormat
from horae.cli.text import examples
from horae.client import Client
from horae.client.job_files import changed, read_job_file
from horae.client.user_input import checked
from horae.model.errors import InputError
from horae.model.safe_text import counted, printable
from horae.service.models import DelayView, EtaView, JobSpec, MomentView, PlanView

eta_app = typer.Typer(add_completion=False)
plan_app = typer.Typer(add_completion=False)
SHOWN_DELAYS = 10
Seconds = Annotated[float, typer.Option(min=0.1, max=60.0, help="The time budget of the answer.")]
Draws = Annotated[int, typer.Option(min=1, max=200, help="How many possible futures are looked at.")]


@eta_app.command(epilog=examples("horae eta bert", "horae eta 17 --seconds 10 -o json"))
def eta(job: JobArgument, seconds: Seconds = 2.0, draws: Draws = 20, output: Output = OutputFormat.TABLE) -> None:
    """Estimate when a job starts and ends: the median, and a range that nine of ten possible futures lie in.

    The service runs its own state forward. Lengths that are not known are drawn from those of past jobs.
    """
    with Client() as client:
        found = client.eta(client.find(job), seconds=seconds, draws=draws)
    print(json.dumps(plain(found), indent=2) if output is OutputFormat.JSON else "\n".join(describe_eta(found)))


@plan_app.command(
    cls=CommandAfterDashes,
    epilog=examples("horae plan job.yaml", "horae plan --gpus 4 --type A100 -- python train.py"),
)
def plan(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="A job file in YAML; - for standard input.")] = None,
    gpus: Gpus = None,
    type_: Types = None,
    tenant: TenantOfJob = None,
    seconds: Seconds = 5.0,
    draws: Draws = 20,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Tell what would happen if a job were submitted now, and which jobs it would delay. Nothing is submitted."""
    command = command_after_dashes(context)
    changes = {
        name: value for name, value in chosen(gpus, type_, tenant, None, None, None).items() if value is not None
    }
    with Client() as client:
        found = client.plan(_spec(file, command, changes), seconds=seconds, draws=draws)
    print(json.dumps(plain(found), indent=2) if output is OutputFormat.JSON else "\n".join(describe_plan(found)))


def _spec(file: Path | None, command: list[str], changes: dict[str, object]) -> JobSpec:
    if (file is None) == (not command):
        problem = "a job file and a command are given" if command else "neither a job file nor a command is given"
        raise InputError(problem, remedy="use `horae plan FILE`, or `horae plan -- COMMAND`")
    if file is None:
        return checked(JobSpec, {**command_fields(command), **changes})
    specs = read_job_file(file)
    if len(specs) != 1:
        raise InputError(f"has {len(specs)} jobs", file=str(file), remedy="plan one job at a time")
    return changed(specs[0], changes)


def describe_eta(item: EtaView) -> list[str]:
    starts = "it runs already" if item.starts is None else _range(item.starts, item.asked_at)
    return [
        f"  starts  {starts}",
        f"  ends    {_range(item.ends, item.asked_at)}",
        _basis(item.draws, item.cut_off, item.estimated),
    ]


def describe_plan(item: PlanView) -> list[str]:
    if not item.fits or item.starts is None or item.ends is None:
        return [f"it could never run: {printable(item.refusal)}"]
    lines = [
        f"  starts  {_range(item.starts, item.asked_at)}" + (f", on {item.shapes[0]}" if item.shapes else ""),
        f"  ends    {_range(item.ends, item.asked_at)}",
    ]
    lines += [f"  delays  {_delay(each)}" for each in item.delays[:SHOWN_DELAYS]] or [
        "  delays  no job by a minute or more"
    ]
    if len(item.delays) > SHOWN_DELAYS:
        lines.append(f"          and {counted(len(item.delays) - SHOWN_DELAYS, 'more job')}")
    return [*lines, _basis(item.draws, item.cut_off)]


def _delay(item: DelayView) -> str:
    change = f"{duration(abs(item.seconds))} {'later' if item.seconds > 0 else 'sooner'}"
    return f"{printable(item.job_id)}, which would end {change}"


def _range(moment: MomentView, now: float) -> str:
    if moment.median is None:
        return "not within a month, in most futures"
    text = f"{ago(moment.median, now)} ({local(moment.median)})"
    if moment.low == moment.high:
        return text
    low = NONE if moment.low is None else duration(moment.low - now)
    high = "more than a month" if moment.high is None else duration(moment.high - now)
    return f"{text}, between {low} and {high} from now"


def _basis(draws: int, cut_off: int, estimated: int = 0) -> str:
    text = f"  from    {counted(draws, 'possible future')}"
    if cut_off:
        text += f", {cut_off} of them cut off by the time budget"
    if estimated:
        text += f", in {estimated} of which the end is an estimate"
    return f"{text}; --seconds allows more" if cut_off or estimated else text
