"""Why a job waits: the blocker that the last pass kept, looked up when somebody asks."""

from __future__ import annotations

from horae.model.decisions import Shares
from horae.model.reasons import AwaitsDecision, AwaitsVictims, Reason, Unclaimed
from horae.model.status import Status
from horae.scheduler.pool import Pool


def blocker(pool: Pool, serial: int, now: float, leaving: tuple[str, ...]) -> Reason | None:
    """The reason of a job that waits; None for any other."""
    columns, row = pool.table.columns, pool.table.row[serial]
    status = Status(columns["status"][row])
    if status is Status.HOLDING:
        return AwaitsVictims(leaving)
    if status is not Status.PENDING:
        return None
    if pool.dirty and columns["queued_at"][row] >= pool.decided_at:
        return AwaitsDecision(max(pool.wake_at, now))  # the last pass did not know of it
    demand = int(columns["demand"][row])
    if demand in pool.plan.blocked:
        return pool.plan.blocked[demand]
    if pool.plan.head is not None:
        return pool.plan.head
    if isinstance(pool.decision, Shares) and not (columns["target"][row] > 0).any():
        return Unclaimed(pool.policy.name)
    return AwaitsDecision(max(pool.wake_at, now))
