"""A bookkeeper who watches a run and works out every metric with plain loops, straight from docs/reference/metrics.md.

It writes down each job and each lease as it sees them go by. Whatever is a share of time is found by cutting time
wherever something begins or ends and looking at each piece by itself; nothing is summed cleverly.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import floor, inf, nan
from typing import NamedTuple, TypeAlias

from horae.model.cluster import Gpu, Node
from horae.model.commands import Start
from horae.model.events import Ending, Event, JobCancelled, JobEnded, JobSubmitted
from horae.model.jobs import Arrival, Job, Truth
from horae.model.setup import PoolSpec, Setup
from horae.scheduler import Reaction

Numbers: TypeAlias = "dict[str, float | Numbers]"

OUTCOMES = ("finished", "failed", "cancelled", "unfinished", "refused")
FAIR_UP_TO = 1 + 1e-6


@dataclass(eq=False)
class Lease:
    epoch: int
    gpus: tuple[Gpu, ...]
    started_at: float
    ended_at: float = nan  # nan: it runs
    ending: Ending | None = None

    @property
    def seconds(self) -> float:
        return self.ended_at - self.started_at


@dataclass(eq=False)
class Life:
    """All that was seen of one job."""

    job: Job
    truth: Truth
    leases: list[Lease] = field(default_factory=list)
    failures: int = 0
    told_to_cancel: bool = False
    steps_saved: float = 0.0
    outcome: str = "unfinished"
    ended_at: float = nan
    place: float = inf  # among all ends: 0 is the first job that ended

    @property
    def runs(self) -> bool:
        return bool(self.leases) and self.leases[-1].ending is None

    def is_there(self, at: float) -> bool:
        return self.job.submitted_at <= at and not (self.has_ended and self.ended_at <= at)

    @property
    def has_ended(self) -> bool:
        return self.outcome in ("finished", "failed", "cancelled")

    @property
    def resumed(self) -> list[Lease]:
        return self.leases[1:]

    @property
    def work(self) -> float:
        """GPU-seconds in its reference shape; of a cancelled job, for what it had done."""
        steps = self.steps_saved if self.outcome == "cancelled" else self.truth.steps_total
        reference = self.job.options[0].shape
        (speed,) = [option.steps_per_second for option in self.truth.options if option.shape == reference]
        return steps / speed * reference.gpus

    @property
    def missed_its_deadline(self) -> bool:
        return self.outcome != "finished" or self.ended_at > self.job.deadline_at


class Span(NamedTuple):
    begins_at: float
    ends_at: float

    @property
    def seconds(self) -> float:
        return self.ends_at - self.begins_at


@dataclass(eq=False)
class App:
    """Jobs of one app in one pool, in the order of submission."""

    pool: PoolSpec
    lives: list[Life]
    span: Span

    @property
    def first_to_end(self) -> Life:
        return min(self.lives, key=lambda life: life.place)

    @property
    def work(self) -> float:
        return sum(life.work for life in self.lives)

    @property
    def gpus_wanted(self) -> int:
        """The most that jobs asked for which were there at a time; that changes most when one comes."""
        return max(
            sum(other.job.gpus for other in self.lives if other is life or other.is_there(life.job.submitted_at))
            for life in self.lives
        )

    @property
    def has_rho(self) -> bool:
        return all(life.outcome in ("finished", "cancelled") for life in self.lives) and self.work > 0


class Bookkeeper:
    """An observer of one simulation."""

    def __init__(self, setup: Setup, arrivals: Iterable[Arrival]) -> None:
        self.setup = setup
        self.truths = {arrival.job.id: arrival.truth for arrival in arrivals}
        self.lives: dict[str, Life] = {}
        self.ended = 0
        self.until = -inf
        self.node_named = {node.name: node for node in setup.cluster.nodes}

    # Watching

    def reacted(self, event: Event, reaction: Reaction) -> None:
        self.until = max(self.until, event.at)
        match event:
            case JobSubmitted():
                self.lives.setdefault(event.job.id, Life(event.job, self.truths[event.job.id]))
            case JobCancelled() if event.job_id in self.lives:
                self._cancelled(self.lives[event.job_id], event.at)
            case JobEnded():
                self._left(self.lives[event.job_id], event)
        for command in reaction.commands:
            if isinstance(command, Start):
                self._started(command, event.at)

    def _started(self, command: Start, at: float) -> None:
        for job_id in command.job_ids:
            leases = self.lives[job_id].leases
            if not any(lease.epoch == command.epoch for lease in leases):
                leases.append(Lease(command.epoch, command.gpus, at))

    def _cancelled(self, life: Life, at: float) -> None:
        if life.runs:
            life.told_to_cancel = True
        elif not life.has_ended:
            self._over(life, "cancelled", at)

    def _left(self, life: Life, event: JobEnded) -> None:
        lease = life.leases[-1]
        if lease.epoch != event.epoch or lease.ending is not None:
            return  # old news
        lease.ended_at, lease.ending = event.at, event.ending
        life.steps_saved = event.steps
        life.failures += event.ending is Ending.FAILED
        if event.ending is Ending.FINISHED:
            self._over(life, "finished", event.at)
        elif life.told_to_cancel:
            self._over(life, "cancelled", event.at)
        elif event.ending is Ending.FAILED and life.failures > life.job.retries_max:
            self._over(life, "failed", event.at)

    def _over(self, life: Life, outcome: str, at: float) -> None:
        life.outcome, life.ended_at, life.place = outcome, at, self.ended
        self.ended += 1

    # Reckoning

    def metrics(self, refused: Collection[str]) -> Numbers:
        """All of them, after the run; `refused` are the jobs of which the scheduler said that they can never run."""
        for job_id in refused:
            self.lives[job_id].outcome = "refused"
        for life in self.lives.values():
            if life.runs:
                life.leases[-1].ended_at = self.until
        lives = list(self.lives.values())
        tenants = {life.job.tenant for life in lives}
        users = {life.job.user for life in lives if life.job.user}
        return {
            **self._of_group(lambda job: True),
            **self._of_cluster(),
            "tenants": {name: self._of_group(_is_of_tenant(name)) for name in tenants},
            "users": {name: self._of_group(_is_of_user(name)) for name in users},
        }

    def _of_group(self, belongs: Callable[[Job], bool]) -> Numbers:
        lives = [life for life in self.lives.values() if belongs(life.job)]
        apps = [app for app in self._apps() if belongs(app.first_to_end.job)]
        fair = [app for app in apps if app.has_rho]
        return {
            "jobs": len(lives),
            **{outcome: sum(life.outcome == outcome for life in lives) for outcome in OUTCOMES},
            **_times([life for life in lives if life.outcome == "finished"]),
            **_deadlines(lives),
            **self._of_leases(lives),
            "apps_left_out": len(apps) - len(fair),
            "rho_paper": _fairness([self._rho_paper(app) for app in fair]),
            "rho_private": _fairness([self._rho_private(app) for app in fair]),
            "rho_static": _fairness([self._rho_static(app) for app in fair]),
        }

    def _of_leases(self, lives: Sequence[Life]) -> Numbers:
        held, lost, cost = 0.0, 0.0, 0.0
        for life in lives:
            for lease in life.leases:
                for piece, users in self._in_company(lease, Span(lease.started_at, lease.ended_at)):
                    for gpu in lease.gpus:
                        held += piece.seconds / users
                        cost += piece.seconds / users / 3600 * self.node_named[gpu.node].price_per_hour
            for lease in life.resumed:
                resumed_at = min(lease.ended_at, lease.started_at + life.job.restart_seconds)
                for piece, users in self._in_company(lease, Span(lease.started_at, resumed_at)):
                    lost += len(lease.gpus) * piece.seconds / users
        return {
            "preemptions": sum(_was_preempted(life, lease) for life in lives for lease in life.leases),
            "restarts": sum(len(life.resumed) for life in lives),
            "restart_gpu_hours": lost / 3600,
            "gpu_hours": held / 3600,
            "cost": cost,
        }

    def _in_company(self, lease: Lease, span: Span) -> Iterator[tuple[Span, int]]:
        """The span, cut wherever somebody joins or leaves these GPUs, and how many have them in each piece."""
        leases = [each for life in self.lives.values() for each in life.leases if set(each.gpus) & set(lease.gpus)]
        for piece in _pieces(span, [Span(each.started_at, each.ended_at) for each in leases]):
            yield piece, sum(_covers(each, piece) for each in leases)

    # The cluster

    def _span(self) -> Span:
        submitted = [life.job.submitted_at for life in self.lives.values() if life.outcome != "refused"]
        ends = [life.ended_at for life in self.lives.values() if life.has_ended]
        ends += [lease.ended_at for life in self.lives.values() for lease in life.leases]
        return Span(min(submitted), max(ends)) if ends else Span(0.0, 0.0)

    def _of_cluster(self) -> Numbers:
        span = self._span()
        nodes = self.setup.cluster.nodes
        held = dict.fromkeys(range(len(nodes)), 0.0)  # GPU-seconds by node
        beside = 0.0  # idle GPU-seconds next to GPUs in use
        leases = [lease for life in self.lives.values() for lease in life.leases]
        for piece in _pieces(span, [Span(lease.started_at, lease.ended_at) for lease in leases]):
            for index, node in enumerate(nodes):
                used = len({gpu for lease in leases if _covers(lease, piece) for gpu in self._gpus_on(node, lease)})
                held[index] += used * piece.seconds
                beside += (node.gpus - used) * piece.seconds if used else 0.0
        types = {node.accelerator for node in nodes}
        return {
            "makespan_seconds": span.seconds,
            "utilisation": _utilisation(nodes, list(held.values()), span),
            "utilisation_by_accelerator": {name: _utilisation(*_of_type(nodes, held, name), span) for name in types},
            "fragmentation": _share(beside, sum(node.gpus for node in nodes) * span.seconds - sum(held.values())),
        }

    def _gpus_on(self, node: Node, lease: Lease) -> list[Gpu]:
        return [gpu for gpu in lease.gpus if gpu.node == node.name]

    # Fairness

    def _apps(self) -> list[App]:
        members: dict[tuple[str, str, str], list[Life]] = {}
        for life in self.lives.values():
            if self._is_served(life):
                name = ("app", life.job.app) if life.job.app else ("job", life.job.id)
                members.setdefault((self._pool_of(life.job).name, *name), []).append(life)
        pools = {pool.name: pool for pool in self.setup.pools}
        return [App(pools[name], lives, self._life_of(lives)) for (name, _, _), lives in members.items()]

    def _is_served(self, life: Life) -> bool:
        """Accepted by a pool."""
        return life.outcome != "refused" and any(
            life.job.tenant in pool.tenants or not pool.tenants for pool in self.setup.pools
        )

    def _life_of(self, lives: Sequence[Life]) -> Span:
        """From the first submission to the last end; while one has not ended, to the end of the log."""
        ends = [life.ended_at if life.has_ended else self.until for life in lives]
        return Span(min(life.job.submitted_at for life in lives), max(ends))

    def _pool_of(self, job: Job) -> PoolSpec:
        own = [pool for pool in self.setup.pools if job.tenant in pool.tenants]
        return own[0] if own else next(pool for pool in self.setup.pools if not pool.tenants)

    def _gpus_of(self, pool: PoolSpec) -> int:
        taken = {name for other in self.setup.pools for name in other.nodes}
        nodes = self.setup.cluster.nodes
        return sum(node.gpus for node in nodes if (node.name in pool.nodes if pool.nodes else node.name not in taken))

    def _average_apps(self, app: App) -> float:
        """How many apps of its pool are alive, averaged over the life of this one."""
        others = [other.span for other in self._apps() if other.pool is app.pool]
        app_seconds = 0.0
        for piece in _pieces(app.span, others):
            middle = (piece.begins_at + piece.ends_at) / 2
            app_seconds += sum(span.begins_at < middle < span.ends_at for span in others) * piece.seconds
        return app_seconds / app.span.seconds

    def _seconds_on_the_pool(self, app: App) -> float:
        return app.work / min(self._gpus_of(app.pool), app.gpus_wanted)

    def _rho_paper(self, app: App) -> float:
        return app.span.seconds / (self._seconds_on_the_pool(app) * self._average_apps(app))

    def _rho_private(self, app: App) -> float:
        share = self._gpus_of(app.pool) / self._average_apps(app)
        return app.span.seconds / (app.work / min(share, app.gpus_wanted))

    def _rho_static(self, app: App) -> float:
        jobs = sum(self._is_served(life) and self._pool_of(life.job) is app.pool for life in self.lives.values())
        contention = max(1.0, jobs / self._gpus_of(app.pool))
        return app.span.seconds / (self._seconds_on_the_pool(app) * contention)


def _is_of_tenant(name: str) -> Callable[[Job], bool]:
    return lambda job: job.tenant == name


def _is_of_user(name: str) -> Callable[[Job], bool]:
    return lambda job: job.user == name


def _was_preempted(life: Life, lease: Lease) -> bool:
    """Told to stop by the scheduler of its own accord; the last lease of a cancelled job ends by its owner's wish."""
    last_of_cancelled = life.told_to_cancel and lease is life.leases[-1]
    return lease.ending is Ending.STOPPED and not last_of_cancelled


def _times(finished: Sequence[Life]) -> Numbers:
    completion = [life.ended_at - life.job.submitted_at for life in finished]
    queueing = [life.leases[0].started_at - life.job.submitted_at for life in finished]
    held = [sum(lease.seconds for lease in life.leases) for life in finished]
    return {
        "completion_mean_seconds": _mean(completion),
        "completion_median_seconds": _quantile(completion, 0.5),
        "completion_p90_seconds": _quantile(completion, 0.9),
        "completion_p99_seconds": _quantile(completion, 0.99),
        "queueing_mean_seconds": _mean(queueing),
        "queueing_p99_seconds": _quantile(queueing, 0.99),
        "waiting_mean_seconds": _mean([whole - on_gpus for whole, on_gpus in zip(completion, held, strict=True)]),
    }


def _deadlines(lives: Sequence[Life]) -> Numbers:
    bound = [life for life in lives if life.job.deadline_at < inf]
    missed = sum(life.missed_its_deadline for life in bound)
    return {
        "deadlines": len(bound),
        "deadlines_missed": missed,
        "deadlines_missed_share": missed / len(bound) if bound else nan,
    }


def _fairness(rhos: Sequence[float]) -> Numbers:
    squares = sum(rho * rho for rho in rhos)
    return {
        "apps": len(rhos),
        "unfair_share": _mean([float(rho > FAIR_UP_TO) for rho in rhos]),
        "max": max(rhos, default=nan),
        "mean": _mean(rhos),
        "p99": _quantile(rhos, 0.99),
        "jain": sum(rhos) ** 2 / (len(rhos) * squares) if rhos else nan,
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else nan


def _quantile(values: Sequence[float], share: float) -> float:
    """Between the two nearest values, in proportion."""
    if not values:
        return nan
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def _utilisation(nodes: Sequence[Node], held: Sequence[float], span: Span) -> float:
    return _share(sum(held), sum(node.gpus for node in nodes) * span.seconds)


def _of_type(nodes: Sequence[Node], held: dict[int, float], name: str) -> tuple[list[Node], list[float]]:
    rows = [index for index, node in enumerate(nodes) if node.accelerator == name]
    return [nodes[index] for index in rows], [held[index] for index in rows]


def _pieces(span: Span, others: Iterable[Span]) -> Iterator[Span]:
    """The span, cut wherever another one begins or ends within it."""
    times = {span.begins_at, span.ends_at}
    for other in others:
        times.update(at for at in other if span.begins_at < at < span.ends_at)
    ordered = sorted(times)
    for begins_at, ends_at in pairwise(ordered):
        yield Span(begins_at, ends_at)


def _covers(lease: Lease, piece: Span) -> bool:
    return lease.started_at <= piece.begins_at and piece.ends_at <= lease.ended_at
