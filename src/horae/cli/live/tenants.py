"""`horae tenants ls`, `horae tenants set`, `horae reserve`: shares of the cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from horae.cli.live.arguments import key_values
from horae.cli.live.lists import ListFormat, ListOutput, Watch, print_list
from horae.cli.live.plain import cell
from horae.cli.live.tables import Column
from horae.cli.text import examples
from horae.client import Client
from horae.model.errors import InputError
from horae.model.safe_text import printable
from horae.service.models import TenantView

ls_app = typer.Typer(add_completion=False)
set_app = typer.Typer(add_completion=False)
reserve_app = typer.Typer(add_completion=False)

TenantArgument = Annotated[str, typer.Argument(metavar="TENANT", help="The name of a tenant.")]
TENANT_COLUMNS: tuple[Column[TenantView], ...] = (
    Column("TENANT", lambda tenant: tenant.name, is_cut=True),
    Column("WEIGHT", lambda tenant: f"{tenant.weight:g}", is_number=True),
    Column("GPUS", lambda tenant: f"{tenant.running_gpus:,}", is_number=True),
    Column("GUARANTEED", lambda tenant: f"{tenant.guaranteed_gpus:,}", is_number=True),
    Column("RUNNING", lambda tenant: f"{tenant.running_jobs:,}", is_number=True),
    Column("PENDING", lambda tenant: f"{tenant.pending_jobs:,}", is_number=True),
    Column("NOTICES", lambda tenant: f"{tenant.undelivered_notices:,}", is_number=True, is_wide=True),
    Column("POLICY", lambda tenant: tenant.policy, is_cut=True),
    Column("CELLS", lambda tenant: cell(tenant.cells), is_cut=True),
    Column("QUOTA", lambda tenant: cell(tenant.quota), is_wide=True),
)


@ls_app.command(epilog=examples("horae tenants ls", "horae tenants ls -o json"))
def ls(output: ListOutput = ListFormat.TABLE, watch: Watch = False) -> None:
    """List tenants: weights, GPUs in use, queues, reserved cells."""
    with Client() as client:
        print_list(client.tenants, TENANT_COLUMNS, output, watch, "no tenants")


@set_app.command(epilog=examples("horae tenants set nlp --weight 2", "horae tenants set nlp --quota A100=16"))
def set_tenant(
    tenant: TenantArgument,
    weight: Annotated[float | None, typer.Option(help="Its weight among all tenants.")] = None,
    quota: Annotated[
        list[str] | None, typer.Option(help="A limit: A100=16. Repeat for several; they replace the present ones.")
    ] = None,
) -> None:
    """Change the weight or the quota of a tenant; `horae reserve` changes its cells."""
    if weight is None and quota is None:
        raise InputError("nothing to change is given", remedy="use --weight or --quota")
    change: dict[str, object] = {} if weight is None else {"weight": weight}
    if quota is not None:
        change["quota"] = _counts(quota, "--quota", "A100=16")
    with Client() as client:
        _report(tenant, client.set_tenant(tenant, change))


@reserve_app.command(epilog=examples("horae reserve nlp A100.node=2", "horae reserve nlp A100.node=2 V100.socket=4"))
def reserve(
    tenant: TenantArgument,
    cells: Annotated[list[str], typer.Argument(metavar="CELL=COUNT", help="Cells to reserve: TYPE.LEVEL=COUNT.")],
) -> None:
    """Reserve cells for a tenant, instead of those that it has; other jobs in them are preempted when it needs them."""
    with Client() as client:
        _report(tenant, client.reserve(tenant, _counts(cells, "CELL=COUNT", "A100.node=2")))


def _counts(words: list[str], field: str, example: str) -> dict[str, int]:
    found = {}
    for name, text in key_values(words, field, example).items():
        if not (text.isascii() and text.isdigit()):
            raise InputError(f"{name} is {text!r}", field=field, remedy=f"write {example}")
        found[name] = int(text)
    return found


def _report(tenant: str, is_applied: bool) -> None:
    print(printable(f"{tenant}: {'changed' if is_applied else 'accepted, the scheduler has not seen it yet'}"))
