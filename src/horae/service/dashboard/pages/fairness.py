"""Fairness: rho of tenants and apps, now and over time; GPU-hours against weights; auctions."""

from __future__ import annotations

from itertools import groupby
from math import inf
from typing import Any

from horae.service.api.routes.accounts import shares
from horae.service.api.routes.auctions import HISTORY_MAX, history
from horae.service.api.routes.cluster import list_pools
from horae.service.api.routes.fairness import share_history
from horae.service.dashboard.page import View
from horae.service.dashboard.windows import WINDOWS, moment_of, window_of
from horae.service.models import AuctionResult, ShareRow

APPS_SHOWN = 500
AUCTIONS_SHOWN = 50


async def data(view: View) -> dict[str, Any]:
    """All of a window; with `after`, of the points over time only those after this moment, for a page that is open."""
    who, all_, (window, since) = view.who, view.all_, window_of(view)
    tenant = view.query.get("tenant", "")[:300] or None
    points = await share_history(who, all_, tenant, max(since, moment_of(view, "after") or 0.0))
    treated = await shares(who, all_, ("tenant", "app"), since)
    worst = sorted(treated["app"], key=_badness)[:APPS_SHOWN]
    pools = await list_pools(who, all_)
    return {
        "window": window,
        "windows": list(WINDOWS),
        "tenant": tenant,
        "points": [point.model_dump() for point in points],
        "tenants": [row.model_dump() for row in treated["tenant"]],
        "apps": [row.model_dump() for row in worst],
        "more_apps": len(treated["app"]) - len(worst),
        "auctions": _auctions(await history(who, all_, None, HISTORY_MAX)),
        "bidding_pools": [pool.name for pool in pools if pool.policy.startswith("themis")],
    }


def _badness(row: ShareRow) -> tuple[float, str]:
    """Apps that are worst off first; those whose rho is not known last."""
    return (inf if row.rho_max is None else -row.rho_max, row.name)


def _auctions(parts: list[AuctionResult]) -> list[dict[str, Any]]:
    """The latest auctions, each with the parts of the apps in it."""
    grouped = [(number, list(its)) for number, its in groupby(parts, key=lambda each: each.auction)]
    if len(parts) == HISTORY_MAX:  # the last one may not be complete
        grouped = grouped[:-1] or grouped
    return [
        {
            "auction": number,
            "pool": its[0].pool,
            "called_at": its[0].called_at,
            "closed_at": its[0].closed_at,
            "parts": [_part(each) for each in its],
        }
        for number, its in grouped[:AUCTIONS_SHOWN]
    ]


def _part(each: AuctionResult) -> dict[str, Any]:
    table = each.offer if each.bid is None else each.bid
    rho = dict(zip(table.gpus, table.rho, strict=False))
    before, after = rho.get(0), rho.get(each.won_gpus)
    gain = before / after if before is not None and after else None  # how many times better off it is
    return {
        "app": each.app,
        "tenant": each.tenant,
        "offer": each.offer.model_dump(include={"gpus", "rho"}),
        "bid": None if each.bid is None else each.bid.model_dump(include={"gpus", "rho"}),
        "note": each.note,
        "won_gpus": each.won_gpus,
        "rho_before": before,
        "rho_after": after,
        "gain": gain,
        "lease_seconds": each.lease_seconds,
        "payment": each.payment,
    }
