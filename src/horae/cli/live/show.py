"""`horae show`: everything about one job, or the trials of an app."""

from __future__ import annotations

import json
import time
from collections import Counter
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
from horae.model.errors import ServiceError
from horae.model.safe_text import printable
from horae.service.models import JobView, LeaseView, TrialView

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


def _steps(trial: TrialView) -> str:
    return f"{trial.steps:,.0f}" + (f"/{trial.steps_total:,.0f}" if trial.steps_total else "")


TRIAL_COLUMNS: tuple[Column[TrialView], ...] = (
    Column("TRIAL", lambda trial: trial.job_id),
    Column("PARAMETERS", lambda trial: " ".join(f"{name}={value}" for name, value in trial.parameters.items())),
    Column("STATE", lambda trial: trial.state),
    Column("STEPS", _steps, is_number=True),
    Column("LOSS", lambda trial: NONE if trial.loss is None else f"{trial.loss:.5g}", is_number=True),
    Column("RUNG", lambda trial: NONE if trial.rung is None else str(trial.rung), is_number=True),
    Column("GPU-HOURS", lambda trial: f"{trial.gpu_hours:,.2f}", is_number=True),
    Column("REASON", lambda trial: trial.reason, is_cut=True),
)


@app.command(epilog=examples("horae show bert", "horae show 17 -o json", "horae show my-sweep"))
def show(job: JobArgument, output: Output = OutputFormat.TABLE) -> None:
    """Show one job: its state, its times, its leases and its job file; or the trials of an app, the best first."""
    with Client() as client:
        try:
            found = client.job(client.find(job))
        except ServiceError as error:
            trials = _trials(client, job) if error.status == 404 else []
            if not trials:
                raise
            _show_trials(trials, output)
            return
        if output is OutputFormat.JSON:
            print(json.dumps(plain(found), indent=2))
            return
        leases = client.leases(found)
    print("\n".join(describe(found, leases, time.time())))


def _trials(client: Client, name: str) -> list[TrialView]:
    """The trials of an app, those that got furthest first and among these those with the lowest loss; none: no app."""
    try:
        found = client.trials(name)
    except ServiceError as error:
        if error.status != 404:
            raise
        return []
    return sorted(found, key=lambda each: (-(each.rung or 0), each.loss is None, each.loss or 0.0))


def _show_trials(trials: list[TrialView], output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        print(json.dumps([plain(each) for each in trials], indent=2))
        return
    counts = Counter(trial.state for trial in trials)
    states = ", ".join(f"{count:,} {state}" for state, count in counts.most_common())
    print(f"app {printable(trials[0].app)} of tenant {printable(trials[0].tenant)}: {len(trials):,} trials, {states}\n")
    print("\n".join(table(trials, TRIAL_COLUMNS)))


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
