"""An auditor of tenants' guarantees: it sees what goes into a scheduler and what comes out, and keeps its own books.

Whether a job runs with a guarantee is what `Scheduler.explain` says: it is in its tenant's pool, or in the open one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from world import Violation

from horae.model.cluster import Cluster, Gpu, Node
from horae.model.commands import Start, Stop
from horae.model.errors import InputError
from horae.model.events import (
    ClusterChanged,
    Event,
    GpuChanged,
    GpuState,
    Health,
    JobCancelled,
    JobEnded,
    JobHeld,
    JobStarted,
    JobSubmitted,
    LeaseAdopted,
    NodeChanged,
    TenantsChanged,
    Tick,
)
from horae.model.jobs import Job
from horae.model.notices import AdoptionRefused, ChangeRefused, DecisionRejected, FactRejected, GuaranteeLost, NodeInUse
from horae.model.plans import Reaction
from horae.model.reasons import Preempted
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.model.status import FINAL, Status
from horae.scheduler import Scheduler
from oracles.cells import Claim, Estate, members_of, pack


@dataclass
class Lease:
    job: Job
    epoch: int
    gpus: frozenset[Gpu]
    levels: Mapping[Gpu, str] = field(default_factory=dict)  # of its tenant's cells, by GPU, while these are as told
    is_guaranteed: bool = False
    is_stopping: bool = False
    is_outside: bool = False  # of its tenant's cells, though its pool is that of its tenant


class Auditor:
    def __init__(self, setup: Setup) -> None:
        self.specs = {spec.name: spec for spec in setup.pools}
        self.open_pool = next(spec.name for spec in setup.pools if not spec.tenants)
        self.nodes = {node.name: node for node in setup.cluster.nodes}
        self.health: dict[str, Health] = dict.fromkeys(setup.absent_nodes, Health.FAILED)
        self.gpu_states: dict[Gpu, GpuState] = {}
        self.leaving: set[str] = set()  # nodes that go when their jobs have ended
        self.jobs: dict[str, Job] = {}  # that were ever submitted
        self.leases: dict[str, Lease] = {}  # by job
        self.evicted: dict[
            int, tuple[Lease, dict[str, frozenset[Gpu]]]
        ] = {}  # by epoch: for which jobs, and their GPUs
        self.decided: dict[str, bool] = {}  # by pool: whether it decided since the last fact
        self.seen: Counter[str] = Counter()
        self._estate: Estate | None = None
        self.in_reach: list[bool] = []
        self.is_held = False  # before the last event, jobs were leaving GPUs that may be held for others
        self.has_changed = False  # with the last event, the cluster or what tenants reserve

    # Books

    @property
    def estate(self) -> Estate:
        if self._estate is None:
            self._estate = Estate(Cluster("told", tuple(self.nodes.values())), self.specs.values())
        return self._estate

    def claims(self, leases: list[Lease] | None = None) -> list[Claim]:
        """What jobs with a guarantee have of their tenants' cells."""
        return [
            Claim(
                f"{lease.job.tenant}/{lease.job.pinned}" if lease.job.pinned else lease.job.tenant,
                lease.gpus,
                lease.levels,
            )
            for lease in (self.leases.values() if leases is None else leases)
            if lease.is_guaranteed
        ]

    def bad(self) -> set[Gpu]:
        """GPUs on which nothing may start."""
        return {
            gpu
            for node in self.nodes.values()
            for gpu in (Gpu(node.name, number) for number in range(node.gpus))
            if node.name in self.leaving
            or self.health.get(node.name, Health.HEALTHY) is not Health.HEALTHY
            or self.gpu_states.get(gpu, GpuState.USABLE) is not GpuState.USABLE
        }

    def reserving(self, job: Job) -> PoolSpec | None:
        """The pool with cells that owes something to a job."""
        spec = self.specs.get(job.tenant)
        return spec if spec is not None and spec.reserves and job.priority >= 0 else None

    # One event

    def audit(self, event: Event, reaction: Reaction, scheduler: Scheduler) -> None:
        for notice in reaction.notices:
            if isinstance(notice, DecisionRejected | FactRejected):
                raise Violation(f"no decision breaks an invariant: {notice}")
        reach_before = self.in_reach
        self.has_changed = isinstance(event, TenantsChanged | ClusterChanged)
        self.is_held = any(lease.is_stopping for lease in self.leases.values())
        self._hear(event, reaction)
        self._see_nodes_go(event, scheduler)
        self._follow_rounds(event, reaction)
        lost = {job_id for each in reaction.notices if isinstance(each, GuaranteeLost) for job_id in each.job_ids}
        before = self.claims()
        departed = self._departed(reaction)
        started: set[int] = set()
        for command in reaction.commands:
            if isinstance(command, Stop):
                if command.epoch in started:
                    raise Violation(f"nothing is started to be stopped at once: {command}")
                self._judge_stop(command, event, reaction, departed, before)
            elif isinstance(command, Start):
                started.add(command.epoch)
                self._judge_start(command)
        self._label(event, reaction, scheduler, lost, departed)
        self._follow_up(reaction, scheduler)
        problem = self.estate.broken_promise(self.claims())
        if problem:
            raise Violation(f"every tenant can have all its cells: {problem}")
        self.in_reach = self.estate.is_in_reach(self.claims(), self.bad(), surely=True)
        if isinstance(event, Tick) and not departed:  # what ends, or is preempted, may have been on bad hardware
            after = self.estate.is_in_reach(self.claims(), self.bad(), surely=False)
            if any(was and not now for was, now in zip(reach_before, after, strict=False)):
                raise Violation(f"while good hardware suffices, every cell can be had there: {reach_before}, {after}")

    def _follow_up(self, reaction: Reaction, scheduler: Scheduler) -> None:
        """Winners that start later, or not at all."""
        self.seen["cells declined"] += sum(len(round_.plan.declined) for round_ in reaction.rounds)
        for job_id, pool in self._placed(reaction).items():
            if pool != self.open_pool and not self._has_its_cells(job_id, scheduler):
                self._judge_waste(job_id, pool, reaction)
        for epoch, (_, winners) in list(self.evicted.items()):
            status = [scheduler.status(job_id) for job_id, gpus in winners.items() if not gpus]
            if not {*status} <= {Status.HOLDING, Status.STOPPING}:
                del self.evicted[epoch]  # what was held for one of them no longer is

    def _has_its_cells(self, job_id: str, scheduler: Scheduler) -> bool:
        """Whether a job that was given cells runs there, or will when others have left, or it itself has."""
        lease = self.leases.get(job_id)
        if lease is None:
            return scheduler.status(job_id) is Status.HOLDING
        return lease.is_guaranteed or lease.is_stopping

    def _judge_waste(self, winner: str, pool: str, reaction: Reaction) -> None:
        self.seen["cells not taken"] += 1
        for round_ in reaction.rounds:
            names = dict(zip(round_.serials.tolist(), round_.job_ids, strict=True))
            for departure in round_.plan.departures if round_.pool == pool else ():
                if isinstance(departure.reason, Preempted) and departure.reason.by == winner:
                    victim = names[departure.serial]
                    raise Violation(f"no job is preempted for cells that go to no job: {victim} for {winner}")

    def _hear(self, event: Event, reaction: Reaction) -> None:
        match event:
            case JobSubmitted():
                self.jobs.setdefault(event.job.id, event.job)
            case JobEnded():
                lease = self.leases.get(event.job_id)
                if lease is not None and lease.epoch == event.epoch:
                    del self.leases[event.job_id]
            case LeaseAdopted():
                if not any(isinstance(notice, AdoptionRefused) for notice in reaction.notices):
                    (job_id,) = event.job_ids
                    self.leases[job_id] = Lease(self.jobs[job_id], event.epoch, frozenset(event.gpus))
            case NodeChanged():
                self.health[event.node] = event.health
            case GpuChanged():
                self.gpu_states[event.gpu] = event.state
            case ClusterChanged():
                self._change_cluster(event, reaction)
            case TenantsChanged():
                self._change_tenants(event, reaction)

    def _see_nodes_go(self, event: Event, scheduler: Scheduler) -> None:
        """Nodes that were told to go are gone, or needed: jobs run there, or cells could not be had without them."""
        if not self.leaving:
            return
        there = {node["name"] for node in scheduler.dump()["setup"]["cluster"]["nodes"]}
        gone = self.leaving - there
        if {*self.nodes} - gone != there:
            raise Violation(f"the cluster is as it was told: {there}, not {[*self.nodes]} without {self.leaving}")
        for name in self.leaving & there:
            self.seen["node needed"] += 1
            others = [node for node in self.nodes.values() if node.name not in gone | {name}]
            if (
                isinstance(event, ClusterChanged | TenantsChanged)
                and not self.is_in_use(name)
                and self._suffice(others)
            ):
                raise Violation(f"a node goes when its jobs have ended: {name}")
        if gone:
            self.has_changed = True
            self.leaving -= gone
            self.nodes = {name: node for name, node in self.nodes.items() if name not in gone}
            self.health = {name: health for name, health in self.health.items() if name not in gone}
            self.gpu_states = {gpu: state for gpu, state in self.gpu_states.items() if gpu.node not in gone}
            self._estate = None

    def _suffice(self, nodes: list[Node]) -> bool:
        """Whether nodes have room for what all tenants reserve."""
        try:
            return bool(nodes) and not Estate(Cluster("left", tuple(nodes)), self.specs.values()).broken_promise([])
        except InputError:
            return False

    def is_in_use(self, node: str) -> bool:
        return any(gpu.node == node for lease in self.leases.values() for gpu in lease.gpus)

    def _change_cluster(self, event: ClusterChanged, reaction: Reaction) -> None:
        refused = any(isinstance(each, ChangeRefused) and each.change.startswith("change") for each in reaction.notices)
        self.seen[f"cluster change {'refused' if refused else 'made'}"] += 1
        if refused:
            return
        in_use = {notice.node for notice in reaction.notices if isinstance(notice, NodeInUse)}
        for node in event.nodes:
            self.nodes[node.name] = node
            if node.name in self.leaving:  # it joins anew
                self.leaving.discard(node.name)
                self.health.pop(node.name, None)
        for name in event.removed:
            if name in self.nodes:
                if name not in self.leaving and (name in in_use) != self.is_in_use(name):
                    raise Violation(f"a node goes when its jobs have ended: {name}, {reaction.notices}")
                self.leaving.add(name)
        self._estate = None

    def _change_tenants(self, event: TenantsChanged, reaction: Reaction) -> None:
        refused = any(isinstance(notice, ChangeRefused) for notice in reaction.notices)
        self.seen[f"tenants change {'refused' if refused else 'made'}"] += 1
        if not refused:
            for name, change in event.tenants.items():
                if change.cells is not None:
                    self.specs[name] = replace(self.specs[name], cells=dict(change.cells))
            self._estate = None

    def _follow_rounds(self, event: Event, reaction: Reaction) -> None:
        match event:
            case Tick() | JobStarted():
                pass
            case _:
                self.decided.clear()
        self.decided.update(dict.fromkeys((round_.pool for round_ in reaction.rounds), True))

    def _departed(self, reaction: Reaction) -> dict[str, list[str]]:
        """By job: the pools that gave its GPUs to another job, or move it; of a lazy job, first its tenant's."""
        found: dict[str, list[str]] = {}
        for round_ in reaction.rounds:
            names = dict(zip(round_.serials.tolist(), round_.job_ids, strict=True))
            for departure in round_.plan.departures:
                found.setdefault(names[departure.serial], []).append(round_.pool)
        return found

    def _placed(self, reaction: Reaction) -> dict[str, str]:
        """By job: the pool that gave it GPUs."""
        found = {}
        for round_ in reaction.rounds:
            names = dict(zip(round_.serials.tolist(), round_.job_ids, strict=True))
            found.update({names[placement.serial]: round_.pool for placement in round_.plan.placements})
        return found

    # Stops

    def _judge_stop(
        self, command: Stop, event: Event, reaction: Reaction, departed: dict[str, list[str]], before: list[Claim]
    ) -> None:
        lease = self.leases.get(command.job_id)
        if lease is None or lease.epoch != command.epoch:
            raise Violation(f"only what runs is stopped: {command}")
        if lease.is_stopping:
            return
        lease.is_stopping = True
        if self._is_own_affair(lease, event):
            return
        pools = departed.get(command.job_id, [])
        if lease.job.tenant in pools or (self.open_pool in pools and not lease.is_guaranteed):
            self.seen["preempted by a policy"] += 1
            return
        if lease.is_guaranteed:
            raise Violation(f"no other tenant takes a guaranteed job's GPUs: {command}, {pools}")
        winners = {job: pool for job, pool in self._placed(reaction).items() if pool != self.open_pool}
        if command.job_id in winners:
            self.seen["moved into its cells"] += 1
            return
        if not winners:
            raise Violation(f"guests leave for guaranteed jobs only: {command}, {lease}")
        self.seen["guest evicted"] += 1
        self.evicted[lease.epoch] = lease, dict.fromkeys(winners, frozenset())
        self._judge_eviction(lease, list(winners), departed, before)

    def _is_own_affair(self, lease: Lease, event: Event) -> bool:
        """Its owner stops it, or its hardware has failed."""
        match event:
            case JobCancelled() | JobHeld():
                return event.job_id == lease.job.id
            case NodeChanged(health=Health.FAILED):
                return any(gpu.node == event.node for gpu in lease.gpus)
            case GpuChanged(state=GpuState.FAILED):
                return event.gpu in lease.gpus
        return False

    def _judge_eviction(
        self, lease: Lease, winners: list[str], departed: dict[str, list[str]], before: list[Claim]
    ) -> None:
        preempts = any({*pools} != {self.open_pool} for pools in departed.values())
        if len(winners) > 1 or self.is_held or preempts:
            return
        guests = {gpu for other in self.leases.values() if not other.is_guaranteed for gpu in other.gpus}
        self.seen["eviction judged"] += 1
        if self.estate.needs_no_eviction(self.jobs[winners[0]], before, guests, self.bad()):
            raise Violation(f"no guest leaves while idle good cells would do: {lease} for {winners}")

    # Starts

    def _judge_start(self, command: Start) -> None:
        (job_id,) = command.job_ids
        job, gpus = self.jobs[job_id], frozenset(command.gpus)
        known = self.leases.get(job_id)
        if known is not None and known.epoch == command.epoch:
            return  # sent again
        if known is not None:
            raise Violation(f"one lease per job: {command}, {known}")
        busy = [lease for lease in self.leases.values() if not lease.gpus.isdisjoint(gpus)]
        if busy:
            raise Violation(f"no GPU has two jobs: {command}, {busy}")
        if not gpus.isdisjoint(self.bad()):
            raise Violation(f"nothing starts on bad hardware: {command}")
        self._judge_gang(command, job)
        levels = dict(zip(command.gpus, command.cells, strict=True)) if command.cells else {}
        self.leases[job_id] = Lease(job, command.epoch, gpus, levels)
        for epoch, (victim, winners) in list(self.evicted.items()):
            if job_id in winners and not winners[job_id]:
                winners[job_id] = gpus
                if all(winners.values()):
                    del self.evicted[epoch]
                    if all(victim.gpus.isdisjoint(each) for each in winners.values()):
                        raise Violation(f"a guest leaves for a job that needs its GPUs: {victim}, {winners}")

    def _judge_gang(self, command: Start, job: Job) -> None:
        cluster, shape = self.estate.cluster, command.shape
        if len(set(command.gpus)) != shape.gpus or {self.nodes[gpu.node].accelerator for gpu in command.gpus} != {
            shape.accelerator
        }:
            raise Violation(f"gangs are whole: {command}")
        positions = cluster.positions(command.gpus)
        level = next(i for i, cell in enumerate(cluster.cell_of_gpu) if len(set(cell[positions].tolist())) == 1)
        wanted = [option.shape.level for option in job.options if option.shape[:2] == shape[:2]]
        if not wanted or level > max(map(cluster.levels.index, wanted)) or level > cluster.levels.index(shape.level):
            raise Violation(f"gangs are in one cell of the level they ask for: {job.id}, {command}")
        nodes = Counter(gpu.node for gpu in command.gpus)
        if job.nodes and not nodes.keys() <= {*job.nodes}:
            raise Violation(f"a job runs on the nodes it names: {job.nodes}, {command}")
        if len(nodes) > 1 and not pack(members_of(job, shape), tuple(sorted(nodes.values()))):
            raise Violation(f"members do not span nodes: {job}, {command}")
        spec = self.specs.get(job.tenant)
        if job.pinned and spec is not None:
            inside = {
                chain.gpus[gpu]
                for chain in self.estate.chains
                for gpu, pin in chain.pinned.items()
                if pin == f"{spec.name}/{job.pinned}"
            }
            if not inside.issuperset(command.gpus):
                raise Violation(f"a pinned job runs in its pinned cell: {job.pinned}, {command}")

    # Guarantees

    def _is_outranked(self, job: Job, event: Event) -> bool:
        """Whether a job of its tenant with a higher priority was found running: that one has the cells then."""
        found = event.job_ids if isinstance(event, LeaseAdopted) and event.guaranteed else ()
        return any(self.jobs[each].tenant == job.tenant and self.jobs[each].priority > job.priority for each in found)

    def _label(
        self, event: Event, reaction: Reaction, scheduler: Scheduler, lost: set[str], departed: dict[str, list[str]]
    ) -> None:
        """Take down which jobs have a guarantee; none loses it but by its own pool's policy or a change of cells."""
        started = {command.epoch for command in reaction.commands if isinstance(command, Start)}
        for job_id, lease in self.leases.items():
            explanation = scheduler.explain(job_id)
            assert explanation is not None, job_id
            if explanation.pool == self.open_pool:
                lease.is_outside = False  # from there, it comes back with cells
            elif job_id in lost:
                lease.is_outside = True
            elif isinstance(event, LeaseAdopted) and job_id in event.job_ids:
                lease.is_outside = not scheduler.prospect(lease.job).guaranteed
                self.seen["adopted without its guarantee"] += event.guaranteed and lease.is_outside
            is_home = self.reserving(lease.job) is not None and explanation.pool == lease.job.tenant
            now = is_home and not lease.is_outside
            if lease.is_guaranteed and not now:
                is_lazy = lease.job.lazy and lease.job.tenant in departed.get(job_id, ())
                is_told = job_id in lost and self.has_changed
                if not is_lazy and not is_told and not lease.is_stopping and not self._is_outranked(lease.job, event):
                    raise Violation(f"a guaranteed job stays so while its tenant wants it: {lease}, {event}")
                self.seen["lazily preempted" if is_lazy else "guarantee lost"] += 1
                if job_id in lost and not is_lazy:
                    self._judge_loss(event, lost)
            if now and not lease.is_guaranteed:
                self.seen["guaranteed" if lease.epoch in started else "guaranteed where it runs"] += 1
            lease.is_guaranteed = now
            if not now or self.has_changed:
                lease.levels = {}  # it may get other cells, where it is

    def _judge_loss(self, event: Event, lost: set[str]) -> None:
        """A change of the cluster or of cells that leaves room for all who run takes no guarantee."""
        if isinstance(event, LeaseAdopted):
            return
        kept = [replace(lease, is_guaranteed=True) for lease in self.leases.values() if lease.is_guaranteed]
        kept += [replace(self.leases[job_id], is_guaranteed=True) for job_id in lost if job_id in self.leases]
        if not self.estate.broken_promise(self.claims(list({lease.epoch: lease for lease in kept}.values()))):
            self.seen["guarantee lost though it could be kept"] += 1

    # When nothing is under way

    def audit_quiet(self, scheduler: Scheduler) -> None:
        """All is told and decided: no guaranteed job waits for what its tenant's cells have room for."""
        if any(lease.is_stopping for lease in self.leases.values()):
            return
        status = {job_id: scheduler.status(job_id) for job_id in self.jobs}
        holding = [job_id for job_id, each in status.items() if each is Status.HOLDING]
        if holding:
            raise Violation(f"a job starts when its victims have left: {holding}")
        waiting = [
            self.jobs[job_id] for job_id, each in status.items() if each is Status.PENDING and job_id not in self.leases
        ]
        for job in waiting:
            spec = self.reserving(job)
            if spec is not None and not job.nodes and self._is_next(job, spec, waiting):
                self.seen["wait judged"] += 1
                self._judge_wait(job, spec, scheduler)

    def _is_next(self, job: Job, spec: PoolSpec, waiting: list[Job]) -> bool:
        """Whether the tenant's policy lets the job start if there is room."""
        if not self.decided.get(spec.name, spec.cadence is Cadence.EVENTS):
            return False
        if spec.policy != "fifo" or spec.options.get("backfill"):
            return True
        lent = [lease.job for lease in self.leases.values() if not lease.is_guaranteed]
        before = [other for other in (*waiting, *lent) if self.reserving(other) is spec and other is not job]
        order = list(self.jobs)
        return all((job.submitted_at, order.index(job.id)) < (o.submitted_at, order.index(o.id)) for o in before)

    def _judge_wait(self, job: Job, spec: PoolSpec, scheduler: Scheduler) -> None:
        claims, bad = self.claims(), self.bad()
        staying = claims
        if spec.policy == "priority":
            staying = self.claims(
                [
                    lease
                    for lease in self.leases.values()
                    if lease.job.tenant != spec.name or lease.job.priority >= job.priority
                ]
            )
        if self.estate.is_owed_a_start(job, claims, staying, bad):
            raise Violation(f"a job that fits its tenant's cells starts: {job.id}, {scheduler.why(job.id)}, {claims}")
        if self.estate.is_owed_a_cell(job, claims, bad):
            raise Violation(f"a job has a good cell while there is one: {job.id}, {scheduler.why(job.id)}, {claims}")


def is_live(status: Status | None) -> bool:
    return status is not None and status not in FINAL
