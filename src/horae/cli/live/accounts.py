"""`horae share`, `horae usage`: how tenants were treated, and what they used."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from horae.cli.live.lists import ListFormat, ListOutput, Tenant, Watch, print_list
from horae.cli.live.tables import Column
from horae.cli.live.times import NONE, duration, moment, now
from horae.cli.text import examples
from horae.client import Client
from horae.model.errors import InputError
from horae.service.models import ShareRow, UsageRow

share_app = typer.Typer(add_completion=False)
usage_app = typer.Typer(add_completion=False)
SHARE_BY = ("tenant", "app")
USAGE_BY = {"tenant": "tenant", "user": "user", "type": "gpu_type", "month": "month", "kind": "kind"}


def _rho(value: float | None) -> str:
    return NONE if value is None else f"{value:,.2f}"


SHARE_COLUMNS: tuple[Column[ShareRow], ...] = (
    Column("NAME", lambda row: row.name, is_cut=True),
    Column("TENANT", lambda row: row.tenant, is_cut=True),
    Column("JOBS", lambda row: f"{row.jobs:,}", is_number=True),
    Column("RUNNING", lambda row: f"{row.running:,}", is_number=True),
    Column("FINISHED", lambda row: f"{row.finished:,}", is_number=True, is_wide=True),
    Column("GPU-HOURS", lambda row: f"{row.gpu_hours:,.1f}", is_number=True),
    Column("SHARE", lambda row: f"{row.share:.1%}", is_number=True),
    Column("WEIGHT", lambda row: f"{row.weight_share:.1%}", is_number=True),
    Column("RHO", lambda row: _rho(row.rho_mean), is_number=True),
    Column("RHO MAX", lambda row: _rho(row.rho_max), is_number=True),
    Column("GUARANTEED", lambda row: f"{row.guaranteed_gpu_hours:,.1f}", is_number=True, is_wide=True),
    Column("WAITED", lambda row: duration(row.waited_for_own_cells_seconds), is_number=True, is_wide=True),
)
USAGE_COLUMNS: tuple[Column[UsageRow], ...] = (
    Column("MONTH", lambda row: row.month),
    Column("TENANT", lambda row: row.tenant, is_cut=True),
    Column("USER", lambda row: row.user, is_cut=True),
    Column("TYPE", lambda row: row.gpu_type, is_cut=True),
    Column("KIND", lambda row: row.kind, is_cut=True),
    Column("GPU-HOURS", lambda row: f"{row.gpu_hours:,.1f}", is_number=True),
    Column("IDLE", lambda row: f"{row.idle_gpu_hours:,.1f}", is_number=True),
    Column("JOBS", lambda row: f"{row.jobs:,}", is_number=True),
)


@share_app.command(epilog=examples("horae share", "horae share --by app --tenant nlp -o wide"))
def share(
    by: Annotated[str, typer.Option(help="One row per 'tenant' or 'app'.")] = "tenant",
    tenant: Tenant = None,
    since: Annotated[
        str | None, typer.Option(help="With jobs that ended since: a date, or a time ago; else the last week.")
    ] = None,
    output: ListOutput = ListFormat.TABLE,
    watch: Watch = False,
) -> None:
    """Show how tenants or apps were treated: rho, GPU-hours, and their shares of both GPUs and weights."""
    if by not in SHARE_BY:
        raise InputError(f"is {by!r}", field="--by", remedy=f"use {' or '.join(SHARE_BY)}")
    begin = moment(since, "--since", now())

    def read() -> list[ShareRow]:
        return [row for row in client.share(by=by, since=begin) if tenant in (None, row.tenant)]

    with Client() as client:
        print_list(read, SHARE_COLUMNS, output, watch, "nothing has run yet")


@usage_app.command(epilog=examples("horae usage", "horae usage --by user --month 2026-11", "horae usage -o csv"))
def usage(
    by: Annotated[
        str, typer.Option(help="Sums by 'tenant', 'user', 'type', 'month' or 'kind'; several with commas.")
    ] = "",
    month: Annotated[str | None, typer.Option(help="Of this month only, such as 2026-11.")] = None,
    tenant: Tenant = None,
    output: ListOutput = ListFormat.TABLE,
    watch: Watch = False,
) -> None:
    """Show GPU-hours: guaranteed, borrowed or shared, and of kind 'idle' and 'unusable' those that no job held.

    IDLE are hours without any use: also of jobs that held GPUs and computed nothing, where the driver tells.
    """
    words = [word for word in by.split(",") if word]
    if wrong := [word for word in words if word not in USAGE_BY]:
        raise InputError(f"is {wrong[0]!r}", field="--by", remedy=f"use {', '.join(USAGE_BY)}")
    if month is not None and not re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])", month, re.ASCII):
        raise InputError(f"is {month!r}", field="--month", remedy="write it as 2026-11")

    def read() -> list[UsageRow]:
        return client.usage(by=[USAGE_BY[word] for word in words], month=month, tenant=tenant)

    with Client() as client:
        print_list(read, USAGE_COLUMNS, output, watch, "nothing was used", hide_empty=True)
