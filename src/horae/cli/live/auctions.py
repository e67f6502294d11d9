"""`horae auctions`: offers to apps with agents of their own, their bids, what they won and paid."""

from __future__ import annotations

from typing import Annotated

import typer

from horae.cli.live.lists import ListFormat, ListOutput, Watch, print_list
from horae.cli.live.tables import Column
from horae.cli.live.times import NONE, duration, local
from horae.cli.text import examples
from horae.client import Client
from horae.service.models import AuctionResult, OfferView

app = typer.Typer(add_completion=False)


def _points(table: OfferView | None) -> str:
    """Numbers of GPUs with the rho for each: 0:4.2 1:2.1."""
    if table is None:
        return NONE
    pairs = zip(table.gpus, table.rho, strict=True)
    return " ".join(f"{gpus}:{'never' if rho is None else f'{rho:.3g}'}" for gpus, rho in pairs)


AUCTION_COLUMNS: tuple[Column[AuctionResult], ...] = (
    Column("AUCTION", lambda each: str(each.auction), is_number=True),
    Column("CALLED", lambda each: local(each.called_at)),
    Column("POOL", lambda each: each.pool, is_cut=True),
    Column("APP", lambda each: each.app, is_cut=True),
    Column("OFFER", lambda each: _points(each.offer), is_cut=True),
    Column("BID", lambda each: _points(each.bid), is_cut=True),
    Column("WON", lambda each: str(each.won_gpus), is_number=True),
    Column("LEASE", lambda each: duration(each.lease_seconds), is_number=True),
    Column("PAID", lambda each: f"{each.payment:.0%}", is_number=True),
    Column("NOTE", lambda each: "open" if each.closed_at is None else each.note, is_cut=True),
)


@app.command(epilog=examples("horae auctions", "horae auctions --app search -o json"))
def auctions(
    app: Annotated[str | None, typer.Option(help="Only of this app.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="So many rows, the latest.")] = 100,
    output: ListOutput = ListFormat.TABLE,
    watch: Watch = False,
) -> None:
    """List auctions in which your apps were called for bids: rho by number of GPUs, what was won and paid."""
    with Client() as client:
        print_list(lambda: client.auction_history(app=app, limit=limit), AUCTION_COLUMNS, output, watch, "no auctions")
