"""The metrics of a run's log are those of a bookkeeper who watched the run and works them out with plain loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf, isclose, isnan
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from builders import arrival, cluster, job
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles.bookkeeper import Bookkeeper, Numbers
from profiles import examples
from world import AnyPairs

from horae.driver import run
from horae.engines.simulated import SimulatedEngine
from horae.experiments.simulate import simulate
from horae.model.cluster import Cluster, Node
from horae.model.errors import PolicyError
from horae.model.events import Event, Health, JobCancelled, JobSubmitted, NodeChanged
from horae.model.jobs import Arrival, Job, Truth
from horae.model.reasons import Refusal
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.model.shapes import Option, Shape
from horae.model.speeds import Sharing
from horae.policies import POLICIES, registry
from horae.reports.bounds import bounds
from horae.reports.metrics import measure
from horae.reports.recorder import Recorder
from horae.reports.run_log import RunLog
from horae.scheduler import Reaction, Scheduler

KINDS = ("A100", "V100", "K80")
TENANTS = ("red", "green", "blue")
LAST = 200  # seconds: the last submission
LONG_AFTER = 50.0 * LAST  # whoever has not ended by then never will
ROUNDING = 1 + 1e-9


@pytest.fixture(autouse=True, scope="module")
def _any_pairs() -> Iterator[None]:
    """The policy that pairs at random is known by its name, as if another package had brought it."""
    registry._LOADED[AnyPairs.name] = AnyPairs
    yield
    del registry._LOADED[AnyPairs.name]


class Enough(Exception):
    """The run is looked at before its end."""


class Watch:
    """An observer who has seen enough at a certain time."""

    def __init__(self, until: float) -> None:
        self.until = until

    def reacted(self, event: Event, reaction: Reaction) -> None:
        if event.at >= self.until:
            raise Enough


@dataclass(frozen=True)
class Workload:
    setup: Setup
    arrivals: list[Arrival]
    outside: list[Event]
    checkpoint_seconds: float
    until: float

    def run(self) -> tuple[RunLog, Numbers]:
        """The log, and what the bookkeeper makes of the same run: to its end, or so far."""
        recorder, bookkeeper = Recorder(self.setup), Bookkeeper(self.setup, self.arrivals)
        scheduler = Scheduler(self.setup)
        arriving = recorder.expecting(self.arrivals)
        engine = SimulatedEngine(
            self.setup.cluster, arriving, self.outside, self.checkpoint_seconds, self.setup.sharing
        )
        try:
            run(scheduler, engine, (recorder, bookkeeper, Watch(self.until)), strict=True)
        except Enough:
            pass
        except PolicyError as error:
            assume("steps per dollar cannot be compared" not in str(error))  # some types have a price, others none
            raise
        refused = [job_id for job_id in recorder.live if isinstance(scheduler.why(job_id), Refusal)]
        return recorder.log(refused), bookkeeper.metrics(refused)


times = st.integers(0, LAST) | st.sampled_from([0, 30, 60, 100])
speeds = st.sampled_from([0.5, 1.0, 2.0]) | st.floats(0.3, 3.0)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    kinds = KINDS[: draw(st.integers(1, 3))]
    nodes = draw(clusters(kinds))
    arrivals = [draw(arrivals_named(f"job-{index}", kinds)) for index in range(draw(st.integers(1, 10)))]
    names = [arrival.job.id for arrival in arrivals]
    events = draw(st.lists(outside_events(names, [node.name for node in nodes]), max_size=6))
    return Workload(
        Setup(Cluster("lab", nodes), draw(pools(nodes)), seed=draw(st.integers(0, 3)), sharing=draw(sharing(kinds))),
        sorted(arrivals, key=lambda arrival: arrival.job.submitted_at),
        [event for pair in events for event in pair],
        draw(st.sampled_from([0.0, 0.0, 20.0])),
        draw(st.just(LONG_AFTER) | st.integers(1, 2 * LAST).map(float)),
    )


def sharing(kinds: Sequence[str]) -> st.SearchStrategy[tuple[Sharing, ...]]:
    """What two of one model keep, and two of different ones; nothing is known of a job without a model."""
    kept = st.sampled_from([(0.6, 0.6), (1.0, 1.0), (0.9, 0.3), (1.1, 0.7), (0.0, 0.0)])
    rows = [
        st.builds(Sharing, st.just(models), st.just(kind), st.just(gpus), kept)
        for models in (("m", "m"), ("m", "n"))
        for kind in kinds
        for gpus in (1, 2, 3, 4)
    ]
    return st.just(()) | st.tuples(*rows)


@st.composite
def clusters(draw: st.DrawFn, kinds: Sequence[str]) -> tuple[Node, ...]:
    return tuple(
        Node(
            f"{kind}-{index}",
            kind,
            draw(st.sampled_from([1, 2, 3, 4])),
            rack=draw(st.sampled_from(["", "r0"])),
            price_per_hour=draw(st.sampled_from([0.0, 0.5, 2.0])),
        )
        for kind in kinds
        for index in range(draw(st.integers(1, 2)))
    )


@st.composite
def pools(draw: st.DrawFn, nodes: Sequence[Node]) -> tuple[PoolSpec, ...]:
    """One for all, or one with a node and a tenant of its own beside one for the others, or for one of the others."""
    if len(nodes) == 1 or draw(st.booleans()):
        return (draw(pool("all")),)
    own = draw(st.integers(1, len(nodes) - 1))
    names = [node.name for node in nodes]
    rest = draw(st.sampled_from([(), ("green",)]))
    return draw(pool("own", ("red",), tuple(names[:own]))), draw(pool("open", rest))


def pool(name: str, tenants: tuple[str, ...] = (), nodes: tuple[str, ...] = ()) -> st.SearchStrategy[PoolSpec]:
    return st.builds(
        lambda policy, cadence: PoolSpec(name, policy, {}, cadence, 30.0, tenants, nodes),
        st.sampled_from(list(POLICIES)) | st.sampled_from(["gandiva", AnyPairs.name]),
        st.sampled_from(list(Cadence)),
    )


@st.composite
def arrivals_named(draw: st.DrawFn, id: str, kinds: Sequence[str]) -> Arrival:
    """Several shapes; what is believed and what is true; some fail, once or for good."""
    shape = st.builds(
        Shape, st.sampled_from(kinds), st.sampled_from([1, 2, 2, 3, 4]), st.sampled_from(["node", "cluster"])
    )
    shapes = draw(st.lists(shape, min_size=1, max_size=3, unique=True))
    believed = tuple(Option(shape, draw(speeds)) for shape in shapes)
    true = tuple(Option(shape, draw(speeds)) for shape in shapes) if draw(st.booleans()) else believed
    steps = draw(st.sampled_from([10.0, 60.0, 100.0]) | st.floats(1.0, 200.0))
    submitted_at = draw(times)
    submitted = Job(
        id,
        float(submitted_at),
        believed,
        app=draw(st.sampled_from(["", "", "sweep", "search"])),
        tenant=draw(st.sampled_from(TENANTS)),
        user=draw(st.sampled_from(["", "ada", "bob"])),
        model=draw(st.sampled_from(["m", "m", "n", ""])),
        steps_total=draw(st.sampled_from([steps, 2 * steps, None])),
        deadline_at=draw(st.sampled_from([inf, submitted_at + 100.0, submitted_at + 300.0])),
        restart_seconds=draw(st.sampled_from([0.0, 5.0, 20.0])),
        retries_max=draw(st.sampled_from([0, 1])),
    )
    return Arrival(submitted, Truth(steps, true, draw(st.sampled_from([inf, inf, inf, steps / 2]))))


def outside_events(jobs: Sequence[str], nodes: Sequence[str]) -> st.SearchStrategy[tuple[Event, ...]]:
    """A cancellation, a drain, or a failure that is repaired later or never."""
    at = st.integers(0, 3 * LAST).map(float)
    health = st.sampled_from([Health.FAILED, Health.DRAINING])
    return st.one_of(
        st.builds(lambda at, job: (JobCancelled(at, job),), at, st.sampled_from(list(jobs))),
        st.builds(_out_of_order, at, st.sampled_from(list(nodes)), health, st.sampled_from([0.0, 50.0, 50.0, inf])),
    )


def _out_of_order(at: float, node: str, health: Health, seconds: float) -> tuple[Event, ...]:
    broken = NodeChanged(at, node, health)
    return (broken,) if seconds == inf else (broken, NodeChanged(at + seconds, node, Health.HEALTHY))


def differences(measured: Mapping[str, Any], reckoned: Numbers, where: str = "") -> Iterator[str]:
    """What is not the same in both, but for rounding."""
    for name in measured.keys() | reckoned.keys():
        ours, theirs = measured.get(name), reckoned.get(name)
        if isinstance(ours, Mapping) and isinstance(theirs, dict):
            yield from differences(ours, theirs, f"{where}{name}.")
        elif not isinstance(ours, int | float) or not isinstance(theirs, int | float) or not _same(ours, theirs):
            yield f"{where}{name}: measured {ours}, reckoned {theirs}"


def _same(ours: float, theirs: float) -> bool:
    return isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-9) or (isnan(ours) and isnan(theirs))


def reloaded(log: RunLog) -> RunLog:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "log.npz"
        log.save(path)
        return RunLog.load(path)


@given(workloads())
@examples(quick=40, nightly=120)
def test_every_metric_is_what_the_bookkeeper_reckons(workload: Workload) -> None:
    log, reckoned = workload.run()
    assert list(differences(asdict(measure(log)), reckoned)) == []


@given(workloads())
@examples(quick=10, nightly=25)
def test_a_log_that_was_saved_and_loaded_has_the_same_metrics_and_bounds(workload: Workload) -> None:
    log, _ = workload.run()
    again = reloaded(log)
    assert repr(measure(again)) == repr(measure(log))
    assert repr(bounds(again)) == repr(bounds(log))


@given(workloads())
@examples(quick=25, nightly=60)
def test_no_run_beats_the_bounds_on_the_jobs_that_finished(workload: Workload) -> None:
    log, _ = workload.run()
    measured, least = measure(log), bounds(log)
    if measured.finished:
        assert 0 <= least.completion_mean_seconds <= measured.completion_mean_seconds * ROUNDING
        assert 0 <= least.makespan_seconds <= measured.makespan_seconds * ROUNDING
    else:
        assert isnan(least.completion_mean_seconds) and isnan(least.makespan_seconds)


def test_a_little_work_late_in_a_long_run_does_not_raise_the_bound_by_rounding() -> None:
    # The work is a thousandth of a second of the whole pool, and a time that late is rounded to some 1e-8 seconds.
    late = [arrival("first", seconds=1), arrival("late", 1e8, seconds=1)]
    log = simulate(Setup(cluster(1, 1000), (PoolSpec("all"),)), late).log
    assert bounds(log).completion_mean_seconds == pytest.approx(1.0, rel=1e-6)


def test_in_unix_time_nobody_is_unfairly_treated_by_rounding() -> None:
    alone = [arrival(f"job-{index}", 1.7e9 + 100.1 * index, seconds=1 + index / 7) for index in range(50)]
    measured = measure(simulate(Setup(cluster(), (PoolSpec("all"),)), alone).log)
    assert (measured.rho_paper.unfair_share, measured.rho_private.unfair_share) == (0.0, 0.0)


def test_a_job_that_its_owner_cancels_was_not_preempted() -> None:
    outcome = simulate(Setup(cluster(), (PoolSpec("all"),)), [arrival("a")], [JobCancelled(50.0, "a")])
    assert (measure(outcome.log).cancelled, measure(outcome.log).preemptions) == (1, 0)
    assert measure(outcome.log).gpu_hours == pytest.approx(50 / 3600)


def test_a_job_that_is_submitted_again_after_its_end_is_the_same_job() -> None:
    again = JobSubmitted(200.0, job("a"))
    outcome = simulate(Setup(cluster(), (PoolSpec("all"),)), [arrival("a")], [again])
    assert (measure(outcome.log).jobs, measure(outcome.log).unfinished) == (1, 0)


def test_the_span_of_a_run_covers_the_leases_of_those_who_never_end() -> None:
    # One job ends after 10 seconds, the other loses its node after 30 and never gets another.
    jobs = [arrival("short", seconds=10), arrival("long", seconds=100, gpus=8)]
    outcome = simulate(
        Setup(cluster(2), (PoolSpec("all"),)), jobs, [NodeChanged(30.0, node, Health.FAILED) for node in ("n0", "n1")]
    )
    measured = measure(outcome.log)
    assert (measured.unfinished, measured.makespan_seconds) == (1, 30.0)
    assert measured.utilisation == pytest.approx((10 + 8 * 30) / (16 * 30))
