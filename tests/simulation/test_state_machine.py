"""Anything may happen at any time: every promise holds after every step, and a crash between two changes nothing."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from world import AnyPairs, Key, Violation, Witness, World

from horae.experiment import replay_text
from horae.guarantees.pools import Pools
from horae.journal import JournalWriter
from horae.mechanism.admit import Ground, Placer, _Pass, admit
from horae.model.arrays import Bools
from horae.model.cells import Cluster, Node
from horae.model.commands import Command
from horae.model.errors import BrokenInvariant
from horae.model.events import (
    Ending,
    Event,
    Health,
    JobCancelled,
    JobEnded,
    JobProgressed,
    JobSubmitted,
    NodeChanged,
    PolicyChanged,
    Tick,
)
from horae.model.jobs import Job
from horae.model.plans import Claims, Placement, Riders, RoundPlan, Spot
from horae.model.pools import Cadence, PoolSpec, Setup
from horae.model.shapes import Demand, Option, Shape
from horae.model.speeds import Sharing
from horae.model.status import FINAL
from horae.model.table import JobColumns
from horae.placement.fit import place
from horae.policies import registry
from horae.policies.gandiva import Gandiva
from horae.policies.registry import POLICIES
from horae.scheduler import Scheduler, core
from horae.scheduler.floor import Floor
from horae.scheduler.pool import Pool
from horae.scheduler.snapshot import snapshot

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
STEPS_WANTED = 10_000 if NIGHTLY else 1_000

PAIRING = ("any-pairs", "gandiva", "gandiva-own", "max-min")
# Those that serve every job that can run at all, whatever its gang and whether or not its length is known.
SETTLED = {
    "fifo", "sjf", "srtf", "srsf", "las", "tiresias", "gittins", "drf", "yarn-cs", "equal-share", "highest-rho",
    "optimus", "slaq", "afs", "shockwave",
}  # fmt: skip
policies = st.sampled_from(sorted(SETTLED & POLICIES.keys())) | st.sampled_from(PAIRING)
spans = st.sampled_from([0.0, 0.5, 1.0, 7.0, 30.0, 100.0, 1000.0])
endings = st.sampled_from([Ending.FINISHED, Ending.FAILED, Ending.FAILED, Ending.STOPPED])
shapes = st.sampled_from(
    [
        [Shape("a", 1, "gpu")],
        [Shape("a", 2, "switch"), Shape("a", 2, "node")],
        [Shape("a", 4, "node"), Shape("b", 4, "cluster")],
        [Shape("b", 1, "node"), Shape("a", 1, "node")],
        [Shape("b", 3, "cluster")],
        [Shape("a", 8, "cluster")],
        [Shape("b", 64, "cluster")],  # never
    ]
)


# Two of "m" fit, as do "m" and "n"; two of "n" do not, and of others nothing is known.
SHARING = tuple(
    Sharing(models, accelerator, gpus, kept)
    for models, kept in ((("m", "m"), (0.6, 0.6)), (("m", "n"), (0.9, 0.4)), (("n", "n"), (0.0, 0.0)))
    for accelerator in ("a", "b")
    for gpus in (1, 2, 3, 4, 8)
)


def make_setup(policy: str, other: str, cadence: Cadence, split: str, shared: bool) -> Setup:
    cluster = Cluster(
        "test",
        (
            *(Node(f"a{i}", "a", 4, cpus=8, levels=(("switch", 2),), rack=f"r{i // 2}") for i in range(3)),
            *(Node(f"b{i}", "b", 2) for i in range(3)),
        ),
    )
    pools: tuple[PoolSpec, ...] = (PoolSpec("first", policy, {}, cadence, 10.0),)
    second = PoolSpec("second", other, {}, Cadence.ROUNDS, 7.0, tenants=("t",))
    if split == "nodes":
        pools += (replace(second, nodes=("a0", "b0")),)
    elif split == "cells":
        pools = (replace(second, cells={"ax4r2.node": 1, "ax4r1.switch": 1, "b.node": 1}), *pools)
    return Setup(cluster, pools, acknowledge_seconds=20.0, sharing=SHARING if shared else ())


@dataclass(frozen=True)
class GandivaOwn(Gandiva):
    name: ClassVar[str] = "gandiva-own"
    variant: str = "own"
    slice_seconds: float = 20.0
    horizon_seconds: float = 600.0


@pytest.fixture(autouse=True)
def _any_pairs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The policy that pairs at random is known by its name, as if another package had brought it; so is a variant."""
    monkeypatch.setitem(registry._LOADED, AnyPairs.name, AnyPairs)
    monkeypatch.setitem(registry._LOADED, GandivaOwn.name, GandivaOwn)
    yield


class Machine(RuleBasedStateMachine):
    steps: ClassVar[int] = 0  # over all runs

    @initialize(
        policy=policies,
        other=policies,
        cadence=st.sampled_from(Cadence),
        split=st.sampled_from(["", "nodes", "cells"]),
        shared=st.sampled_from([True, True, False]),
    )
    def begin(self, policy: str, other: str, cadence: Cadence, split: str, shared: bool) -> None:
        self.setup = make_setup(policy, other, cadence, split, shared)
        self.scheduler = Scheduler(self.setup)
        self.world, self.witness = World(), Witness(self.setup)
        self.page = io.StringIO()
        self.journal = JournalWriter(self.page)
        self.journal.open(self.setup)
        self.now = 0.0
        self.history: list[Event] = []
        self.submitted = 0

    def tell(self, event: Event, *, crash: bool = False) -> None:
        """One event through the scheduler; with `crash` it dies before the engine hears of the commands."""
        type(self).steps += 1
        note(f"{event}")
        self.history.append(event)
        self.journal.heard(event)
        reaction = self.scheduler.handle(event)
        self.witness.judge(event, reaction, self.scheduler)
        commands = reaction.commands
        if crash:
            commands = self._recover()
            assert commands == reaction.commands
        else:
            self.journal.reacted(event, reaction)
        note(f"   -> {commands}")
        self.world.execute(commands, self.now)
        self.witness.compare(self.world, self.scheduler)

    def _recover(self) -> tuple[Command, ...]:
        replayed = replay_text(self.page.getvalue())
        assert replayed.difference == ""
        assert snapshot(replayed.scheduler) == snapshot(self.scheduler)
        self.scheduler, self.journal = replayed.scheduler, replayed.writer
        self.journal.go_on(self.page, replayed.missing)
        return replayed.unsent

    def settle(self) -> None:
        if self.scheduler.next_wakeup_at <= self.now:
            self.tell(Tick(self.now))

    @rule(
        accepted=st.lists(shapes, min_size=1, max_size=5),
        tenant=st.sampled_from(["t", "u"]),
        models=st.sampled_from(["m", "m", "mn", "mnx"]),
        steps=st.sampled_from([None, 10.0, 500.0]),
        restart=st.sampled_from([0.0, 5.0]),
        grace=st.sampled_from([0.0, 15.0]),
        member=st.sampled_from([1, 2]),
        cpus=st.sampled_from([0.0, 3.0]),
        budget=st.sampled_from([1.0, float("inf")]),
        retries=st.sampled_from([0, 2]),
        crash=st.booleans(),
    )
    def submit(
        self,
        accepted: list[list[Shape]],
        tenant: str,
        models: str,
        steps: float | None,
        restart: float,
        grace: float,
        member: int,
        cpus: float,
        budget: float,
        retries: int,
        crash: bool,
    ) -> None:
        for number, wanted in enumerate(accepted):
            self.submitted += 1
            job = Job(
                id=f"j{self.submitted}",
                submitted_at=self.now,
                options=tuple(Option(shape, 1.0 + index) for index, shape in enumerate(wanted)),
                app=f"app{self.submitted % 3}",
                tenant=tenant,
                model=models[number % len(models)],
                steps_total=steps,
                restart_seconds=restart,
                grace_seconds=grace,
                member_gpus=member,
                cpus_per_gpu=cpus,
                preemptions_max=budget,
                retries_max=retries,
            )
            self.tell(JobSubmitted(self.now, job), crash=crash)
        self.settle()

    @rule(seconds=spans)
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        for run in self.world.live.values():
            run.steps += seconds
        self.settle()

    @precondition(lambda self: self.submitted > 4)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(1, self.submitted))
        self.tell(JobCancelled(self.now, f"j{number}"))
        self.settle()

    @precondition(lambda self: self.world.outbox)
    @rule(data=st.data(), crash=st.booleans())
    def a_reply_arrives(self, data: st.DataObject, crash: bool) -> None:
        index = data.draw(st.integers(0, len(self.world.outbox) - 1))
        self.tell(self.world.outbox.pop(index), crash=crash)
        self.settle()

    @rule()
    def all_replies_arrive(self) -> None:
        for _ in range(100):
            if not self.world.outbox:
                break
            self.tell(self.world.outbox.pop(0))
            self.settle()

    def end(self, key: Key, ending: Ending, *, late: bool = False) -> None:
        if ending is Ending.STOPPED and not self.world.live[key].told_to_stop:
            ending = Ending.FINISHED
        event = self.world.end(key, ending, self.now)
        if late:
            self.world.outbox.append(event)
        else:
            self.tell(event)

    @precondition(lambda self: self.world.live)
    @rule(data=st.data(), ending=endings, late=st.booleans())
    def a_job_ends(self, data: st.DataObject, ending: Ending, late: bool) -> None:
        self.end(data.draw(st.sampled_from(sorted(self.world.live))), ending, late=late)
        self.settle()

    @precondition(lambda self: self.world.live)
    @rule(seconds=spans, drawn=st.lists(endings, max_size=4), data=st.data())
    def life_goes_on(self, seconds: float, drawn: list[Ending], data: st.DataObject) -> None:
        """Messages arrive, time passes, some jobs end, and those who were told to leave do."""
        self.all_replies_arrive()
        self.time_passes(seconds)
        for ending in drawn:
            if self.world.live:
                self.end(data.draw(st.sampled_from(sorted(self.world.live))), ending)
        self.all_who_should_leave_do()
        self.all_replies_arrive()

    @rule()
    def all_who_should_leave_do(self) -> None:
        for key in [key for key, run in self.world.live.items() if run.told_to_stop]:
            if key in self.world.live:
                self.end(key, Ending.STOPPED)
        self.settle()

    @precondition(lambda self: self.world.live)
    @rule(data=st.data(), steps=st.sampled_from([None, float("nan"), -3.0]))
    def a_job_reports(self, data: st.DataObject, steps: float | None) -> None:
        run = self.world.live[data.draw(st.sampled_from(sorted(self.world.live)))]
        self.tell(JobProgressed(self.now, run.job_id, run.epoch, run.steps if steps is None else steps))

    @rule(node=st.sampled_from(["a0", "a1", "a2", "b0", "b1", "nowhere"]), health=st.sampled_from(Health))
    def a_node_changes(self, node: str, health: Health) -> None:
        lost: list[Event] = []
        if health is Health.FAILED and node in self.setup.cluster.node_index:
            lost = self.world.fail_node(self.setup.cluster, node, self.now)
        self.tell(NodeChanged(self.now, node, health))
        for event in lost:
            self.tell(event)
        self.settle()

    @rule(policy=policies, pool=st.sampled_from(["first", "second", "none"]))
    def the_policy_changes(self, policy: str, pool: str) -> None:
        self.tell(PolicyChanged(self.now, pool, policy))
        self.settle()

    @precondition(lambda self: self.history)
    @rule(data=st.data())
    def an_old_event_comes_again(self, data: st.DataObject) -> None:
        event = data.draw(st.sampled_from(self.history[-20:]))
        if not isinstance(event, NodeChanged | PolicyChanged):
            self.tell(event)
            self.settle()

    @precondition(lambda self: any(isinstance(event, JobEnded) for event in self.history))
    @rule(data=st.data())
    def an_old_ending_comes_again(self, data: st.DataObject) -> None:
        self.tell(data.draw(st.sampled_from([event for event in self.history if isinstance(event, JobEnded)])))
        self.settle()

    @rule()
    def the_scheduler_crashes(self) -> None:
        self._recover()

    def teardown(self) -> None:
        """From here on the world behaves: messages arrive, nodes are repaired, jobs finish. So every job must end."""
        if not hasattr(self, "scheduler"):
            return
        for node in self.setup.cluster.node_index:
            self.tell(NodeChanged(self.now, node, Health.HEALTHY))
        for _ in range(300):
            self.settle()
            self.all_replies_arrive()
            self.all_who_should_leave_do()
            for key in list(self.world.live):
                if key in self.world.live:
                    self.end(key, Ending.FINISHED)
            if self.world.outbox or self.world.live:
                continue
            if self.scheduler.next_wakeup_at == inf:
                break
            self.now = max(self.now, self.scheduler.next_wakeup_at)
        waiting = [job_id for job_id in self.witness.jobs if (self.scheduler.status(job_id) or 0) not in FINAL]
        if waiting:
            raise Violation(f"every accepted job ends: {waiting} wait, {self.scheduler.why(waiting[0])}")


def drive(examples: int, *, seeded: bool, phases: Sequence[Phase] = tuple(Phase)) -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            derandomize=seeded,
            phases=phases,
            database=None,
        ),
    )


def test_every_promise_holds_after_every_step() -> None:
    Machine.steps = 0
    drive(STEPS_WANTED // 12, seeded=not NIGHTLY)
    assert Machine.steps >= STEPS_WANTED


# Twelve ways to break a promise, each of which must be found out.


def start_without_waiting(self: Scheduler, pool: Pool, placement: Placement, awaited: frozenset[int]) -> None:
    self._start(pool, placement)


def believe_any_epoch(self: Scheduler, job_id: str, epoch: int) -> tuple[Pool, int] | None:
    found = self._live.get(job_id)
    return found if found is not None and self._epoch(*found) >= 0 else None


def evict_for_nobody(claims: Claims, jobs: JobColumns, ground: Ground, placer: Placer) -> RoundPlan:
    plan = admit(claims, jobs, ground, placer)
    return plan._replace(placements=()) if plan.departures else plan


def place_one_too_few(self: Floor, free: Bools, riders: Riders, demand: Demand, shape: Shape) -> Spot | None:
    spot = place(self.cluster, free, riders, demand, shape)
    return spot._replace(gpus=spot.gpus[:-1]) if spot and len(spot.gpus) > 1 else spot


def forget_a_pending_job(self: Scheduler, event: JobCancelled) -> None:
    found = self._live.pop(event.job_id, None)
    if found is not None:
        found[0].table.remove(found[1])


def nothing(*_: object) -> None:
    return None


def everything(self: Pools, cluster: Cluster, specs: Sequence[PoolSpec], *, static_binding: bool = False) -> None:
    ORIGINAL_POOLS(self, cluster, specs)
    self.gpus = tuple(np.ones(cluster.gpu_count, dtype=bool) for _ in self.gpus)


ORIGINAL_POOLS = Pools.__init__
MUTATIONS: dict[str, tuple[object, str, object]] = {
    "a lease does not occupy its GPUs": (Floor, "take", nothing),
    "a winner starts before its victims have left": (Scheduler, "_hold", start_without_waiting),
    "an old message ends a new lease": (Scheduler, "_current", believe_any_epoch),
    "jobs are evicted for nobody": (core, "admit", evict_for_nobody),
    "a gang is cut": (Floor, "place", place_one_too_few),
    "a failed node is used": (Floor, "set_health", nothing),
    "progress is forgotten": (Pool, "report", nothing),
    "a pool takes what is not its own": (Pools, "__init__", everything),
    "a waiting job has no reason": (core, "blocker", nothing),
    "CPUs are given away twice": (_Pass, "_load", nothing),
    "nobody wakes a pool": (Pool, "touch", nothing),
    "a job is lost": (Scheduler, "_on_cancelled", forget_a_pending_job),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_broken_promise_is_found_out_when(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, name, replacement = MUTATIONS[mutation]
    monkeypatch.setattr(target, name, replacement)
    with pytest.raises((Violation, BrokenInvariant)):
        drive(300, seeded=True, phases=(Phase.generate,))
