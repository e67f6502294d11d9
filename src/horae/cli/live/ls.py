"""`horae ls`: the jobs of the service."""

from __future__ import annotations

from typing import Annotated

import typer

from horae.cli.live.arguments import States, known_states
from horae.cli.live.job_columns import JOB_COLUMNS, LIVE
from horae.cli.live.lists import ListFormat, ListOutput, Tenant, Watch, print_list
from horae.cli.text import examples
from horae.client import Client
from horae.client.client import JobFilters

app = typer.Typer(add_completion=False)


@app.command(epilog=examples("horae ls", "horae ls --all --state failed -o wide", "horae ls --tenant nlp --watch"))
def ls(
    everything: Annotated[bool, typer.Option("--all", help="Of all tenants and users, and ended jobs too.")] = False,
    state: States = None,
    tenant: Tenant = None,
    user: Annotated[str | None, typer.Option(help="Of this user only.")] = None,
    app: Annotated[str | None, typer.Option(help="Of this app only.")] = None,
    name: Annotated[str | None, typer.Option(help="Of this name only.")] = None,
    output: ListOutput = ListFormat.TABLE,
    watch: Watch = False,
) -> None:
    """List jobs: those of your tenant that have not ended, unless options say otherwise."""
    filters = JobFilters(tenant=tenant, user=user, app=app, name=name)
    filters["state"] = known_states(state) or (None if everything else list(LIVE))
    with Client() as client:
        if not (everything or tenant or user or app or name):
            filters |= _mine(client)
        print_list(lambda: list(client.jobs(**filters)), JOB_COLUMNS, output, watch, "no jobs; --all shows ended ones")


def _mine(client: Client) -> JobFilters:
    """Jobs of the caller's tenant, else the caller's own; an operator without a tenant sees all."""
    me = client.me()
    if me.tenant:
        return JobFilters(tenant=me.tenant)
    return JobFilters() if me.role == "operator" else JobFilters(user=me.user)
