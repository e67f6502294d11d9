"""Bids of an app's agent (Themis, NSDI'20, section 4): how much earlier the app would finish with so many GPUs.

Finish-time fairness is rho = T_sh / T_id. Every bid, including that for nothing, assumes the same future: one lease
with what is won, the remaining work of its jobs on the share to which the app is entitled, and then its future jobs. So
more GPUs never make it worse, and all logarithms are finite:

    T_sh(G) = its age + one lease at G + work left / entitled GPUs + time of future jobs

A restart is time without progress, so no app bids for a move that is not worth it. `T_id` is the whole work on the
whole cluster, as far as the app can use it, times the number of apps (`paper`); or on the GPUs to which it is entitled
(`private`); or that, but at least its longest chain of jobs (`chain`). T_sh does not account for the longest of its
jobs taking more than all this: a bid for one of two equal jobs would then be worth nothing, and an app with several
would never begin.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horae.model.arrays import Bools, Floats, Ints
from horae.model.status import Status
from horae.model.view import View
from horae.solvers.auction.single_type import Bids

_HOLDING, _STOPPING = int(Status.HOLDING), int(Status.STOPPING)
_TINY = 1e-9  # seconds: anything shorter counts as zero


class AuctionTerms(NamedTuple):
    """The parameters shared by all agents of an auction."""

    lease_seconds: float
    aim: str = "paper"  # or private, or chain: which T_id
    to_the_end: bool = False  # the paper's variant: GPUs won are held until the app has finished
    restarts: bool = True  # whether a restart counts
    by_tenant: bool = False  # entitlement by tenant first, so that splitting an app gains nothing
    band: float = 0.0  # a job of unknown length is assumed to have this fraction more left than it has had


class AuctionLedger(NamedTuple):
    """All apps of a pool. Rows are sorted by app; within one, those that keep their GPUs in any case come first."""

    app: Ints  # numbers, by app
    first: Ints  # where the rows of each app begin, and the end
    row: Ints
    gang: Ints  # by sorted row, as are all below
    standing: Ints  # its role in the auction: one of the four below
    left_seconds: Floats  # in the reference shape
    work_left: Floats  # GPU-seconds of its jobs, by app
    later_seconds: Floats  # by app: time of its future jobs, on its share
    age_seconds: Floats  # by app
    entitled_gpus: Floats  # by app
    ideal_seconds: Floats  # by app: T_id


KEEPS, RENEWS, WAITS, LEAVES = range(4)


def open_books(view: View, terms: AuctionTerms, reported_factor: Floats | None = None) -> AuctionLedger:
    """The books of all apps; `reported_factor`: by app number, by how much its agent misstates the work left."""
    jobs = view.jobs
    left = _seconds_left(view, terms)
    standing = np.where(jobs.contestable, RENEWS, np.where(jobs.running | (jobs.status == _HOLDING), KEEPS, WAITS))
    standing[jobs.status == _STOPPING] = LEAVES
    row = np.lexsort((jobs.serial, -left, standing, jobs.app))
    app, first = np.unique(jobs.app[row], return_index=True)
    columns = view.app
    work_later = columns.later_gpu_seconds[app]
    factor = np.ones(len(app)) if reported_factor is None else reported_factor[app]
    gang = np.where(jobs.running, jobs.held_gpus, jobs.gpus)[row]
    whole = _seconds_done(view)[row] + left[row]
    left = left[row] * np.repeat(factor, np.diff(np.append(first, len(row))))
    work = np.add.reduceat(gang * left, first) if len(row) else np.empty(0)
    contending = _contending(view, terms, row[first])
    capacity = np.maximum(_strength(view, row, first), 1.0)
    demand = np.add.reduceat(gang, first) if len(row) else np.empty(0)
    total = _work_total(view, row, first, whole) + work_later
    at_most = np.maximum(np.minimum(columns.gpus_max[app], capacity), 1)
    entitled = capacity / contending
    share = np.minimum(entitled, np.maximum(demand, 1))
    later = np.maximum(work_later / share, columns.later_seconds[app]) * factor
    ideal = total / at_most * contending if terms.aim == "paper" else total / np.minimum(entitled, at_most)
    if terms.aim == "chain":
        longest = np.maximum.reduceat(whole, first) if len(row) else np.empty(0)
        ideal = np.maximum(ideal, np.fmax(columns.chain_seconds[app], longest + columns.later_seconds[app]))
    return AuctionLedger(
        app, np.append(first, len(row)), row, gang, standing[row], left, work, later,
        (view.now - jobs.app_submitted_at)[row[first]], share, np.maximum(ideal, _TINY),
    )  # fmt: skip


def _strength(view: View, row: Ints, first: Ints) -> Floats:
    """By app: the worth of all GPUs to it, in those of its reference shape (Gavel's effective speed)."""
    types = np.flatnonzero(view.capacity)
    if len(types) < 2:
        return np.full(len(first), float(view.capacity.sum()))
    jobs = view.jobs
    accelerator = view.shape_accelerator[jobs.shape]
    worth = np.zeros(len(jobs))
    reference = np.where(jobs.reference_speed > 0, jobs.reference_speed, 1.0)
    for number in types.tolist():
        speed = np.where((jobs.shape >= 0) & (accelerator == number), jobs.speed, 0.0)
        worth += view.capacity[number] * speed.max(axis=1, initial=0.0) / reference
    return np.add.reduceat(worth[row], first) / np.diff(np.append(first, len(row)))


def _seconds_left(view: View, terms: AuctionTerms) -> Floats:
    """By job: seconds left; for unknown length as much as it has had, and at least a lease.

    A job that should have ended counts as of unknown length, too.
    """
    jobs = view.jobs
    unknown = np.maximum(jobs.run_seconds, terms.lease_seconds) * (1 + terms.band)
    return np.where(np.isfinite(jobs.seconds_left) & (jobs.seconds_left > _TINY), jobs.seconds_left, unknown)


def _work_total(view: View, row: Ints, first: Ints, whole: Floats) -> Floats:
    """By app: GPU-seconds of its jobs so far. Understating them raises rho only until it is detected."""
    if not len(row):
        return np.empty(0)
    jobs = view.jobs
    said = view.app.gpu_seconds[jobs.app[row[first]]]
    beyond = jobs.gpus[row] * np.maximum(whole - jobs.seconds_total[row], 0.0)
    unsaid = np.add.reduceat(jobs.gpus[row] * whole, first)
    return np.where(np.isfinite(said), said + np.add.reduceat(beyond, first), unsaid)


def _seconds_done(view: View) -> Floats:
    """By job: the seconds done, as in the reference shape."""
    jobs = view.jobs
    return jobs.steps_done / np.where(jobs.reference_speed > 0, jobs.reference_speed, 1.0)


def _contending(view: View, terms: AuctionTerms, example: Ints) -> Floats:
    """By app: the number of parts into which the cluster is divided, averaged over its life; at least one."""
    average = np.maximum(view.apps_average()[example], 1.0)
    if not terms.by_tenant:
        return average
    tenant = view.jobs.tenant[example]
    apps_of = np.bincount(tenant, minlength=len(view.tenants))
    weight = np.where(apps_of > 0, view.tenant_weight, 0.0)
    now = weight.sum() / weight[tenant] * apps_of[tenant]
    return np.maximum(average * now / max(len(example), 1), 1.0)


class Prospects(NamedTuple):
    """By sorted row: the effect of one lease."""

    pace: Floats  # relative to its reference speed, where it is or would be
    restart_seconds: Floats
    done_seconds: Floats  # of its reference time
    takes_seconds: Floats  # until it has finished, if it continued


def prospects(view: View, books: AuctionLedger, terms: AuctionTerms, option: Ints) -> Prospects:
    """The effect of one lease with the option that each row would have; -1: none."""
    jobs, row = view.jobs, books.row
    reference = jobs.reference_speed[row]
    pace = np.where(option >= 0, jobs.speed[row, option], 0.0) / np.where(reference > 0, reference, 1.0)
    resumes = (jobs.run_base[row] > 0) & (books.standing == WAITS) & terms.restarts
    restart = np.where(resumes, jobs.restart_seconds[row], 0.0)
    done = np.minimum(np.maximum(terms.lease_seconds - restart, 0.0) * pace, books.left_seconds)
    takes = restart + books.left_seconds / np.where(pace > 0, pace, _TINY)
    return Prospects(pace, restart, done, takes)


def option_of(view: View, books: AuctionLedger) -> Ints:
    """By sorted row: its present option, or the fastest that it accepts and the pool has GPUs for; -1: none."""
    jobs = view.jobs
    speed = np.where((jobs.shape >= 0) & (view.shape_accelerator[jobs.shape] >= 0), jobs.speed, 0.0)
    best = np.where(speed.max(axis=1, initial=0.0) > 0, speed.argmax(axis=1), -1)
    option: Ints = np.where(jobs.running, jobs.option, best)[books.row]
    return option


def bid(books: AuctionLedger, seen: Prospects, terms: AuctionTerms, apps: Ints) -> tuple[Bids, Ints]:
    """The bids of these apps for their next gangs in order; and how many rows of each have theirs in any case."""
    from horae.policies.themis.valuation_kernel import tables  # noqa: PLC0415  numba is slow to import

    rows = np.stack([seen.done_seconds, seen.takes_seconds])
    whole = np.stack(
        [books.work_left, books.later_seconds, books.age_seconds, books.entitled_gpus, books.ideal_seconds]
    )
    first, gpus, value, before = tables(
        apps, books.first, books.standing, books.gang, rows, whole, terms.lease_seconds, terms.to_the_end
    )
    return Bids(first, gpus, value), before


def offer(view: View) -> Ints:
    """By accelerator: the GPUs on offer, all except those under running leases and those held for a job."""
    jobs = view.jobs
    leaves, holds = jobs.status == _STOPPING, jobs.status == _HOLDING
    goes_on = jobs.on_gpus & ~jobs.contestable & ~leaves
    option = np.where(jobs.on_gpus, jobs.option, (jobs.shape >= 0).argmax(axis=1) if len(jobs) else 0)
    kind = view.shape_accelerator[jobs.shape[np.arange(len(jobs)), option]]

    def count(rows: Bools, gpus: Ints) -> Ints:
        rows = rows & (kind >= 0)
        return np.bincount(kind[rows], gpus[rows], len(view.capacity)).astype(np.int64)

    kept = np.maximum(count(leaves, jobs.held_gpus), count(holds, jobs.gpus))
    return np.maximum(view.capacity - count(goes_on, jobs.held_gpus) - kept, 0)
