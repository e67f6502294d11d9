"""Invariants of every decision, and of every plan before it is carried out; asserted in production."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from horae.cells.pool_layout import PoolLayout
from horae.model.arrays import Bools, Ints
from horae.model.decisions import Decision, Grants, Pairs, Ranking, Shares
from horae.model.errors import BrokenInvariant, PolicyError
from horae.model.job_table import NONE
from horae.model.plans import Placement, RoundPlan
from horae.model.view import View
from horae.scheduler.gpu_ledger import GpuLedger

if TYPE_CHECKING:
    from horae.scheduler.pool import Pool

_HAIR = 1e-6
_KINDS, _NUMBERS = (Ranking, Shares, Grants), (int, float)


def check_decision(decision: Decision, view: View, policy: str) -> None:
    """Checks that a decision is one: rows that exist, each once, times that are times, and shares that are fractions of
    time, because wrong ones would corrupt debts for good."""
    _check_form(decision, len(view.jobs), policy)
    if isinstance(decision, Shares):
        fraction = decision.fraction
        # Counting is several times as fast as an extremum of a few numbers.
        if fraction.shape != view.jobs.shape.shape or (
            np.count_nonzero((fraction >= -_HAIR) & (fraction <= 1 + _HAIR)) < fraction.size
        ):
            raise PolicyError(
                f"policy {policy!r} gives shares that are no fractions of time",
                field="policy",
                remedy="give one by row and option, from 0 to 1",
            )
        if decision.pairs is not None:
            _check_pairs(decision.pairs, view, policy)
    elif isinstance(decision, Grants) and decision.partner is not None and decision.partner_option is not None:
        both = decision.partner != NONE
        rows, options = (decision.row[both], decision.partner[both]), decision.option[both]
        _check_pairs(Pairs(*rows, options, decision.partner_option[both], np.ones(len(options))), view, policy)


def _check_form(decision: Decision, count: int, policy: str) -> None:
    if not isinstance(decision, _KINDS):
        raise _wrong(policy, f"answers with {type(decision).__name__}", "answer with a Ranking, Shares or Grants")
    until = decision.stands_until
    if not isinstance(until, _NUMBERS) or until != until:  # noqa: PLR0124  nan
        raise _wrong(policy, f"has stands_until {until!r}", "give a time, or leave it out")
    if isinstance(decision, Shares):
        return
    if isinstance(decision, Grants):
        _check_rows(decision.rest.order, count, policy)
        _check_rows(decision.row, count, policy, is_once=False)
    else:
        _check_rows(decision.order, count, policy)


def _check_rows(rows: Ints, count: int, policy: str, *, is_once: bool = True) -> None:
    if not isinstance(rows, np.ndarray) or rows.dtype.kind not in "iu" or rows.ndim != 1:
        raise _wrong(policy, "names rows that are no array of whole numbers", "give rows of the view")
    # As unsigned, negative rows become very large.
    if np.count_nonzero(rows.astype(np.uint64) < count) < len(rows):
        raise _wrong(policy, "names rows that the view does not have", f"give rows from 0 to {count - 1}")
    if is_once and len(rows) > 1 and np.count_nonzero(np.bincount(rows)) < len(rows):
        raise _wrong(policy, "ranks a row twice", "give each row once")


def _wrong(policy: str, problem: str, remedy: str) -> PolicyError:
    return PolicyError(f"policy {policy!r} {problem}", field="policy", remedy=remedy)


def _check_pairs(pairs: Pairs, view: View, policy: str) -> None:
    models, shape = view.jobs.model, view.jobs.shape[pairs.first, pairs.first_option]
    if len(pairs.first) and not (view.kept.size and view.kept[models[pairs.first], models[pairs.second], shape].all()):
        raise PolicyError(
            f"policy {policy!r} pairs jobs that do not fit on the same GPUs",
            field="policy",
            remedy="pair those of which both keep some speed beside the other",
        )


def check_plan(plan: RoundPlan, pool: Pool, pools: PoolLayout, ledger: GpuLedger, usable: Bools) -> None:
    """Checks capacity, gang atomicity, tenant safety, and that there is no preemption without a winner."""
    if not plan.placements:
        if plan.departures:
            raise BrokenInvariant(f"pool {pool.spec.name}: jobs must leave though none starts")
        return
    table = pool.table
    row, epoch = table.row, table.epoch
    departing = {int(epoch[row[departure.serial]]) for departure in plan.departures}
    winners = [serial for placement in plan.placements for serial in placement.bundle]
    if len(set(winners)) != len(winners):
        raise BrokenInvariant(f"pool {pool.spec.name}: a job was given GPUs twice")
    given = [placement.gpus for placement in plan.placements]
    claimed = given[0] if len(given) == 1 else np.concatenate(given)
    if len(set(claimed.tolist())) != len(claimed):
        raise BrokenInvariant(f"pool {pool.spec.name}: a GPU was given to two jobs")
    if not pools.is_safe(pool.index, claimed):
        raise BrokenInvariant(f"pool {pool.spec.name}: a GPU of another pool was given away")
    if False in usable[claimed].tolist() and not _is_contested(pool, ledger, claimed[~usable[claimed]]):
        raise BrokenInvariant(f"pool {pool.spec.name}: a GPU that is down or held for another job was given away")
    present = set(ledger.holder[claimed].tolist()) - {NONE}
    if ledger.riding or not present <= departing:
        departing.update(pool.leaving_epochs())
    if not present <= departing:
        raise BrokenInvariant(f"pool {pool.spec.name}: a GPU was given away while its holder stays")
    jobs = [table.jobs[row[serial]] for serial in winners]
    if [job for job in jobs if job.cpus_per_gpu or job.memory_bytes_per_gpu]:
        _check_riders(plan, pool, ledger, departing)
    for placement in plan.placements:
        _check_gang(placement, pool, ledger.cluster.levels)


def _check_gang(placement: Placement, pool: Pool, levels: tuple[str, ...]) -> None:
    shape, table = placement.shape, pool.table
    if len(placement.gpus) != shape.gpus:
        raise BrokenInvariant(f"pool {pool.spec.name}: a gang of {shape} got {len(placement.gpus)} GPUs")
    for serial, option in zip(placement.bundle, (placement.option, placement.partner_option), strict=False):
        asked = table.jobs[table.row[serial]].options[option].shape
        if shape == asked:
            continue
        if shape[:2] != asked[:2] or levels.index(shape.level) > levels.index(asked.level):
            raise BrokenInvariant(f"pool {pool.spec.name}: {shape} is not what the job accepts")


def _is_contested(pool: Pool, ledger: GpuLedger, gpus: Ints) -> bool:
    """Whether these GPUs are held for jobs of the pool that have none yet, and thus yield to jobs that rank higher."""
    return bool(np.isin(ledger.held_for[gpus], pool.holding_serials()).all())


def _check_riders(plan: RoundPlan, pool: Pool, ledger: GpuLedger, departing: set[int]) -> None:
    """Checks that, once all departing jobs have left, no node with a placement exceeds its CPUs or memory.

    On other nodes departing jobs and the jobs for which their room is held may overlap.
    """
    bundles = [
        [pool.table.jobs[pool.table.row[serial]] for serial in placement.bundle] for placement in plan.placements
    ]
    gone = np.isin(ledger.holder, list(departing))
    for name, load, limit in zip(
        ("cpus_per_gpu", "memory_bytes_per_gpu"),
        ledger.loads(),
        (ledger.cluster.node_cpus, ledger.cluster.node_memory_bytes),
        strict=True,
    ):
        carried, node = np.where(gone, 0.0, load), ledger.cluster.node_of_gpu
        loaded = np.zeros(len(limit), dtype=bool)
        for placement, jobs in zip(plan.placements, bundles, strict=True):
            carried[placement.gpus] = amount = sum(getattr(job, name) for job in jobs)
            loaded[node[placement.gpus]] |= amount > 0
        if (loaded & (np.bincount(node, weights=carried) > limit * (1 + 1e-9))).any():
            raise BrokenInvariant(f"pool {pool.spec.name}: a node was given more {name} than it has")
