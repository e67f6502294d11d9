"""What is measured: each case reads its input first and times only the run."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import polars as pl
from horae_evaluation.philly import data

from horae.experiments.simulate import simulate
from horae.model.cluster import Cluster, Node
from horae.model.jobs import Arrival
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.traces.generators import Poisson
from horae.traces.jobs import arrivals


@dataclass(frozen=True)
class Result:
    jobs: int
    seconds: float  # of processor time
    peak_memory_mib: float
    loop_seconds: float  # for a million turns of an empty loop, just after the run

    def as_dict(self) -> dict[str, float]:
        microseconds = self.seconds / self.jobs * 1e6
        return {
            **asdict(self),
            "microseconds_per_job": microseconds,
            "jobs_per_second": self.jobs / self.seconds,
            "loops_per_job": microseconds / self.loop_seconds,
        }


def philly_fifo() -> Result:
    return _measure(_nodes(144), "fifo", Cadence.EVENTS, _arrivals(data.philly_jobs(data_folder()), _nodes(144)))


def philly_tiresias() -> Result:
    return _measure(_nodes(144), "tiresias", Cadence.ROUNDS, _arrivals(data.philly_jobs(data_folder()), _nodes(144)))


def itp_tiresias() -> Result:
    jobs = data.read_table(data_folder(), "itp/itp_jobs.csv.gz").sort("submit_s", maintain_order=True)
    nodes = _nodes(int(data.read_table(data_folder(), "itp/pool_1408.csv")["nodes"].sum()))
    return _measure(nodes, "tiresias", Cadence.ROUNDS, iter(_arrivals(jobs, nodes, tenant="cluster")))


def small_fifo_rounds() -> Result:
    """As many jobs and GPUs, and about as many rounds (5,246), as a public simulator was timed on."""
    workload = Poisson(jobs=2032, cluster_gpus=108, load=0.8, median_seconds=20_000.0, sigma=1.0)
    nodes = tuple(Node(f"n{index}", "gpu", 12) for index in range(9))
    return _measure(nodes, "fifo", Cadence.ROUNDS, list(workload.arrivals(seed=0)))


def generated_fifo(jobs: int) -> Result:
    """Jobs are made while the run goes on, so that only live ones take memory."""
    workload = Poisson(jobs=jobs, cluster_gpus=1152, load=0.8)
    return _measure(_nodes(144), "fifo", Cadence.EVENTS, workload.arrivals(seed=0))


def _arrivals(jobs: pl.DataFrame, nodes: tuple[Node, ...], tenant: str = "vc") -> list[Arrival]:
    return arrivals(data.as_trace(jobs, tenant), Cluster("bench", nodes), whole_nodes=True)[0]


def _measure(nodes: tuple[Node, ...], policy: str, cadence: Cadence, jobs: Iterable[Arrival]) -> Result:
    """The fastest of five runs, for noise only adds; one run where the input is made on the way."""
    setup = Setup(Cluster("bench", nodes), (PoolSpec("all", policy, {}, cadence),))
    results = []
    for _ in range(5 if isinstance(jobs, list) else 1):
        started = time.process_time()
        recorder = simulate(setup, jobs).recorder
        seconds = time.process_time() - started
        peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert not recorder.live, "some jobs did not end"
        results.append(Result(recorder.ended_count, seconds, peak_kib / 1024, loop_seconds()))
    return min(results, key=lambda result: result.seconds)


def loop_seconds() -> float:
    started = time.process_time()
    for _ in range(1_000_000):
        pass
    return time.process_time() - started


def _nodes(count: int) -> tuple[Node, ...]:
    return tuple(Node(f"n{index:04}", data.ACCELERATOR, data.GPUS_PER_NODE) for index in range(count))


def data_folder() -> Path:
    return Path(os.environ["HORAE_DATA"])
