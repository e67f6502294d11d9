"""`horae pools`: which policy decides for which tenants."""

from __future__ import annotations

import typer

from horae.cli.live.lists import ListFormat, ListOutput, Watch, print_list
from horae.cli.live.plain import cell
from horae.cli.live.tables import Column
from horae.cli.live.times import duration
from horae.cli.text import examples
from horae.client import Client
from horae.service.models import PoolView

app = typer.Typer(add_completion=False)
POOL_COLUMNS: tuple[Column[PoolView], ...] = (
    Column("POOL", lambda pool: pool.name, is_cut=True),
    Column("POLICY", lambda pool: pool.policy),
    Column("OPTIONS", lambda pool: cell(pool.options), is_cut=True),
    Column(
        "DECIDES", lambda pool: f"every {duration(pool.round_seconds)}" if pool.cadence == "rounds" else "on events"
    ),
    Column("TENANTS", lambda pool: " ".join(pool.tenants) or "all others", is_cut=True),
)


@app.command(epilog=examples("horae pools", "horae pools -o json"))
def pools(output: ListOutput = ListFormat.TABLE, watch: Watch = False) -> None:
    """List pools: their policies, and the tenants that they serve."""
    with Client() as client:
        print_list(client.pools, POOL_COLUMNS, output, watch, "no pools")
