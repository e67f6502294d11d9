"""Keeps the table of auctions: which apps were called for bids, what they answered, what they won and paid."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import Connection, delete, insert, select

from horae.model.commands import CallForBids
from horae.model.decisions import Grants
from horae.model.events import BidGiven, Event
from horae.model.plans import Reaction, Round
from horae.model.serialization import to_plain
from horae.scheduler import Scheduler
from horae.scheduler.pool import Pool
from horae.service.store.schema import auctions

AUCTIONS_KEPT = 1000


@dataclass(slots=True)
class AuctionRow:
    """The part of one app in one auction."""

    auction: int
    app: str
    pool: str
    tenant: str
    called_at: float
    closes_at: float
    offer: str  # JSON: numbers of GPUs, and the estimated rho with each
    bid: str | None = None  # JSON, likewise; None: no answer came in time
    note: str = ""  # why the scheduler's estimate was its bid
    closed_at: float | None = None
    won_gpus: int = 0
    lease_seconds: float = 0.0  # the longest of its leases
    payment: float = 0.0  # the fraction of that lease that it gave up

    def values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


class AuctionRows:
    """The rows of open auctions, and those that changed since the last transaction."""

    def __init__(self, connection: Connection) -> None:
        found = connection.execute(select(auctions).where(auctions.c.closed_at.is_(None)))
        self._open = {(row.auction, row.app): AuctionRow(**row._mapping) for row in found}
        self._changed: dict[tuple[int, str], AuctionRow] = {}

    def note(self, event: Event, reaction: Reaction, scheduler: Scheduler, app_of: Callable[[str], str | None]) -> None:
        """Collects the changes of an event; `app_of` gives the app of a job."""
        for command in reaction.commands:
            if isinstance(command, CallForBids):
                self._called(command, scheduler)
        if not self._open:
            return
        pools = {pool.spec.name: pool for pool in scheduler.pools}
        if isinstance(event, BidGiven):
            self._bid(event, pools)
        for row in list(self._open.values()):
            pool = pools.get(row.pool)
            if pool is None or pool.auction is None or pool.auction.number != row.auction:
                rounds = [each for each in reaction.rounds if each.pool == row.pool]
                self._close(row, scheduler.now, rounds, pool, app_of)

    def _called(self, call: CallForBids, scheduler: Scheduler) -> None:
        (pool,) = (pool for pool in scheduler.pools if pool.spec.name == call.pool)
        tenants = {job.app_id: job.tenant for job in pool.table.jobs[: pool.table.count]}
        for app, gpus, rho in call.offers:
            offer = json.dumps(to_plain([gpus, rho]))
            row = AuctionRow(call.auction, app, call.pool, tenants.get(app, ""), scheduler.now, call.closes_at, offer)
            self._open[call.auction, app] = self._changed[call.auction, app] = row

    def _bid(self, event: BidGiven, pools: dict[str, Pool]) -> None:
        row = self._open.get((event.auction, event.app))
        pool = None if row is None else pools.get(row.pool)
        if row is None or pool is None or pool.auction is None or row.bid is not None:
            return
        number = pool.apps.number(event.app)
        if number is not None and pool.auction.bids.get(number) == (event.gpus, event.rho):
            row.bid = json.dumps(to_plain([event.gpus, event.rho]))
            self._changed[row.auction, row.app] = row

    def _close(
        self,
        row: AuctionRow,
        now: float,
        rounds: Iterable[Round],
        pool: Pool | None,
        app_of: Callable[[str], str | None],
    ) -> None:
        row.closed_at = now
        for round_ in rounds:
            if isinstance(round_.decision, Grants):
                number = None if pool is None else pool.apps.number(row.app)
                row.note = "; ".join(each.text for each in round_.decision.notices if each.app == number)
                self._outcome(row, round_, round_.decision, app_of)
        del self._open[row.auction, row.app]
        self._changed[row.auction, row.app] = row

    def _outcome(self, row: AuctionRow, round_: Round, grants: Grants, app_of: Callable[[str], str | None]) -> None:
        """The GPUs that jobs of the app won in this round, and how much of its lease the app gave up."""
        lengths = dict(zip(grants.row[::-1].tolist(), grants.lease_seconds[::-1].tolist(), strict=True))
        place = {int(serial): index for index, serial in enumerate(round_.serials.tolist())}
        gpus = {each.serial: len(each.gpus) for each in round_.plan.placements}
        gpus |= {serial: 0 for serial, _ in round_.plan.extensions if serial not in gpus}
        for serial, count in gpus.items():
            index = place.get(serial)
            granted = None if index is None else lengths.get(int(round_.rows[index]))
            known = None if index is None else app_of(round_.job_ids[index])
            if granted is None or known is None or known != row.app:
                continue
            row.won_gpus += count
            row.lease_seconds = max(row.lease_seconds, granted)
        whole = grants.rest_lease_seconds
        if row.lease_seconds > 0 and whole > 0:
            row.payment = float(np.clip(1 - row.lease_seconds / whole, 0.0, 1.0))

    @property
    def has_changes(self) -> bool:
        return bool(self._changed)

    def write(self, connection: Connection) -> None:
        for (number, app), row in self._changed.items():
            connection.execute(delete(auctions).where(auctions.c.auction == number, auctions.c.app == app))
            connection.execute(insert(auctions).values(**row.values()))
        if self._changed:
            oldest = max(number for number, _ in self._changed) - AUCTIONS_KEPT
            connection.execute(delete(auctions).where(auctions.c.auction <= oldest))

    def written(self) -> None:
        self._changed = {}
