"""Auctions: apps with agents of their own see the open calls, and bid."""

from __future__ import annotations

import asyncio
import json
import time
import zlib
from math import isfinite
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from sqlalchemy import Connection, select

from horae.model.events import BidGiven
from horae.service.api.database import clock
from horae.service.api.identity import Identity, require
from horae.service.api.problems import Refused, no_such
from horae.service.api.routes.cluster import visible_pools
from horae.service.api.routes.jobs import All, Who
from horae.service.api.services import Services
from horae.service.models import AuctionView, Bid, Done, OfferView
from horae.service.store.schema import events, jobs

router = APIRouter(tags=["auctions"])
_EVENTS = 400  # the last events among which open calls are looked for
_MARK = '{"command":"CallForBids"'
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
        found = await all_.read(lambda connection: _open_calls(connection, all_, who, after))
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
    calls = await all_.read(lambda connection: _open_calls(connection, all_, who, auction - 1))
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


def _open_calls(connection: Connection, all_: Services, who: Identity, after: int) -> list[AuctionView]:
    now = clock(connection)
    known = all_.setups.find(connection)
    pools = {pool.name for pool in visible_pools(known.setup.pools, who)} if known is not None else set()
    last = select(events.c.at, events.c.effects).order_by(events.c.seq.desc()).limit(_EVENTS)
    calls: dict[int, dict[str, Any]] = {}
    for row in connection.execute(last):
        if row.effects is not None and (known is None or row.at >= now.now - known.setup.bid_seconds - 60):
            calls |= {call["auction"]: call for call in _calls(row.effects)}
    views = []
    for number, call in sorted(calls.items()):
        if number > after and float(call["closes_at"]) > now.now and call["pool"] in pools:
            offers = _offers(connection, who, call.get("offers", ()))
            if offers or who.sees_all:
                closes_at = now.unix(float(call["closes_at"]))
                views.append(AuctionView(auction=number, pool=call["pool"], closes_at=closes_at, offers=offers))
    return views


def _calls(effects: bytes) -> list[dict[str, Any]]:
    text = zlib.decompress(effects).decode()
    return [json.loads(line) for line in text.splitlines() if line.startswith(_MARK)]


def _offers(connection: Connection, who: Identity, offers: Any) -> list[OfferView]:
    names = sorted({str(offer["app"]) for offer in offers})
    mine = set(names)
    if not who.sees_all:
        query = select(jobs.c.app).where(jobs.c.app.in_(names[:5000]), jobs.c.tenant == who.tenant).distinct()
        mine = set(connection.scalars(query))
    return [
        OfferView(app=offer["app"], gpus=list(offer["gpus"]), rho=[_finite(value) for value in offer["rho"]])
        for offer in offers
        if offer["app"] in mine
    ]


def _finite(value: Any) -> float | None:
    return float(value) if isfinite(float(value)) else None
