"""The whole state of a scheduler as plain data, and a scheduler restored from it.

The restored scheduler reacts to every later event exactly as the original would. Derived state (free cells, capacities,
caches) is not dumped but recomputed. GPUs are identified by name, jobs by serial.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from horae.model.cluster import Gpu, Node
from horae.model.commands import Start, Stop
from horae.model.decisions import Decision
from horae.model.errors import InputError
from horae.model.events import GpuState, Health
from horae.model.jobs import Job
from horae.model.plans import Hold, Lease, Placement, Round, RoundPlan
from horae.model.reasons import BehindHead, NoRoom, Refusal
from horae.model.serialization import Plain, array_from_plain, array_to_plain, from_plain, tagged, to_plain, untagged
from horae.model.setup import Setup
from horae.model.shapes import Demand, Shape
from horae.model.status import Status
from horae.scheduler.auctions import Auction
from horae.scheduler.jobs import Ended, SuspendedJob, is_loan
from horae.scheduler.pool import Pool

if TYPE_CHECKING:
    from horae.scheduler.core import Scheduler

VERSION = 1


def dump(scheduler: Scheduler) -> Plain:
    jobs, ledger, leases = scheduler.jobs, scheduler.ledger, scheduler.leases
    return {
        "version": VERSION,
        "setup": to_plain(present_setup(scheduler)),
        "now": scheduler.now,
        "ignored": scheduler.ignored,
        "next": [jobs.serial_next, leases.epoch_next, scheduler.auctions.opened],
        "interned": _interned(scheduler),
        "hardware": {
            "health": {node: health.value for node, health in sorted(ledger.health.items())},
            "gpus": {str(gpu): state.value for gpu, state in sorted(ledger.gpu_states.items())},
            "squatters": [[*run, to_plain(gpus)] for run, gpus in sorted(ledger.squatters.items())],
            "leaving": [[name, to_plain(node)] for name, node in scheduler.administration.leaving.items()],
            "closing": sorted(ledger.closing),
            "has_moved": scheduler.administration.has_moved,
            "seen_at": [[*run, at] for run, at in scheduler.surveys.seen_at.items()],
            "riding": ledger.riding,
        },
        "cells": None if ledger.tenancy is None else ledger.tenancy.dump(),
        "pools": [_pool(pool, scheduler) for pool in scheduler.pools],
        "leases": [_lease(scheduler, lease) for _, lease in sorted(leases.by_epoch.items())],
        "lost_epochs": [list(each) for each in leases.lost],
        "starting": [[epoch, due_at] for epoch, due_at in leases.starting.items()],
        "holds": _holds(scheduler),
        "unacknowledged": _unacknowledged(scheduler),
        "awaits_survey": to_plain([scheduler.surveys.awaited_since, scheduler.surveys.asked_at]),
        "jobs": {
            "ended": [[job_id, int(ended.status), ended.at] for job_id, ended in jobs.ended.items()],
            "refused": {job_id: tagged(reason) for job_id, reason in jobs.refused.items()},
            "failures": [[serial, count] for serial, count in sorted(jobs.failures.items())],
            "suspended": [_suspended(each) for each in jobs.suspended.values()],
            "to_suspend": sorted(jobs.to_suspend),
            "retry_at": [[serial, at] for serial, at in jobs.retry_at.items()],
        },
    }


def present_setup(scheduler: Scheduler) -> Setup:
    """The setup with the changes made by operators since the start."""
    return replace(
        scheduler.setup,
        cluster=scheduler.ledger.real_cluster,
        pools=tuple(pool.spec for pool in scheduler.pools),
        tenant_weights=dict(scheduler.interned.tenants.weights),
        absent_nodes=(),
    )


def _interned(scheduler: Scheduler) -> Plain:
    interned = scheduler.interned
    return {
        "tenants": list(interned.tenants.all),
        "users": list(interned.users.all),
        "models": list(interned.models.all),
        "shapes": to_plain(interned.shapes.all),
        "demands": to_plain(interned.demands.all),
    }


def _names(scheduler: Scheduler, positions: Any) -> Plain:
    """GPUs by the names that the scheduler uses, where a tenant's cells are nodes too."""
    return [str(gpu) for gpu in scheduler.ledger.cluster.names(positions)]


def _lease(scheduler: Scheduler, lease: Lease) -> Plain:
    return [lease.epoch, list(lease.bundle), _names(scheduler, lease.gpus), to_plain(lease.shape)]


def _placement(scheduler: Scheduler, placement: Placement) -> Plain:
    return {**to_plain(placement), "gpus": _names(scheduler, placement.gpus)}


def _holds(scheduler: Scheduler) -> Plain:
    seen: set[int] = set()
    rows = []
    for serial, hold in scheduler.holds.by_serial.items():
        if serial not in seen:
            seen.update(hold.placement.bundle)
            awaits = [sorted(scheduler.holds.by_serial[member].awaited) for member in hold.placement.bundle]
            rows.append([_placement(scheduler, hold.placement), awaits, hold.expires_at])
    return rows


def _unacknowledged(scheduler: Scheduler) -> Plain:
    box = scheduler.unacknowledged
    rows = [[job_id, due_at, times, tagged(command)] for (_, _, job_id), (due_at, times, command) in box.open.items()]
    return {"open": rows, "survey_at": to_plain(box.survey_at)}


def _suspended(each: SuspendedJob) -> Plain:
    carried = {name: array_to_plain(values) for name, values in each.carried.items()}
    return [to_plain(each.job), each.serial, carried]


def _pool(pool: Pool, scheduler: Scheduler) -> Plain:
    table = pool.table
    count = table.count
    return {
        "jobs": to_plain(table.jobs),
        "columns": {name: array_to_plain(column[:count]) for name, column in table.columns.items()},
        "bundles": table.bundles,
        "apps": pool.apps.dump(),
        "auction": None if pool.auction is None else _auction(pool.auction),
        "wake_at": to_plain(pool.wake_at),
        "decided_at": to_plain(pool.decided_at),
        "found_ending": sorted(pool.found_ending),
        "dirty": pool.dirty,
        "unsettled": pool.unsettled,
        "newcomers": [list(pool.newcomers), to_plain(pool.newcomers_at)],
        "memory": pool.memory,
        "shares": {
            "at": pool.shared_at,
            "paired_at": pool.paired_at,
            "pair_seconds": array_to_plain(pool.pair_seconds),
            "pair_serials": [array_to_plain(serials) for serials in pool.pair_serials],
            "unsolved": pool.unsolved,
        },
        "asked": pool.asked,
        "round": None if pool.round is None else _round(pool.round),
        "decision": None if pool.decision is None else tagged(pool.decision),
        "plan": plan_to_plain(pool.plan),
    }


def _auction(auction: Auction) -> Plain:
    bids = [[number, *to_plain(said)] for number, said in sorted(auction.bids.items())]
    return [auction.number, auction.closes_at, sorted(auction.asked), bids]


def _round(round_: Round) -> Plain:
    return {
        "at": round_.at,
        "decision": tagged(round_.decision),
        "plan": plan_to_plain(round_.plan),
        "rows": array_to_plain(round_.rows),
        "job_ids": list(round_.job_ids),
        "serials": array_to_plain(round_.serials),
        "is_new": round_.is_new,
        "unsolved": round_.unsolved,
    }


def plan_to_plain(plan: RoundPlan) -> Plain:
    """The reasons why jobs wait; starts and stops of a past plan are not needed."""
    return {
        "blocked": [[demand, to_plain(reason)] for demand, reason in sorted(plan.blocked.items())],
        "head": to_plain(plan.head),
    }


def restore(scheduler: Scheduler, plain: Plain) -> None:
    """Fills a fresh scheduler that was made from the dumped setup."""
    jobs, ledger, leases = scheduler.jobs, scheduler.ledger, scheduler.leases
    scheduler.now, scheduler.ignored = plain["now"], plain["ignored"]
    jobs.serial_next, leases.epoch_next, scheduler.auctions.opened = plain["next"]
    _restore_interned(scheduler, plain["interned"])
    hardware = plain["hardware"]
    ledger.riding = hardware["riding"]
    scheduler.administration.leaving = {
        name: None if node is None else from_plain(Node, node) for name, node in hardware["leaving"]
    }
    scheduler.administration.has_moved = hardware["has_moved"]
    scheduler.surveys.seen_at = {(job_id, epoch): at for job_id, epoch, at in hardware["seen_at"]}
    if ledger.tenancy is not None:
        ledger.tenancy.restore(plain["cells"])
    for pool, each in zip(scheduler.pools, plain["pools"], strict=True):
        _restore_table(scheduler, pool, each)
    for epoch, bundle, gpus, shape in plain["leases"]:
        lease = Lease(epoch, tuple(bundle), _positions(scheduler, gpus), from_plain(Shape, shape))
        leases.by_epoch[epoch] = lease
        ledger.take(lease.gpus, epoch, leases.demand(jobs.where(bundle[0]), lease))
    leases.lost = [(first, last) for first, last in plain["lost_epochs"]]
    _restore_holds(scheduler, plain["holds"])
    ledger.restore_health(
        {node: Health(value) for node, value in hardware["health"].items()},
        {Gpu.parse(gpu): GpuState(value) for gpu, value in hardware["gpus"].items()},
        {(job_id, epoch): tuple(map(Gpu.parse, gpus)) for job_id, epoch, gpus in hardware["squatters"]},
        hardware["closing"],
    )
    leases.starting = dict(plain["starting"])
    _restore_jobs(scheduler, plain["jobs"])
    _restore_unacknowledged(scheduler, plain["unacknowledged"])
    scheduler.surveys.awaited_since, scheduler.surveys.asked_at = map(float, plain["awaits_survey"])
    scheduler.pools.count_capacity(ledger)
    if ledger.tenancy is not None:
        ledger.tenancy.restore_doomed(plain["cells"])
        scheduler.pools.count_capacity(ledger)
        ledger.tenancy.shifted, ledger.tenancy.cells_shifted = plain["cells"]["shifted"]
    for pool, each in zip(scheduler.pools, plain["pools"], strict=True):
        _restore_pool(scheduler, pool, each)


def setup_of(plain: Plain) -> Setup:
    """The setup of a dump."""
    if plain.get("version") != VERSION:
        raise InputError(
            f"a dump of version {plain.get('version')}", remedy="use the Horae that made it, or a newer one"
        )
    setup: Setup = from_plain(Setup, plain["setup"])
    return setup


def _positions(scheduler: Scheduler, gpus: list[str]) -> Any:
    return scheduler.ledger.cluster.positions(map(Gpu.parse, gpus))


def _restore_interned(scheduler: Scheduler, plain: Plain) -> None:
    interned = scheduler.interned
    for names, known in ((interned.tenants, "tenants"), (interned.users, "users"), (interned.models, "models")):
        for name in plain[known]:
            names.number(name)
    for shape in plain["shapes"]:
        interned.shapes.number(from_plain(Shape, shape))
    for demand in plain["demands"]:
        interned.demands.number(from_plain(Demand, demand))


def _restore_table(scheduler: Scheduler, pool: Pool, plain: Plain) -> None:
    table = pool.table
    table.restore([from_plain(Job, job) for job in plain["jobs"]], plain["columns"], plain["bundles"])
    for serial, row in table.row.items():
        if is_loan(serial):
            scheduler.jobs.lent[serial] = pool
        else:
            scheduler.jobs.live[table.ids[row]] = (pool, serial)
        scheduler.jobs.id_of[serial] = table.ids[row]


def _restore_holds(scheduler: Scheduler, plain: Plain) -> None:
    for placed, awaits, expires_at in plain:
        placement = _placement_from(scheduler, placed)
        pool = scheduler.jobs.where(placement.serial)
        scheduler.ledger.hold(placement.gpus, placement.serial, scheduler.leases.demand(pool, placement))
        for serial, awaited in zip(placement.bundle, awaits, strict=True):
            scheduler.holds.put(serial, Hold(placement, frozenset(awaited), expires_at))


def _placement_from(scheduler: Scheduler, plain: Plain) -> Placement:
    gpus = _positions(scheduler, plain["gpus"])
    placement: Placement = from_plain(Placement, {**plain, "gpus": gpus.tolist()})
    return placement


def _restore_jobs(scheduler: Scheduler, plain: Plain) -> None:
    jobs = scheduler.jobs
    for job_id, status, at in plain["ended"]:
        jobs.remember(job_id, Ended(Status(status), at))
    jobs.refused = {job_id: untagged(Refusal, reason) for job_id, reason in plain["refused"].items()}
    jobs.failures = dict(plain["failures"])
    jobs.to_suspend = set(plain["to_suspend"])
    jobs.retry_at = dict(plain["retry_at"])
    for job, serial, carried in plain["suspended"]:
        columns = {name: _carried(name, values) for name, values in carried.items()}
        each = SuspendedJob(from_plain(Job, job), serial, columns)
        jobs.suspended[each.job.id] = each
        jobs.id_of[serial] = each.job.id


def _carried(name: str, values: Plain) -> Any:
    return array_from_plain(np.int64 if name == "runs" else np.float64, values)


def _restore_unacknowledged(scheduler: Scheduler, plain: Plain) -> None:
    box = scheduler.unacknowledged
    box.survey_at = float(plain["survey_at"])
    for job_id, due_at, times, command in plain["open"]:
        known: Start | Stop = untagged(Start | Stop, command)
        box.open[type(known), known.epoch, job_id] = (due_at, times, known)


def _restore_pool(scheduler: Scheduler, pool: Pool, plain: Plain) -> None:
    pool.apps.restore(plain["apps"])
    if plain["auction"] is not None:
        number, closes_at, asked, bids = plain["auction"]
        said = {app: (tuple(gpus), tuple(map(float, rho))) for app, gpus, rho in bids}
        pool.auction = Auction(number, closes_at, frozenset(asked), said)
    pool.wake_at, pool.decided_at = float(plain["wake_at"]), float(plain["decided_at"])
    pool.found_ending = frozenset(plain.get("found_ending", ()))
    pool.dirty, pool.unsettled, pool.memory = plain["dirty"], plain["unsettled"], plain["memory"]
    pool.newcomers, pool.newcomers_at = list(plain["newcomers"][0]), float(plain["newcomers"][1])
    shares = plain["shares"]
    pool.shared_at, pool.paired_at, pool.unsolved = shares["at"], shares["paired_at"], shares["unsolved"]
    pool.pair_seconds = array_from_plain(np.float64, shares["pair_seconds"])
    first, second = shares["pair_serials"]
    pool.pair_serials = array_from_plain(np.int64, first), array_from_plain(np.int64, second)
    pool.asked = plain["asked"]
    if plain["round"] is not None:
        pool.round = _round_from(scheduler, pool, plain["round"])
    pool.decision = None if plain["decision"] is None else decision_from(plain["decision"])
    pool.plan = plan_from(plain["plan"])


def decision_from(plain: Plain) -> Decision:
    decision: Decision = untagged(Decision, plain)
    return decision


def _round_from(scheduler: Scheduler, pool: Pool, plain: Plain) -> Round:
    return Round(
        plain["at"],
        pool.spec.name,
        decision_from(plain["decision"]),
        plan_from(plain["plan"]),
        array_from_plain(np.int64, plain["rows"]),
        tuple(plain["job_ids"]),
        array_from_plain(np.int64, plain["serials"]),
        scheduler.ledger.cluster,
        plain["is_new"],
        plain["unsolved"],
    )


def plan_from(plain: Plain) -> RoundPlan:
    return RoundPlan(
        blocked={demand: from_plain(NoRoom, reason) for demand, reason in plain["blocked"]},
        head=None if plain["head"] is None else from_plain(BehindHead, plain["head"]),
    )
