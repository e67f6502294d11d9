"""Gandiva by its own rules (OSDI'18, sections 3 and 4): time slices, packing, migration, and growth into idle GPUs.

A GPU type is over-subscribed when a waiting job finds no room beside the jobs that run with the GPUs they requested. On
such a type

- *jobs take turns*, round robin: the job that has waited longest comes first and runs for a slice, about a minute.
  Slices end at multiples of `slice_seconds`, so that a large gang finds all GPUs released at once. A job that is slow
  to restart has slices of ten restarts, rounded up to 2, 4, 8, ... of the others'; in the paper a restart takes a
  second;
- *jobs are packed*: gangs of one size share GPUs two by two, those first that keep most of their speeds together, until
  the rest fits. A pair is dissolved when it keeps less than `packing_min` of the two speeds, or when there is room
  again.

On other types no job is preempted, and

- *jobs grow* into idle GPUs, if they accept more than they requested: step by step, the job first that gains the
  largest part of its speed per GPU. When a job arrives they shrink at once to what they requested, as far as that is
  needed;
- *jobs migrate*: one that runs in a slower shape than it could have, spread over nodes or on a slower GPU type, moves
  to GPUs that are idle or its own; one at a time per GPU type.

A job that grows, moves or leaves its partner loses its restart time, and does so only if it makes more progress by that
within `horizon_seconds`, or within its remaining time. GPU types are equal to Gandiva: a waiting job goes to the first
that it accepts and that is not over-subscribed, otherwise to the least loaded.

Differences from the paper: a policy names shapes, not nodes. The least loaded node of the same gang size is chosen by
the placer, which takes the fullest node that holds the gang or, in a pool that `spreads`, the emptiest. A job that
joins another on its GPUs stops it for a moment: a pair starts together. The speeds that two jobs keep come from the
view; the paper measures them by trial, which is not done here. Slices are of the whole cluster, not of each node.

The decision consists of grants, without shares: under shares the length of a turn is set by the pool, not the policy, a
job that is to shrink continues until its turn is over, and debts would grow while grants are in force.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf, log2, nextafter
from typing import ClassVar, NamedTuple

import numpy as np

from horae.model.arrays import Bools, Floats, Ints
from horae.model.decisions import Grants, Ranking
from horae.model.job_table import NONE
from horae.model.view import View
from horae.policies.elastic.optimus import check_interval
from horae.policies.elastic.sizes import by_step, climb, damped, gpus_of, until_boundary
from horae.policies.gandiva.oversubscription import GangState, closer, field_of, options_of, shortage, steps_ahead
from horae.policies.gandiva.packing import PackedPairs, begin, sharing_now, undone_for_room
from horae.policies.pairing import check_packing_min

_RESTARTS_A_SLICE = 10  # minimum length of a slice: then at most a tenth of it is lost
# The order of service. Jobs that keep their GPUs come first, so that no other job can claim these.
_KEEPS, _SHRINKS, _WAITS, _HAD_ITS_SLICE, _PARTS, _MIGRATES, _GROWS = range(7)


@dataclass(frozen=True)
class GandivaTimeSlicing:
    name: ClassVar[str] = "gandiva-time-slicing"
    uses_lengths: ClassVar[bool] = True
    packing_min: float = 1.0  # two jobs share while the fractions of their speeds that they keep add up to this
    slice_seconds: float = 60.0  # the length of a turn
    horizon_seconds: float = 3600.0  # a restart must have paid off by then

    def __post_init__(self) -> None:
        check_packing_min(self.packing_min)
        check_interval("slice_seconds", self.slice_seconds)
        check_interval("horizon_seconds", self.horizon_seconds)

    def decide(self, view: View) -> Grants:
        jobs, field = view.jobs, field_of(view)
        plan = _plan(view, field, self)
        order = np.lexsort((jobs.serial, _key(view, plan), plan.rank))
        plan = plan._replace(gpus=_affordable(field, plan, order))
        waits = field.ladders.contends & jobs.pending & ~plan.crowded
        patience_at = jobs.queued_at[waits] + _patience_seconds(view, self)
        stands_until = view.now if plan.moves else float(patience_at[patience_at > view.now].min(initial=inf))
        lease = _lease_seconds(view, plan, self)
        row, option, partner, partner_option = named(view, field, plan, order)
        rest = Ranking(order, preemptive=True, allowed=asked_for(view, field), stands_until=stands_until)
        shares = bool(len(plan.pairs.first))
        return Grants(
            row=row,
            option=option,
            lease_seconds=np.maximum(lease[row], np.where(partner == NONE, 0.0, lease[partner])),
            rest=rest,
            rest_lease_seconds=float(lease.max(initial=0.0)),
            resizes=True,
            partner=partner if shares else None,
            partner_option=partner_option if shares else None,
        )


def _plan(view: View, field: GangState, terms: GandivaTimeSlicing) -> Plan:
    jobs, ladders, kinds = view.jobs, field.ladders, field.ladders.accelerator
    now, bad = sharing_now(view, field, terms.packing_min)
    alone = bad.members(len(jobs))
    short = shortage(view, field, alone)
    full = short > 0
    # Where counts do not show a shortage, of CPUs or of cells finer than a node, a job would wait without need.
    waits = ladders.contends & jobs.pending & (jobs.waiting_seconds >= _patience_seconds(view, terms))
    full[kinds[waits]] = True
    crowded = np.append(full, False)[kinds]
    steps = steps_ahead(view, terms.horizon_seconds)
    idle = PackedPairs(*(rows[~crowded[now.first]] for rows in now))
    parts = undone_for_room(view, field, idle, ladders.contends & ~crowded & (jobs.pending | alone), steps)
    going_on = PackedPairs(*(rows[~parts[now.first]] for rows in now))
    rank = np.where(jobs.running, np.where(crowded, _HAD_ITS_SLICE, _KEEPS), _WAITS)
    rank[parts | alone] = _PARTS
    pairs = _pairs(view, field, going_on, (short, crowded, rank), terms)
    gpus = np.where(ladders.contends & crowded, field.gang, 0)
    gpus[pairs.first], gpus[pairs.second] = field.gang[pairs.first], 0
    free = ladders.contends & ~crowded & ~pairs.members(len(jobs))
    sizes, target = _sizes(view, field, free, pairs, steps)
    shared = pairs.members(len(jobs)) | parts | alone
    rank[free & jobs.running & ~shared & (sizes < jobs.held_gpus)] = _SHRINKS
    rank[free & jobs.running & ~shared & (sizes > jobs.held_gpus)] = _GROWS
    rank[list(target)] = _MIGRATES
    begins = pairs.first[len(going_on.first) :]
    rank[begins] = _WAITS
    # A job that moves may leave GPUs that suit another.
    moves = bool((rank[ladders.contends & ~crowded] > _HAD_ITS_SLICE).any()) or bool((rank == _SHRINKS).any())
    return Plan(pairs, np.where(free, sizes, gpus), target, rank, crowded, moves)


def _pairs(
    view: View, field: GangState, going_on: PackedPairs, state: tuple[Ints, Bools, Ints], terms: GandivaTimeSlicing
) -> PackedPairs:
    """The pairs that continue, then the new ones, where GPUs are short."""
    jobs, ladders = view.jobs, field.ladders
    short, crowded, rank = state
    first, second = [going_on.first], [going_on.second]
    single = ladders.contends & crowded & ~going_on.members(len(jobs))
    key = np.where(jobs.running, -jobs.since, jobs.queued_at)
    order = np.lexsort((jobs.serial, key, rank))
    for kind in np.flatnonzero(short > 0).tolist() if len(view.kept) else ():
        rows = order[single[order] & (ladders.accelerator[order] == kind)]
        made = begin(view, field, rows, int(short[kind]), terms.packing_min)
        first.append(made.first)
        second.append(made.second)
    return PackedPairs(np.concatenate(first), np.concatenate(second))


def _sizes(view: View, field: GangState, free: Bools, pairs: PackedPairs, steps: Floats) -> tuple[Ints, dict[int, int]]:
    """By row, for single jobs on types with room: its GPUs; and the option to which each migrating job moves."""
    jobs, ladders = view.jobs, field.ladders
    kinds = ladders.accelerator[pairs.first]
    shared = np.bincount(kinds, field.gang[pairs.first], minlength=len(view.capacity)).astype(np.int64)
    ladders = ladders._replace(contends=free, gpus_left=ladders.gpus_left - shared)
    speed = np.where(ladders.speed > 0, ladders.speed, 1.0)
    order = np.lexsort((jobs.serial, jobs.submitted_at))
    rung = climb(ladders, order, by_step(ladders, ladders.speed) / speed)
    seconds = np.divide(steps[:, None], ladders.speed, out=np.zeros(speed.shape), where=ladders.speed > 0)
    rung = damped(ladders, rung, seconds, jobs.restart_seconds)
    stays = free & jobs.running & (jobs.partner < 0) & (rung == ladders.held)
    target = closer(view, np.flatnonzero(stays), steps)
    busy = [int(view.shape_accelerator[jobs.shape[row, option]]) for row, option in target.items()]
    busy += ladders.accelerator[list(target)].tolist()
    waits = free & (ladders.held >= 0) & (rung > ladders.held) & np.isin(ladders.accelerator, busy)
    rung[waits] = ladders.held[waits]  # they would compete for the same GPUs
    return gpus_of(view, ladders, rung), target


def _key(view: View, plan: Plan) -> Floats:
    """By row, the order within one rank: the longest waiting first; the longest running is preempted first."""
    jobs = view.jobs
    key: Floats = np.where(jobs.running, -jobs.since, jobs.queued_at)
    first, second = plan.pairs
    begins = plan.rank[first] == _WAITS
    since = np.minimum(*(np.where(jobs.pending[rows], jobs.queued_at[rows], view.now) for rows in (first, second)))
    key[first[begins]] = since[begins]
    return key


def _affordable(field: GangState, plan: Plan, order: Ints) -> Ints:
    """By row: its GPUs; on over-subscribed types only as many as are available, to the first jobs in order."""
    gpus = np.where(plan.crowded, 0, plan.gpus)
    left: list[int] = field.ladders.gpus_left.tolist()
    for row in order[plan.crowded[order] & (plan.gpus[order] > 0)].tolist():
        kind, wanted = int(field.ladders.accelerator[row]), int(plan.gpus[row])
        if wanted <= left[kind]:
            left[kind] -= wanted
            gpus[row] = wanted
    return gpus


def _lease_seconds(view: View, plan: Plan, terms: GandivaTimeSlicing) -> Floats:
    """By row: the rest of its slice; 0 where there is room for all, so that a new job is served at once."""
    lease = np.zeros(len(view.jobs))
    needed = np.where(plan.crowded, view.jobs.restart_seconds * _RESTARTS_A_SLICE, 0.0)
    for seconds in np.unique(needed[plan.crowded]).tolist():
        slices = 2 ** max(ceil(log2(max(seconds / terms.slice_seconds, 1.0)) - 1e-9), 0)
        lease[plan.crowded & (needed == seconds)] = _until_slice_ends(view.now, slices * terms.slice_seconds)
    return lease


def _until_slice_ends(now: float, slice_seconds: float) -> float:
    """Seconds until the slice ends: from half a slice to one and a half."""
    ends_at, _ = until_boundary(now + slice_seconds / 2, slice_seconds)
    seconds = ends_at - now
    return nextafter(seconds, 0.0) if now + seconds > ends_at else seconds


def _patience_seconds(view: View, terms: GandivaTimeSlicing) -> float:
    return max(terms.slice_seconds, view.round_seconds)


# The grants of Gandiva by its own rules: the shapes of each job, in the order in which they are tried.


class Plan(NamedTuple):
    """The planned allocation of every job."""

    pairs: PackedPairs  # continuing and new ones
    gpus: Ints  # by row: GPUs granted to it, alone or with its partner; 0: none for now
    target: dict[int, int]  # by row: the option to which it moves
    rank: Ints  # by row: its rank; the lowest is served first
    crowded: Bools  # by row: its GPU type is over-subscribed
    moves: bool  # a running job moves where there is room for all: others may follow


def asked_for(view: View, field: GangState) -> Bools:
    """By row and option: whether it has the gang size requested, of any type; any option where there is none."""
    jobs = view.jobs
    accepted: Bools = jobs.shape >= 0
    asked = accepted & (view.shape_gpus[jobs.shape] == field.gang[:, None])
    return np.where(asked.any(axis=1, keepdims=True), asked, accepted)


def named(view: View, field: GangState, plan: Plan, order: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Row, option, partner and its option of the grants in order: the fastest of each first, then its present one."""
    jobs, kinds = view.jobs, field.ladders.accelerator
    place = np.empty(len(jobs), dtype=np.int64)
    place[order] = np.arange(len(order))
    offers = options_of(view, kinds, plan.gpus)
    offers[plan.pairs.first] = False
    has = np.flatnonzero(jobs.running & (plan.gpus > 0) & (jobs.partner < 0) & (plan.gpus >= jobs.held_gpus))
    has = has[~plan.pairs.members(len(jobs))[has]]
    offers[has, jobs.option[has]] = True  # it keeps that if there is nothing better
    for row, option in plan.target.items():
        offers[row, option] = True
    rows, options = np.nonzero(offers)
    keeps = jobs.running[rows] & (jobs.partner[rows] < 0) & (jobs.option[rows] == options)
    turn = np.where(keeps & (plan.gpus[rows] == jobs.held_gpus[rows]), 1, np.where(keeps, 3, 2))
    turn[[plan.target.get(row) == option for row, option in zip(rows.tolist(), options.tolist(), strict=True)]] = 0
    in_turn = np.lexsort((options, -jobs.speed[rows, options], turn, place[rows]))
    rows, options = rows[in_turn], options[in_turn]
    return _with_pairs(view, field, plan, place, (rows, options))


def _with_pairs(
    view: View, field: GangState, plan: Plan, place: Ints, alone: tuple[Ints, Ints]
) -> tuple[Ints, Ints, Ints, Ints]:
    """The same with the pairs that are served: each with its fastest options, then with wider levels."""
    row, option = alone
    partner = partner_option = np.full(len(row), NONE)
    jobs, found = view.jobs, []
    options = options_of(view, field.ladders.accelerator, field.gang)
    for first, second in zip(plan.pairs.first.tolist(), plan.pairs.second.tolist(), strict=True):
        if plan.gpus[first]:
            ways = [_fastest_first(jobs.speed[each], options[each]) for each in (first, second)]
            if jobs.running[first] and jobs.partner[first] == second:
                ways = [[int(jobs.option[first]), *ways[0]], [int(jobs.option[second]), *ways[1]]]
            for step in range(max(map(len, ways))):
                mine, other = (way[min(step, len(way) - 1)] for way in ways)
                found.append((first, mine, second, other))
    if not found:
        return row, option, partner, partner_option
    columns = zip((row, option, partner, partner_option), zip(*found, strict=True), strict=True)
    row, option, partner, partner_option = (np.append(column, more).astype(np.int64) for column, more in columns)
    in_turn = np.argsort(place[row], kind="stable")
    return row[in_turn], option[in_turn], partner[in_turn], partner_option[in_turn]


def _fastest_first(speed: Floats, named: Bools) -> list[int]:
    options = np.flatnonzero(named)
    fastest: list[int] = options[np.argsort(-speed[options], kind="stable")].tolist()
    return fastest
