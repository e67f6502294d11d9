"""Whole runs of Themis: no GPU idles that somebody could use, and what one auction does not promise.

The check is naive and from the outside: which GPUs are free is known from commands and endings, and whether a gang fits
is counted by node, rack and cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from builders import handle
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

from horae.experiments.simulate import Run, simulate
from horae.model.cluster import CLUSTER, NODE, Cluster, Node
from horae.model.commands import Start
from horae.model.events import Ending, Event, JobEnded, JobSubmitted, Tick
from horae.model.jobs import Arrival, Job, Truth
from horae.model.plans import Round
from horae.model.setup import PoolSpec, Setup
from horae.model.shapes import Option, Shape
from horae.scheduler import Reaction, Scheduler

RACK = "rack"
TYPES = Cluster("two types", (Node("n0", "V100", 1), Node("n1", "K80", 1)))
FEW_CPUS = Cluster("few CPUs", (Node("n0", "V100", 2, cpus=2.0),))
ONE, FOUR = (Cluster(f"{gpus} GPUs", (Node("n0", "V100", gpus),)) for gpus in (1, 4))
SLOWDOWN = {NODE: 1.0, RACK: 1.3, CLUSTER: 2.0}


@dataclass
class Onlooker:
    """Looks whenever time moves on: by then everybody has said and done what there was to say and do."""

    cluster: Cluster
    now: float = 0.0
    waiting: dict[str, Job] = field(default_factory=dict)
    known: dict[str, Job] = field(default_factory=dict)
    busy: dict[int, tuple[int, ...]] = field(default_factory=dict)  # by epoch: GPUs
    held: dict[str, tuple[int, ...]] = field(default_factory=dict)  # by job that others make room for: GPUs
    idle: list[str] = field(default_factory=list)  # what went wrong
    rounds: list[Round] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)

    def reacted(self, event: Event, reaction: Reaction) -> None:
        if event.at > self.now:
            self.look()
            self.now = event.at
        match event:
            case JobSubmitted():
                self.known[event.job.id] = self.waiting[event.job.id] = event.job
            case JobEnded():
                self.busy.pop(event.epoch)
                if event.ending is Ending.STOPPED and event.job_id not in self.held:
                    self.waiting[event.job_id] = self.known[event.job_id]
        for round_ in reaction.rounds:
            self.rounds.append(round_)
            name = dict(zip(round_.serials.tolist(), round_.job_ids, strict=True))
            for placement in round_.plan.placements:
                self.held[name[placement.serial]] = tuple(placement.gpus.tolist())
                self.waiting.pop(name[placement.serial], None)
        for command in reaction.commands:
            if isinstance(command, Start):
                self.busy[command.epoch] = tuple(self.cluster.positions(command.gpus).tolist())
                del self.held[command.job_ids[0]]

    def look(self) -> None:
        taken = {gpu for gpus in (*self.busy.values(), *self.held.values()) for gpu in gpus}
        self.idle += [
            f"{job.id} waits at {self.now} though {option.shape} is free"
            for job in self.waiting.values()
            if job.id not in self.refused
            for option in job.options
            if fits(self.cluster, taken, option.shape)
        ]


def fits(cluster: Cluster, taken: set[int], shape: Shape) -> bool:
    """By counting: whether one cell of the level has so many free GPUs of the type."""
    free: dict[str, int] = {}
    for number, node in enumerate(cluster.nodes):
        if node.accelerator == shape.accelerator:
            cell = {NODE: f"node {number}", RACK: f"rack {node.rack or number}", CLUSTER: "all"}[shape.level]
            gpus = cluster.gpus_of_node(node.name)
            free[cell] = free.get(cell, 0) + len(set(range(gpus.start, gpus.stop)) - taken)
    return max(free.values(), default=0) >= shape.gpus


def watched(setup: Setup, arrivals: Iterable[Arrival]) -> tuple[Run, Onlooker]:
    """What can never fit is not waited for."""
    ordered = sorted(arrivals, key=lambda each: each.job.submitted_at)
    onlooker = Onlooker(setup.cluster)
    for arrival in ordered:
        if not any(fits(setup.cluster, set(), option.shape) for option in arrival.job.options):
            onlooker.refused.add(arrival.job.id)
    run = simulate(setup, ordered, observers=[onlooker])
    onlooker.look()
    assert set(run.refused) == onlooker.refused
    return run, onlooker


def leases_of(run: Run) -> dict[str, list[tuple[float, float]]]:
    """By job: when each of its leases began and ended."""
    found: dict[str, list[tuple[float, float]]] = {}
    leases, jobs = run.log.leases, run.log.jobs
    for row, start, end in zip(leases.job.tolist(), leases.started_at.tolist(), leases.ended_at.tolist(), strict=True):
        found.setdefault(jobs.id[row], []).append((start, end))
    return {name: sorted(each) for name, each in found.items()}


def arrival(
    id: str,
    at: float,
    gpus: int,
    seconds: float,
    levels: tuple[str, ...] = (NODE,),
    accelerators: tuple[str, ...] = ("V100",),
    app: str = "",
    knows: bool = True,
    leaving_seconds: float = 0.0,
    **fields: float,
) -> Arrival:
    options = tuple(
        Option(Shape(name, gpus, level), 1.0 / SLOWDOWN[level] / (1 + accelerators.index(name)))
        for name in accelerators
        for level in levels
    )
    steps = seconds if knows else None
    job = Job(id, at, options, app=app, steps_total=steps, grace_seconds=leaving_seconds, **fields)  # type: ignore[arg-type]
    return Arrival(job, Truth(seconds, options, leaving_seconds=leaving_seconds))


def themis(cluster: Cluster, **options: object) -> Setup:
    return Setup(cluster, (PoolSpec("all", "themis", options),))


# Work conservation


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Two to six nodes of several sizes, some of other types, in racks or not."""
    types = st.sampled_from(["V100", "V100", "V100", "K80", "P100"])
    node = st.tuples(st.sampled_from([1, 2, 4, 8]), types, st.integers(0, 1))
    nodes = draw(st.lists(node, min_size=2, max_size=6))
    return Cluster(
        "small",
        tuple(
            Node(f"n{number}", accelerator, gpus, rack=f"{accelerator}-{rack}")
            for number, (gpus, accelerator, rack) in enumerate(nodes)
        ),
    )


@st.composite
def workloads(draw: st.DrawFn) -> list[Arrival]:
    levels = st.sampled_from([(NODE,), (NODE, RACK), (NODE, RACK, CLUSTER), (RACK, CLUSTER), (CLUSTER,)])
    accelerators = st.sampled_from([("V100",), ("V100",), ("V100", "K80"), ("V100", "P100", "K80"), ("K80",)])
    row = st.tuples(
        st.sampled_from([0.0, 0.0, 100.0, 500.0, 1300.0]),
        st.sampled_from([1, 1, 2, 3, 4, 8]),
        st.sampled_from([10.0, 600.0, 1800.0, 4000.0]),
        levels,
        accelerators,
        st.sampled_from(["", "", "x", "y", "z"]),
        st.booleans(),
    )
    restart_seconds = draw(st.sampled_from([0.0, 45.0]))
    return [
        arrival(f"j{number}", *fields, restart_seconds=restart_seconds)
        for number, fields in enumerate(draw(st.lists(row, min_size=2, max_size=14)))
    ]


OPTIONS = st.fixed_dictionaries(
    {
        "f": st.sampled_from([0.0, 0.5, 0.8, 1.0]),
        "lease_seconds": st.sampled_from([300.0, 1200.0]),
        "payments": st.sampled_from([True, True, False]),
        "aim": st.sampled_from(["paper", "private", "chain"]),
        "to_the_end": st.booleans(),
        "by_tenant": st.booleans(),
    }
)


@examples(quick=40, nightly=300)
@given(clusters(), workloads(), OPTIONS)
def test_no_gpu_idles_that_a_waiting_gang_could_use(
    cluster: Cluster, arrivals: list[Arrival], options: dict[str, object]
) -> None:
    run, onlooker = watched(themis(cluster, **options), arrivals)
    assert not onlooker.idle
    assert not run.unfinished


def test_one_that_must_leave_its_gpu_goes_on_elsewhere_at_once() -> None:
    """It accepts the other type too; the one for whom it leaves does not. Nobody knows how long they are."""
    jobs = [arrival("a", 0.0, 1, 600.0, accelerators=("V100", "K80"), knows=False)]
    jobs.append(arrival("b", 100.0, 1, 10.0, knows=False))
    run, onlooker = watched(themis(TYPES, f=0.0, lease_seconds=300.0), jobs)
    assert not onlooker.idle
    assert leases_of(run) == {"a": [(0.0, 300.0), (300.0, 900.0)], "b": [(300.0, 310.0)]}


@pytest.mark.parametrize("policy", ["themis", "srtf"])
def test_no_gpu_idles_for_one_that_comes_while_another_is_leaving(policy: str) -> None:
    """Four GPUs: the first job leaves them for a gang of two, and takes 10 s. The other two are free at 110 s."""
    lease = {"f": 0.0, "lease_seconds": 50.0} if policy == "themis" else {}
    setup = Setup(FOUR, (PoolSpec("all", policy, lease),))
    jobs = [arrival("a", 0.0, 4, 9000.0, leaving_seconds=10.0), arrival("b", 100.0, 2, 300.0)]
    _, onlooker = watched(setup, [*jobs, arrival("c", 105.0, 2, 200.0)])
    assert not onlooker.idle


# Leases


def test_a_lease_ends_in_time_though_others_had_to_leave_before_it_began() -> None:
    run, _ = watched(
        themis(ONE, f=0.8, lease_seconds=500.0),
        [arrival("a", 0.0, 1, 3000.0), arrival("b", 0.0, 1, 3000.0)],
    )
    assert leases_of(run)["b"][0] == (500.0, 1000.0)


@pytest.mark.parametrize("cluster", [TYPES, FEW_CPUS], ids=["two types", "few CPUs"])
def test_nobody_is_kept_from_offers_for_a_gang_that_it_did_not_get(cluster: Cluster) -> None:
    """Two GPUs, of which only one can be used by three jobs that are alike: two of them win and pay, one runs."""
    jobs = [arrival(name, 0.0, 1, 3000.0, cpus_per_gpu=2.0) for name in "abc"]
    scheduler = Scheduler(themis(cluster, f=0.0))
    for each in jobs:
        handle(scheduler, JobSubmitted(0.0, each.job))
    reaction = handle(scheduler, Tick(0.0))
    closed = scheduler.pools.all[0].apps.columns().closed_until > 0
    assert len(reaction.commands) == 1
    assert closed.sum() <= 1


# Who is worst off


@pytest.mark.parametrize(
    "jobs",
    [
        1,
        2,
    ],
)
def test_a_small_app_that_is_worst_off_has_a_gpu_when_the_first_lease_ends(jobs: int) -> None:
    """A large app has all four GPUs, and its leases end one after the other: at 1200 s, 1500 s, ..."""
    large = [arrival(f"y{number}", min(300.0 * number, 900.0), 1, 9000.0, app="y") for number in range(12)]
    small = [arrival(f"x{number}", 1000.0, 1, 1000.0, app="x") for number in range(jobs)]
    run, _ = watched(themis(FOUR), [*large, *small])
    assert min(leases_of(run)[f"x{number}"][0][0] for number in range(jobs)) == 1200.0


def test_a_gang_that_fits_one_node_only_has_it_when_a_lease_there_ends() -> None:
    """The long job on that node could go on across the two others, more slowly."""
    cluster = Cluster("three", (Node("n0", "V100", 2), Node("n1", "V100", 1), Node("n2", "V100", 1)))
    jobs = [arrival("long", 0.0, 2, 9000.0, (NODE, CLUSTER)), arrival("short", 10.0, 2, 100.0)]
    run, _ = watched(themis(cluster, f=0.0, lease_seconds=300.0), jobs)
    assert leases_of(run)["short"][0][0] < 3000.0


def test_a_job_that_takes_longer_than_believed_gets_its_turn_again() -> None:
    """One GPU. It believes in 100 s and takes 3000: after its lease the other has 50000 s before it, or one lease."""
    options = (Option(Shape("V100", 1, NODE), 1.0),)
    late = Arrival(Job("late", 0.0, options, steps_total=100.0), Truth(3000.0, options))
    run, _ = watched(themis(ONE), [late, arrival("other", 10.0, 1, 50_000.0)])
    assert leases_of(run)["late"][-1][0] < 10_000.0


def test_an_app_that_runs_longer_than_it_said_is_due_what_that_takes() -> None:
    """One of 1000 s that takes 9000 would be worst off for ever after; found out, it takes turns with the other."""
    options = (Option(Shape("V100", 1, NODE), 1.0),)
    understated = Arrival(Job("said", 0.0, options, steps_total=1000.0), Truth(9000.0, options))
    run, _ = watched(themis(ONE, f=1.0, lease_seconds=1200.0), [understated, arrival("other", 0.0, 1, 9000.0)])
    ended = {name: leases[-1][1] for name, leases in leases_of(run).items()}
    assert ended["other"] < ended["said"] + 4 * 1200.0
