"""Random histories of a scheduler whose tenants have cells; every step is seeded, and audited from outside.

Again with: PYTHONPATH=src:tests python tests/properties/cells_driver.py SEED [STEPS]
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import replace
from math import inf
from random import Random
from typing import Any

from oracles.cell_auditor import Auditor, is_live
from world import Network, Run, Violation, World

from horae.model.chain_layout import layout_of
from horae.model.cluster import Cluster, Gpu, Node
from horae.model.errors import InputError
from horae.model.events import (
    ClusterChanged,
    Ending,
    Event,
    GpuChanged,
    GpuState,
    Health,
    JobCancelled,
    JobHeld,
    JobReleased,
    JobSubmitted,
    LeaseAdopted,
    NodeChanged,
    TenantChange,
    TenantsChanged,
    Tick,
)
from horae.model.jobs import Job
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.model.shapes import Option, Shape
from horae.model.status import Status
from horae.scheduler import Scheduler

STEPS = 50  # of a history
TWIN_EVENTS = 15  # for so many events a restored scheduler must answer as the original does
GPUS_MAX = 16  # of a type
SPARE = "spare"
POLICIES: tuple[tuple[str, dict[str, object]], ...] = (
    ("priority", {}),
    ("priority", {}),
    ("fifo", {}),
    ("fifo", {"backfill": True}),
    ("tiresias", {"limits": [20.0, 200.0]}),
    ("max-min", {}),
)
OPEN_POLICIES = (*POLICIES, ("hierarchical", {}), ("las", {}))


class History:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.setup = make_setup(self.random)
        self.scheduler = Scheduler(self.setup)
        self.twin: tuple[Scheduler, int] | None = None
        self.auditor = Auditor(self.setup)
        self.world = World(Random(seed + 1), Network())
        self.story: list[str] = [_told(self.setup)]
        self.seen: Counter[str] = self.auditor.seen
        self.submitted = 0
        self.incarnation = 0
        self.step = 0
        self.removed: list[Node] = []

    @property
    def now(self) -> float:
        return self.world.now

    def run(self, steps: int = STEPS) -> None:
        for self.step in range(steps):
            kind = self.random.choices(list(STEP_KINDS), list(STEP_KINDS.values()))[0]
            self.story.append(f"-- {self.step} {kind} at {self.now:g}")
            getattr(self, kind)()
            self.settle()

    def tell(self, event: Event) -> None:
        self.seen[type(event).__name__] += 1
        reaction = self.scheduler.handle(event)
        self.story.append(f"{event}")
        self.story += [f"   -> {each}" for each in (*reaction.commands, *reaction.notices)]
        if self.twin is not None:
            twin, left = self.twin
            again = twin.handle(event)
            if (again.commands, again.notices) != (reaction.commands, reaction.notices):
                raise Violation(f"a restored scheduler answers the same: {again.commands}, not {reaction.commands}")
            self.twin = (twin, left - 1) if left else None
        self.auditor.audit(event, reaction, self.scheduler)
        self.world.send(reaction.commands)
        self.seen.update(type(each).__name__ for each in (*reaction.commands, *reaction.notices))

    def settle(self) -> None:
        """All that has arrived is carried out and told, and the scheduler decides what is due."""
        for _ in range(200):
            self.world.carry_out()
            event = self.world.take_post()
            if event is not None:
                self.tell(event)
            elif self.scheduler.next_wakeup_at <= self.now:
                self.tell(Tick(self.now))
            else:
                self.auditor.audit_quiet(self.scheduler)
                return
        raise Violation(f"there is an end to messages: wake-up at {self.scheduler.next_wakeup_at}, now {self.now}")

    # Users

    def submits(self) -> None:
        for _ in range(self.random.choice((1, 1, 2, 4))):
            self.submitted += 1
            self.tell(JobSubmitted(self.now, self._job(f"j{self.submitted}")))

    def one_tenant_is_busy(self) -> None:
        tenant = self.random.choice([*self.auditor.specs])
        for _ in range(self.random.choice((2, 4, 6))):
            self.submitted += 1
            self.tell(JobSubmitted(self.now, replace(self._job(f"j{self.submitted}", tenant), nodes=())))

    def _job(self, name: str, tenant: str = "") -> Job:
        random, auditor = self.random, self.auditor
        owner = tenant or random.choice([*auditor.specs, "guest"])
        spec = auditor.specs.get(owner)
        shape, members = make_shape(random, auditor.estate.cluster)
        options = [Option(shape, 1.0)]
        if random.random() < 0.15:
            other, _ = make_shape(random, auditor.estate.cluster)
            options += [Option(other, 0.5)] if not members else []
        nodes: tuple[str, ...] = ()
        if random.random() < 0.1:
            nodes = tuple(name for name in auditor.nodes if random.random() < 0.6)
        priority = random.choice((0, 0, 0, 1, 2, -1))
        pinned = ""
        if spec is not None and spec.pinned and priority >= 0 and random.random() < 0.3:
            pinned, nodes = random.choice(list(spec.pinned)), ()
        return Job(
            id=name,
            submitted_at=self.now,
            options=tuple(options),
            tenant=owner,
            priority=priority,
            steps_total=random.choice((None, 50.0, 1000.0)),
            grace_seconds=random.choice((0.0, 0.0, 5.0, 25.0)),
            retries_max=random.choice((0, 1)),
            members=members,
            member_gpus=random.choice((1, 1, 2)),
            nodes=nodes,
            pinned=pinned,
            lazy=random.random() < 0.35,
        )

    def cancels(self) -> None:
        job_id = self._any_live()
        if job_id:
            self.tell(JobCancelled(self.now, job_id))

    def holds(self) -> None:
        job_id = self._any_live()
        if job_id:
            self.tell(JobHeld(self.now, job_id))

    def releases(self) -> None:
        held = [job_id for job_id in self.auditor.jobs if self.scheduler.status(job_id) is Status.SUSPENDED]
        if held:
            self.tell(JobReleased(self.now, self.random.choice(held)))

    def _any_live(self) -> str:
        live = [job_id for job_id in self.auditor.jobs if is_live(self.scheduler.status(job_id))]
        return self.random.choice(live) if live else ""

    # Time and the engine

    def time_passes(self) -> None:
        self.world.advance(self.now + self.random.choice((0.0, 1.0, 3.0, 10.0, 30.0, 200.0)))

    def wakes(self) -> None:
        wake_at = self.scheduler.next_wakeup_at
        if self.now < wake_at < inf:
            self.world.advance(wake_at)

    def ticks(self) -> None:
        self.tell(Tick(self.now))

    def runs_end(self) -> None:
        for run in self._some_runs():
            ending = self.random.choice((Ending.FINISHED, Ending.FINISHED, Ending.FINISHED, Ending.FAILED, Ending.LOST))
            self.world.end(run.key, ending)

    def victims_leave(self) -> None:
        for run in list(self.world.runs.values()):
            if run.is_told_to_stop:
                self.world.leave(run)

    def _some_runs(self) -> list[Run]:
        runs = list(self.world.runs.values())
        return self.random.sample(runs, min(len(runs), self.random.choice((1, 1, 2, 4))))

    # Hardware

    def node_changes(self) -> None:
        health = self.random.choice((Health.HEALTHY, Health.HEALTHY, Health.DRAINING, Health.FAILED))
        node = self._sick_node() if health is Health.HEALTHY else self.random.choice(list(self.auditor.nodes))
        if node in self.auditor.leaving:
            return
        self._break([gpu for gpu in self._all_gpus() if gpu.node == node], health is Health.FAILED)
        self.tell(NodeChanged(self.now, node, health))

    def _sick_node(self) -> str:
        sick = [
            name for name in self.auditor.nodes if self.auditor.health.get(name) in (Health.FAILED, Health.DRAINING)
        ]
        return self.random.choice(sick or list(self.auditor.nodes))

    def gpu_changes(self) -> None:
        state = self.random.choice((GpuState.USABLE, GpuState.USABLE, GpuState.FAILED, GpuState.FOREIGN))
        states = self.auditor.gpu_states
        sick = [gpu for gpu in states if states[gpu] is not GpuState.USABLE]
        there = [gpu for gpu in self._all_gpus() if gpu.node not in self.auditor.leaving]
        if state is GpuState.USABLE:
            there = [gpu for gpu in there if gpu in sick]
        if there:
            gpu = self.random.choice(there)
            self._break([gpu], state is GpuState.FAILED)
            self.tell(GpuChanged(self.now, gpu, state))

    def _all_gpus(self) -> list[Gpu]:
        return [Gpu(node.name, number) for node in self.auditor.nodes.values() for number in range(node.gpus)]

    def _break(self, gpus: list[Gpu], broken: bool) -> None:
        """Jobs on broken hardware are lost, or the failure is only told."""
        if broken and self.random.random() < 0.7:
            for run in self.world.on(gpus):
                self.world.end(run.key, Ending.LOST)

    def cluster_changes(self) -> None:
        random, nodes = self.random, self.auditor.nodes
        kind = random.choice(("new", "removed", "removed", "back"))
        if kind == "new" and sum(node.gpus for node in nodes.values()) < 2 * GPUS_MAX:
            pattern = random.choice(list(nodes.values()))
            self.tell(ClusterChanged(self.now, (replace(pattern, name=f"new{self.step}"),)))
        elif kind == "removed" and len(nodes) > 1:
            node = nodes[random.choice(list(nodes))]
            self.tell(ClusterChanged(self.now, (), (node.name,)))
            self.removed.append(node)
        elif kind == "back" and self.removed:
            node = self.removed.pop()
            if node.name not in self.auditor.nodes or node.name in self.auditor.leaving:
                self.tell(ClusterChanged(self.now, (node,)))

    # Operators

    def tenants_change(self) -> None:
        """Most often for less, so that jobs lose their guarantee, or for more, so that guests must leave."""
        random = self.random
        spec = random.choice([each for each in self.auditor.specs.values() if each.tenants])
        cells = dict(spec.cells) or make_cells(random, self.auditor.estate.cluster)
        name = random.choice(list(cells))
        cells[name] = max(0, cells[name] + random.choice((-2, -1, 1, 1)))
        if random.random() < 0.3:
            cells = make_cells(random, self.auditor.estate.cluster)
        self.tell(TenantsChanged(self.now, {spec.name: TenantChange(cells)}))

    # The scheduler itself

    def restored(self) -> None:
        """The scheduler is swapped for what its dump says; the original must answer the same for a while."""
        text = json.dumps(self.scheduler.dump(), allow_nan=False)
        restored = Scheduler.restore(json.loads(text))
        if json.dumps(restored.dump(), allow_nan=False) != text:
            raise Violation("a restored scheduler has the same dump")
        self.scheduler, self.twin = restored, (self.scheduler, TWIN_EVENTS)

    def crashes(self) -> None:
        """A new scheduler is told of all jobs, of the hardware, and of the leases that run."""
        old, auditor = self.scheduler, self.auditor
        if auditor.leaving:
            return  # nodes that go are not part of a setup
        self.twin = None
        self.incarnation += 1
        live = {job_id: old.status(job_id) for job_id in auditor.jobs if is_live(old.status(job_id))}
        setup = replace(
            self.setup,
            cluster=Cluster("again", tuple(auditor.nodes.values())),
            pools=tuple(auditor.specs.values()),
            absent_nodes=(),
            incarnation=self.incarnation,
        )
        self.story.append(_told(setup))
        self.scheduler = Scheduler(setup)
        self.auditor = Auditor(setup)
        self.auditor.seen = self.seen
        for job_id in live:
            self.tell(JobSubmitted(self.now, auditor.jobs[job_id]))
        for name, health in auditor.health.items():
            self.tell(NodeChanged(self.now, name, health))
        for gpu, state in auditor.gpu_states.items():
            self.tell(GpuChanged(self.now, gpu, state))
        for run in list(self.world.runs.values()):
            lease = auditor.leases.get(run.job_id)
            if run.job_id not in live or lease is None:
                continue
            if not is_live(self.scheduler.status(run.job_id)):  # its tenant's cells no longer hold it
                del self.world.runs[run.key]
                continue
            self.tell(LeaseAdopted(self.now, run.epoch, (run.job_id,), run.gpus, (run.saved,), lease.is_guaranteed))
            if run.is_told_to_stop and run.job_id in self.auditor.leases:
                self.auditor.leases[run.job_id].is_stopping = True
        for job_id, status in live.items():
            if status is Status.SUSPENDED:
                self.tell(JobHeld(self.now, job_id))
            elif status is Status.CANCELLING:
                self.tell(JobCancelled(self.now, job_id))


STEP_KINDS: dict[str, float] = {
    "submits": 8.0,
    "one_tenant_is_busy": 2.0,
    "cancels": 1.0,
    "holds": 0.6,
    "releases": 0.8,
    "time_passes": 5.0,
    "wakes": 4.0,
    "ticks": 0.5,
    "runs_end": 4.0,
    "victims_leave": 3.0,
    "node_changes": 1.5,
    "gpu_changes": 1.2,
    "cluster_changes": 0.7,
    "tenants_change": 1.0,
    "restored": 0.7,
    "crashes": 0.3,
}


# Setups


def make_setup(random: Random) -> Setup:
    while True:
        cluster = make_cluster(random)
        tenants = [f"t{number}" for number in range(random.choice((1, 2, 2, 3)))]
        pools = [make_pool(random, cluster, tenant) for tenant in tenants]
        policy, options = random.choice(OPEN_POLICIES)
        cadence = random.choice((Cadence.EVENTS, Cadence.ROUNDS))
        spare = PoolSpec(SPARE, policy, options, cadence, random.choice((10.0, 60.0)))
        pools.insert(random.randint(0, len(pools)), spare)
        absent = (cluster.nodes[0].name,) if random.random() < 0.05 else ()
        setup = Setup(cluster, tuple(pools), seed=random.randrange(100), absent_nodes=absent)
        if not is_possible(setup):  # more cells than there are, or pinned cells that overlap
            continue
        for _ in range(random.choice((0, 4, 12))):  # until hardly any more would fit
            fuller = with_another_cell(random, setup)
            setup = fuller if is_possible(fuller) else setup
        return setup


def is_possible(setup: Setup) -> bool:
    try:
        Scheduler(setup)
    except InputError:
        return False
    return True


def with_another_cell(random: Random, setup: Setup) -> Setup:
    chain = random.choice(layout_of(setup.cluster, {}).territory.chains)
    name = f"{chain.name}.{random.choice(chain.types)}"
    number = random.choice([number for number, spec in enumerate(setup.pools) if spec.tenants])
    spec = setup.pools[number]
    fuller = replace(spec, cells={**spec.cells, name: spec.cells.get(name, 0) + 1})
    return replace(setup, pools=(*setup.pools[:number], fuller, *setup.pools[number + 1 :]))


def make_pool(random: Random, cluster: Cluster, tenant: str) -> PoolSpec:
    policy, options = random.choice(POLICIES)
    pinned = {}
    if random.random() < 0.3:
        node = random.choice(cluster.nodes)
        places = [node.name, f"{node.name}/gpu/{random.randrange(node.gpus)}"]
        places += [f"{node.name}/{level}/0" for level, _ in node.levels] + [
            f"{level}/{name}" for level, name in node.groups
        ]
        pinned = {"gold": random.choice(places)}
    return PoolSpec(
        tenant,
        policy,
        options,
        random.choice((Cadence.EVENTS, Cadence.EVENTS, Cadence.ROUNDS)),
        random.choice((10.0, 60.0)),
        tenants=(tenant,),
        cells=make_cells(random, cluster),
        pinned=pinned,
        borrow=random.random() < 0.6,
    )


def make_cells(random: Random, cluster: Cluster) -> dict[str, int]:
    chains = layout_of(cluster, {}).territory.chains
    found = {}
    for _ in range(random.choice((1, 1, 2, 3))):
        chain = random.choice(chains)
        name = random.choice((chain.name, chain.name, chain.accelerator))
        found[f"{name}.{random.choice(chain.types)}"] = random.choice((1, 1, 2, 2, 3, 4))
    return found


def make_cluster(random: Random) -> Cluster:
    nodes: list[Node] = []
    for accelerator in "abc"[: random.choice((1, 1, 2, 3))]:
        gpus = random.choice((1, 2, 2, 4, 4))
        levels = () if gpus < 4 or random.random() < 0.5 else (("switch", 2),)
        count = random.randint(1, min(6, GPUS_MAX // gpus))
        style = random.choice(("flat", "flat", "racks", "unlike racks", "rows"))
        for index in range(count):
            group = index // 2 if style != "unlike racks" else int(index >= 1) + int(index >= 4)
            rack = "" if style == "flat" else f"{accelerator}r{group}"
            above = (("row", f"{accelerator}w{group // 2}"),) if style == "rows" else ()
            nodes.append(Node(f"{accelerator}{index}", accelerator, gpus, levels=levels, rack=rack, above=above))
    return Cluster("test", tuple(nodes))


def make_shape(random: Random, cluster: Cluster) -> tuple[Shape, tuple[int, ...]]:
    """A shape that the whole cluster could hold, and sometimes members of several sizes."""
    node = random.choice(cluster.nodes)
    inner = ["gpu", *(level for level, _ in node.levels), "node", "node"]
    outer = [*(level for level, _ in node.groups), "cluster"]
    if random.random() < 0.7:
        level = random.choice(inner)
        most = 1 if level == "gpu" else dict(node.levels).get(level, node.gpus)
        return Shape(node.accelerator, random.randint(1, most), level), ()
    level = random.choice(outer)
    members: tuple[int, ...] = ()
    if random.random() < 0.6:
        members = tuple(random.randint(1, node.gpus) for _ in range(random.choice((2, 2, 3))))
    gpus = sum(members) or random.choice((1, 2, 2, 4, 6))
    return Shape(node.accelerator, gpus, level), members


def _told(setup: Setup) -> str:
    nodes = ", ".join(
        f"{node.name}:{node.gpus}{''.join(f' {k}={v}' for k, v in (*node.levels, *node.groups))}"
        for node in setup.cluster.nodes
    )
    pools = "; ".join(
        f"{spec.name} {spec.policy} {dict(spec.options) or ''} {spec.cadence.value} cells {dict(spec.cells)} "
        f"pinned {dict(spec.pinned)} borrow {spec.borrow}"
        for spec in setup.pools
    )
    return f"nodes {nodes}\npools {pools}\nabsent {setup.absent_nodes}"


def drive(seed: int, steps: int = STEPS) -> Counter[str]:
    """One history: what occurred in it; a broken promise is a `Violation` with its story."""
    history = History(seed)
    try:
        history.run(steps)
    except Violation as violation:
        story = "\n".join([history.story[0], *history.story[1:][-25:]])
        raise Violation(f"{violation}\nseed {seed}, step {history.step}, the end of the story:\n{story}") from None
    history.seen["steps"] += steps
    return history.seen


def main() -> None:
    arguments: list[Any] = [int(each) for each in sys.argv[1:]]
    history = History(arguments[0])
    try:
        history.run(*arguments[1:])
    finally:
        print("\n".join(history.story))


if __name__ == "__main__":
    main()
