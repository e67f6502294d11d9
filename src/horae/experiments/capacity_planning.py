"""Plans which cells to reserve for each tenant, from a history of jobs, goals and a budget.

With cells a tenant is scheduled as on a private cluster, so tenants can be planned one by one: the waiting time with a
number of cells is found by running the tenant's history on just those. The budget is then divided such that the goals
are missed by as little as possible, exactly, by dynamic programming over these curves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf

import numpy as np

from horae.experiments.simulate import simulate
from horae.model.arrays import Floats, Ints
from horae.model.cluster import GPU, NODE, Cluster, Node
from horae.model.errors import InputError
from horae.model.jobs import Arrival
from horae.model.setup import PoolSpec, Setup

WEEK_SECONDS = 7 * 86400.0
_POINTS = 8  # of a curve
_TIE = 1e-3  # the weight of a second of waiting within the goal, relative to one beyond it
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(7)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()  # of a normal distribution
_DEVIATION_MAX = 0.7

Tell = Callable[[str], None]


@dataclass(frozen=True)
class QueueingGoal:
    queueing_seconds: float  # mean
    weight: float = 1.0  # relative importance


@dataclass(frozen=True)
class PlanningSite:
    """The hardware of which cells can be reserved: identical nodes."""

    node: Node
    nodes: int

    @property
    def gpus(self) -> int:
        return self.node.gpus * self.nodes

    def levels(self) -> list[tuple[str, int]]:
        """Cells that can be reserved, with their GPUs, finest first."""
        return [(GPU, 1), *self.node.levels, (NODE, self.node.gpus)]


@dataclass(frozen=True)
class History:
    """A tenant's jobs over some weeks."""

    tenant: str
    arrivals: tuple[Arrival, ...]
    begins_at: float
    ends_at: float

    @property
    def gpu_seconds(self) -> float:
        return sum(each.job.gpus * _seconds(each) for each in self.arrivals)

    @property
    def largest_gang(self) -> int:
        return max(each.job.gpus for each in self.arrivals)


@dataclass(frozen=True)
class WaitingCurve:
    """A tenant's mean waiting time by the number of its cells."""

    tenant: str
    level: str
    cell_gpus: int
    least: int  # cells that hold its largest gang
    cells: Ints
    waiting_seconds: Floats  # mean
    deviation: float  # standard deviation of the weekly demand, as a logarithm
    jobs: int

    def at(self, cells: Ints) -> Floats:
        """Expected waiting time over the distribution of weekly demand.

        Scaling work and cells by the same factor keeps the waiting time about equal, so a week with f times the demand
        is treated as a past week on 1/f of the cells.
        """
        factors = np.exp(self.deviation * _NODES)
        with np.errstate(divide="ignore"):
            waits = np.array([self._in_the_past(cells / factor) for factor in factors])
        return np.where(cells < self.least, inf, _WEIGHTS @ waits)

    def _in_the_past(self, cells: Floats) -> Floats:
        """The simulated waiting time; below the simulated range, in inverse proportion to the square of the cells."""
        waits: Floats = np.interp(cells, self.cells, self.waiting_seconds)
        first = float(self.cells[0])
        return np.where(cells < first, self.waiting_seconds[0] * (first / np.maximum(cells, 0.1)) ** 2, waits)


@dataclass(frozen=True)
class Share:
    tenant: str
    level: str
    cells: int
    gpus: int
    expected_seconds: float  # of waiting


@dataclass(frozen=True)
class PlanOutcome:
    """The result of a plan on weeks that were not used for it."""

    waiting_seconds: Mapping[str, float]  # by tenant: mean
    mean_seconds: float  # over all jobs, by weight
    goals_met: int
    too_large: int  # jobs larger than any their tenant had run before, which its cells do not hold


def _seconds(arrival: Arrival) -> float:
    return arrival.truth.steps_total / arrival.truth.options[0].steps_per_second


def split(arrivals: Sequence[Arrival], part: float) -> tuple[list[History], list[History]]:
    """The first part of the time, to plan from, and the rest, to validate the plan."""
    first, last = arrivals[0].job.submitted_at, arrivals[-1].job.submitted_at
    middle = first + part * (last - first)
    tenants = sorted({each.job.tenant for each in arrivals})
    before = [_history(tenant, arrivals, first, middle) for tenant in tenants]
    after = [_history(tenant, arrivals, middle, last + 1.0) for tenant in tenants]
    return [each for each in before if each.arrivals], [each for each in after if each.arrivals]


def _history(tenant: str, arrivals: Sequence[Arrival], begins_at: float, ends_at: float) -> History:
    mine = [each for each in arrivals if each.job.tenant == tenant and begins_at <= each.job.submitted_at < ends_at]
    return History(tenant, tuple(mine), begins_at, ends_at)


def curve_of(history: History, site: PlanningSite, policy: PoolSpec, caution: float) -> WaitingCurve:
    """Runs the history on a growing number of cells, until more of them change nothing."""
    level, size = cell_for(history, site)
    least = ceil(history.largest_gang / size)
    busy = history.gpu_seconds / (history.ends_at - history.begins_at) / size
    most = min(site.gpus // size, max(least + 1, ceil(4 * busy)))
    counts = np.unique(np.round(np.geomspace(max(least, ceil(busy / 2)), max(most, least + 1), _POINTS)).astype(int))
    cells, waits = [], []
    for count in counts.tolist():
        cells.append(count)
        waits.append(mean_wait(history, _cluster(site, level, size, count), policy))
        if waits[-1] == 0.0:
            break
    falling = np.minimum.accumulate(np.array(waits))
    deviation = caution * _deviation(history)
    return WaitingCurve(history.tenant, level, size, least, np.array(cells), falling, deviation, len(history.arrivals))


def _deviation(history: History) -> float:
    """The week-to-week deviation of the demand."""
    week = [int((each.job.submitted_at - history.begins_at) // WEEK_SECONDS) for each in history.arrivals]
    demand = np.bincount(week, weights=[each.job.gpus * _seconds(each) for each in history.arrivals])
    full = demand[:-1] if len(demand) > 2 else demand  # the last may be incomplete
    return min(float(np.std(np.log(np.maximum(full, full.mean() / 20)))), _DEVIATION_MAX)


def cell_for(history: History, site: PlanningSite) -> tuple[str, int]:
    """The smallest cell that holds the tenant's largest gang; nodes for gangs of several."""
    return next(((level, gpus) for level, gpus in site.levels() if gpus >= history.largest_gang), site.levels()[-1])


def _cluster(site: PlanningSite, level: str, size: int, count: int) -> Cluster:
    node = site.node
    levels = tuple(each for each in node.levels if each[1] <= size)
    nodes = [Node(f"{level}{index}", node.accelerator, size, levels=levels) for index in range(count)]
    return Cluster("plan", tuple(nodes))


def mean_wait(history: History, cluster: Cluster, policy: PoolSpec) -> float:
    jobs = simulate(Setup(cluster, (policy,)), history.arrivals).log.jobs
    waits = jobs.started_at - jobs.submitted_at
    if np.isnan(waits).any():
        raise InputError(f"jobs of {history.tenant} never run on {cluster.gpu_count} GPUs", remedy="plan with more")
    return float(waits.mean())


def divide(curves: Sequence[WaitingCurve], goals: Mapping[str, QueueingGoal], gpus: int) -> list[Share] | None:
    """The division of these GPUs that misses the goals by the least; None if the largest gangs do not fit."""
    best = np.zeros(gpus + 1)
    choices: list[Ints] = []
    for curve in curves:
        goal = goals[curve.tenant]
        cells = np.arange(gpus // curve.cell_gpus + 1)
        waits = curve.at(cells)
        cost = goal.weight * curve.jobs * (np.maximum(waits - goal.queueing_seconds, 0.0) + _TIE * waits)
        cost = np.where(np.isfinite(waits), cost, inf)
        total, choice = np.full(gpus + 1, inf), np.zeros(gpus + 1, dtype=np.int64)
        for count, price in zip(cells.tolist(), cost.tolist(), strict=True):
            used = count * curve.cell_gpus
            candidate = price + best[: gpus + 1 - used]
            better = candidate < total[used:] - 1e-12
            total[used:][better] = candidate[better]
            choice[used:][better] = count
        best = total
        choices.append(choice)
    if not np.isfinite(best[gpus]):
        return None
    shares, left = [], int(gpus)
    for curve, choice in zip(reversed(curves), reversed(choices), strict=True):
        count = int(choice[left])
        used = count * curve.cell_gpus
        shares.append(Share(curve.tenant, curve.level, count, used, float(curve.at(np.array([count]))[0])))
        left -= used
    return shares[::-1]


def in_proportion(curves: Sequence[WaitingCurve], histories: Sequence[History], gpus: int) -> list[Share]:
    """The conventional division: by demand in GPU-hours, in whole cells, at least what the largest gang needs."""
    demand = np.array([history.gpu_seconds for history in histories])
    sizes = np.array([curve.cell_gpus for curve in curves])
    exact = demand / demand.sum() * gpus / sizes
    need = np.array([ceil(each.largest_gang / size) for each, size in zip(histories, sizes.tolist(), strict=True)])
    cells = np.maximum(np.floor(exact).astype(int), need)
    for index in np.argsort(np.floor(exact) - exact).tolist():  # the largest remainder first
        if (cells * sizes).sum() + sizes[index] <= gpus and cells[index] < exact[index]:
            cells[index] += 1
    while (cells * sizes).sum() > gpus and (cells > need).any():  # from the tenant with most beyond its largest gang
        cells[int(((cells - need) * sizes).argmax())] -= 1
    return [
        Share(curve.tenant, curve.level, count, count * curve.cell_gpus, float(curve.at(np.array([count]))[0]))
        for curve, count in zip(curves, cells.tolist(), strict=True)
    ]


def outcome_of(
    shares: Sequence[Share],
    histories: Sequence[History],
    goals: Mapping[str, QueueingGoal],
    site: PlanningSite,
    policy: PoolSpec,
) -> PlanOutcome:
    """Runs the weeks that the plan was not made from."""
    waits: dict[str, float] = {}
    total = weights = 0.0
    too_large = 0
    by_tenant = {share.tenant: share for share in shares}
    for history in histories:
        share = by_tenant.get(history.tenant)
        if share is None or not share.cells:
            continue
        size = share.gpus // share.cells
        largest = share.gpus if size == site.node.gpus else size  # larger gangs than in the past may not fit
        fits = [each for each in history.arrivals if each.job.gpus <= largest]
        too_large += len(history.arrivals) - len(fits)
        if not fits:
            continue
        seen = History(history.tenant, tuple(fits), history.begins_at, history.ends_at)
        jobs = simulate(Setup(_cluster(site, share.level, size, share.cells), (policy,)), seen.arrivals).log.jobs
        mean = float((jobs.started_at - jobs.submitted_at).mean())
        waits[history.tenant] = mean
        weight = goals[history.tenant].weight * len(fits)
        total, weights = total + weight * mean, weights + weight
    met = sum(mean <= goals[tenant].queueing_seconds for tenant, mean in waits.items())
    return PlanOutcome(waits, total / max(weights, 1e-9), met, too_large)
