"""Lower bounds that no policy can beat on the jobs of a log, whatever it preempts and wherever it places.

The GPUs of a pool are relaxed to one machine: at prices for the GPU types that add up to 1 over the pool, no schedule
uses more than 1 per second, and a job takes no less than its cheapest shape does. Pools whose jobs borrow count as one
with all GPUs of the cluster. Where jobs shared GPUs, both grow by
what two can gain from that. Proofs in docs/reference/metrics.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from math import nan

import numpy as np

from horae.model.arrays import Floats, Ints
from horae.reports.groups import sums_by
from horae.reports.run_log import ClusterLog, RunLog
from horae.reports.usage import window

CUTS_MAX = 60
GAP = 1e-7  # relative gap to the best price at which the search ends


@dataclass(frozen=True, slots=True)
class Bounds:
    """Lower bounds over the jobs that finished; nan where there are none."""

    completion_mean_seconds: float
    makespan_seconds: float


@dataclass(frozen=True)
class PoolWork:
    """The finished jobs of one pool in the order of their submission, and its GPUs by type."""

    release: Floats
    fastest_seconds: Floats
    gpu_seconds: Floats  # by job and type: the least for its work, with sharing if there was any; inf: not there
    gpus: Ints

    def priced(self, prices: Floats) -> Floats:
        """By job: its least work at these prices, in seconds of the whole pool."""
        accepted = np.isfinite(self.gpu_seconds)
        costs = np.multiply(self.gpu_seconds, prices, out=np.full_like(self.gpu_seconds, np.inf), where=accepted)
        return costs.min(axis=1)

    def since(self, first: int) -> PoolWork:
        return PoolWork(self.release[first:], self.fastest_seconds[first:], self.gpu_seconds[first:], self.gpus)


def bounds(log: RunLog) -> Bounds:
    works = list(pool_works(log))
    if not works:
        return Bounds(nan, nan)
    # A job of unknown length counts as zero time.
    completion = sum(completion_sum(work) for work in works) / log.finished_count
    return Bounds(completion, max(last_end(work) for work in works) - window(log).start)


def pool_works(log: RunLog) -> Iterator[PoolWork]:
    """The work of each machine: of one pool, or of all pools whose jobs may run on each other's GPUs."""
    jobs = log.jobs
    for pools, gpus in _machines(log.cluster):
        rows = np.flatnonzero(log.finished & np.isin(jobs.pool, pools) & np.isfinite(jobs.fastest_seconds))
        if len(rows):
            rows = rows[np.argsort(jobs.submitted_at[rows], kind="stable")]
            types = np.flatnonzero(gpus)
            gain, together = _gains(log, pools)
            least = jobs.least_gpu_seconds[np.ix_(rows, types)] / together
            yield PoolWork(jobs.submitted_at[rows], jobs.fastest_seconds[rows] / gain, least, gpus[types])


def _machines(cluster: ClusterLog) -> Iterator[tuple[Ints, Ints]]:
    """Pools that count as one machine, and its GPUs by type.

    Where jobs borrow, all pools that may use the whole cluster are one; cells that do not lend out their jobs stay
    apart, as do all pools where no job borrows.
    """
    everything = cluster.gpus_by_accelerator
    together = cluster.borrows
    if together.any():
        together = together | (cluster.pool_gpus == everything).all(axis=1)
        yield np.flatnonzero(together), everything
    for pool in np.flatnonzero(~together).tolist():
        yield np.array([pool]), cluster.pool_gpus[pool]


def _gains(log: RunLog, pools: Ints) -> tuple[float, float]:
    """How much faster than alone one job, and two jobs sharing GPUs in total, can be:
    no faster where no jobs shared."""
    shared = log.leases.shared_seconds > 0
    if not shared.any() or not np.isin(log.jobs.pool[log.leases.job[shared]], pools).any():
        return 1.0, 1.0
    return max(log.kept_max, 1.0), max(log.kept_together_max, 1.0)


def best_prices(work: PoolWork) -> Floats:
    """The prices at which the jobs' work is largest, by cutting planes; any others would give a bound too.

    The work V(p) is concave, and V(p) <= g p where g is the work by type of each job in its cheapest type at any
    prices: a few such cuts and a linear program over the prices alone find the best.
    """
    from scipy.optimize import linprog  # noqa: PLC0415  (half a second to import, which commands should not pay)

    gpus = work.gpus.astype(np.float64)
    prices = best = np.full(len(gpus), 1 / gpus.sum())
    reached, cuts = -np.inf, []
    for _ in range(CUTS_MAX if len(gpus) > 1 else 0):
        cut = _work_by_cheapest_type(work, prices)
        cuts.append(cut)
        if cut @ prices > reached:
            best, reached = prices, float(cut @ prices)
        # Variables: the prices, and what all cuts allow.
        answer = linprog(
            c=[*np.zeros(len(gpus)), -1.0],
            A_ub=[[*(-cut / cuts[0].max()), 1.0] for cut in cuts],
            b_ub=np.zeros(len(cuts)),
            A_eq=[[*gpus, 0.0]],
            b_eq=[1.0],
        )
        if answer.x is None or answer.x[-1] * cuts[0].max() <= reached * (1 + GAP):
            break
        prices = np.maximum(answer.x[:-1], 0.0)
        prices = prices / (prices @ gpus)
    return best


def _work_by_cheapest_type(work: PoolWork, prices: Floats) -> Floats:
    accepted = np.isfinite(work.gpu_seconds)
    costs = np.where(accepted, np.where(accepted, work.gpu_seconds, 0.0) * prices, np.inf)
    cheapest = costs.argmin(axis=1)
    least = work.gpu_seconds[np.arange(len(cheapest)), cheapest]
    return sums_by(cheapest, least, len(prices))


def last_end(work: PoolWork) -> float:
    """A lower bound of the makespan: after any release there is still the work of all jobs released from then on."""
    alone = float((work.release + work.fastest_seconds).max())
    ends = work.release + _volume_since(work, best_prices(work))
    # Prices for the jobs that matter most give a better bound than those for all.
    late = work.since(int(ends.argmax()))
    ends_late = late.release + _volume_since(late, best_prices(late))
    return max(alone, float(ends.max()), float(ends_late.max()))


def _volume_since(work: PoolWork, prices: Floats) -> Floats:
    return np.cumsum(work.priced(prices)[::-1])[::-1]


def completion_sum(work: PoolWork) -> float:
    """A lower bound of the sum of completion times, counted from each job's submission."""
    release = work.release - work.release[0]
    released, alone = float(release.sum()), float(work.fastest_seconds.sum())
    found = alone
    equal = np.full(len(work.gpus), 1 / work.gpus.sum())
    for prices in (best_prices(work), equal) if len(equal) > 1 else (equal,):
        priced = work.priced(prices)
        ends = shortest_remaining_first(release.tolist(), priced.tolist())
        middles = mean_busy_times(release, priced, work.fastest_seconds)
        found = max(found, ends - released, middles + alone / 2 - released)
    return found


def shortest_remaining_first(release: list[float], work: list[float]) -> float:
    """The sum of completion times on one machine by shortest remaining work first, which is optimal there.

    Releases ascend.
    """
    waiting: list[float] = []  # what is left of each job, as a heap
    now = total = 0.0
    for at, amount in zip(release, work, strict=True):
        while waiting and now < at:
            left = waiting[0]
            if now + left > at:
                waiting[0] = left - (at - now)  # still the least
                break
            heappop(waiting)
            now += left
            total += now
        now = max(now, at)
        heappush(waiting, amount)
    for left in sorted(waiting):
        now += left
        total += now
    return total


def mean_busy_times(release: Floats, work: Floats, fastest_seconds: Floats) -> float:
    """The least sum of the jobs' mean busy times on one machine: always the job of the least total work.

    A job that costs nothing is busy from its release for its fastest time.
    """
    free = work <= 0
    total = float((release[free] + fastest_seconds[free] / 2).sum())
    waiting: list[tuple[float, float]] = []  # total work and what is left of it, as a heap
    now = 0.0
    for at, amount in zip([*release[~free].tolist(), np.inf], [*work[~free].tolist(), 0.0], strict=True):
        while waiting and now < at:
            size, left = waiting[0]
            done = min(left, at - now)  # not a difference of two late times: rounding would swamp small amounts
            total += done / size * (now + done / 2)
            if done < left:
                waiting[0] = (size, left - done)
                now = at
            else:
                heappop(waiting)
                now += done
        now = max(now, at)
        heappush(waiting, (amount, amount))
    return total
