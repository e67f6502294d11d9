"""Kernels compiled in advance, in several processes, so that no run has to wait for them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from horae import compiling, samples
from horae.compiling import Needed, source_bytes
from horae.experiments.compare.generated_workload import GeneratedWorkload
from horae.experiments.compare.run_spec import PolicyChoice, with_policy
from horae.experiments.inputs import choose_setup
from horae.experiments.simulate import simulate
from horae.experiments.workers import Tell, Watcher, Work, WorkerSpec, WorkerTask, run_in_processes
from horae.model.jobs import Arrival
from horae.model.setup import Cadence, Setup
from horae.traces.generators import make_generator
from horae.traces.jobs import JobRules, read_jobs

JOBS = 12  # of a run that only shows which kernels a policy needs
FLAT_NODES = "4x8:A100"  # a cluster without levels between node and cluster has kernels of its own


def kernels_of(policies: Sequence[PolicyChoice]) -> list[Needed]:
    """The kernels that these policies need, the longest to compile first."""
    needed = set[Needed]()
    for setup, arrivals in _workloads():
        for choice in policies:
            with compiling.recording() as recorded:
                simulate(with_policy(setup, choice), arrivals)
            needed |= recorded
    return sorted(needed, key=lambda each: (-source_bytes(each), each.module, each.name, str(each.types)))


def _workloads() -> Iterator[tuple[Setup, Sequence[Arrival]]]:
    """A cluster with levels and several GPU types, and one without levels and with one type."""
    lab = choose_setup(samples.CLUSTER, (), Cadence.ROUNDS, None)
    yield lab, read_jobs(samples.JOBS, lab.cluster)[:JOBS]
    flat = choose_setup(None, [FLAT_NODES], Cadence.ROUNDS, None)
    yield flat, GeneratedWorkload(make_generator("poisson", {"jobs": JOBS}), flat.cluster, JobRules())(0)


def compile_all(needed: Sequence[Needed], workers: int, watcher: Watcher) -> Iterator[tuple[Needed, float]]:
    """Yields every kernel when it is ready, with the seconds that took."""
    tasks = [WorkerTask(number, each) for number, each in enumerate(needed)]
    for number, seconds in run_in_processes(tasks, WorkerSpec(make_compiler, None), workers, watcher):
        yield needed[number], seconds


def make_compiler(_: None) -> Work[Needed, float]:
    return _compile


def _compile(needed: Needed, _: Tell) -> float:
    begun = time.monotonic()
    compiling.compile_needed(needed)
    return time.monotonic() - begun
