"""Auctions: apps with agents of their own see the open calls, and bid."""

from __future__ import annotations

import asyncio
import json
import time
from math import isfinite
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from sqlalchemy import ColumnElement, Connection, or_, select, true

from horae.model.events import BidGiven
from horae.service.api.database import LogClock, clock
from horae.service.api.identity import Identity, require
from horae.service.api.problems import Refused, no_such
from horae.service.api.routes.jobs import All, Who
from horae.service.models import AuctionResult, AuctionView, Bid, Done, OfferView
from horae.service.store.schema import auctions

router = APIRouter(tags=["auctions"])
HISTORY_MAX = 1000
WAIT_SECONDS_MAX = 30.0
POLL_SECONDS = 0.1


@router.get("/auctions")
async def list_auctions(
    who: Who,
    all_: All,
    after: Annotated[int, Query(ge=-1, le=2**62, description="the last auction seen")] = -1,
    wait: Annotated[float, Query(ge=0, le=WAIT_SECONDS_MAX, description="seconds to wait for a new one")] = 0.0,
) -> list[AuctionView]:
    """Open calls for bids with offers to the requester's apps; with `wait`, the answer comes when there is one."""
    ends_at = time.monotonic() + wait
    while True:
        found = await all_.read(lambda connection: _open_calls(connection, who, after))
        if found or time.monotonic() >= ends_at or all_.memory.get("stopping"):
            return found
        await asyncio.sleep(POLL_SECONDS)


@router.post("/auctions/{auction}/bids", status_code=202)
async def bid(
    auction: Annotated[int, Path(ge=0, le=2**62)], body: Bid, who: Who, all_: All, response: Response
) -> Done:
    """Bid for an app: the rho that it reports for each number of GPUs."""
    require(who, "user", "bidding")
    if not body.gpus or len(body.gpus) != len(body.rho) or len(body.gpus) > 10_000:
        raise Refused(422, "gpus and rho have different lengths", field="rho", remedy="give one rho per number of GPUs")
    calls = await all_.read(lambda connection: _open_calls(connection, who, auction - 1))
    call = next((each for each in calls if each.auction == auction), None)
    if call is None:
        raise no_such("auction", str(auction))
    names = {body.app, f"{who.tenant}/{body.app}"}
    offer = next((each for each in call.offers if each.app in names), None)
    if offer is None:
        raise Refused(404, "the auction has no offer to this app", field="app", remedy="bid for an app of the call")
    event = BidGiven(0.0, auction, offer.app, tuple(body.gpus), tuple(body.rho))
    await all_.send_event(who, event, "bid", offer.app, f"auction {auction}")
    return Done(applied=False)


@router.get("/auctions/history")
async def history(
    who: Who,
    all_: All,
    app: Annotated[str | None, Query(max_length=500)] = None,
    limit: Annotated[int, Query(ge=1, le=HISTORY_MAX)] = 100,
) -> list[AuctionResult]:
    """The parts of the requester's apps in auctions, the latest first: offers, bids, what was won and paid."""

    def query(connection: Connection) -> list[AuctionResult]:
        now, mine = clock(connection), _mine(who)
        if app is not None:
            mine = mine & or_(auctions.c.app == app, auctions.c.app == auctions.c.tenant + "/" + app)
        latest = select(auctions).where(mine).order_by(auctions.c.auction.desc(), auctions.c.app).limit(limit)
        return [_result(row, now) for row in connection.execute(latest)]

    return await all_.read(query)


def _mine(who: Identity) -> ColumnElement[bool]:
    """Rows of the requester's tenant: of other tenants' offers and bids nothing is shown, not even their number."""
    return true() if who.sees_all else auctions.c.tenant == who.tenant


def _open_calls(connection: Connection, who: Identity, after: int) -> list[AuctionView]:
    now = clock(connection)
    is_open = auctions.c.closed_at.is_(None) & (auctions.c.closes_at > now.now) & (auctions.c.auction > after)
    query = select(auctions).where(is_open & _mine(who)).order_by(auctions.c.auction, auctions.c.app)
    views: dict[int, AuctionView] = {}
    for row in connection.execute(query):
        call = AuctionView(auction=row.auction, pool=row.pool, closes_at=now.unix(row.closes_at), offers=[])
        views.setdefault(row.auction, call).offers.append(_table(row.app, row.offer))
    return list(views.values())


def _result(row: Any, now: LogClock) -> AuctionResult:
    return AuctionResult(
        auction=row.auction,
        pool=row.pool,
        app=row.app,
        tenant=row.tenant,
        called_at=now.unix(row.called_at),
        closes_at=now.unix(row.closes_at),
        closed_at=now.unix_or_none(row.closed_at),
        offer=_table(row.app, row.offer),
        bid=None if row.bid is None else _table(row.app, row.bid),
        note=row.note,
        won_gpus=row.won_gpus,
        lease_seconds=row.lease_seconds,
        payment=row.payment,
    )


def _table(app: str, text: str) -> OfferView:
    gpus, rho = json.loads(text)
    return OfferView(app=app, gpus=gpus, rho=[_finite(value) for value in rho])


def _finite(value: Any) -> float | None:
    return float(value) if isfinite(float(value)) else None
