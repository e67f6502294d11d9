"""Themis where there are several GPU types: bids go by the levels that gangs would get, and say what is granted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pytest
from builders import handle
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from witness import Witness

from horae.driver import run
from horae.engines.simulated import SimulatedEngine
from horae.model.arrays import Ints
from horae.model.cluster import NODE, Cluster, Node
from horae.model.commands import Start
from horae.model.decisions import Grants
from horae.model.events import Event, JobStarted, JobSubmitted, Tick
from horae.model.jobs import Arrival, Job, Truth
from horae.model.plans import Reaction
from horae.model.setup import PoolSpec, Setup
from horae.model.shapes import Option, Shape
from horae.model.view import View
from horae.policies import registry
from horae.policies.example_views import cases
from horae.policies.themis import policy as module
from horae.policies.themis import valuation
from horae.policies.themis.bundles import ladder, outlook, values
from horae.policies.themis.policy import Themis
from horae.policies.themis.trial_levels import fastest, revalued
from horae.policies.themis.valuation import KEEPS, RENEWS, WAITS, AuctionTerms
from horae.reports.recorder import Recorder
from horae.reports.run_log import RunLog
from horae.scheduler import Scheduler
from horae.solvers.auction.multi_type import BundleBid, TypesOutcome, settle_types

RACK = "rack"
# Two fast nodes of 6 GPUs in a rack, and a slow one of 4.
CLUSTER_OF_TWO = Cluster(
    "two types",
    (Node("f0", "fast", 6, rack="r"), Node("f1", "fast", 6, rack="r"), Node("s0", "slow", 4, rack="s")),
)
FULL = 4  # GPUs of each fast node that somebody keeps


def arrival(id: str, at: float, gpus: int, seconds: float, app: str = "", **speeds: float) -> Arrival:
    """`fast_node=1.0`: its speed in such a shape."""
    options = tuple(
        Option(Shape(name.split("_")[0], gpus, name.split("_")[1]), speed) for name, speed in speeds.items()
    )
    return Arrival(Job(id, at, options, app=app, steps_total=seconds), Truth(seconds, options))


def started(*later: Arrival) -> dict[str, Shape]:
    """Who starts at 10 s and where, when on each of the fast nodes a gang of 4 has begun a lease of 1200 s at 0 s."""
    scheduler = Scheduler(Setup(CLUSTER_OF_TWO, (PoolSpec("all", "themis", {"f": 0.0}),)))
    before = [arrival(id, 0.0, FULL, 9000.0, fast_node=1.0) for id in ("b", "c")]
    for at, arrivals in ((0.0, before), (10.0, later)):
        for each in arrivals:
            handle(scheduler, JobSubmitted(at, each.job))
        starts = [each for each in handle(scheduler, Tick(at)).commands if isinstance(each, Start)]
        for start in starts:
            handle(scheduler, JobStarted(at, start.job_ids[0], start.epoch))
    return {start.job_ids[0]: start.shape for start in starts}


@pytest.mark.parametrize(("across", "goes_to"), [(0.3, ("slow", NODE)), (0.6, ("fast", RACK))])
def test_a_gang_that_misses_its_level_has_the_type_that_is_faster_then(across: float, goes_to: tuple[str, str]) -> None:
    """It would be twice as fast in a fast node, but only 2 GPUs of each are free: in the rack, or on the slow node."""
    shapes = started(arrival("a", 10.0, 4, 3000.0, fast_node=1.0, fast_rack=across, slow_node=0.5))
    assert {id: (shape.accelerator, shape.level) for id, shape in shapes.items()} == {"a": goes_to}


def test_who_misses_its_level_may_lose_to_another() -> None:
    """Four apps share 12 fast GPUs, 3 for each. Both newcomers want the 4 that are free, for a lease of 1200 s.

    In one node, "a" would have 1200 + (6000 - 4800) / 3 = 1600 s to go instead of 3200, half. "d" would have
    1200 + (8000 - 4800) / 3 = 2267 s instead of 3867, 0.59. So "a" wins; but across nodes it does a tenth, and would
    have 1200 + (6000 - 480) / 3 = 3040 s, 0.95: "d" wins, whose gangs of 2 fit in the nodes.
    """
    rival = [arrival(f"d{number}", 10.0, 2, 2000.0, app="d", fast_node=1.0) for number in range(2)]
    shapes = started(arrival("a", 10.0, 4, 1500.0, fast_node=1.0, fast_rack=0.1), *rival)
    assert shapes == {each.job.id: Shape("fast", 2, NODE) for each in rival}


def test_who_gets_its_level_wins_that_auction() -> None:
    """As above, but nothing is lost across nodes."""
    rival = [arrival(f"d{number}", 10.0, 2, 2000.0, app="d", fast_node=1.0) for number in range(2)]
    shapes = started(arrival("a", 10.0, 4, 1500.0, fast_rack=1.0), *rival)
    assert shapes == {"a": Shape("fast", 4, RACK)}


def test_a_level_that_no_empty_pool_has_is_not_assumed() -> None:
    """No fast node has 8 GPUs: at once it counts on the rack."""
    job = arrival("a", 0.0, 8, 3000.0, fast_node=1.0, fast_rack=0.4, slow_cluster=0.5).job
    view = view_of(CLUSTER_OF_TWO, [job])
    option = fastest(view, valuation.open_books(view, AuctionTerms(1200.0)))
    assert option.tolist() == [[1, -1]]  # nor has the slow type so many


def test_another_auction_is_held_only_if_what_was_won_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []

    def counted(bids: Sequence[BundleBid], offer: Ints) -> TypesOutcome:
        held.append(len(bids))
        return settle_types(bids, offer)

    monkeypatch.setattr(module, "settle_types", counted)
    for across, auctions in ((0.3, 2), (0.999, 1)):
        held.clear()
        started(arrival("a", 10.0, 4, 3000.0, fast_node=1.0, fast_rack=across, slow_node=0.5))
        assert len(held) - 1 == auctions  # one was held for those who were there before


# What is bid is what is granted


def view_of(cluster: Cluster, jobs: list[Job]) -> View:
    """What a policy is shown when these jobs have come."""
    scheduler = Scheduler(Setup(cluster, (PoolSpec("all", "themis"),)))
    for job in jobs:
        handle(scheduler, JobSubmitted(0.0, job))
    return scheduler._view(scheduler.pools.all[0], np.ones(cluster.gpu_count, dtype=bool))


def check_bids(view: View, terms: AuctionTerms) -> None:
    """Of every app: some bundles have the GPUs and the value of the rows that would be granted."""
    books = valuation.open_books(view, terms)
    seen = outlook(view, books, terms, fastest(view, books))
    for app, (low, high) in enumerate(pairwise(books.first.tolist())):
        own = ladder(books, terms, seen, app)
        assert not own.bid.gpus[0].any()
        assert (own.bid.value >= own.bid.value[0]).all()
        for bundle in range(0, len(own.jobs), 1 + len(own.jobs) // 5):
            kind = np.where(books.standing == KEEPS, seen.home, -1)
            gpus = np.zeros(len(view.accelerators), dtype=np.int64)
            for row, number in own.rows(bundle):
                assert low <= row < high and books.standing[row] in (RENEWS, WAITS)
                assert seen.pace[row, number] > 0
                assert books.standing[row] == WAITS or number == seen.home[row]
                kind[row] = number
                gpus[number] += seen.gpus[row, number]
            assert gpus.tolist() == own.bid.gpus[bundle].tolist()
            assert values(books, terms, seen, kind)[app] == pytest.approx(own.bid.value[bundle], abs=1e-9)


@pytest.mark.parametrize("to_the_end", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_bundles_have_the_gpus_and_the_value_of_the_rows_that_are_granted(seed: int, to_the_end: bool) -> None:
    for case in cases(seed):
        if case.jobs:
            check_bids(case.view(), AuctionTerms(1200.0, to_the_end=to_the_end))


@pytest.mark.parametrize("to_the_end", [False, True])
@pytest.mark.parametrize("longest", [500.0, 5000.0])
def test_with_one_type_a_bundle_is_worth_what_a_bid_for_so_many_gpus_is(longest: float, to_the_end: bool) -> None:
    """With 500 s, the whole app ends within the lease: then its own end counts, not that of the lease."""
    jobs = [arrival(f"j{n}", 0.0, 1 + n, longest / (1 + n), app="x", fast_node=1.0, fast_rack=0.5) for n in range(5)]
    view, terms = view_of(CLUSTER_OF_TWO, [each.job for each in jobs]), AuctionTerms(1200.0, to_the_end=to_the_end)
    books = valuation.open_books(view, terms)
    seen = valuation.prospects(view, books, terms, valuation.option_of(view, books))
    table = valuation.bid(books, seen, terms, np.array([0]))[0].of(0)
    own = ladder(books, terms, outlook(view, books, terms, fastest(view, books)), 0)
    count = own.jobs.sum(axis=1)
    assert count.tolist() == [0, 1, 2, 4, 5]
    assert own.bid.gpus.sum(axis=1).tolist() == table.gpus[count].tolist()
    assert own.bid.value == pytest.approx(table.value[count])


def test_a_job_that_does_not_accept_a_type_lets_another_have_it() -> None:
    """The longest accepts slow GPUs only: a bundle of one fast job is the other's."""
    long, short = arrival("long", 0.0, 2, 3000.0, "x", slow_node=1.0), arrival("short", 0.0, 1, 900.0, "x", fast_node=1)
    view, terms = view_of(CLUSTER_OF_TWO, [long.job, short.job]), AuctionTerms(1200.0)
    books = valuation.open_books(view, terms)
    own = ladder(books, terms, outlook(view, books, terms, fastest(view, books)), 0)
    fast, slow = (view.accelerators.index(name) for name in ("fast", "slow"))
    served = {tuple(count): own.rows(bundle) for bundle, count in enumerate(own.jobs[:, [fast, slow]].tolist())}
    assert served[1, 0] == [(1, fast)]
    assert served[1, 1] == [(0, slow), (1, fast)]


# Whole runs


@dataclass
class Judge:
    """Sees that every start is lawful: GPUs that are free, of one type, in a cell of the level."""

    scheduler: Scheduler
    witness: Witness

    def reacted(self, event: Event, reaction: Reaction) -> None:
        self.witness.judge(event, reaction, self.scheduler)


@dataclass(frozen=True)
class Checked:
    """Themis, whose bids are looked at in every auction."""

    name: ClassVar[str] = "checked"
    f: float = 0.8
    lease_seconds: float = 1200.0

    def decide(self, view: View) -> Grants:
        if len(view.jobs):
            check_bids(view, AuctionTerms(self.lease_seconds))
        return Themis(f=self.f, lease_seconds=self.lease_seconds).decide(view)


@pytest.fixture(autouse=True)
def _checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._LOADED, Checked.name, Checked)


def simulated(setup: Setup, arrivals: list[Arrival]) -> RunLog:
    recorder, scheduler = Recorder(setup), Scheduler(setup)
    ordered = recorder.expecting(sorted(arrivals, key=lambda each: each.job.submitted_at))
    run(scheduler, SimulatedEngine(setup.cluster, ordered), [recorder, Judge(scheduler, Witness(setup))], strict=True)
    return recorder.log({})


TYPES = ("fast", "middle", "slow")


@st.composite
def pools(draw: st.DrawFn) -> tuple[Cluster, list[Arrival]]:
    """Three types in racks; jobs that lose more across nodes than on the next slower type, or less."""
    sizes = st.lists(st.sampled_from([2, 4, 4]), min_size=1, max_size=3)
    nodes = [
        Node(f"{name}{number}", name, gpus, rack=f"{name}-{number // 2}")
        for name in TYPES
        for number, gpus in enumerate(draw(sizes))
    ]
    row = st.tuples(
        st.sampled_from([0.0, 0.0, 200.0, 700.0]),
        st.sampled_from([1, 2, 2, 4]),
        st.sampled_from([300.0, 2000.0, 5000.0]),
        st.sampled_from([1.1, 3.0]),  # how much slower across nodes
        st.sampled_from(["", "x", "y"]),
        st.sampled_from([TYPES, TYPES, TYPES[:2], TYPES[2:]]),
    )
    arrivals = []
    for number, (at, gpus, seconds, slower, app, types) in enumerate(draw(st.lists(row, min_size=3, max_size=12))):
        speeds: dict[str, Any] = {}
        for name in types:
            fastest_here = 1.0 / (1 + TYPES.index(name))
            speeds |= {f"{name}_node": fastest_here, f"{name}_rack": fastest_here / slower}
            speeds[f"{name}_cluster"] = fastest_here / slower**2
        arrivals.append(arrival(f"j{number}", at, gpus, seconds, app, **speeds))
    return Cluster("three types", tuple(nodes)), arrivals


@examples(quick=8, nightly=50)
@given(pools(), st.sampled_from([0.0, 0.8]), st.sampled_from([300.0, 1200.0]))
def test_whole_runs_keep_the_rules_and_bid_what_they_are_granted(
    pool: tuple[Cluster, list[Arrival]], f: float, lease_seconds: float
) -> None:
    cluster, arrivals = pool
    log = simulated(Setup(cluster, (PoolSpec("all", "checked", {"f": f, "lease_seconds": lease_seconds}),)), arrivals)
    gpus = {name: sum(node.gpus for node in cluster.nodes if node.accelerator == name) for name in TYPES}
    for each in arrivals:
        if any(option.shape.gpus <= gpus[option.shape.accelerator] for option in each.job.options):
            assert np.isfinite(log.jobs.ended_at[log.jobs.id.index(each.job.id)])


def crowd() -> tuple[Cluster, list[Arrival]]:
    """36 GPUs in small nodes, and 30 jobs of 10 apps that lose much across nodes."""
    nodes = (Node(f"{name}{n}", name, gpus, rack=name) for name in TYPES for n, gpus in enumerate((4, 4, 2, 2)))
    random = np.random.default_rng(3)
    arrivals = []
    for number in range(30):
        speeds = {f"{t}_{level}": 1 / (1 + i) / slow for i, t in enumerate(TYPES) for level, slow in SLOWER.items()}
        gpus, at = int(random.choice([1, 2, 4])), float(random.integers(0, 20) * 100)
        arrivals.append(arrival(f"j{number}", at, gpus, float(random.uniform(500, 6000)), f"x{number % 10}", **speeds))
    return Cluster("three types", tuple(nodes)), arrivals


SLOWER = {NODE: 1.0, RACK: 3.0}


def test_a_run_with_auctions_held_again_is_the_same_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    again: list[bool] = []

    def counted(*arguments: Any) -> Ints:
        option = revalued(*arguments)
        again.append(bool((option != arguments[5]).any()))
        return option

    monkeypatch.setattr(module, "revalued", counted)
    cluster, arrivals = crowd()
    setup = Setup(cluster, (PoolSpec("all", "themis", {"lease_seconds": 600.0}),))
    logs = [simulated(setup, each) for each in (arrivals, arrivals[::-1])]
    assert any(again)
    first, second = (dict(zip(log.jobs.id, log.jobs.ended_at.tolist(), strict=True)) for log in logs)
    assert first == second and np.isfinite(list(first.values())).all()
