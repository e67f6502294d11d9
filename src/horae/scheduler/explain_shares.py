"""How things stand for a job in a pool that works by shares: its targets, its debts, and the evidence of the solve."""

from __future__ import annotations

import numpy as np

from horae.model.decisions import Evidence, Limit, Shares
from horae.model.explanations import ShapeShare, ShareExplanation, Solve, TypeWorth
from horae.scheduler.pool import Pool


def explain_share(pool: Pool, serial: int, accelerators: tuple[str, ...], now: float) -> ShareExplanation | None:
    """None where there are no shares in force."""
    if not isinstance(pool.decision, Shares):
        return None
    evidence = pool.decision.evidence
    if evidence is not None and len(evidence.prices) != len(accelerators):
        evidence = None  # of a cluster with other GPU types
    return ShareExplanation(
        counted_at=now,
        shared_at=pool.shared_at,
        shapes=_shapes(pool, serial, now),
        solve=None if evidence is None else _solve(pool, serial, evidence, accelerators),
        unsolved="" if pool.unsolved is None else str(pool.unsolved),
    )


def _shapes(pool: Pool, serial: int, now: float) -> tuple[ShapeShare, ...]:
    jobs, row = pool.table.view(now), pool.table.row[serial]
    received = jobs.received_seconds[row]
    promised = jobs.target[row] * (now - pool.shared_at)
    owed = jobs.deficit[row] + promised - (received - jobs.received_mark[row])
    return tuple(
        ShapeShare(option.shape, float(jobs.target[row, number]), float(received[number]), float(owed[number]))
        for number, option in enumerate(pool.table.jobs[row].options)
    )


def _solve(pool: Pool, serial: int, evidence: Evidence, accelerators: tuple[str, ...]) -> Solve:
    assert pool.round is not None
    row = np.flatnonzero(pool.round.serials == serial)  # of the view that was decided upon
    limit = Limit(int(evidence.limit[row[0]])) if len(row) else None
    return Solve(evidence.objective, evidence.value, evidence.bound, limit, _types(pool, evidence, accelerators))


def _types(pool: Pool, evidence: Evidence, accelerators: tuple[str, ...]) -> tuple[TypeWorth, ...]:
    prices = np.where(pool.capacity > 0, evidence.prices, 0.0)
    dearest = max(float(prices.max(initial=0.0)), np.finfo(float).tiny)
    here = np.flatnonzero(pool.capacity > 0)
    return tuple(
        TypeWorth(accelerators[kind], bool(evidence.is_full[kind]), float(prices[kind]), float(prices[kind] / dearest))
        for kind in here[np.argsort(-prices[here], kind="stable")].tolist()
    )
