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
from horae.model.setup import Cadence, Setup
from horae.traces.generators import make_generator
from horae.traces.jobs import JobRules, read_jobs

JOBS = 12  # of a run that only shows which kernels a policy needs


def kernels_of(policies: Sequence[PolicyChoice], setup: Setup | None = None) -> list[Needed]:
    """The kernels that these policies need on a cluster, or on the sample; the longest to compile first."""
    if setup is None:
        setup = choose_setup(samples.CLUSTER, (), Cadence.ROUNDS, None)
        arrivals = read_jobs(samples.JOBS, setup.cluster)[:JOBS]
    else:
        drawn = make_generator("poisson", {"jobs": JOBS, "cluster_gpus": setup.cluster.gpu_count})
        arrivals = GeneratedWorkload(drawn, setup.cluster, JobRules())(0)
    with compiling.recording() as needed:
        for choice in policies:
            simulate(with_policy(setup, choice), arrivals)
    return sorted(needed, key=lambda each: (-source_bytes(each), each.module, each.name, str(each.types)))


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
