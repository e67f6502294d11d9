"""The scheduler as it takes part in the replay of HiveD's records: driven by events, asked by `prospect`, read only.

Virtual clusters are pools under strict priorities that do not borrow, beside an open pool. A gang is a job. Whatever
the record carries out is told as what an engine would report: leases that were found running, and jobs that ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from conformance.hived_protocol import Decision, Kind, Member, Request, Suggested

from horae.model.arrays import Ints
from horae.model.cluster import NODE, Gpu
from horae.model.commands import Start
from horae.model.events import (
    Ending,
    Event,
    Health,
    JobCancelled,
    JobEnded,
    JobStarted,
    JobSubmitted,
    LeaseAdopted,
    NodeChanged,
    Tick,
)
from horae.model.jobs import Job
from horae.model.reasons import Never
from horae.model.setup import Setup
from horae.model.shapes import Option, Shape
from horae.model.status import Status
from horae.scheduler import Scheduler
from horae.scheduler.dry_run import prospect_of
from horae.traces.clusters.hived import HivedConfig
from horae.traces.clusters.hived_conversion import SPARE, hived_pools

_FOR_EVER = 1e9  # seconds: no hold expires, and no command is sent again


@dataclass
class _Gang:
    request: Request
    job_id: str  # a name may come back after its gang has left
    members: tuple[Member, ...] = ()  # where it runs; empty: it waits for its victims
    is_downgraded: bool = False


class CellState(NamedTuple):
    is_used: bool
    is_bad: bool


class SchedulerAllocator:
    def __init__(self, config: HivedConfig) -> None:
        cluster, pools = hived_pools(config)
        self.config = config
        specs = tuple(
            replace(spec, options={"backfill": True})
            if spec.name == SPARE
            else replace(spec, policy="priority", borrow=False)
            for spec in pools
        )
        self.scheduler = Scheduler(Setup(cluster, specs, acknowledge_seconds=_FOR_EVER))
        self.gangs: dict[str, _Gang] = {}
        self.outside: set[str] = set()  # gangs on hardware that is gone: nothing of the scheduler's is used
        self.last: tuple[Request, tuple[Member, ...]] | None = None  # what was decided last
        self.now = 0.0
        self.count = 0  # of jobs that were ever submitted
        self.places = {  # by node of ours: chain and number of the node in it
            name: (chain, number)
            for chain, each in enumerate(config.territory.chains)
            for number, name in enumerate(each.nodes)
        }

    # Decisions

    def schedule(self, request: Request, suggested: Suggested) -> Decision:
        gang = self.gangs.get(request.name)
        if gang is not None and gang.members:
            return Decision(Kind.BIND, gang.members)
        if request.tenant not in self.config.virtual_clusters:
            return Decision(Kind.ERROR)  # the open pool would take it
        job = self._job(request, suggested, "asked" if gang is None else gang.job_id)
        copy = Scheduler.restore(self.scheduler.dump())
        prospect = prospect_of(copy, job)
        if isinstance(prospect.reason, Never):  # HiveD lets a gang wait that is too large
            return Decision(Kind.ERROR if not prospect.reason.largest_gpus else Kind.WAIT)
        if suggested is not None and not suggested:
            return Decision(Kind.WAIT)
        placed = _placed(copy, job.id)
        if placed is None:
            return Decision(Kind.WAIT)
        gpus, awaited = placed
        disturbed = {*awaited, *prospect.victims, *prospect.downgraded}
        names = {each.job_id: name for name, each in self.gangs.items()}
        preempting = {each.job_id for each in self.gangs.values() if not each.members and each.job_id != job.id}
        lost = {each for each in preempting if _placed(copy, each) is None or each in disturbed}
        members = self._members(copy, request, gpus)
        self.last = request, members
        victims = {*awaited, *prospect.victims} - lost - {job.id}
        # A preempting gang starts here as soon as its victims have left, and in the record when it is next asked about:
        # if it is all that must leave, the record has nothing running there.
        starts = prospect.starts or bool(awaited <= lost and lost)
        return Decision(
            Kind.BIND if starts else Kind.PREEMPT,
            members,
            frozenset(names[each] for each in victims),
            frozenset(names[each] for each in {*prospect.downgraded} - lost - {job.id}),
            frozenset(names[each] for each in lost),
        )

    def reserve(self, request: Request, suggested: Suggested) -> None:
        if request.name in self.gangs:
            return  # it has its GPUs, and waits for the gangs on them
        gang = self._enter(request, suggested)
        self._tell(Tick(self.now))
        assert self.scheduler.status(gang.job_id) is Status.HOLDING, self.scheduler.why(gang.job_id)
        for name in [name for name, each in self.gangs.items() if not each.members and each is not gang]:
            if _placed(self.scheduler, self.gangs[name].job_id) is None:
                self.delete(name)

    # What was recorded

    def commit(self, request: Request, members: Sequence[Member]) -> bool:
        if request.name in self.gangs:
            self.delete(request.name)
        gang = self._enter(request, None)
        if not self._adopt(gang, members, guaranteed=request.priority >= 0):
            self.delete(request.name)
            if (request, tuple(members)) != self.last or not self._start(request, members):
                return False
        self.gangs[request.name].members = tuple(members)
        return True

    def _start(self, request: Request, members: Sequence[Member]) -> bool:
        """The scheduler carries out what it has decided itself, in cells that it has chosen."""
        gang = self._enter(request, None)
        self._tell(Tick(self.now))
        running, placed = self.scheduler.jobs.on_gpus(gang.job_id), _placed(self.scheduler, gang.job_id)
        if running and placed and set(self.scheduler.ledger.names(placed[0])) == set(self._gpus(members)):
            return True
        self.delete(request.name)
        return False

    def recover(self, request: Request, members: Sequence[Member]) -> None:
        """A gang was found running after a restart, on hardware of which some may be gone: it goes on with the rest.

        It has no guarantee any more if its tenant's cells do not cover it.
        """
        if not members:
            self.outside.add(request.name)
            return
        rest = replace(request, members=tuple(len(each.gpus) for each in members))
        gang = self._enter(rest, None)
        if self.scheduler.status(gang.job_id) is Status.REFUSED:  # larger than its tenant's cluster is now
            gang = self._enter(replace(rest, priority=-1), None)
        self._adopt(gang, members, guaranteed=request.priority >= 0)
        gang.request, gang.members = rest, tuple(members)
        gang.is_downgraded = request.priority >= 0 and not self._is_guaranteed(gang)

    def _is_guaranteed(self, gang: _Gang) -> bool:
        tenancy, placed = self.scheduler.ledger.tenancy, _placed(self.scheduler, gang.job_id)
        assert tenancy is not None and placed is not None, f"{gang.job_id} was not recovered"
        return bool(tenancy.is_virtual[placed[0]].all())

    def downgrade(self, gang: str) -> None:
        """The scheduler does it itself when it preempts; here it is the record that says so."""
        known = self.gangs[gang]
        self.delete(gang)
        new = self._enter(known.request, None)
        assert self._adopt(new, known.members, guaranteed=False)
        new.members, new.is_downgraded = known.members, True

    def delete(self, gang: str) -> None:
        if gang in self.outside:
            self.outside.discard(gang)
            return
        job_id = self.gangs.pop(gang).job_id
        running = self.scheduler.jobs.on_gpus(job_id)
        if running is None:
            self._tell(JobCancelled(self.now, job_id))
        else:
            self._tell(JobEnded(self.now, job_id, self.scheduler.jobs.epoch(*running), Ending.FINISHED, 0.0))

    def set_health(self, node: str, *, is_healthy: bool) -> None:
        health = Health.HEALTHY if is_healthy else Health.DRAINING
        for chain, machines in zip(self.config.territory.chains, self.config.machines, strict=True):
            for name, machine in zip(chain.nodes, machines, strict=True):
                if machine == node:
                    self._tell(NodeChanged(self.now, name, health))

    # The state

    def states(self) -> dict[str, str]:
        return {name: self._state(gang) for name, gang in self.gangs.items()} | dict.fromkeys(self.outside, "Allocated")

    def _state(self, gang: _Gang) -> str:
        if not gang.members:
            return "Preempting"
        is_leaving = self.scheduler.status(gang.job_id) is Status.STOPPING
        state = "BeingPreempted" if is_leaving else "Allocated"
        return f"{state}+lazyPreempted" if gang.is_downgraded or self._borrows(gang) else state

    def _borrows(self, gang: _Gang) -> bool:
        running = self.scheduler.jobs.on_gpus(gang.job_id)
        assert running is not None, f"{gang.job_id} does not run: {self.scheduler.why(gang.job_id)}"
        return gang.request.priority >= 0 and running[0].spec.name == SPARE

    def gpus_of(self, gang: str) -> tuple[Gpu, ...]:
        return self._gpus(self.gangs[gang].members)

    def on(self, gpus: Sequence[Gpu]) -> set[str]:
        """The gangs that have these GPUs, or for which they are held."""
        epochs, held_for = self.scheduler.ledger.on(gpus)
        serials = [each for epoch in epochs.tolist() for each in self.scheduler.leases.by_epoch[epoch].bundle]
        jobs = {self.scheduler.jobs.id_of[serial] for serial in (*serials, *held_for.tolist())}
        return {name for name, gang in self.gangs.items() if gang.job_id in jobs}

    def cells(self, tenant: str, chain: str, cell_type: str) -> list[CellState]:
        """The tenant's cells of a type, without pinned ones."""
        tenancy = self.scheduler.ledger.tenancy
        assert tenancy is not None
        index = next(number for number, each in enumerate(self.config.territory.chains) if each.name == chain)
        size = self.config.territory.chains[index].gpus[self.config.territory.chains[index].types.index(cell_type)]
        nodes, found = set(self.config.territory.chains[index].nodes), []
        for cell in tenancy.cells:
            state = tenancy.allocator.chains[cell.kind.chain]
            is_mine = cell.reserved.tenant == tenancy.allocator.tenants[tenant] and not cell.pinned
            if is_mine and len(cell.gpus) == size and nodes & set(state.chain.nodes):
                is_bound = bool((tenancy.real[cell.gpus] >= 0).all())
                is_bad = bool(tenancy.closed[cell.gpus].any())
                held = (self.scheduler.ledger.holder[cell.gpus] >= 0) | (self.scheduler.ledger.held_for[cell.gpus] >= 0)
                found.append(CellState(is_bound and bool(held.any()), is_bad))
        return found

    def check(self) -> None:
        tenancy = self.scheduler.ledger.tenancy
        assert tenancy is not None
        for state in tenancy.allocator.chains:
            assert all(there >= due for there, due in zip(state.buddies.open, state.promised, strict=True))
        for gang in self.gangs.values():
            if gang.members:
                running = self.scheduler.jobs.on_gpus(gang.job_id)
                assert running is not None
                lease = self.scheduler.leases.by_epoch[self.scheduler.jobs.epoch(*running)]
                assert set(self.scheduler.ledger.names(lease.gpus)) == set(self._gpus(gang.members))

    # Between both worlds

    def _tell(self, *events: Event) -> None:
        for event in events:
            for command in self.scheduler.handle(event).commands:
                if isinstance(command, Start):
                    for job_id in command.job_ids:
                        self._tell(JobStarted(self.now, job_id, command.epoch))
        self.now += 1.0

    def _enter(self, request: Request, suggested: Suggested) -> _Gang:
        self.count += 1
        gang = self.gangs[request.name] = _Gang(request, f"{request.name}#{self.count}")
        self._tell(JobSubmitted(self.now, self._job(request, suggested, gang.job_id)))
        return gang

    def _adopt(self, gang: _Gang, members: Sequence[Member], *, guaranteed: bool) -> bool:
        """Whether the gang is there now, in cells of the given types if it is guaranteed."""
        epoch = self.scheduler.leases.epoch_next
        cells = self._levels(gang.request, members) if guaranteed else ()
        self._tell(LeaseAdopted(self.now, epoch, (gang.job_id,), self._gpus(members), (0.0,), guaranteed, cells))
        running = self.scheduler.jobs.on_gpus(gang.job_id)
        if running is None:
            self._tell(JobEnded(self.now, gang.job_id, epoch, Ending.FINISHED, 0.0))
            return False
        if not guaranteed:
            return True
        wide = self.scheduler.leases.by_epoch[epoch].gpus
        if not self._is_guaranteed(gang):
            return False
        types = self._cell_types(self.scheduler, gang.request, wide)
        obtained = dict(zip(self.scheduler.ledger.names(wide), types, strict=True))
        return all(obtained[gpu] == each.cell_type for each in members for gpu in self._gpus([each]))

    def _levels(self, request: Request, members: Sequence[Member]) -> tuple[str, ...]:
        """By GPU: the scheduler's name for the level of the cell that it was recorded in; empty where it has none."""
        tenancy = self.scheduler.ledger.tenancy
        assert tenancy is not None
        tenant, found = tenancy.allocator.tenants.get(request.tenant), []
        for member in members:
            chain = next(each for each in self.config.territory.chains if each.name == member.chain)
            size = chain.gpus[chain.types.index(member.cell_type)] if member.cell_type in chain.types else 0
            node = self._gpus([member])[0].node
            mine = [each for each in tenancy.cells if each.reserved.tenant == tenant and not each.pinned]
            mine = [each for each in mine if len(each.gpus) == size and node in each.reserved.chain.nodes]
            if not mine:
                return ()
            found += [mine[0].reserved.chain.types[mine[0].kind.level]] * len(member.gpus)
        return tuple(found)

    def _job(self, request: Request, suggested: Suggested, job_id: str) -> Job:
        types = [request.accelerator] if request.accelerator else self._types(request)
        is_one = len(request.members) == 1
        level = NODE if is_one else self.scheduler.ledger.cluster.levels[-1]
        return Job(
            job_id,
            self.now,
            tuple(Option(Shape(each, sum(request.members), level), 1.0) for each in types),
            tenant=request.tenant,
            priority=request.priority,
            members=() if is_one else request.members,
            nodes=self._nodes(suggested),
            pinned=request.pinned_cell if request.priority >= 0 else "",
            lazy=request.is_lazy,
        )

    def _types(self, request: Request) -> list[str]:
        """GPU types that a gang may have which names none; a pinned cell has just one."""
        nodes = self.scheduler.ledger.real_cluster.nodes
        pinned = self.config.pinned.get(request.pinned_cell) if request.priority >= 0 else None
        return list(dict.fromkeys(each.accelerator for each in nodes if pinned is None or each.name in pinned.nodes))

    def _nodes(self, suggested: Suggested) -> tuple[str, ...]:
        if not suggested:
            return ()
        found = [
            name for name, (chain, number) in self.places.items() if self.config.machines[chain][number] in suggested
        ]
        return () if len(found) == len(self.places) else tuple(found)

    def _gpus(self, members: Iterable[Member]) -> tuple[Gpu, ...]:
        chains = self.config.territory.chains
        names = [chain.name for chain in chains]
        found = []
        for member in members:
            chain = names.index(member.chain)
            number = self.config.machines[chain].index(member.node)
            addresses = self.config.gpu_addresses[chain][number]
            found += [Gpu(chains[chain].nodes[number], addresses.index(each)) for each in member.gpus]
        return tuple(found)

    def _members(self, scheduler: Scheduler, request: Request, wide: Ints) -> tuple[Member, ...]:
        """The GPUs of a gang by member: none spans nodes, or cells of its tenant."""
        ledger = scheduler.ledger
        types = self._cell_types(scheduler, request, wide) if request.priority >= 0 else [""] * len(wide)
        by_node: dict[int, list[tuple[Gpu, str]]] = {}
        order = np.argsort(wide, kind="stable")
        names = ledger.names(wide)
        for index in order.tolist():
            by_node.setdefault(int(ledger.cluster.node_of_gpu[wide[index]]), []).append((names[index], types[index]))
        cuts = _cut(sorted(request.members, reverse=True), {node: len(each) for node, each in by_node.items()})
        assert cuts is not None, f"{request.members} cannot be cut from {by_node}"
        found: dict[int, list[Member]] = {}
        for size, node in cuts:
            taken, by_node[node] = by_node[node][:size], by_node[node][size:]
            chain, number = self.places[taken[0][0].node]
            addresses = self.config.gpu_addresses[chain][number]
            where = self.config.territory.chains[chain].name, self.config.machines[chain][number]
            member = Member(*where, tuple(addresses[gpu.number] for gpu, _ in taken), taken[0][1])
            found.setdefault(size, []).append(member)
        return tuple(found[size].pop(0) for size in request.members)

    def _cell_types(self, scheduler: Scheduler, request: Request, wide: Ints) -> list[str]:
        """By GPU: HiveD's name of the type of the tenant's cell that it is in."""
        tenancy = scheduler.ledger.tenancy
        assert tenancy is not None
        found = []
        for gpu, name in zip(wide.tolist(), scheduler.ledger.names(wide), strict=True):
            if request.pinned_cell:
                found.append(self.config.pinned[request.pinned_cell].cell_type)
                continue
            cell = next((each for each in tenancy.cells if not each.pinned and gpu in each.gpus), None)
            chain = self.config.territory.chains[self.places[name.node][0]]
            cells = self.config.virtual_clusters[request.tenant].cells
            paths = [path.split(".") for path, count in cells if count]
            mine = [path[-1] for path in paths if path[0] == chain.name]
            size = 0 if cell is None else len(cell.gpus)
            found.append(next((each for each in mine if chain.gpus[chain.types.index(each)] == size), ""))
        return found


def _placed(scheduler: Scheduler, job_id: str) -> tuple[Ints, set[str]] | None:
    """The GPUs that a job has or that are held for it, and the jobs that must leave those first."""
    running = scheduler.jobs.on_gpus(job_id)
    if running is not None:
        return scheduler.leases.by_epoch[scheduler.jobs.epoch(*running)].gpus, set()
    found = scheduler.jobs.live.get(job_id)
    hold = None if found is None else scheduler.holds.by_serial.get(found[1])
    if hold is None:
        return None
    bundles = [scheduler.leases.by_epoch[epoch].bundle for epoch in hold.awaited]
    return hold.placement.gpus, {scheduler.jobs.id_of[serial] for bundle in bundles for serial in bundle}


def _cut(members: Sequence[int], left: Mapping[int, int]) -> list[tuple[int, int]] | None:
    """Which node each member is on, the largest first, so that all GPUs are used."""
    if not members:
        return []
    for node, gpus in sorted(left.items(), key=lambda item: item[1]):
        if gpus >= members[0]:
            rest = _cut(members[1:], {**left, node: gpus - members[0]})
            if rest is not None:
                return [(members[0], node), *rest]
    return None
