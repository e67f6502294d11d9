"""A witness that checks every promise from the outside, and forgives nothing.

It sees only what goes in (events) and what comes out (commands, rounds, notices); it keeps its own books and asks the
scheduler for nothing but `status` and `why`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from typing import NamedTuple

from world import Key, Violation, World

from horae.cells.pool_layout import PoolLayout
from horae.model.chain_layout import layout_of
from horae.model.cluster import Cluster, Gpu, Node
from horae.model.commands import Extend, Start, Stop
from horae.model.decisions import Ranking
from horae.model.errors import InputError
from horae.model.events import (
    ClusterChanged,
    Ending,
    Event,
    GpuChanged,
    GpuState,
    Health,
    JobCancelled,
    JobEnded,
    JobHeld,
    JobPhase,
    JobProgressed,
    JobReleased,
    JobResumable,
    JobStarted,
    JobSubmitted,
    LeaseAdopted,
    NodeChanged,
    Phase,
    PolicyChanged,
    Running,
    Surveyed,
    TenantsChanged,
    Tick,
)
from horae.model.jobs import Job
from horae.model.notices import (
    AdoptionRefused,
    ChangeRefused,
    DecisionRejected,
    FactRejected,
    GuaranteeLost,
    NodeInUse,
    StartOverdue,
    UnknownRun,
)
from horae.model.plans import Departure, Reaction, Round
from horae.model.reasons import Moved, Preempted
from horae.model.setup import PoolSpec, Setup
from horae.model.shapes import Shape
from horae.model.status import FINAL, ON_GPUS, Status
from horae.scheduler import Scheduler

_WAITS = (Status.PENDING, Status.HOLDING, Status.REFUSED, Status.SUSPENDED)
# Events after which GPUs may no longer be held for a job.
_RELEASES = (NodeChanged, GpuChanged, ClusterChanged, TenantsChanged, LeaseAdopted, Surveyed, JobEnded)


@dataclass
class Lease:
    """A lease as the books have it: GPUs that were given to a bundle, until all of it has left."""

    epoch: int
    members: tuple[str, ...]  # jobs that still have it
    gpus: tuple[Gpu, ...]
    pools: frozenset[str]  # it is under one of these: a job on borrowed GPUs is under the pool that lends them
    is_guaranteed: bool = False  # for certain
    until: float = -inf  # not displaced before that
    confirmed_at: dict[str, float] = field(default_factory=dict)  # by job: since when it runs, by what was told
    stopping: set[str] = field(default_factory=set)  # jobs that were told to leave


class Placement(NamedTuple):
    """What a round has found for a job."""

    shape: Shape
    gpus: tuple[Gpu, ...]  # of its tenant's cells, which may be anywhere, or of the cluster


class Displaced(NamedTuple):
    """A job for which GPUs were held, until cells of tenants were bound there: some of these jobs are the reason."""

    job_id: str
    gpus: tuple[Gpu, ...]
    winners: frozenset[str]  # that have not started since; in their cells, which may be anywhere


class Witness:
    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.specs = list(setup.pools)
        self.nodes = {node.name: node for node in setup.cluster.nodes}
        self._cluster: Cluster | None = setup.cluster
        self.health = dict.fromkeys(setup.absent_nodes, Health.FAILED)  # as told; healthy where nothing is said
        self.gpu_states: dict[Gpu, GpuState] = {}
        self.closed: set[str] = set()  # nodes that were told to go: nothing new starts there
        self.gone: set[str] = set()  # of these, the ones that are no longer there
        self.changes: dict[str, Node] = {}  # nodes that change when the jobs on them have ended
        self.jobs: dict[str, Job] = {}
        self.leases: dict[int, Lease] = {}
        self.lease_of: dict[str, int] = {}  # by job: the epoch of its live lease
        self.epochs: set[int] = set()  # all that were ever used
        self.squatters: dict[Key, tuple[Gpu, ...]] = {}  # runs that the scheduler was told of and does not own
        self.seen_at: dict[Key, float] = {}  # by squatter: when it was last seen to run
        self.awaits_since = -inf  # nothing starts before a survey of this moment or later has told what runs
        self.forgiven: frozenset[str] = frozenset()  # promises that are known to be broken, while others are looked for
        self.placed: dict[str, dict[str, Placement]] = {}  # by job and pool, the latest last: where it was placed
        self.placed_at: dict[str, float] = {}  # by job: when that was
        self.displaced: list[Displaced] = []
        self.in_cells: set[str] = set()  # jobs that pools with cells have placed so far in the present reaction
        self.reserving: set[str] = set()  # pools with cells that have decided so far in the present reaction
        self.taken_over: set[str] = set()  # jobs whose GPUs another one was given in the present reaction
        self.reported: dict[str, float] = {}
        self.preemptions: Counter[str] = Counter()
        self.suspended: set[str] = set()
        self.status: dict[str, Status | None] = {}
        self.final: dict[str, tuple[Status, float]] = {}
        self.finished: set[str] = set()
        self.now = 0.0
        self.kept = {
            (one, other, accelerator, gpus): min(kept)
            for models, accelerator, gpus, kept in setup.sharing
            for one, other in (models, models[::-1])
        }

    @property
    def cluster(self) -> Cluster:
        """The cluster as it was told, for the levels of cells."""
        if self._cluster is None:
            self._cluster = Cluster("told", tuple(self.nodes.values()))  # those that are gone may come back
        return self._cluster

    def judge(self, event: Event, reaction: Reaction, scheduler: Scheduler) -> None:
        self.now = max(self.now, event.at)
        for notice in reaction.notices:
            if isinstance(notice, DecisionRejected | FactRejected):
                raise Violation(f"a decision was rejected: {notice}")
        self._hear(event, reaction, scheduler)
        self.in_cells.clear()
        self.reserving.clear()
        for number, round_ in enumerate(reaction.rounds):
            self._judge_round(round_)
            if self._reserves(round_):
                self.reserving.add(round_.pool)
                self.in_cells.update(self._placed_by(round_))
            self._note_downgrades(round_, reaction.rounds[number + 1 :], reaction)
        causes = self._causes(event, reaction)
        for command in reaction.commands:
            match command:
                case Start():
                    self._judge_start(command)
                case Stop():
                    self._judge_stop(command, causes, reaction)
                case Extend():
                    self._judge_extension(command)
        for round_ in reaction.rounds:
            self._note_promotions(round_)
        self._judge_jobs(event, reaction, scheduler)

    def restart(self, now: float) -> None:
        """The scheduler was restored as of these books, which may be old, and knows that: it holds no GPUs."""
        self.awaits_since = now
        holding = [job_id for job_id, status in self.status.items() if status is Status.HOLDING]
        self.status.update(dict.fromkeys(holding, Status.PENDING))

    def compare(self, world: World) -> None:
        """What truly runs is known to run, or its GPUs are known to be in use."""
        if self.awaits_since > -inf:
            return
        for run in world.runs.values():
            lease = self.leases.get(run.epoch)
            if (lease is None or run.job_id not in lease.members) and run.key not in self.squatters:
                raise Violation(f"a running job is known to run: {run}")

    # Events

    def _hear(self, event: Event, reaction: Reaction, scheduler: Scheduler) -> None:  # noqa: PLR0912  one branch per event
        match event:
            case JobSubmitted():
                if self.status.get(event.job.id) is None:
                    self.jobs[event.job.id] = event.job
                    self.final.pop(event.job.id, None)
                    self.finished.discard(event.job.id)
            case JobHeld():
                if self._is_live(event.job_id) and self.status.get(event.job_id) is not Status.CANCELLING:
                    self.suspended.add(event.job_id)
            case JobResumable() if event.job_id in self.jobs:
                self.jobs[event.job_id] = replace(self.jobs[event.job_id], preemptions_max=inf)
            case JobReleased():
                self.suspended.discard(event.job_id)
            case JobStarted():
                self._confirm((event.job_id, event.epoch), event.at)
            case JobPhase() if event.phase in (Phase.RUNNING, Phase.SAVING):
                self._confirm((event.job_id, event.epoch), event.at)
            case JobProgressed():
                self._confirm((event.job_id, event.epoch), event.at)
                self._report((event.job_id, event.epoch), event.steps)
            case JobEnded():
                self._end(event)
            case Surveyed():
                self._survey(event, reaction, scheduler)
            case LeaseAdopted():
                self._adopt(event, reaction)
            case NodeChanged() if event.node in self.nodes and event.node not in self.gone:
                self.health[event.node] = event.health
            case GpuChanged() if self._exists(event.gpu):
                self.gpu_states[event.gpu] = event.state
            case ClusterChanged():
                self._change_cluster(event, reaction)
            case TenantsChanged():
                self._change_tenants(event, reaction)
            case PolicyChanged():
                self._change_policy(event, reaction)
        for notice in reaction.notices:
            match notice:
                case GuaranteeLost():
                    for job_id in notice.job_ids:
                        lease = self.leases[self.lease_of[job_id]]
                        lease.is_guaranteed, lease.pools = False, lease.pools | self._pools_of(self.jobs[job_id])
                case UnknownRun():
                    self.squatters[notice.job_id, notice.epoch] = notice.gpus
                    self.seen_at[notice.job_id, notice.epoch] = event.at
        self._apply_changes()

    def _is_live(self, job_id: str) -> bool:
        status = self.status.get(job_id)
        return status is not None and status not in FINAL

    def _exists(self, gpu: Gpu) -> bool:
        is_there = gpu.node in self.nodes and gpu.node not in self.gone
        return is_there and 0 <= gpu.number < self.nodes[gpu.node].gpus

    def _current(self, key: Key) -> Lease | None:
        return self.leases[key[1]] if self.lease_of.get(key[0]) == key[1] else None

    def _confirm(self, key: Key, at: float) -> None:
        lease = self._current(key)
        if lease is not None:
            lease.confirmed_at.setdefault(key[0], at)

    def _report(self, key: Key, steps: float) -> None:
        if self._current(key) is not None and isfinite(steps):
            self.reported[key[0]] = max(self.reported.get(key[0], 0.0), steps)

    def _end(self, event: JobEnded) -> None:
        key = (event.job_id, event.epoch)
        self.squatters.pop(key, None)
        if self._current(key) is None:
            return
        self._report(key, event.steps)
        if event.ending is Ending.FINISHED:
            self.finished.add(event.job_id)
        self._leave(key)

    def _leave(self, key: Key) -> None:
        lease = self.leases[key[1]]
        lease.members = tuple(member for member in lease.members if member != key[0])
        del self.lease_of[key[0]]
        if not lease.members:
            del self.leases[key[1]]

    def _survey(self, event: Surveyed, reaction: Reaction, scheduler: Scheduler) -> None:
        if event.at >= self.awaits_since:
            self.awaits_since = -inf
        running = {(run.job_id, run.epoch): run for run in event.running}
        for job_id, epoch in list(self.lease_of.items()):
            run = running.get((job_id, epoch))
            if run is None:
                # It says nothing of a run that began later, or of which nothing was ever heard.
                if self.leases[epoch].confirmed_at.get(job_id, inf) < event.at:
                    self._leave((job_id, epoch))
            elif run.phase in (Phase.RUNNING, Phase.SAVING):
                self._confirm((job_id, epoch), event.at)
                self._report((job_id, epoch), run.steps)
        for key in list(self.squatters):
            if key in running:
                self.seen_at[key] = max(self.seen_at[key], event.at)
            elif self.seen_at[key] < event.at:
                del self.squatters[key]
        self._survey_unknown(event, reaction, scheduler)

    def _survey_unknown(self, event: Surveyed, reaction: Reaction, scheduler: Scheduler) -> None:
        """Runs under epochs that were never used here are adopted, if nothing is against it."""
        refused = {(job_id, each.epoch) for each in reaction.notices if isinstance(each, AdoptionRefused)
                   for job_id in each.job_ids}  # fmt: skip
        unknown: dict[int, list[Running]] = {}  # by epoch
        for run in sorted(event.running, key=lambda run: (run.epoch, run.job_id)):
            if run.epoch not in self.epochs and run.job_id not in self.lease_of:
                unknown.setdefault(run.epoch, []).append(run)
        for epoch, runs in unknown.items():
            job_ids, steps = tuple(run.job_id for run in runs), tuple(run.steps for run in runs)
            adopted = all((job_id, epoch) not in refused and job_id not in self.lease_of for job_id in job_ids)
            if adopted and all(scheduler.status(job_id) is Status.RUNNING for job_id in job_ids):
                self._take_over(epoch, job_ids, runs[0].gpus, steps, event.at)
            elif self._must_adopt(LeaseAdopted(event.at, epoch, job_ids, runs[0].gpus, steps)):
                raise Violation(f"a job that runs is adopted, not stopped: {runs} of {event}, {reaction.notices}")

    def _adopt(self, event: LeaseAdopted, reaction: Reaction) -> None:
        refused = any(isinstance(notice, AdoptionRefused) for notice in reaction.notices)
        if all(self.lease_of.get(job_id) == event.epoch for job_id in event.job_ids):
            return
        if refused:
            if self._must_adopt(event):
                raise Violation(f"a job that runs is adopted, not stopped: {event}, {reaction.notices}")
            return
        if event.epoch in self.epochs:
            return  # a lease that is on record is not adopted again; a status without one would be found out
        for job_id in event.job_ids:
            if job_id in self.lease_of:
                raise Violation(f"at most one live lease epoch per job: {event}")
        busy = self._busy(event.gpus, [(job_id, event.epoch) for job_id in event.job_ids])
        if busy:
            raise Violation(f"no GPU held by two bundles: {event} on {busy}")
        self._take_over(event.epoch, event.job_ids, event.gpus, event.steps, event.at)

    def _must_adopt(self, event: LeaseAdopted) -> bool:
        """Whether there is nothing against an adoption."""
        known = [(job_id, event.epoch) for job_id in event.job_ids]
        if event.epoch in self.epochs or self._busy(event.gpus, known) or len(set(event.gpus)) != len(event.gpus):
            return False
        if len(event.job_ids) != 1 or not all(map(self._exists, event.gpus)) or not event.gpus:
            return False
        job_id = event.job_ids[0]
        if not self._is_live(job_id) or job_id in self.lease_of or job_id in self.suspended:
            return False
        types = {self.nodes[gpu.node].accelerator for gpu in event.gpus}
        wanted = {option.shape[:2] for option in self.jobs[job_id].options}
        return len(types) == 1 and (types.pop(), len(event.gpus)) in wanted

    def _take_over(
        self,
        epoch: int,
        job_ids: tuple[str, ...],
        gpus: tuple[Gpu, ...],
        steps: tuple[float, ...],
        at: float,
    ) -> None:
        self.epochs.add(epoch)
        lease = Lease(epoch, job_ids, gpus, self._pools_of(self.jobs[job_ids[0]]))
        lease.confirmed_at = dict.fromkeys(job_ids, at)
        self.leases[epoch] = lease
        for job_id, done in zip(job_ids, steps, strict=True):
            self.lease_of[job_id] = epoch
            self.squatters.pop((job_id, epoch), None)
            self._report((job_id, epoch), done)

    def _change_cluster(self, event: ClusterChanged, reaction: Reaction) -> None:
        waits = {node.name for node in event.nodes if node.name not in self.gone and self._blockers(node.name, node)}
        told = {notice.node for notice in reaction.notices if isinstance(notice, NodeInUse)}
        if not told <= {*waits, *event.removed}:
            raise Violation(f"only jobs that are in the way put off a change: {told} of {event}, {self.leases}")
        after = {node.name: node for node in event.nodes if node.name not in waits}
        refused = any(
            isinstance(notice, ChangeRefused) and notice.change.startswith("change of") for notice in reaction.notices
        )
        if refused == self._is_possible(after):
            raise Violation(f"a change of nodes is refused if the cells do not allow it: {event}, {reaction.notices}")
        if refused:
            return
        for node in event.nodes:
            if node.name in self.closed:  # it joins anew, and is healthy
                self.closed.discard(node.name)
                self.health.pop(node.name, None)
            if node.name in waits:
                self.changes[node.name] = node
            else:
                self.nodes[node.name] = node
                self.gone.discard(node.name)
                self.changes.pop(node.name, None)
        for name in event.removed:
            if name in self.nodes:
                self.closed.add(name)
                self.changes.pop(name, None)
        self._cluster = None

    def _blockers(self, name: str, after: Node | None) -> list[Lease]:
        """Leases on GPUs that a node would no longer have as they are."""
        if name not in self.nodes:
            return []
        is_other = after is None or after.accelerator != self.nodes[name].accelerator
        return [
            lease for lease in self.leases.values()
            if any(gpu.node == name and (is_other or after is None or gpu.number >= after.gpus) for gpu in lease.gpus)
        ]  # fmt: skip

    def _is_possible(self, after: Mapping[str, Node | None]) -> bool:
        """Whether the tenants' cells could be had if these nodes were so, or gone."""
        there = {name: node for name, node in self.nodes.items() if name not in self.gone} | dict(after)
        nodes = tuple(node for node in there.values() if node is not None)
        try:
            PoolLayout(Cluster("told", nodes), self.specs, static_binding=self.setup.static_binding)
        except InputError:
            return False
        return True

    def pending_nodes(self) -> dict[str, Node | None]:
        """Nodes that wait to go or to change though no job is in the way: the tenants' cells need them as they are."""
        wanted = {**dict.fromkeys(sorted(self.closed - self.gone)), **self.changes}
        return {name: node for name, node in wanted.items() if not self._blockers(name, node)}

    def _apply_changes(self) -> None:
        """Nodes go and change as soon as no job is in the way: all together, or else one by one."""
        ready = self.pending_nodes()
        if not ready:
            return
        if self._is_possible(ready):
            self._apply(ready)
            return
        for name, node in ready.items():
            if self._is_possible({name: node}):
                self._apply({name: node})

    def _apply(self, ready: Mapping[str, Node | None]) -> None:
        for name, node in ready.items():
            if node is None:  # it is gone, with all that was known of it
                self.gone.add(name)
                self.health.pop(name, None)
            else:
                self.nodes[name] = self.changes.pop(name)
        self.gpu_states = {gpu: state for gpu, state in self.gpu_states.items() if self._exists(gpu)}
        self._cluster = None

    def is_in_use(self, node: str) -> bool:
        return any(gpu.node == node for lease in self.leases.values() for gpu in lease.gpus)

    def _change_tenants(self, event: TenantsChanged, reaction: Reaction) -> None:
        if any(isinstance(notice, ChangeRefused) for notice in reaction.notices):
            return
        for name, change in event.tenants.items():
            if change.cells is None and change.quota is None:
                continue
            index = next((i for i, spec in enumerate(self.specs) if spec.name == name or name in spec.tenants), None)
            if index is None:
                open_pool = next((spec for spec in self.specs if not spec.tenants), PoolSpec(name))
                self.specs.append(replace(open_pool, name=name, tenants=(name,), nodes=(), cells={}, quota={}))
                index = len(self.specs) - 1
            spec = self.specs[index]
            cells = spec.cells if change.cells is None else {**dict.fromkeys(spec.cells, 0), **change.cells}
            self.specs[index] = replace(spec, cells=cells, quota=spec.quota if change.quota is None else change.quota)

    def _change_policy(self, event: PolicyChanged, reaction: Reaction) -> None:
        if not any(isinstance(notice, ChangeRefused) for notice in reaction.notices):
            self.specs = [
                replace(spec, policy=event.policy, options=event.options) if spec.name == event.pool else spec
                for spec in self.specs
            ]

    def spec(self, name: str) -> PoolSpec:
        return next(spec for spec in self.specs if spec.name == name)

    def _pools_of(self, job: Job) -> frozenset[str]:
        """Pools that may have a job: that of its tenant, and the open one if the tenant has none or has cells."""
        own = next((spec for spec in self.specs if job.tenant in spec.tenants), None)
        if own is not None and (own.nodes or own.quota):
            return frozenset({own.name})
        return frozenset({*self._open_pools(), *([] if own is None else [own.name])})

    def _open_pools(self) -> frozenset[str]:
        return frozenset(spec.name for spec in self.specs if not spec.tenants)

    # Rounds

    def _judge_round(self, round_: Round) -> None:
        name = dict(zip(round_.serials.tolist(), round_.job_ids, strict=True))
        placements = {name[serial]: item for item in round_.plan.placements for serial in item.bundle}
        starting = set(placements)
        leaving = {name[departure.serial] for departure in round_.plan.departures}
        self._note_taken_over(round_, name)
        for job_id, placement in placements.items():
            before = self.placed.get(job_id, {})
            others = {pool: each for pool, each in before.items() if pool != round_.pool}
            there = round_.cluster.names(placement.gpus)
            self.placed[job_id] = {**others, round_.pool: Placement(placement.shape, there)}
            self.placed_at[job_id] = self.now
            self._judge_pool(self.jobs[job_id], round_.pool)
        for departure in round_.plan.departures:
            reason, job_id = departure.reason, name[departure.serial]
            if isinstance(reason, Preempted) and reason.by not in starting:
                raise Violation(f"no job is preempted unless the preemptor starts: {reason}")
            self._judge_departure(job_id, round_, isinstance(reason, Preempted), leaving)

    def _placed_by(self, round_: Round) -> set[str]:
        name = dict(zip(round_.serials.tolist(), round_.job_ids, strict=True))
        return {name[serial] for item in round_.plan.placements for serial in item.bundle}

    def _note_taken_over(self, round_: Round, name: dict[int, str]) -> None:
        """GPUs that are held for a job go to others only if one of them ranks before it under a preemptive ranking."""
        ranking = round_.decision
        order = ranking.order.tolist() if isinstance(ranking, Ranking) and ranking.preemptive else []
        named = zip(round_.rows.tolist(), round_.job_ids, strict=True)
        rank = {job_id: order.index(row) for row, job_id in named if row in order}
        given = [
            ({name[serial] for serial in item.bundle}, set(round_.cluster.names(item.gpus)))
            for item in round_.plan.placements
        ]
        for job_id, by_pool in self.placed.items():
            if self.status.get(job_id) is not Status.HOLDING or list(by_pool)[-1] != round_.pool:
                continue
            if self.now >= self.placed_at[job_id] + self.setup.acknowledge_seconds:
                continue  # its hold may have expired
            held = by_pool[round_.pool].gpus
            winners = [jobs for jobs, gpus in given if job_id not in jobs and not gpus.isdisjoint(held)]
            if not winners:
                continue
            is_outranked = any(rank.get(each, inf) < rank.get(job_id, inf) for jobs in winners for each in jobs)
            if not is_outranked and not self._gave_way(job_id):
                raise Violation(f"GPUs held for {job_id} go to jobs that rank before it, not to {winners}")
            self.taken_over.add(job_id)

    def _gave_way(self, job_id: str) -> bool:
        """Whether GPUs outside of cells may be held for a job no longer because of a pool with cells: the job's own has
        decided that it does not borrow, or cells are bound there now, which is seen when their jobs start."""
        pool, held = list(self.placed[job_id].items())[-1]
        own = next((spec.name for spec in self.specs if self.jobs[job_id].tenant in spec.tenants), "")
        if self.spec(pool).cells:
            return False
        if own in self.reserving:
            return True
        if self.in_cells:
            self.displaced.append(Displaced(job_id, held.gpus, frozenset(self.in_cells)))
        return bool(self.in_cells)

    def _judge_displaced(self, reaction: Reaction, scheduler: Scheduler) -> None:
        """Jobs in cells start on GPUs that others have given up for them, or on their nodes where CPUs are scarce."""
        started = {command.job_ids[0]: command.gpus for command in reaction.commands if isinstance(command, Start)}
        waiting = []
        for job_id, held, winners in self.displaced:
            nodes = {gpu.node for gpu in held}
            given = [(winner, gpu) for winner in winners for gpu in started.get(winner, ())]
            if any(gpu in held or (gpu.node in nodes and self._needs_cpus(winner)) for winner, gpu in given):
                continue
            left = winners - {winner for winner, _ in given}
            late = {winner for winner in left if winner not in self.lease_of or winner in self._stopping()}
            if not late:
                raise Violation(f"a hold gives way to cells on its GPUs only: {job_id}, {held}, not for {given}")
            if all(scheduler.status(winner) in (Status.HOLDING, Status.STOPPING) for winner in late):
                waiting.append(Displaced(job_id, held, frozenset(late)))
        self.displaced = waiting  # of others it is never seen where their cells were

    def _stopping(self) -> set[str]:
        return {job_id for lease in self.leases.values() for job_id in lease.stopping}

    def _needs_cpus(self, job_id: str) -> bool:
        return bool(self.jobs[job_id].cpus_per_gpu or self.jobs[job_id].memory_bytes_per_gpu)

    def _judge_departure(self, job_id: str, round_: Round, is_preempted: bool, leaving: set[str]) -> None:
        lease, job = self.leases[self.lease_of[job_id]], self.jobs[job_id]
        if round_.pool not in lease.pools:
            raise Violation(f"a pool displaces only its own jobs: {round_.pool} displaces {job_id} of {lease.pools}")
        lease.pools = frozenset({round_.pool})
        if self.now < lease.until:
            raise Violation(f"a lease is a promise: {job_id} leaves at {self.now}, lease until {lease.until}")
        if self.now < lease.confirmed_at.get(job_id, inf) + job.min_runtime_seconds:
            raise Violation(f"no job is displaced before its minimum run time: {job_id}, {lease}")
        for other in lease.members:
            if other not in leaving and other not in lease.stopping:
                raise Violation(f"two that share GPUs leave together: {job_id} without {other}")
        self.preemptions[job_id] += is_preempted
        if self.preemptions[job_id] > job.preemptions_max:
            raise Violation(f"no job is preempted more often than it allows: {job_id}")

    def _note_promotions(self, round_: Round) -> None:
        """Jobs on borrowed GPUs that have won cells may have got them where they are."""
        if self.spec(round_.pool).cells:
            name = dict(zip(round_.serials.tolist(), round_.job_ids, strict=True))
            placed = [name[serial] for item in round_.plan.placements for serial in item.bundle]
            for job_id in [job_id for job_id in placed if job_id in self.lease_of]:
                lease = self.leases[self.lease_of[job_id]]
                if job_id not in lease.stopping:
                    lease.pools |= {round_.pool}

    def _note_downgrades(self, round_: Round, later: Sequence[Round], reaction: Reaction) -> None:
        """Lazy jobs that lose their cells go on where they are; all others that are displaced are told to leave.

        A job that goes on may be displaced once more by a later round of the same moment.
        """
        stopped = {(command.job_id, command.epoch) for command in reaction.commands if isinstance(command, Stop)}
        again = {job_id for other in later for job_id, _ in _departures(other)}
        for job_id, departure in _departures(round_):
            lease = self.leases[self.lease_of[job_id]]
            if (job_id, lease.epoch) in stopped and job_id not in again:
                continue
            is_lazy = self.jobs[job_id].lazy and isinstance(departure.reason, Preempted)
            if not is_lazy or not self.spec(round_.pool).cells:
                raise Violation(f"a job that is displaced is told to leave: {job_id}, {departure}")
            lease.is_guaranteed, lease.pools = False, self._open_pools()
            self.preemptions[job_id] -= 1  # it has lost its cells, and no work

    def _judge_pool(self, job: Job, pool: str) -> None:
        """A job is served by its tenant's pool; without a guarantee by the open one."""
        own = next((spec for spec in self.specs if job.tenant in spec.tenants), None)
        chosen = self.spec(pool)
        if own is not None and (own.nodes or own.quota) and chosen is not own:
            raise Violation(f"tenant guarantees are honoured: {job.id} of {job.tenant} is placed by {pool}")
        if chosen.tenants and job.tenant not in chosen.tenants:
            raise Violation(f"tenant guarantees are honoured: {job.id} of {job.tenant} is placed by {pool}")

    # Commands

    def _judge_start(self, command: Start) -> None:  # noqa: PLR0912  one branch per promise
        if self.awaits_since > -inf:
            raise Violation(f"nothing starts before it is known what runs: {command}, since {self.awaits_since}")
        if command.epoch in self.epochs:
            for job_id in command.job_ids:
                lease = self._current((job_id, command.epoch))
                if lease is None or lease.gpus != command.gpus:
                    raise Violation(f"an epoch is used once, and by no job that has left: {command}")
            return
        self.epochs.add(command.epoch)
        for job_id in command.job_ids:
            if job_id in self.lease_of:
                raise Violation(f"at most one live lease epoch per job: {command}")
            if job_id in self.suspended:
                raise Violation(f"suspended jobs never start: {command}")
            if job_id in self.final or job_id not in self.jobs:
                raise Violation(f"jobs that have ended never start: {command}")
        busy = self._busy(command.gpus)
        if busy:
            raise Violation(f"no GPU held by two bundles: {command} on {busy}")
        self._judge_company(command)
        pools = self._pools_for(command)
        pool = pools[0]
        for job_id, steps_done, resumes in zip(command.job_ids, command.steps_done, command.resumes, strict=True):
            self._judge_shape(command, self.jobs[job_id])
            reported = self.reported.get(job_id, 0.0)
            if steps_done != reported:
                raise Violation(f"no reported progress is ever lost: {job_id} resumes at {steps_done}, not {reported}")
            if steps_done > 0 and not resumes and "resumes" not in self.forgiven:
                raise Violation(f"a job with progress loads its checkpoint: {command}")
            self.lease_of[job_id] = command.epoch
        self._judge_hardware(command, pool)
        lease = Lease(command.epoch, command.job_ids, command.gpus, frozenset(pools), bool(self.spec(pool).cells))
        lease.until = command.lease_until
        self.leases[command.epoch] = lease
        self._judge_quota(command, pool)
        self._judge_reservation(command, pool)
        for name, limit in (("cpus_per_gpu", "cpus"), ("memory_bytes_per_gpu", "memory_bytes")):
            self._judge_load(command, name, limit)

    def _pools_for(self, command: Start) -> list[str]:
        """Pools that have placed a job like that, and not started it since: on these GPUs, then in their cells."""
        found = [
            pool for pool, placement in self.placed.get(command.job_ids[0], {}).items()
            if placement.shape == command.shape and (self.spec(pool).cells or placement.gpus == command.gpus)
        ]  # fmt: skip
        if not found:
            raise Violation(f"a job starts where a round has placed it: {command}, {self.placed}")
        found.sort(key=lambda pool: bool(self.spec(pool).cells))
        for job_id in command.job_ids:
            del self.placed[job_id][found[0]]
        return found

    def _busy(self, gpus: tuple[Gpu, ...], runs: Sequence[Key] = ()) -> list[str]:
        """What is on these GPUs, beside these runs themselves."""
        wanted = set(gpus)
        found = [str(lease) for lease in self.leases.values() if not wanted.isdisjoint(lease.gpus)]
        others = {key: there for key, there in self.squatters.items() if key not in runs}
        return found + [str(key) for key, there in others.items() if not wanted.isdisjoint(there)]

    def _judge_company(self, command: Start) -> None:
        if len(command.job_ids) > 1:
            first, second = (self.jobs[job_id].model for job_id in command.job_ids)
            if not self.kept.get((first, second, command.shape.accelerator, command.shape.gpus)):
                raise Violation(f"only those who fit together share GPUs: {command}")

    def _judge_shape(self, command: Start, job: Job) -> None:
        """All or nothing, of one type, and as close together as the job asks."""
        cluster, shape = self.cluster, command.shape
        if len(set(command.gpus)) != len(command.gpus) or len(command.gpus) != shape.gpus:
            raise Violation(f"gangs are all or nothing: {command}")
        if not all(map(self._exists, command.gpus)):
            raise Violation(f"nothing starts on hardware that is not there: {command}")
        if {self.nodes[gpu.node].accelerator for gpu in command.gpus} != {shape.accelerator}:
            raise Violation(f"a gang has one GPU type, which is what it was told: {command}")
        positions = cluster.positions(command.gpus)
        level = next(i for i, cell in enumerate(cluster.cell_of_gpu) if len(set(cell[positions].tolist())) == 1)
        wanted = [option.shape.level for option in job.options if option.shape[:2] == shape[:2]]
        accepted = [cluster.levels.index(each) for each in wanted if each in cluster.levels]
        if not accepted or level > max(accepted) or level > cluster.levels.index(shape.level):
            raise Violation(f"gangs have an accepted shape: {job.id} got {command}, {cluster.levels[level]}")
        self._judge_members(command, job)

    def _judge_members(self, command: Start, job: Job) -> None:
        """No member spans nodes; all are of equal size but the last, which may be smaller."""
        size, rest = job.member_gpus, len(command.gpus) % job.member_gpus
        odd = [count % size for count in Counter(gpu.node for gpu in command.gpus).values() if count % size]
        if odd != ([rest] if rest else []):
            raise Violation(f"members do not span nodes: {job.id} with members of {size} got {command.gpus}")

    def _judge_hardware(self, command: Start, pool: str) -> None:
        spec = self.spec(pool)
        owned = {node: each.name for each in self.specs for node in each.nodes}
        for gpu in command.gpus:
            health = self.health.get(gpu.node, Health.HEALTHY)
            if health is not Health.HEALTHY:
                raise Violation(f"nothing starts on a node that is {health.value}: {command}")
            state = self.gpu_states.get(gpu, GpuState.USABLE)
            if state is not GpuState.USABLE:
                raise Violation(f"nothing starts on a GPU that is {state.value}: {command}")
            if gpu.node in self.closed:
                raise Violation(f"nothing starts on a node that was told to go: {command}")
            if gpu.node in self.changes:
                raise Violation(f"nothing starts on a node that waits to be changed: {command}")
            if owned.get(gpu.node, pool) != pool or (spec.nodes and gpu.node not in spec.nodes):
                raise Violation(f"pools with nodes use only their own: {command} of {pool}")

    def _judge_quota(self, command: Start, pool: str) -> None:
        spec, accelerator = self.spec(pool), command.shape.accelerator
        if spec.quota:
            used = sum(
                len(lease.gpus)
                for lease in self.leases.values()
                if lease.pools == {pool} and self._type_of(lease) == accelerator
            )
            if used > spec.quota.get(accelerator, 0):
                raise Violation(f"no pool has more GPUs than its quota: {command}, {used} of {spec.quota}")

    def _judge_reservation(self, command: Start, pool: str) -> None:
        spec, accelerator = self.spec(pool), command.shape.accelerator
        if spec.cells:
            there = Cluster("told", tuple(node for name, node in self.nodes.items() if name not in self.gone))
            territory = layout_of(there, {pool: spec.cells}).territory
            kinds = territory.reservations[0].cells.items()
            chains = [(territory.chains[kind.chain], kind.level, count) for kind, count in kinds]
            reserved = sum(chain.gpus[level] * n for chain, level, n in chains if chain.accelerator == accelerator)
            used = sum(
                len(lease.gpus)
                for lease in self.leases.values()
                if lease.is_guaranteed and lease.pools == {pool} and self._type_of(lease) == accelerator
            )
            if used > reserved:
                raise Violation(f"no tenant has more than it reserves: {command}, {used} of {spec.cells} of {pool}")

    def _type_of(self, lease: Lease) -> str:
        return self.nodes[lease.gpus[0].node].accelerator

    def _judge_load(self, command: Start, name: str, limit: str) -> None:
        """The CPUs of both of a pair count, and of all who are on the node."""
        if not any(getattr(self.jobs[job_id], name) for job_id in command.job_ids):
            return
        for node in {gpu.node for gpu in command.gpus}:
            carried = sum(
                getattr(self.jobs[job_id], name) * sum(gpu.node == node for gpu in lease.gpus)
                for lease in self.leases.values()
                for job_id in lease.members
            )
            if carried > getattr(self.nodes[node], limit) * (1 + 1e-9):
                raise Violation(f"no node carries more {limit} than it has: {node} {carried} with {command}")

    def _causes(self, event: Event, reaction: Reaction) -> set[Key]:
        """Leases that may be stopped for another reason than that a job takes their place."""
        found: set[Key] = set(self.squatters)
        match event:
            case JobCancelled() | JobHeld() if event.job_id in self.lease_of:
                found.add((event.job_id, self.lease_of[event.job_id]))
            case NodeChanged(health=Health.FAILED):
                found.update(self._keys_on(lambda gpu: gpu.node == event.node))
            case GpuChanged(state=GpuState.FAILED):
                found.update(self._keys_on(lambda gpu: gpu == event.gpu))
        for notice in reaction.notices:
            match notice:
                case StartOverdue():
                    found.add((notice.job_id, notice.epoch))
                case AdoptionRefused():
                    found.update((job_id, notice.epoch) for job_id in notice.job_ids)
        for round_ in reaction.rounds:
            name = dict(zip(round_.serials.tolist(), round_.job_ids, strict=True))
            for departure in round_.plan.departures:
                job_id = name[departure.serial]
                assert isinstance(departure.reason, Preempted | Moved)
                found.add((job_id, self.lease_of[job_id]))
        return found

    def _keys_on(self, touches: object) -> set[Key]:
        assert callable(touches)
        return {
            (job_id, epoch)
            for epoch, lease in self.leases.items()
            if any(map(touches, lease.gpus))
            for job_id in lease.members
        }

    def _judge_stop(self, command: Stop, causes: set[Key], reaction: Reaction) -> None:
        key = (command.job_id, command.epoch)
        lease = self._current(key)
        if lease is None:
            if key not in causes:
                raise Violation(f"only what runs is stopped: {command}")
            return
        if key not in causes and command.job_id not in lease.stopping:
            reserved = [round_.pool for round_ in reaction.rounds if round_.plan.placements and self._reserves(round_)]
            if not reserved:
                raise Violation(f"no job is stopped without a cause: {command}, {lease}")
            if lease.is_guaranteed:
                raise Violation(f"tenant guarantees are honoured: {command} of {lease} for pools {reserved}")
        lease.stopping.add(command.job_id)

    def _reserves(self, round_: Round) -> bool:
        return any(self.spec(round_.pool).cells.values())

    def _judge_extension(self, command: Extend) -> None:
        if command.epoch not in self.leases:
            raise Violation(f"only what runs is extended: {command}")
        self.leases[command.epoch].until = command.lease_until

    # Jobs

    def _judge_jobs(self, event: Event, reaction: Reaction, scheduler: Scheduler) -> None:
        """After the rounds of the same reaction were judged."""
        for job_id in self.jobs:
            status, before = scheduler.status(job_id), self.status.get(job_id)
            self._judge_status(job_id, status, before, scheduler)
            if before is Status.HOLDING and status is Status.PENDING:
                self._judge_release(job_id, event)
            self.status[job_id] = status
        self.taken_over.clear()
        self._judge_displaced(reaction, scheduler)
        if isinstance(event, JobCancelled) and self.status.get(event.job_id) not in (*FINAL, Status.CANCELLING, None):
            raise Violation(f"a job that is cancelled ends: {event.job_id} is {self.status[event.job_id]}")

    def _judge_status(self, job_id: str, status: Status | None, before: Status | None, scheduler: Scheduler) -> None:
        if status is None:
            kept = self.final.get(job_id)
            if kept is None or self.now < kept[1] + self.setup.retention_seconds:
                raise Violation(f"no accepted job is ever lost: {job_id} was {before}")
            return
        if (job_id in self.lease_of) != (status in ON_GPUS):
            raise Violation(f"jobs have GPUs while their leases last: {job_id} is {status.name}, {self.lease_of}")
        if job_id in self.finished and status is not Status.FINISHED:
            raise Violation(f"a finished job stays finished: {job_id} is {status.name}")
        if job_id in self.final and status is not self.final[job_id][0]:
            raise Violation(f"what has ended stays as it ended: {job_id} is {status.name}, was {self.final[job_id]}")
        if status in FINAL:
            self.final.setdefault(job_id, (status, self.now))
            self.suspended.discard(job_id)
        if job_id in self.suspended and status not in (Status.SUSPENDED, Status.STOPPING, Status.CANCELLING):
            raise Violation(f"a suspended job waits or leaves: {job_id} is {status.name}")
        if status is Status.SUSPENDED and job_id not in self.suspended:
            raise Violation(f"only suspended jobs are suspended: {job_id}")
        if status in _WAITS and not str(scheduler.why(job_id) or ""):
            raise Violation(f"every pending job has a reason: {job_id} is {status.name}")

    def _judge_release(self, job_id: str, event: Event) -> None:
        """What is held for a job stays so until it starts, the hold expires, or something else needs the GPUs."""
        if isinstance(event, _RELEASES) or job_id in self.taken_over:
            return
        if isinstance(event, JobCancelled | JobHeld):
            return  # of the job itself, or of the one with which it was to share GPUs
        if isinstance(event, Tick) and self.now >= self.placed_at[job_id] + self.setup.acknowledge_seconds:
            return
        if not self._gave_way(job_id):
            raise Violation(f"a preemptor starts, or its hold expires: {job_id} at {event}")


def _departures(round_: Round) -> list[tuple[str, Departure]]:
    """By job: how it leaves."""
    name = dict(zip(round_.serials.tolist(), round_.job_ids, strict=True))
    return [(name[departure.serial], departure) for departure in round_.plan.departures]
