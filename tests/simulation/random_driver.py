"""Random histories: a scheduler, an engine that is slow and forgetful, and everything that can happen to both.

One integer determines a history. To see one again:

    PYTHONPATH=src:tests python tests/simulation/random_driver.py SEED [STEPS]
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from math import inf, nan
from random import Random
from types import FrameType
from typing import Any, NamedTuple

from witness import Witness
from world import AnyPairs, Key, Network, Run, Violation, World

from horae.model.chain_layout import layout_of
from horae.model.cluster import Cluster, Gpu, Node
from horae.model.commands import CallForBids
from horae.model.effects import Effects, effects_of
from horae.model.errors import InputError
from horae.model.events import (
    BidGiven,
    ClusterChanged,
    CurveRevised,
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
    SchedulerRestarted,
    SpeedRevised,
    Surveyed,
    TenantChange,
    TenantsChanged,
    Tick,
)
from horae.model.jobs import Curve, Job
from horae.model.plans import Reaction
from horae.model.serialization import from_plain, to_plain
from horae.model.setup import Cadence, PoolSpec, RoundRules, Setup
from horae.model.shapes import Option, Shape
from horae.model.speeds import Sharing
from horae.model.status import FINAL, Status
from horae.policies import registry
from horae.scheduler import Scheduler

SECONDS_MAX = 60.0  # of processor time for one history; one that takes longer hangs
STEPS = 50
TWIN_EVENTS = 12  # for so many events a restored scheduler must decide as the original does

# Policies of the second distribution.
EVALUATION = ("themis-gandiva", "themis-optimus", "themis-slaq", "themis-tiresias", "themis-with-errors")

# Beside each policy as it is: variants, and options under which leases and intervals end within a history.
VARIANTS: tuple[tuple[str, dict[str, object]], ...] = (
    ("tiresias", {"limits": [5.0, 200.0], "promote_after": 0.5}),
    ("themis-tiresias", {"lease_seconds": 40.0}),
    ("optimus", {"interval_seconds": 30.0}),
    ("themis-optimus", {"lease_seconds": 40.0}),
    ("slaq", {"epoch_seconds": 30.0}),
    ("themis-slaq", {"lease_seconds": 40.0}),
    ("gandiva-time-slicing", {"slice_seconds": 20.0, "horizon_seconds": 600.0}),
    ("themis-gandiva", {"lease_seconds": 40.0}),
    ("max-min", {"sharing": True}),
    ("max-min", {"aware": False}),
    ("finish-time-fairness", {"sharing": True}),
    ("makespan", {"sharing": True}),
    ("total-throughput", {"sharing": True}),
    ("min-cost", {"sharing": True}),
    ("throughput-per-dollar", {"sharing": True}),
    ("fifo-on-fastest", {"sharing": True, "packing_min": 1.0}),
    ("sjf-on-fastest", {"sharing": True, "packing_min": 1.0}),
    ("themis", {"lease_seconds": 40.0}),
    ("themis", {"lease_seconds": 40.0, "f": 0.0}),
    ("themis", {"lease_seconds": 40.0, "f": 0.0, "poll": "said"}),
    ("themis", {"lease_seconds": 40.0, "by_tenant": True, "to_the_end": True}),
    ("themis-with-errors", {"lease_seconds": 40.0, "noise": 0.3, "liar": 0, "overstates": 1.0}),
    ("highest-rho", {"lease_seconds": 40.0}),
    ("goodput", {"variant": "pollux"}),
    ("fifo", {"backfill": True}),
    ("shockwave", {"interval_seconds": 20.0, "rounds": 5}),
    ("hierarchical", {"weights": {"t": 2.0}, "fifo": "*"}),
    (AnyPairs.name, {}),
    (AnyPairs.name, {}),
)

# Those that serve every job that can run at all, whatever its gang and whether or not its length is known.
SERVES_ALL = {
    "fifo", "sjf", "srtf", "srsf", "las", "tiresias", "gittins", "drf", "yarn-cs", "equal-share", "highest-rho",
    "optimus", "slaq", "afs", "shockwave", "gandiva", "gandiva-time-slicing", "max-min", "themis-tiresias",
    "themis-optimus", "themis-slaq", "themis-gandiva", AnyPairs.name,
}  # fmt: skip

SHAPES: tuple[tuple[Shape, ...], ...] = (
    (Shape("a", 1, "gpu"),),
    (Shape("a", 1, "node"),),
    (Shape("b", 1, "node"),),
    (Shape("a", 2, "switch"), Shape("a", 2, "node")),
    (Shape("a", 2, "node"), Shape("b", 2, "node")),
    (Shape("a", 4, "node"), Shape("b", 4, "cluster")),
    (Shape("b", 1, "node"), Shape("a", 1, "node")),
    (Shape("a", 1, "node"), Shape("b", 1, "node"), Shape("c", 1, "node")),
    (Shape("a", 1, "node"), Shape("a", 2, "node"), Shape("a", 4, "node")),
    (Shape("b", 3, "cluster"),),
    (Shape("b", 2, "cluster"), Shape("a", 3, "node")),
    (Shape("a", 4, "rack"), Shape("a", 6, "cluster")),
    (Shape("a", 8, "cluster"),),
    (Shape("c", 1, "cluster"), Shape("c", 2, "cluster")),
    (Shape("b", 64, "cluster"),),  # never
    (Shape("none", 1, "node"), Shape("a", 1, "room")),  # neither
)


def coverage_of(histories: list[History]) -> Coverage:
    total = Coverage(Counter(), Counter(), Counter(), Counter())
    for history in histories:
        for one, other in zip(total, history.coverage, strict=True):
            one.update(other)
    return total


class Coverage(NamedTuple):
    """How often each occurred."""

    policies: Counter[str]  # that decided
    events: Counter[str]
    notices: Counter[str]
    commands: Counter[str]


class Hang(BaseException):
    """A history that takes too long; no code under test may catch this."""


@contextmanager
def watched(seconds: float = SECONDS_MAX) -> Iterator[None]:
    """Interrupt what hangs."""

    def ring(signal_number: int, frame: FrameType | None) -> None:
        raise Hang("".join(traceback.format_stack(frame, limit=12)))

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGVTALRM, ring)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


def drive(
    seed: int, steps: int = STEPS, without: frozenset[str] = frozenset(), log: list[str] | None = None
) -> History:
    """One history; whatever goes wrong is a `Violation` that says how to see it again."""
    history = History(seed, without, log)
    known = registry._LOADED.get(AnyPairs.name)
    registry._LOADED[AnyPairs.name] = AnyPairs
    try:
        with watched():
            history.run(steps)
    except (Exception, Hang) as error:
        what = str(error) if isinstance(error, Violation) else f"{type(error).__name__}: {error}"
        told = "" if isinstance(error, Violation) else "\n" + "".join(traceback.format_exception(error)[-6:])
        command = f"PYTHONPATH=src:tests python tests/simulation/random_driver.py {seed} {steps}"
        raise Violation(f"{what}\n  seed {seed}, step {history.step}, again with: {command}{told}") from error
    finally:
        if known is None:
            del registry._LOADED[AnyPairs.name]
    return history


class History:
    def __init__(self, seed: int, without: frozenset[str], log: list[str] | None) -> None:
        self.seed = seed
        self.random = random = Random(seed)
        self.without = without
        self.log = log
        self.step = 0
        self.coverage = Coverage(Counter(), Counter(), Counter(), Counter())
        self.setup = make_setup(random, without)
        if seed % 2 == 0:  # each policy in its turn, so that none is missing
            names = [*registry.POLICIES, *EVALUATION]
            first = replace(self.setup.pools[0], policy=names[seed // 2 % len(names)], options={})
            self.setup = replace(self.setup, pools=(first, *self.setup.pools[1:]))
        self._say(f"setup {to_plain(self.setup)}")
        faulty = random.choice((0.0, 0.1, 0.4))
        slow = random.choice((0.0, 0.3, 0.7))
        network = Network(faulty, slow, random.choice((0.0, 0.2)), random.choice((5.0, 50.0, 300.0)))
        self.world = World(Random(seed + 1), network, tells_phases=random.random() < 0.3)
        self.witness = Witness(self.setup)
        self.witness.forgiven = without
        self.scheduler = Scheduler(self.setup)
        self.shadow = Scheduler(self.setup)
        self.twin: tuple[Scheduler, int] | None = None  # what was dumped, and for how many events it is still asked
        self.dumped: tuple[str, int] | None = None  # a dump, and how much of the record it has
        self.make: Callable[[], Scheduler] = lambda: Scheduler(self.setup)  # as it was before the record
        self.record: list[tuple[Event, str]] = []  # every event since with its effects as JSON
        self.told: list[Event] = []  # every event of the whole history
        self.backup: tuple[str, Witness] | None = None  # a dump, and the witness of that moment
        self.epoch_last = 0  # of all that were ever used
        self.submitted = 0
        self.strangers = 0
        self.nodes_made = 0
        self.late_bids: list[BidGiven] = []

    @property
    def now(self) -> float:
        return self.world.now

    def _say(self, text: str) -> None:
        if self.log is not None:
            self.log.append(text)

    def run(self, steps: int) -> None:
        kinds = [(kind, weight) for kind, weight in STEP_KINDS.items() if kind not in self.without]
        for self.step in range(steps):
            kind = self.random.choices([each for each, _ in kinds], [weight for _, weight in kinds])[0]
            self._say(f"-- {self.step} {kind} at {self.now:g}")
            getattr(self, kind)()
            self.settle()
        self.step = steps
        self.followed()
        self.calm_down()

    # One event

    def tell(self, event: Event) -> None:
        self.coverage.events[type(event).__name__] += 1
        self.told.append(event)
        self._say(f"{event}")
        reaction = self.scheduler.handle(event)
        self._say(f"   -> {reaction.commands} {reaction.notices}")
        self._count(reaction)
        self.witness.judge(event, reaction, self.scheduler)
        self._follow(event, reaction)
        self.world.send(reaction.commands)
        self.witness.compare(self.world)

    def _count(self, reaction: Reaction) -> None:
        self.coverage.commands.update(type(command).__name__ for command in reaction.commands)
        self.coverage.notices.update(type(notice).__name__ for notice in reaction.notices)
        for round_ in reaction.rounds:
            spec = self.witness.spec(round_.pool)
            variant = spec.options.get("variant", "sharing" if spec.options.get("sharing") else "")
            self.coverage.policies[f"{spec.policy} {variant}".strip()] += 1

    def _follow(self, event: Event, reaction: Reaction) -> None:
        """The shadow hears of the same event and takes the decisions from its record."""
        effects = json.dumps(to_plain(effects_of(reaction)), allow_nan=False)
        self.record.append((event, effects))
        followed = self.shadow.handle(_again(event), _effects(effects))
        if followed.commands != reaction.commands:
            raise Violation(f"a follower gives the same commands: {followed.commands}, {reaction.commands}")
        if self.twin is not None:
            twin, left = self.twin
            again = twin.handle(event)
            if again.commands != reaction.commands or json.dumps(to_plain(effects_of(again))) != effects:
                raise Violation(f"a restored scheduler decides the same: {reaction.commands}, not {again.commands}")
            self.twin = (twin, left - 1) if left else None

    def settle(self) -> None:
        """All that has arrived is carried out and told, and the scheduler is woken when it wants to be."""
        for _ in range(200):
            self.world.carry_out()
            event = self.world.take_post()
            if event is not None:
                self.tell(event)
            elif self.world.calls:
                self._answer_call(self.world.calls.pop(0))
            elif self.scheduler.next_wakeup_at <= self.now:
                self.tell(Tick(self.now))
            else:
                return
        raise Violation(f"at every moment there is an end to messages: {self.scheduler.next_wakeup_at} at {self.now}")

    def _answer_call(self, call: CallForBids) -> None:
        for offer in call.offers:
            kind = self.random.choice(("honest", "random", "late", "none", "nonsense"))
            rho = offer.rho
            if kind == "random":
                rho = tuple(self.random.uniform(0.5, 9.0) for _ in rho)
            elif kind == "nonsense":
                rho = tuple(self.random.choice((nan, -1.0, inf, 0.0)) for _ in rho)
            bid = BidGiven(self.now, call.auction, offer.app, offer.gpus, rho)
            if kind == "late":
                self.late_bids.append(bid)
            elif kind != "none":
                self.world.answer(bid)

    # The scheduler itself

    def restored(self) -> None:
        """The scheduler is swapped for what its dump says."""
        if "fresh" in self.without and not self.record:
            return
        text = json.dumps(self.scheduler.dump(), allow_nan=False)
        restored = Scheduler.restore(json.loads(text))
        self._same(text, restored, "a restored scheduler is as before")
        self.scheduler, self.twin = restored, (self.scheduler, TWIN_EVENTS)
        self.dumped = (text, len(self.record))
        self.backup = (text, deepcopy(self.witness))

    def followed(self) -> None:
        """The shadow takes over."""
        self._same(json.dumps(self.scheduler.dump(), allow_nan=False), self.shadow, "a follower is as the original")
        self.scheduler, self.shadow = self.shadow, self.scheduler

    def crashed(self) -> None:
        """The scheduler is rebuilt from the record, of the whole history or since the last dump."""
        done = 0
        rebuilt = self.make()
        if self.dumped is not None and self.random.random() < 0.5:
            rebuilt, done = Scheduler.restore(json.loads(self.dumped[0])), self.dumped[1]
        for event, effects in self.record[done:]:
            rebuilt.handle(_again(event), _effects(effects))
        self._same(json.dumps(self.scheduler.dump(), allow_nan=False), rebuilt, "a crash changes nothing")
        self.scheduler = rebuilt

    def restarts(self) -> None:
        """Another scheduler takes over with a dump that may be old; the engine has gone on, and heeds no other now."""
        text, witness = json.dumps(self.scheduler.dump(), allow_nan=False), self.witness
        if self.backup is not None and self.random.random() < 0.7:
            text, witness = self.backup
        self._advance(self.now + 1.0)  # it takes a moment, so that no survey of before seems to be of now
        incarnation = (self._new_epoch() >> 40) + 1
        self._say(f"   incarnation {incarnation}, as of {json.loads(text)['now']}")
        self.make = lambda: Scheduler.restore(json.loads(text), incarnation)
        self.scheduler, self.shadow, self.twin, self.dumped, self.record = self.make(), self.make(), None, None, []
        self._same(json.dumps(self.scheduler.dump(), allow_nan=False), self.shadow, "a restart is always the same")
        lost = [job for job_id, job in self.witness.jobs.items() if job_id not in witness.jobs]
        self.witness = deepcopy(witness)
        self.witness.restart(self.now)
        self.world.wire.clear()
        for job in lost:
            if self.random.random() < 0.6:
                self.tell(JobSubmitted(self.now, job))

    def continues(self) -> None:
        """Another process continues the log where it ended; messages on their way are lost."""
        self._advance(self.now + 1.0)
        incarnation = (self._new_epoch() >> 40) + 1
        self.witness.restart(self.now)
        self.world.wire.clear()
        self.tell(SchedulerRestarted(self.now, incarnation))

    def _same(self, text: str, other: Scheduler, promise: str) -> None:
        again = json.dumps(other.dump(), allow_nan=False)
        if text != again:
            raise Violation(f"{promise}: {_difference(json.loads(text), json.loads(again))}")

    def asked_why(self) -> None:
        for job_id in self.witness.jobs:
            self.scheduler.explain(job_id)
            str(self.scheduler.why(job_id))

    # Users

    def submits(self) -> None:
        random = self.random
        for _ in range(random.choice((1, 1, 2, 4))):
            self.submitted += 1
            self.tell(JobSubmitted(self.now, make_job(random, f"j{self.submitted}", self.now)))
        if random.random() < 0.2:
            self.tell(Tick(self.now))

    def cancels(self) -> None:
        if self.submitted > 3:
            self.tell(JobCancelled(self.now, f"j{self.random.randint(1, self.submitted + 1)}"))

    def kills_app(self) -> None:
        """A search gives up one of its apps, or most of it."""
        app = self.random.choice(("x", "y", "z"))
        for job in [job for job in self.witness.jobs.values() if job.app == app]:
            if self.random.random() < 0.8:
                self.tell(JobCancelled(self.now, job.id))

    def holds(self) -> None:
        if self.submitted:
            self.tell(JobHeld(self.now, f"j{self.random.randint(1, self.submitted + 1)}"))

    def releases(self) -> None:
        held = [job_id for job_id in self.witness.jobs if job_id in self.witness.suspended]
        job_id = self.random.choice(held) if held else f"j{self.random.randint(1, self.submitted + 1)}"
        self.tell(JobReleased(self.now, job_id))

    def shows_that_it_resumes(self) -> None:
        if self.submitted:
            self.tell(JobResumable(self.now, f"j{self.random.randint(1, self.submitted + 1)}"))

    # Time and the engine

    def waits(self) -> None:
        self._advance(self.now + self.random.choice((0.0, 0.5, 1.0, 7.0, 30.0, 100.0, 1000.0)))

    def wakes(self) -> None:
        """Time passes until the scheduler wants to be woken."""
        wake_at = self.scheduler.next_wakeup_at
        if self.now < wake_at < inf:
            self._advance(wake_at)

    def _advance(self, to: float) -> None:
        self.world.advance(to)

    def ticks(self) -> None:
        self.tell(Tick(self.now))

    def runs_end(self) -> None:
        for run in self._some_runs():
            ending = self.random.choice((Ending.FINISHED, Ending.FAILED, Ending.FAILED, Ending.LOST))
            self.world.end(run.key, ending)

    def runs_leave(self) -> None:
        for run in list(self.world.runs.values()):
            if run.is_told_to_stop:
                self.world.leave(run)

    def runs_report(self) -> None:
        for run in self._some_runs():
            if run.phase in (Phase.RUNNING, Phase.SAVING):
                self.world.answer(self.world.report(run.key))

    def nonsense(self) -> None:
        """Messages that cannot be true, or that say nothing."""
        random, known = self.random, [run.key for run in self.world.runs.values()]
        key: Key = random.choice(known) if known else ("nobody", 0)
        stale = (key[0], key[1] + random.choice((-1, 1_000_000)))
        self.tell(
            random.choice(
                (
                    JobProgressed(self.now, *key, random.choice((nan, -3.0, inf, -inf))),
                    JobStarted(self.now, *stale),
                    JobEnded(self.now, *stale, Ending.FINISHED, 1e12),
                    JobEnded(self.now, "nobody", key[1], Ending.LOST, nan),
                    JobPhase(self.now, *stale, Phase.PULLING),
                    JobPhase(self.now, "nobody", 0, Phase.SAVING),
                    JobProgressed(self.now, *stale, 1e12),
                    NodeChanged(self.now, "nowhere", Health.FAILED),
                    GpuChanged(self.now, Gpu("nowhere", 0), GpuState.FAILED),
                    GpuChanged(self.now, Gpu(random.choice(list(self.witness.nodes)), 99), GpuState.FAILED),
                    JobHeld(self.now, "nobody"),
                    JobReleased(self.now, "nobody"),
                    JobResumable(self.now, "nobody"),
                    SchedulerRestarted(self.now, 0),
                    JobCancelled(self.now, "nobody"),
                    BidGiven(self.now, 99, "x", (1,), (1.0,)),
                    PolicyChanged(self.now, "none", "fifo"),
                    PolicyChanged(self.now, self.witness.specs[0].name, "none"),
                    CurveRevised(self.now, key[0], Curve(nan, 1.0, 0.0)),
                    SpeedRevised(self.now, "m", Shape("a", 1, "gpu"), random.choice((nan, 0.0, inf))),
                    TenantsChanged(self.now, {"t": TenantChange(weight=random.choice((0.0, nan, inf)))}),
                    TenantsChanged(self.now, {"t": TenantChange(cells={"a.node": 99})}),
                    TenantsChanged(self.now, {"t": TenantChange(cells={"nothing.node": 1})}),
                    ClusterChanged(self.now, (), ("nowhere",)),
                    ClusterChanged(self.now, (Node("odd", "a", 3, levels=(("switch", 2),)),)),
                )
            )
        )

    def runs_start_up(self) -> None:
        self._advance(self.now + 1.0)

    def surveyed(self) -> None:
        """The engine tells what runs though nobody has asked."""
        self.world.answer(self.world.survey())

    def comes_again(self) -> None:
        """An old message of the engine, or of a user who tries twice, arrives once more."""
        kinds = (JobStarted, JobPhase, JobProgressed, JobEnded, Surveyed, JobSubmitted, JobCancelled, BidGiven)
        forgotten = [job_id for job_id, status in self.witness.status.items() if status is None]
        old = [
            event for event in self.told
            if isinstance(event, kinds) and not (isinstance(event, JobSubmitted) and event.job.id in forgotten)
        ]  # fmt: skip
        if old:
            event = self.random.choice(old[-30:] if self.random.random() < 0.7 else old)
            self.tell(event)

    def adopted_again(self) -> None:
        old = [event for event in self.told if isinstance(event, LeaseAdopted)]
        if old:
            self.tell(self.random.choice(old))

    def bids_late(self) -> None:
        while self.late_bids:
            self.tell(self.late_bids.pop()._replace(at=self.now))

    def _some_runs(self) -> list[Run]:
        runs = list(self.world.runs.values())
        return self.random.sample(runs, min(len(runs), self.random.choice((1, 1, 2, 4))))

    # Hardware

    def node_changes(self) -> None:
        random = self.random
        nodes = self._nodes()
        node = random.choice(nodes)
        chosen = [node]
        if random.random() < 0.15:
            chosen = [each for each in nodes if each.accelerator == node.accelerator]
        health = random.choice((Health.HEALTHY, Health.HEALTHY, Health.DRAINING, Health.FAILED))
        for each in chosen:
            gpus = [Gpu(each.name, number) for number in range(each.gpus)]
            self._break(gpus, health is Health.FAILED)
            self.tell(NodeChanged(self.now, each.name, health))

    def _nodes(self) -> list[Node]:
        """Those that are there; one that was told to go is, while jobs run on it."""
        there = [
            node for name, node in self.witness.nodes.items()
            if name not in self.witness.closed
            or ("leaving" not in self.without and self.witness.is_in_use(name))
        ]  # fmt: skip
        return there or list(self.witness.nodes.values())[:1]

    def gpu_changes(self) -> None:
        random = self.random
        node = random.choice(self._nodes())
        gpu = Gpu(node.name, random.randrange(node.gpus))
        state = random.choice((GpuState.USABLE, GpuState.USABLE, GpuState.FAILED, GpuState.FOREIGN))
        self._break([gpu], state is GpuState.FAILED)
        self.tell(GpuChanged(self.now, gpu, state, "somebody"))

    def _break(self, gpus: list[Gpu], broken: bool) -> None:
        """Hardware breaks, or is repaired; or somebody only says so and what runs there runs on."""
        if not broken:
            self.world.broken.difference_update(gpus)
        elif self.random.random() < 0.7:
            self.world.broken.update(gpus)
            for run in self.world.on(gpus):
                self.world.end(run.key, Ending.LOST)

    def cluster_changes(self) -> None:
        random, nodes = self.random, self.witness.nodes
        kind = random.choice(("new", "changed", "removed", "removed", "back"))
        if kind == "new":
            self.nodes_made += 1
            pattern = random.choice(list(nodes.values()))
            node = replace(pattern, name=f"n{self.nodes_made}")
            if random.random() < 0.2:
                node = Node(f"n{self.nodes_made}", random.choice("abcd"), random.choice((1, 2, 4)), price_per_hour=1.0)
            self.tell(ClusterChanged(self.now, (node,)))
        elif kind == "changed" and "node_in_use" not in self.without:
            node = random.choice(list(nodes.values()))
            self.tell(ClusterChanged(self.now, (self._other(node),)))
        elif kind == "removed":
            chosen = random.sample(list(nodes), random.choice((1, 1, 2)) if len(nodes) > 2 else 1)
            self.tell(ClusterChanged(self.now, (), tuple(chosen)))
        elif kind == "back":
            closed = [node for name, node in nodes.items() if name in self.witness.closed]
            if closed:
                self.tell(ClusterChanged(self.now, tuple(closed)))

    def _other(self, node: Node) -> Node:
        return self.random.choice(
            (
                replace(node, gpus=self.random.choice((1, 2, 4, 8)), levels=()),
                replace(node, cpus=self.random.choice((2.0, 8.0, inf))),
                replace(node, rack=self.random.choice(("", "r0", "r9"))),
                replace(node, accelerator=self.random.choice(("a", "b", "c")), rack=""),
                replace(node, levels=()),
            )
        )

    # Operators

    def policy_changes(self) -> None:
        spec = self.random.choice(self.witness.specs)
        name, options = make_policy(self.random)
        self.tell(PolicyChanged(self.now, spec.name, name, options))

    def tenants_change(self) -> None:
        random = self.random
        changes: dict[str, TenantChange] = {}
        busy = [tenant for spec in self.witness.specs if self._uses_cells(spec) for tenant in spec.tenants]
        for tenant in busy[:1] or random.sample(("t", "u", "v"), random.choice((1, 1, 2))):
            own = next((spec for spec in self.witness.specs if tenant in spec.tenants), None)
            cells = quota = None
            if own is not None and own.quota and random.random() < 0.5:
                quota = {name: random.choice((1, 2, 4, 8)) for name in ("a", "b", "c")}
            elif (own is None or not (own.quota or own.nodes)) and random.random() < self._cells_wanted():
                cells = make_cells(random, self.witness.cluster)
            if own is not None and busy and random.random() < 0.8:
                cells = dict.fromkeys(own.cells, 0)
            weight = random.choice((None, 1.0, 5.0))
            changes[tenant] = TenantChange(cells, weight, quota)
        self.tell(TenantsChanged(self.now, changes))

    def _uses_cells(self, spec: PoolSpec) -> bool:
        """Whether jobs run in a tenant's cells."""
        return any(lease.is_guaranteed and spec.name in lease.pools for lease in self.witness.leases.values())

    def _cells_wanted(self) -> float:
        """How likely a tenant is given other cells, or its first ones."""
        if any(spec.cells for spec in self.witness.specs):
            return 0.6
        has_nodes = any(spec.nodes for spec in self.witness.specs)
        return 0.0 if "mixed" in self.without and has_nodes else 0.12

    def beliefs_change(self) -> None:
        random = self.random
        if random.random() < 0.5:
            shape = random.choice(random.choice(SHAPES))
            self.tell(SpeedRevised(self.now, random.choice("mnx"), shape, random.choice((0.1, 1.0, 30.0))))
        elif self.submitted:
            curve = Curve(random.choice((0.0, 0.01, 1.0)), random.choice((0.5, 2.0)), random.choice((0.0, 0.1)))
            self.tell(CurveRevised(self.now, f"j{random.randint(1, self.submitted)}", curve))

    # Other schedulers

    def _free_gpus(self) -> list[Gpu]:
        """GPUs that are free in truth and by the books, and for which no command is under way."""
        used = {gpu for lease in self.witness.leases.values() for gpu in lease.gpus}
        used.update(gpu for run in self.world.runs.values() for gpu in run.gpus)
        used.update(gpu for letter in self.world.wire for gpu in getattr(letter.command, "gpus", ()))
        used.update(gpu for gpus in self.witness.squatters.values() for gpu in gpus)
        return [
            Gpu(node.name, number)
            for node in self.witness.nodes.values()
            for number in range(node.gpus)
            if Gpu(node.name, number) not in used | self.world.broken and node.name not in self.witness.closed
        ]

    def _new_epoch(self) -> int:
        """As another scheduler numbers its leases: unlike any that was used."""
        known = [*self.witness.epochs, *(epoch for _, epoch in (*self.witness.seen_at, *self.world.runs))]
        self.epoch_last = max([*known, self.epoch_last]) + (1 << 40)
        return self.epoch_last

    def other_scheduler_starts(self) -> None:
        """A job that waits here was started by another scheduler; the lease is adopted where it is."""
        random, free = self.random, self._free_gpus()
        under_way = {job_id for letter in self.world.wire for job_id in getattr(letter.command, "job_ids", ())}
        under_way.update(run.job_id for run in self.world.runs.values())
        waiting = [
            job for job_id, job in self.witness.jobs.items()
            if self.witness.status[job_id] in (Status.PENDING, Status.HOLDING, Status.SUSPENDED)
            and job_id not in under_way
        ]  # fmt: skip
        if not free or not waiting:
            return
        job = random.choice(waiting)
        gpus = random.sample(free, min(len(free), random.choice(job.options).shape.gpus))
        if random.random() < 0.7:
            gpus = [gpu for gpu in free if gpu.node == gpus[0].node][: random.choice(job.options).shape.gpus]
        epoch = self._new_epoch()
        done = self.witness.reported.get(job.id, 0.0) + random.choice((0.0, 5.0))
        self.world.adopt(Run(job.id, epoch, tuple(gpus), Phase.RUNNING, done, done))
        if random.random() < 0.7:
            guaranteed = random.random() < 0.7
            self.tell(LeaseAdopted(self.now, epoch, (job.id,), tuple(gpus), (done,), guaranteed))
        else:
            self.tell(self.world.survey())

    def stranger_starts(self) -> None:
        """Something runs that was never submitted here."""
        free = self._free_gpus()
        if free:
            self.strangers += 1
            run = Run(f"s{self.strangers}", self._new_epoch(), (self.random.choice(free),), Phase.RUNNING, 0.0, 0.0)
            self.world.adopt(run)
            self.tell(self.world.survey())

    def impossible_adoption(self) -> None:
        random, nodes = self.random, list(self.witness.nodes.values())
        job_ids = [*self.witness.jobs, "nobody"]
        gpus = [Gpu(node.name, random.randrange(node.gpus)) for node in random.choices(nodes, k=random.choice((1, 2)))]
        if random.random() < 0.3:
            gpus = [random.choice((Gpu("nowhere", 0), Gpu(nodes[0].name, 99), gpus[0])), gpus[0]]
        chosen = random.sample(job_ids, min(len(job_ids), random.choice((1, 1, 2))))
        steps = tuple(0.0 for _ in chosen)
        self.tell(LeaseAdopted(self.now, self._new_epoch(), tuple(chosen), tuple(gpus), steps))

    # In the end

    def calm_down(self) -> None:
        """From here on the world behaves: messages arrive, hardware is repaired, jobs finish. So every job must end."""
        self._say("-- calm")
        self.world.calm_down()
        self.settle()
        for run in list(self.world.runs.values()):
            if run.job_id not in self.witness.jobs:
                self.world.end(run.key, Ending.STOPPED)
        closed = [node for name, node in self.witness.nodes.items() if name in self.witness.closed]
        if closed:
            self.tell(ClusterChanged(self.now, tuple(closed)))
        self.world.broken.clear()
        for name in list(self.witness.nodes):
            self.tell(NodeChanged(self.now, name, Health.HEALTHY))
        for node in list(self.witness.nodes.values()):
            for number in range(node.gpus):
                self.tell(GpuChanged(self.now, Gpu(node.name, number), GpuState.USABLE))
        for job_id in [job_id for job_id in self.witness.jobs if job_id in self.witness.suspended]:
            self.tell(JobReleased(self.now, job_id))
        self._finish()

    def _serve_all(self) -> bool:
        """Some policies have nothing for some jobs; whether there are any."""
        others = [spec for spec in self.witness.specs if spec.policy not in SERVES_ALL]
        for spec in others:
            self.tell(PolicyChanged(self.now, spec.name, "fifo"))
        return bool(others)

    def _finish(self) -> None:
        if self.setup.survey_seconds == inf:  # then the operator has one made, later than anything was told
            self._advance(self.now + 1.0)
            self.surveyed()
        for turn in range(400):
            if turn == 200:
                self._serve_all()
            for run in list(self.world.runs.values()):  # those that have begun to run end before they may be moved
                if run.is_told_to_stop:
                    self.world.leave(run)
                elif run.phase is Phase.RUNNING:
                    self.world.end(run.key, Ending.FINISHED)
            self.settle()
            if not self._waiting():
                return
            if any(run.phase is Phase.RUNNING and not run.is_told_to_stop for run in self.world.runs.values()):
                continue
            self._call_off()
            wake_at = self.scheduler.next_wakeup_at
            to = min([wake_at, *(run.leaves_at for run in self.world.runs.values())])
            if self.world.runs and to == inf:
                to = self.now + 10.0
            if to == inf:
                if not self._serve_all():
                    break
                to = self.now
            self._advance(max(self.now, to))
        waiting = self._waiting()
        raise Violation(f"every accepted job ends: {waiting} wait, {self.scheduler.why(waiting[0])}")

    def _call_off(self) -> None:
        """The operator gives up changes of nodes that the tenants' cells do not allow: such a node counts as failed."""
        for name in self.witness.pending_nodes():
            self.tell(ClusterChanged(self.now, (self.witness.nodes[name],)))
            self.tell(NodeChanged(self.now, name, Health.HEALTHY))

    def _waiting(self) -> list[str]:
        return [job_id for job_id in self.witness.jobs if self.witness.status[job_id] not in (*FINAL, None)]


STEP_KINDS: dict[str, float] = {
    "submits": 8.0,
    "cancels": 0.7,
    "kills_app": 0.2,
    "holds": 0.6,
    "releases": 0.8,
    "waits": 6.0,
    "wakes": 6.0,
    "ticks": 0.7,
    "runs_end": 3.0,
    "runs_leave": 3.0,
    "runs_report": 2.0,
    "nonsense": 1.5,
    "surveyed": 1.0,
    "comes_again": 1.5,
    "adopted_again": 0.3,
    "bids_late": 0.3,
    "node_changes": 1.5,
    "gpu_changes": 1.2,
    "cluster_changes": 0.8,
    "policy_changes": 1.0,
    "tenants_change": 1.2,
    "beliefs_change": 0.8,
    "other_scheduler_starts": 0.7,
    "stranger_starts": 0.3,
    "impossible_adoption": 0.4,
    "restored": 0.7,
    "followed": 0.4,
    "crashed": 0.15,
    "restarts": 0.4,
    "continues": 0.4,
    "shows_that_it_resumes": 0.5,
    "asked_why": 0.5,
}


# Setups, policies, jobs


def make_setup(random: Random, without: frozenset[str] = frozenset()) -> Setup:
    cluster = make_cluster(random)
    kind = random.choice(("one", "one", "nodes", "cells", "cells", "quota"))
    pools: tuple[PoolSpec, ...]
    if kind == "one" or kind in without:
        pools = (make_pool(random, "all"),)
    elif kind == "nodes":
        nodes = (cluster.nodes[0].name, cluster.nodes[-1].name)
        pools = (make_pool(random, "rest"), make_pool(random, "first", tenants=("t",), nodes=nodes))
    elif kind == "quota":
        quota = {"a": random.choice((2, 4, 8)), "b": random.choice((1, 4))}
        pools = (make_pool(random, "all"), make_pool(random, "first", tenants=("t",), quota=quota))
        if random.random() < 0.5:
            pools += (make_pool(random, "second", tenants=("v",), quota={"a": 4, "b": 4, "c": 1}),)
    else:
        pools = (
            make_pool(random, "first", tenants=("t",), cells=make_cells(random, cluster)),
            make_pool(random, "rest"),
        )
        if random.random() < 0.5:
            pools += (make_pool(random, "second", tenants=("v",), cells=make_cells(random, cluster)),)
    if "spreads" in without:
        pools = tuple(replace(spec, spreads=False) for spec in pools)
    setup = Setup(
        cluster,
        pools,
        seed=random.randrange(100),
        tenant_weights=random.choice(({}, {"t": 3.0})),
        acknowledge_seconds=random.choice((20.0, 30.0)),
        survey_seconds=random.choice((inf, inf, 60.0, 500.0)),
        bid_seconds=random.choice((0.0, 5.0)),
        sharing=SHARING if random.random() < 0.6 else (),
        absent_nodes=(cluster.nodes[0].name,) if random.random() < 0.1 else (),
        static_binding=random.random() < 0.3,
        start_seconds=random.choice((50.0, 1800.0)),
        retention_seconds=random.choice((500.0, 7 * 86_400.0, 7 * 86_400.0)),
    )
    try:
        Scheduler(setup)
    except InputError:  # more cells than there are
        return make_setup(random, without)
    return setup


def make_cluster(random: Random) -> Cluster:
    flat = random.random() < 0.4
    cpus, memory = random.choice((inf, inf, 8.0)), random.choice((inf, inf, 64.0))
    levels = () if flat else (("switch", 2),)
    rack = "" if flat or random.random() < 0.4 else "r"
    a = [
        Node(f"a{i}", "a", 4, cpus, memory, levels, f"{rack}{i // 2}" if rack else "", 2.0)
        for i in range(random.choice((1, 2, 3)))
    ]
    b = [Node(f"b{i}", "b", 2, price_per_hour=1.0) for i in range(random.choice((1, 2, 3)))]
    c = [Node("c0", "c", 1, cpus, price_per_hour=0.5)] if random.random() < 0.3 else []
    return Cluster("test", (*a, *b, *c))


def make_cells(random: Random, cluster: Cluster) -> dict[str, int]:
    chains = layout_of(cluster, {}).territory.chains
    cells = {}
    for chain in random.sample(chains, random.randint(1, len(chains))):
        cells[f"{chain.name}.{random.choice(chain.types)}"] = random.choice((0, 1, 1, 2))
    return cells


def make_policy(random: Random) -> tuple[str, dict[str, object]]:
    if random.random() < 0.5:
        name, options = random.choice(VARIANTS)
        return name, dict(options)
    return random.choice([*registry.POLICIES, *EVALUATION]), {}


def make_pool(random: Random, name: str, **fields: Any) -> PoolSpec:
    policy, options = make_policy(random)
    rules = RoundRules(
        type_order=random.choice(((), (), ("a", "b"), ("b",))),
        reconsider_seconds=random.choice((0.0, 0.0, 100.0)),
        fill=random.random() < 0.3,
        turn_rounds=random.choice((0.0, 1.0, 10.0)),
    )
    return PoolSpec(
        name,
        policy,
        options,
        random.choice(list(Cadence)),
        random.choice((7.0, 10.0, 60.0)),
        rules=rules,
        spreads=random.random() < 0.2,
        admits_between_rounds=random.random() < 0.3,
        **fields,
    )


# Two of "m" fit, as do "m" and "n"; two of "n" do not, and of others nothing is known.
SHARING = tuple(
    Sharing(models, accelerator, gpus, kept)
    for models, kept in ((("m", "m"), (0.6, 0.6)), (("m", "n"), (0.9, 0.4)), (("n", "n"), (0.0, 0.0)))
    for accelerator in ("a", "b", "c")
    for gpus in (1, 2, 3, 4, 8)
)


def make_job(random: Random, name: str, now: float) -> Job:
    shapes = random.choice(SHAPES[:-2] if random.random() < 0.97 else SHAPES)
    pick = random.choice
    return Job(
        id=name,
        submitted_at=now,
        options=tuple(Option(shape, pick((0.5, 1.0, 2.0))) for shape in shapes),
        app=pick(("", "x", "y", "z")),
        tenant=pick(("t", "t", "u", "v")),
        user=pick(("", "one", "two")),
        model=pick(("m", "m", "n", "x", "")),
        weight=pick((1.0, 1.0, 0.5, 4.0)),
        priority=pick((0, 0, 0, 3, -1, -5)),
        steps_total=pick((None, 10.0, 500.0, 500.0, 5000.0)),
        deadline_at=pick((inf, inf, now + 50.0, now + 1000.0, 0.0)),
        restart_seconds=pick((0.0, 0.0, 5.0, 60.0)),
        min_runtime_seconds=pick((0.0, 0.0, 20.0)),
        preemptions_max=pick((inf, inf, 0.0, 1.0, 3.0)),
        grace_seconds=pick((0.0, 0.0, 15.0, 120.0)),
        retries_max=pick((0, 1, 3)),
        member_gpus=pick((1, 1, 1, 2, 3)),
        cpus_per_gpu=pick((0.0, 0.0, 1.0, 3.0)),
        memory_bytes_per_gpu=pick((0.0, 0.0, 0.0, 20.0)),
        later_gpu_seconds=pick((0.0, 0.0, 100.0)),
        later_seconds=pick((0.0, 0.0, 50.0)),
        curve=pick((None, None, Curve(0.01, 0.5, 0.1), Curve(0.0, 1.0, 0.0))),
        bids=random.random() < 0.6,
        lazy=random.random() < 0.3,
    )


# Plain data


def _again(event: Event) -> Event:
    """The event as a log gives it back."""
    kind = type(event)
    plain = json.loads(json.dumps(to_plain(event), allow_nan=False))
    back: Event = from_plain(kind, plain)
    return back


def _effects(text: str) -> Effects:
    effects: Effects = from_plain(Effects, json.loads(text))
    return effects


def _difference(one: Any, other: Any, path: str = "") -> str:
    """Where two plain values differ first."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in dict.fromkeys((*one, *other)):
            if one.get(key) != other.get(key) or list(one) != list(other):
                found = _difference(one.get(key), other.get(key), f"{path}.{key}")
                if found:
                    return found
        return "" if list(one) == list(other) else f"{path}: keys {list(one)} and {list(other)}"
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            found = _difference(left, right, f"{path}[{index}]")
            if found:
                return found
        return ""
    return "" if one == other else f"{path}: {one!r} and {other!r}"


def main() -> None:
    seed, steps = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else STEPS
    log: list[str] = []
    try:
        drive(seed, steps, frozenset(sys.argv[3:]), log)
    finally:
        print("\n".join(log))


if __name__ == "__main__":
    main()
