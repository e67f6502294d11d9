"""The worked example of successive halving, and what becomes of an app with nothing to run."""

from __future__ import annotations

from math import inf

import pytest

from horae.model.errors import JobError
from horae.policies.themis.phases import BidPhase, ideal_seconds, shared_seconds

# Four jobs of 80, 100, 100 and 120 s an iteration: 8 iterations, then two of them 16, then one 36, at 100 s each.
EXAMPLE = (
    BidPhase((640.0, 800.0, 800.0, 960.0), 8),
    BidPhase((1600.0, 1600.0), 8),
    BidPhase((3600.0,), 8),
)


@pytest.mark.parametrize(
    ("gpus", "shared", "rho"),
    [(1, 10000.0, 4.0), (2, 5000.0, 2.0), (4, 2660.0, 1.064), (8, 1330.0, 0.532), (16, 890.0, 0.356)],
)
def test_the_worked_example_of_a_search_comes_out_exactly(gpus: int, shared: float, rho: float) -> None:
    ideal = ideal_seconds(EXAMPLE, cluster_gpus=16, apps=4)
    assert sum(phase.gpu_seconds for phase in EXAMPLE) == 10000.0
    assert ideal == 2500.0
    assert shared_seconds(EXAMPLE, gpus) == shared
    assert shared_seconds(EXAMPLE, gpus) / ideal == pytest.approx(rho, abs=1e-12)


def test_a_search_without_gpus_never_ends() -> None:
    assert shared_seconds(EXAMPLE, 0) == inf


def test_jobs_that_do_not_divide_the_gpus_evenly_give_the_odd_one_to_the_longest() -> None:
    assert BidPhase((300.0, 200.0), 8).makespan_seconds(3) == 200.0


def test_where_gpus_are_short_the_longest_job_goes_first() -> None:
    assert BidPhase((5.0, 4.0, 3.0, 3.0), 1).makespan_seconds(2) == 8.0


def test_a_phase_without_jobs_is_refused() -> None:
    with pytest.raises(JobError, match="no jobs"):
        BidPhase((), 8)
