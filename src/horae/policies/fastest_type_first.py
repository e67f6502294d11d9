"""FIFO or shortest first, each job on the fastest GPU type that has room: baselines of Gavel's evaluation (OSDI'20).

Jobs are served in order, each completely and all of the time. A job that would find room only on types that it cannot
use is passed over; the first for which no type has room blocks the queue. GPUs that stay idle are not filled. The
answer is recomputed at every event, so a job moves up to a faster type as soon as that becomes free.

With sharing, jobs still in the queue then join the served jobs in order, each the one with which the two keep most of
their speeds; the first that finds no suitable partner ends this step, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar, NamedTuple

import numpy as np

from horae.model.arrays import Bools, Floats, Ints
from horae.model.decisions import Pairs, Shares
from horae.model.view import View
from horae.policies.pairing import combined
from horae.policies.stable_random import draw


@dataclass(frozen=True)
class FifoOnFastest:
    name: ClassVar[str] = "fifo-on-fastest"
    aware: bool = True  # uses speeds by GPU type; if not, each job tries the types in an order of its own
    sharing: bool = False  # two jobs may run on the same GPUs
    packing_min: float = 1.5  # two jobs share if the fractions of their speeds that they keep add up to more than this

    def decide(self, view: View) -> Shares:
        order = np.lexsort((view.jobs.serial, view.jobs.submitted_at))
        queue = _queue(view, order, self.aware)
        return _shares(queue, _serve(queue), self.sharing, self.packing_min)


@dataclass(frozen=True)
class SjfOnFastest:
    """Shortest first, by the estimated time left on the job's fastest type.

    If not aware of speeds, the time left in the job's first shape counts. Jobs of unknown length come last.
    """

    name: ClassVar[str] = "sjf-on-fastest"
    uses_lengths: ClassVar[bool] = True
    aware: bool = True  # as above
    sharing: bool = False
    packing_min: float = 1.5

    def decide(self, view: View) -> Shares:
        jobs = view.jobs
        speed = jobs.speed.max(axis=1, initial=0.0) if self.aware else jobs.reference_speed
        with np.errstate(divide="ignore", invalid="ignore"):
            left = np.nan_to_num(jobs.steps_left / speed, nan=inf, posinf=inf)
        order = np.lexsort((jobs.serial, left))
        queue = _queue(view, order, self.aware)
        order, served = queue.order, _serve(queue)
        shares = _shares(queue, served, self.sharing, self.packing_min)
        count = len(served.rows)
        if count == len(order) and (queue.wishes[order, 0] == served.options).all():
            return shares  # all jobs have their most preferred option, in any order
        last = max(served.reached, served.reached + count - 1 if self.sharing else 0)
        pace = np.divide(jobs.speed.max(axis=1, initial=0.0), speed, out=np.ones(len(speed)), where=speed > 0)
        gap = _gap_min(left[order], _moves(queue, shares)[order], last)
        return shares._replace(stands_until=view.now + gap / float(pace.max(initial=1.0)))


class _Queue(NamedTuple):
    view: View
    order: Ints  # rows, the first to be served first
    wishes: Ints  # by row: its options, the most preferred first
    shapes: Ints  # by row and preference; -1 for options it cannot have


def _queue(view: View, order: Ints, aware: bool) -> _Queue:
    """The queue in this order; options are preferred by speed, then GPU type name, or by a random order per type."""
    jobs = view.jobs
    accelerator = view.shape_accelerator[jobs.shape]  # undefined beyond the last option, which is not accepted
    accepted = (jobs.shape >= 0) & (accelerator >= 0) & (jobs.speed > 0)
    by_name = np.argsort(np.argsort(np.array(view.accelerators, dtype=str)))[accelerator]
    first = -jobs.speed if aware else draw(view.seed, jobs.serial[:, None], accelerator)
    wishes = np.lexsort((by_name, first, ~accepted), axis=-1)
    # A job that accepts nothing the pool has now is not in the queue: it would block all others to no purpose.
    order = order[accepted[order].any(axis=1)]
    return _Queue(view, order, wishes, np.take_along_axis(np.where(accepted, jobs.shape, -1), wishes, axis=1))


class _Served(NamedTuple):
    rows: Ints
    options: Ints
    reached: int  # the place in the queue of the job that blocks it


def _serve(queue: _Queue) -> _Served:
    """The jobs served, in order, up to the first for which no type has room.

    Sequential, because room depends on all earlier jobs. Every served job has at least one GPU; jobs of the same shapes
    as one that was passed over are passed over, too, because room only shrinks.
    """
    view = queue.view
    room = view.capacity.tolist()
    accelerator, gpus = view.shape_accelerator.tolist(), view.shape_gpus.tolist()
    rows, options, passed = [], [], set()
    shapes_of, wishes_of = queue.shapes[queue.order].tolist(), queue.wishes[queue.order].tolist()
    for place, (row, shapes, wishes) in enumerate(zip(queue.order.tolist(), shapes_of, wishes_of, strict=True)):
        known = tuple(shapes)
        if known in passed:
            continue
        for shape, option in zip(shapes, wishes, strict=True):
            if shape >= 0 and gpus[shape] <= room[accelerator[shape]]:
                room[accelerator[shape]] -= gpus[shape]
                rows.append(row)
                options.append(option)
                break
        else:
            if min(gpus[shape] for shape in shapes if shape >= 0) > max(room):
                return _Served(np.array(rows, dtype=np.int64), np.array(options, dtype=np.int64), place)
            passed.add(known)
    return _Served(np.array(rows, dtype=np.int64), np.array(options, dtype=np.int64), len(queue.order))


def _shares(queue: _Queue, served: _Served, sharing: bool, packing_min: float) -> Shares:
    fraction = np.zeros(queue.view.jobs.shape.shape)
    fraction[served.rows, served.options] = 1.0
    pairs = _join(queue, served, packing_min) if sharing and len(served.rows) else None
    if pairs is not None:
        fraction[pairs.first, pairs.first_option] = 0.0
    return Shares(fraction, pairs=pairs)


def _join(queue: _Queue, served: _Served, packing_min: float) -> Pairs | None:
    """Pair jobs still in the queue with served jobs; each uses up one of these, so the GPUs bound the steps."""
    hosts = served.rows
    host_is_alone = np.ones(len(hosts), dtype=np.bool_)
    joined: list[tuple[int, int, int, int]] = []
    for row in queue.order[served.reached : served.reached + len(hosts)].tolist():
        together = _together(queue, row, hosts, served.options) * host_is_alone[:, None]
        host, wish = np.unravel_index(int(together.argmax()), together.shape)
        if not together[host, wish] > packing_min:
            break
        host_is_alone[host] = False
        joined.append((int(hosts[host]), row, int(served.options[host]), int(queue.wishes[row, wish])))
    if not joined:
        return None
    first, second, first_option, second_option = np.array(joined, dtype=np.int64).T
    return Pairs(first, second, first_option, second_option, np.ones(len(joined)))


def _together(queue: _Queue, row: int, hosts: Ints, served: Ints) -> Floats:
    """By host and preference of this job: the sum of speeds kept, 0 where the two would not have the same GPUs."""
    view, jobs = queue.view, queue.view.jobs
    theirs, mine = jobs.shape[hosts, served][:, None], queue.shapes[[row]]
    same = (view.shape_accelerator[theirs] == view.shape_accelerator[mine]) & (mine >= 0)
    same &= view.shape_gpus[theirs] == view.shape_gpus[mine]
    models = jobs.model[hosts][:, None], jobs.model[[row]][:, None]
    return np.where(same, combined(view, models, (theirs, mine)), 0.0)


def _moves(queue: _Queue, shares: Shares) -> Bools:
    """By row: whether it runs or may be started, so that its time left falls; a waiting job overtakes no other."""
    moves = ~queue.view.jobs.pending | shares.fraction.any(axis=1)
    if shares.pairs is not None:
        moves[shares.pairs.first] = moves[shares.pairs.second] = True
    return moves


def _gap_min(left: Floats, moves: Bools, last: int) -> float:
    """The least time, in order, by which a running job is behind the one before it, which at worst waits.

    The order matters up to position `last`, that of the job that blocks the queue or could be the last to join others.
    No job behind passes that one sooner than the next running one. Jobs of unknown length stay last.
    """
    movers = np.flatnonzero(moves & np.isfinite(left))
    count = int(np.searchsorted(movers, last, side="right")) + 1  # and the next one behind
    behind = movers[:count][movers[:count] > 0]
    return float((left[behind] - left[np.minimum(behind - 1, last)]).min(initial=inf))
