"""The whole state of a scheduler as plain data, to compare two of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from horae.model.plain import Plain, to_plain

if TYPE_CHECKING:
    from horae.scheduler.auctions import Auction
    from horae.scheduler.core import Scheduler
    from horae.scheduler.pool import Pool


def snapshot(scheduler: Scheduler) -> Plain:
    floor, parts = scheduler._floor, scheduler
    return {
        "now": parts.now,
        "pools": [_pool(pool) for pool in parts._pool],
        "holder": floor.holder.tolist(),
        "held_for": floor.held_for.tolist(),
        "health": to_plain(floor.health),
        "real": None if floor.tenancy is None else floor.tenancy.real.tolist(),
        "closed": None if floor.tenancy is None else floor.tenancy.closed.tolist(),
        "cpus": floor.riders.cpus.tolist(),
        "memory_bytes": floor.riders.memory_bytes.tolist(),
        "cpus_held": floor.riders_held.cpus.tolist(),
        "leases": to_plain(parts._leases),
        "holds": {
            serial: [to_plain(h.placement), sorted(h.awaited), h.expires_at] for serial, h in parts._holds.items()
        },
        "ended": {job_id: int(status) for job_id, status in sorted(parts._ended.items())},
        "live": {job_id: serial for job_id, (_, serial) in sorted(parts._live.items())},
        "failures": dict(sorted(parts._failures.items())),
        "next": [parts._serial_next, parts._epoch_next, parts._auctions.opened],
        "mailbox": parts._mailbox.contents(),
    }


def _pool(pool: Pool) -> Plain:
    table = pool.table
    return {
        "policy": repr(pool.policy),
        "wake_at": str(pool.wake_at),
        "decided_at": str(pool.decided_at),
        "shared_at": pool.shared_at,
        "dirty": pool.dirty,
        "unsettled": pool.unsettled,
        "apps": pool.apps.contents(),
        "auction": None if pool.auction is None else _auction(pool.auction),
        # Rows in the order of submission: where a job stands in the table says nothing.
        "jobs": {
            serial: {name: str(column[row].tolist()) for name, column in table.columns.items()}
            for serial, row in sorted(table.row.items())
        },
    }


def _auction(auction: Auction) -> Plain:
    said = {number: to_plain(bid) for number, bid in sorted(auction.bids.items())}
    return {"number": auction.number, "closes_at": auction.closes_at, "asked": sorted(auction.asked), "said": said}
