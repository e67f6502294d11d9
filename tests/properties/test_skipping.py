"""The simulator skips rounds that change nothing; a run that looks at every round must come out the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from builders import arrival, cluster, simulate
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

from horae.model.cluster import Cluster, Node
from horae.model.jobs import Arrival, Job, Truth
from horae.model.setup import Cadence
from horae.model.shapes import Option, Shape
from horae.reports.recorder import JobRecord
from horae.scheduler.pool import Pool

jobs = st.lists(
    st.tuples(
        st.integers(0, 400),  # submitted
        st.sampled_from([1, 1, 2, 3, 4]),  # gpus
        st.integers(1, 300),  # seconds
        st.sampled_from([0.0, 7.0, 45.0]),  # restart
    ),
    min_size=1,
    max_size=20,
)


@contextmanager
def every_round() -> Iterator[None]:
    """While this lasts, a pool with any jobs decides at every boundary, at rest or not."""

    def settle(self: Pool, now: float, stands_until: float, contest_at: float) -> None:
        self.dirty, self.decided_at = False, now
        self.wake_at = self.spec.boundary_after(now) if self.table.count else float("inf")

    never = property(lambda self: False)
    with patch.object(Pool, "settle", settle), patch.object(Pool, "is_at_rest", never):
        yield


@given(
    workload=jobs,
    policy=st.sampled_from(
        [
            ("fifo", {}),
            ("sjf", {"backfill": True}),
            ("las", {}),
            ("tiresias", {"limits": (50.0, 300.0), "promote_after": 0.0}),
            ("tiresias", {"limits": (50.0, 300.0), "promote_after": 2.0}),
            ("highest-rho", {"lease_seconds": 60.0}),
            ("themis-tiresias", {"lease_seconds": 60.0}),
            ("themis-optimus", {"lease_seconds": 60.0}),
            ("themis-gandiva", {"lease_seconds": 60.0}),
            ("gandiva-time-slicing", {"slice_seconds": 30.0}),
            ("themis-slaq", {"lease_seconds": 60.0}),
            ("shockwave", {"interval_seconds": 30.0}),
            ("equal-share", {}),
        ]
    ),
)
@examples(quick=50, nightly=100)
def test_a_run_that_skips_equals_one_that_looks_at_every_round(
    workload: list[tuple[int, int, int, float]], policy: tuple[str, dict[str, object]]
) -> None:
    name, options = policy

    def outcome() -> list[JobRecord]:
        arrivals = [
            arrival(f"j{i}", at, gpus, seconds, restart_seconds=restart)
            for i, (at, gpus, seconds, restart) in enumerate(workload)
        ]
        machines = cluster(nodes=2, gpus=4)
        recorder = simulate(machines, arrivals, name, Cadence.ROUNDS, round_seconds=10.0, **options)  # type: ignore[arg-type]
        return sorted(recorder.records(), key=lambda record: record.job_id)

    skipped = outcome()
    with every_round():
        assert outcome() == skipped
    assert len(skipped) == len(workload)


@given(
    workload=jobs,
    policy=st.sampled_from(
        [
            ("optimus", {"interval_seconds": 60.0}),
            ("slaq", {"epoch_seconds": 60.0}),
            ("goodput", {"interval_seconds": 30.0}),
            ("goodput", {"interval_seconds": 30.0, "variant": "pollux"}),
            ("gandiva-time-slicing", {"slice_seconds": 30.0}),
        ]
    ),
)
@examples(quick=20, nightly=40)
def test_sizes_change_when_they_may_whether_or_not_rounds_are_skipped(
    workload: list[tuple[int, int, int, float]], policy: tuple[str, dict[str, object]]
) -> None:
    name, options = policy

    def outcome() -> list[JobRecord]:
        arrivals = []
        for i, (at, _, seconds, restart) in enumerate(workload):
            sizes = tuple(Option(Shape("v100", gpus, "node"), gpus**0.8) for gpus in (1, 2, 4))
            job = Job(f"j{i}", float(at), sizes, steps_total=float(seconds), restart_seconds=restart)
            arrivals.append(Arrival(job, Truth(float(seconds), sizes)))
        recorder = simulate(cluster(nodes=2, gpus=4), arrivals, name, Cadence.ROUNDS, round_seconds=10.0, **options)  # type: ignore[arg-type]
        return sorted(recorder.records(), key=lambda record: record.job_id)

    skipped = outcome()
    with every_round():
        assert outcome() == skipped
    assert len(skipped) == len(workload)


two_types = st.lists(
    st.tuples(
        st.integers(0, 3000),  # submitted
        st.sampled_from([1.0, 2.0, 8.0]),  # steps a second on the fast type; 1 on the slow one
        st.integers(500, 20_000),  # steps
        st.sampled_from([0.0, 30.0]),  # restart
    ),
    min_size=1,
    max_size=7,
)
SHARES = (
    "max-min", "makespan", "finish-time-fairness", "total-throughput", "fifo-on-fastest", "sjf-on-fastest", "allox",
    "gandiva", "equal-share",
)  # fmt: skip


def _of_two_types(number: int, at: int, fast: float, steps: int, restart_seconds: float) -> Arrival:
    options = (Option(Shape("v100", 1, "node"), fast), Option(Shape("k80", 1, "node"), 1.0))
    job = Job(f"j{number}", float(at), options, steps_total=float(steps), restart_seconds=restart_seconds)
    return Arrival(job, Truth(float(steps), options))


@given(workload=two_types, policy=st.sampled_from(SHARES))
@examples(quick=30, nightly=60)
def test_nobody_is_left_on_a_slow_gpu_because_a_round_was_skipped(
    workload: list[tuple[int, float, int, float]], policy: str
) -> None:
    machines = Cluster("two types", (Node("a", "v100", 2), Node("b", "k80", 2)))

    def outcome() -> list[JobRecord]:
        arrivals = [_of_two_types(number, *row) for number, row in enumerate(workload)]
        recorder = simulate(machines, arrivals, policy, Cadence.ROUNDS)
        return sorted(recorder.records(), key=lambda record: record.job_id)

    skipped = outcome()
    with every_round():
        assert outcome() == skipped
    assert len(skipped) == len(workload)
