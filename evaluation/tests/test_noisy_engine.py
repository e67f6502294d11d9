"""Schedulers that are given wrong speeds."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from builders import cluster, with_truth
from horae_evaluation.noisy_engine import NoisyEngine

from horae.engines.simulated import SimulatedEngine
from horae.model.cluster import CLUSTER
from horae.model.errors import InputError
from horae.model.events import JobSubmitted
from horae.model.jobs import Arrival, Job
from horae.model.shapes import Option, Shape


def arrival(name: str, *speeds: float) -> Arrival:
    """A job of one model, with these speeds on the types t0, t1 and so on."""
    options = tuple(Option(Shape(f"t{index}", 1, CLUSTER), speed) for index, speed in enumerate(speeds))
    return with_truth(Job(name, 0.0, options, model="net", steps_total=3600.0), 3600.0)


def told(arrivals: list[Arrival], noise: float, *, by_job: bool = False) -> list[Job]:
    """The jobs as the scheduler receives them."""
    moment = NoisyEngine(SimulatedEngine(cluster(), arrivals), noise, by_job=by_job).wait(inf)
    assert moment is not None
    return [event.job for event in moment.events if isinstance(event, JobSubmitted)]


def test_without_noise_the_scheduler_is_told_the_truth() -> None:
    made = [arrival(f"j{number}", 4.0, 2.0, 1.0) for number in range(10)]
    assert told(made, 0.0) == [each.job for each in made]


@pytest.mark.parametrize("noise", [0.1, 0.5])
def test_noise_has_mean_one_and_the_deviation_asked_for(noise: float) -> None:
    jobs = told([arrival(str(number), 1.0, 1.0, 1.0) for number in range(3000)], noise, by_job=True)
    factors = np.array([option.steps_per_second for job in jobs for option in job.options])
    assert factors.mean() == pytest.approx(1.0, abs=0.02)
    assert factors.std() == pytest.approx(noise, rel=0.05)


@pytest.mark.parametrize("by_job", [False, True])
def test_jobs_of_a_class_are_wrong_alike_unless_noise_is_drawn_by_job(by_job: bool) -> None:
    first, second = told([arrival(name, 4.0, 2.0, 1.0) for name in ("a", "b")], 0.3, by_job=by_job)
    assert (first.options == second.options) == (not by_job)


def test_negative_noise_is_rejected() -> None:
    with pytest.raises(InputError):
        NoisyEngine(SimulatedEngine(cluster(), []), -0.1)
