"""Explains why a job waits: the blocker that the last pass recorded, and what would unblock it, computed on request."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from math import inf
from typing import NamedTuple

import numpy as np

from horae.model.arrays import Floats
from horae.model.decisions import Evidence, Limit, Shares
from horae.model.explanations import Explanation, Holder, ShapeShare, ShareExplanation, Solve, TypeWorth, Unblocking
from horae.model.job_table import NONE, JobColumns
from horae.model.plans import Lease
from horae.model.reasons import AwaitsDecision, AwaitsVictims, Reason, Unclaimed
from horae.model.shapes import Demand, Shape
from horae.model.status import Status
from horae.scheduler.gpu_ledger import GpuLedger
from horae.scheduler.placer import Placer
from horae.scheduler.pool import Pool


class Scene(NamedTuple):
    """The scheduler state needed to explain one job."""

    now: float
    ledger: GpuLedger
    placer: Placer
    leases: Mapping[int, Lease]
    demands: Sequence[Demand]
    borrowing: Collection[int]  # serials of jobs on borrowed GPUs


def blocker(pool: Pool, serial: int, now: float, leaving: tuple[str, ...]) -> Reason | None:
    """The reason why a job waits; None for any other job."""
    table, row = pool.table, pool.table.row[serial]
    status = Status(table.status[row])
    if status is Status.HOLDING:
        return AwaitsVictims(leaving)
    if status is not Status.PENDING:
        return None
    if pool.dirty and table.queued_at[row] >= pool.decided_at:
        return AwaitsDecision(max(pool.wake_at, now))  # the last pass did not include it
    if serial not in pool.claimants():
        return Unclaimed(pool.policy.name)
    if pool.plan.head is not None and pool.plan.head.head != pool.table.ids[row]:
        return pool.plan.head
    demand = int(table.demand[row])
    if demand in pool.plan.blocked:
        return pool.plan.blocked[demand]
    return AwaitsDecision(max(pool.wake_at, now))


def explain(pool: Pool, serial: int, reason: Reason | None, scene: Scene) -> Explanation:
    """The full explanation of a live job."""
    table, row = pool.table, pool.table.row[serial]
    status = Status(table.status[row])
    waits = status in (Status.PENDING, Status.HOLDING)
    demand = scene.demands[int(table.demand[row])]
    holders = _holders(pool, demand, scene) if waits else {}
    return Explanation(
        job_id=table.ids[row],
        at=scene.now,
        status=status,
        reason=reason,
        pool=pool.spec.name,
        policy=pool.policy.name,
        ahead=_ahead(pool, serial, scene) if status is Status.PENDING else (),
        holders=tuple(chain.from_iterable(holders.values())),
        unblocking=_unblocking(pool, demand, holders, scene) if status is Status.PENDING else None,
        next_decision_at=max(pool.wake_at, scene.now),
        share=explain_share(pool, serial, scene.ledger.cluster.accelerators, scene.now),
    )


def _holders(pool: Pool, demand: Demand, scene: Scene) -> dict[int, tuple[Holder, ...]]:
    """By epoch: jobs on GPUs of the types that the demand accepts, earliest estimated end first."""
    accepted = {shape.accelerator for shape in demand.shapes}
    table, jobs = pool.table, pool.table.view(scene.now)
    ends_at = believed_ends(jobs)
    free_at = np.where(jobs.partner == NONE, ends_at, np.maximum(ends_at, ends_at[jobs.partner]))
    on_gpus = np.flatnonzero(jobs.on_gpus).tolist()
    rows = [row for row in on_gpus if scene.leases[int(jobs.epoch[row])].shape.accelerator in accepted]
    rows.sort(key=lambda row: (free_at[row], jobs.epoch[row], ends_at[row], jobs.serial[row]))
    holders: dict[int, tuple[Holder, ...]] = {}
    for row in rows:
        one = Holder(table.ids[row], int(jobs.held_gpus[row]), float(jobs.since[row]), float(ends_at[row]))
        epoch = int(jobs.epoch[row])
        holders[epoch] = (*holders.get(epoch, ()), one)
    return holders


def believed_ends(jobs: JobColumns) -> Floats:
    """By row: the estimated end if the job stays where it is;
    of two on shared GPUs, one is alone after the other's end."""
    speed = np.where(jobs.option >= 0, jobs.speed[np.arange(len(jobs)), jobs.option], 1.0)
    works_at = np.maximum(jobs.productive_at, jobs.now)
    with np.errstate(divide="ignore", invalid="ignore"):
        ends_at = works_at + np.nan_to_num(jobs.steps_left / (speed * jobs.pace), nan=inf, posinf=inf)
        alone_at = np.where(jobs.partner == NONE, inf, ends_at[jobs.partner])
        done = np.maximum(alone_at - works_at, 0.0) * speed * jobs.pace
        rest = np.maximum(alone_at, works_at) + (jobs.steps_left - done) / speed
    return np.where((alone_at < ends_at) & np.isfinite(rest), rest, ends_at)


def _unblocking(pool: Pool, demand: Demand, holders: dict[int, tuple[Holder, ...]], scene: Scene) -> Unblocking | None:
    """Removes holders in order of their estimated ends until the gang fits,
    then restores those that are not in its way."""
    leaving: list[int] = []
    for epoch in (NONE, *holders):
        leaving += [epoch] if epoch != NONE else []
        shape = _fits_without(pool, demand, leaving, scene)
        if shape is not None:
            for each in list(leaving):
                rest = [other for other in leaving if other != each]
                if _fits_without(pool, demand, rest, scene) is not None:
                    leaving = rest
            shape = _fits_without(pool, demand, leaving, scene) or shape
            return Unblocking(shape, tuple(chain.from_iterable(holders[each] for each in leaving)))
    return None


def _fits_without(pool: Pool, demand: Demand, leaving: list[int], scene: Scene) -> Shape | None:
    """The best shape in which the demand would fit if these leases had ended."""
    ledger = scene.ledger
    free = ledger.usable(pool.open_gpus) & np.isin(ledger.holder, [NONE, *leaving])
    for shape in demand.shapes:
        if scene.placer.place(free, ledger.loads(), demand, shape) is not None:
            return shape
    return None


def _ahead(pool: Pool, serial: int, scene: Scene) -> tuple[str, ...]:
    """Waiting jobs that were ranked before this one; those on borrowed GPUs do not wait."""
    ranked = pool.ranked()
    if serial not in ranked:
        return ()
    status, row, ids = pool.table.status, pool.table.row, pool.table.ids
    return tuple(
        ids[row[other]]
        for other in ranked[: ranked.index(serial)]
        if status[row[other]] == int(Status.PENDING) and other not in scene.borrowing
    )


# The state of a job in a pool that works by shares: its targets, its debts, and the evidence of the solve


def explain_share(pool: Pool, serial: int, accelerators: tuple[str, ...], now: float) -> ShareExplanation | None:
    """The job's shares and debts; None where there are no shares in force."""
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
    row = np.flatnonzero(pool.round.serials == serial)  # of the view behind the decision
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
