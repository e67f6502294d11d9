"""Kernels as plain Python do what compiled ones do: whole runs, journal by journal."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from horae import compiling, samples
from horae.compiling import kernel
from horae.experiments.compare.generated_workload import GeneratedWorkload
from horae.experiments.compare.run_spec import with_policy
from horae.experiments.inputs import choose_policies, choose_setup
from horae.experiments.simulate import simulate
from horae.model.setup import Cadence
from horae.traces.generators import make_generator
from horae.traces.jobs import JobRules, read_jobs

JOBS = 40
BY_SHARES = ["max-min", "max-min={aware: false}", "makespan", "finish-time-fairness", "hierarchical"]


def journal_of(policy: str, nodes: str | None, folder: Path, compiled: bool) -> list[str]:
    cluster, shape = (samples.CLUSTER, ()) if nodes is None else (None, [nodes])
    setup = choose_setup(cluster, shape, Cadence.ROUNDS, None)
    if nodes is None:
        arrivals = read_jobs(samples.JOBS, setup.cluster)[:JOBS]
    else:
        arrivals = GeneratedWorkload(make_generator("poisson", {"jobs": JOBS}), setup.cluster, JobRules())(0)
    path = folder / ("compiled.jsonl" if compiled else "plain.jsonl")
    with nullcontext() if compiled else compiling.recording():
        simulate(with_policy(setup, choose_policies([policy])[policy]), arrivals, journal=path)
    return path.read_text().splitlines()


@pytest.mark.parametrize("nodes", [None, "2x8:A100"])
@pytest.mark.parametrize("policy", [*BY_SHARES, "themis"])
def test_a_run_without_compiled_kernels_is_the_one_with_them(
    policy: str, nodes: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "size_of", lambda value: sys.maxsize)  # no call is small
    plain, compiled = (journal_of(policy, nodes, tmp_path, compiled) for compiled in (False, True))
    assert plain == compiled


@kernel(error_model="numpy", small=1_000)
def _inverse(values: np.ndarray, zero: float) -> tuple[float, int, bool]:
    return 1.0 / (values[0] - values[0]), values[1], values[0] > zero


def test_results_are_of_pythons_own_types() -> None:
    found = _inverse(np.array([1.0, 2.0]), 0.0)
    assert found == (np.inf, 2.0, True)
    assert [type(each) for each in found] == [float, float, bool]
