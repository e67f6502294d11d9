"""`horae show`: everything about one job."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import typer

from horae.cli.live.arguments import JobArgument
from horae.cli.live.job_columns import rho
from horae.cli.live.plain import cell, plain
from horae.cli.live.tables import Column, table
from horae.cli.live.times import NONE, ago, duration, local
from horae.cli.output import Output, OutputFormat
from horae.cli.text import examples
from horae.client import Client
from horae.model.safe_text import printable
from horae.service.models import JobView, LeaseView

app = typer.Typer(add_completion=False)
LEASES_MAX = 10
SHOWN_BEFORE = ("name", "tenant", "user", "gpus", "app")  # fields of a job file that are shown as facts of the job


def _ran(lease: LeaseView) -> str:
    if lease.started_at is None:
        return NONE
    return duration((lease.ended_at or time.time()) - lease.started_at)


LEASE_COLUMNS: tuple[Column[LeaseView], ...] = (
    Column("LEASE", lambda lease: str(lease.epoch), is_number=True),
    Column("GPUS", lambda lease: f"{lease.gpus} x {lease.gpu_type} in one {lease.level}"),
    Column("GRANTED", lambda lease: local(lease.granted_at)),
    Column("RAN", _ran, is_number=True),
    Column("KIND", lambda lease: "guaranteed" if lease.guaranteed else "opportunistic"),
    Column("ENDING", lambda lease: ": ".join(filter(None, (lease.ending or "runs", lease.reason)))),
)


@app.command(epilog=examples("horae show bert", "horae show 17 -o json"))
def show(job: JobArgument, output: Output = OutputFormat.TABLE) -> None:
    """Show one job: its state, its times, its leases and its job file."""
    with Client() as client:
        found = client.job(client.find(job))
        if output is OutputFormat.JSON:
            print(json.dumps(plain(found), indent=2))
            return
        leases = client.leases(found)
    print("\n".join(describe(found, leases, time.time())))


def describe(job: JobView, leases: list[LeaseView], now: float) -> list[str]:
    """The lines that are shown."""
    lines = [f"{printable(job.id)} {printable(job.name)}"]
    facts = [(name, text) for name, text in _facts(job, now) if text]
    width = max(len(name) for name, _ in facts)
    lines += [f"  {name:<{width}}  {printable(text)}" for name, text in facts]
    if leases:
        lines += ["", *table(leases[-LEASES_MAX:], LEASE_COLUMNS)]
        if len(leases) > LEASES_MAX:
            lines.append(f"and {len(leases) - LEASES_MAX:,} leases before these")
    return lines


def _facts(job: JobView, now: float) -> Iterator[tuple[str, str]]:
    yield "state", job.state + (f": {job.reason}" if job.reason else "")
    yield "owner", f"{job.user} of tenant {job.tenant}, app {job.app}"
    yield "GPUs", f"{job.held_gpus} of {job.gpus}, {job.gpu_type or 'any type'}" + _guarantee(job)
    yield "places", " ".join(job.places)
    yield "submitted", _when(job.submitted_at, now)
    yield "started", _when(job.first_started_at, now)
    yield "ended", _when(job.ended_at, now)
    yield "waited", duration(job.wait_seconds)
    yield "ran", f"{duration(job.run_seconds)}, {job.gpu_seconds / 3600:,.2f} GPU-hours"
    yield "preempted", f"{job.preemptions:,} times, {job.failures:,} failures"
    yield "progress", _progress(job)
    yield "rho", "" if job.rho is None else rho(job)
    if job.spec is not None:
        for name, value in job.spec.model_dump(mode="json", exclude_defaults=True).items():
            if name not in SHOWN_BEFORE:
                yield name, cell(value)


def _when(at: float | None, now: float) -> str:
    if at is None:
        return ""
    date, distance = local(at), ago(at, now)
    return date if date == distance else f"{date} ({distance})"


def _guarantee(job: JobView) -> str:
    return (", guaranteed" if job.guaranteed else ", preemptible") if job.held_gpus else ""


def _progress(job: JobView) -> str:
    if not job.steps and job.steps_per_second is None:
        return ""
    total = f" of {job.steps_total:,.0f}" if job.steps_total else ""
    parts = [f"{job.steps:,.0f}{total} steps"]
    if job.steps_per_second is not None:
        parts.append(f"{job.steps_per_second:,.3g} per second")
    if job.loss is not None:
        parts.append(f"loss {job.loss:.4g}")
    return ", ".join([*parts, "resumes from its last save" if job.resumable else "starts anew when preempted"])
