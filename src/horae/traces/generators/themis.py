"""Workloads W1 and W2 after Themis (NSDI'20), and the cluster for which their load is set.

The paper leaves much open; all of it is fixed here, so that the load cannot be tuned to favour a result: 85 apps that
arrive at random and submit all their jobs at once; 1 job with probability 0.1, otherwise lognormal with median 23,
sigma 1, at most 98; GPU-hours of a job lognormal with median 3.75, sigma 1. W1 has gangs of 1 or 2 GPUs, W2 of 1, 2, 4
or 8. Of the apps, 40% (34 of 85, drawn) are network-intensive. The gaps between arrivals are scaled so that the
GPU-hours are exactly 0.8 of what 256 GPUs provide between the first arrival and the last.

W2's apps are searches by successive halving (`model.searches`): its rows are whole trials, most of which are ended long
before. Which ones continue depends on their curves and not on the schedule, so the work that will be done is known, and
sets the load; `search` names another method.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from horae.model.arrays import Floats, Ints
from horae.model.cluster import CLUSTER, Cluster, Node
from horae.model.jobs import Arrival, Job, Truth
from horae.model.searches import Method, searches_of
from horae.model.shapes import Option, Shape
from horae.traces.generators.base import (
    HOUR,
    gangs_of,
    made_trace,
    require,
    require_count,
    require_positive,
    require_share,
    stream,
)
from horae.traces.trace import Trace

NODES = ((16, 8), (16, 4), (64, 1))  # how many, with how many GPUs each: 256 in all
NODES_PER_RACK = 16
RESTART_SECONDS = 45.0
ACCELERATOR = "gpu"

GANGS = {"w1": ((1, 2), (0.5, 0.5)), "w2": ((1, 2, 4, 8), (0.4, 0.25, 0.25, 0.1))}
SINGLE_JOB_PROBABILITY = 0.1
JOBS_MEDIAN, JOBS_SIGMA, JOBS_MAX = 23.0, 1.0, 98
GPU_HOURS_MEDIAN, GPU_HOURS_SIGMA = 3.75, 1.0
NETWORK_INTENSIVE = "rack=1.6;cluster=2.2"  # how much slower than in one node
COMPUTE_INTENSIVE = "rack=1.05;cluster=1.1"


def themis_cluster() -> Cluster:
    """256 GPUs: 16 nodes of 8, 16 of 4, 64 of 1, in racks of 16 nodes."""
    sizes = [gpus for count, gpus in NODES for _ in range(count)]
    nodes = (
        Node(f"n{index:02}", ACCELERATOR, gpus, rack=f"rack{index // NODES_PER_RACK}")
        for index, gpus in enumerate(sizes)
    )
    return Cluster("themis", tuple(nodes), restart_seconds=RESTART_SECONDS)


@dataclass(frozen=True)
class ThemisWorkload:
    """A workload with one row per job and its app.

    A gang of several GPUs may be spread anywhere, at its app's slowdown.
    """

    name: ClassVar[str] = "themis"

    workload: str = "w1"
    apps: int = 85
    cluster_gpus: int = 256
    load: float = 0.8  # GPU-hours / (cluster_gpus x the span of arrivals)
    network_intensive: float = 0.4  # share of the apps, rounded to whole apps
    search: str = Method.HALVING.value  # of w2: the method whose work sets the load

    def __post_init__(self) -> None:
        require(self.workload in GANGS, "workload", self.workload, f"choose one of {', '.join(GANGS)}")
        require(self.apps >= 2, "apps", self.apps, "give 2 or more: with one there is no span of arrivals")
        require_count(self, "cluster_gpus")
        require_positive(self, "load")
        require_share(self, "network_intensive")
        methods = [method.value for method in Method]
        require(self.search in methods, "search", self.search, f"choose one of {', '.join(methods)}")

    def trace(self, seed: int) -> Trace:
        jobs_of_app = self._jobs_of_app(seed)
        app = np.repeat(np.arange(self.apps), jobs_of_app)
        gpus = gangs_of(seed, len(app), *GANGS[self.workload])
        gpu_hours = _lognormal(seed, "gpu_hours", GPU_HOURS_MEDIAN, GPU_HOURS_SIGMA, len(app))
        place = np.concatenate([np.arange(count) for count in jobs_of_app])
        names = [f"app{owner:02}-{index:02}" for owner, index in zip(app.tolist(), place.tolist(), strict=True)]
        done_hours = float(gpu_hours.sum())
        if self.is_search:
            done_hours = _searched_hours(Method(self.search), seed, app, names, gpus, gpu_hours)
        submit = self._submit(seed, done_hours)
        slowdown = np.where(self._is_network_intensive(seed)[app], NETWORK_INTENSIVE, COMPUTE_INTENSIVE)
        # One GPU is never spread: neither level nor slowdown applies to it.
        is_gang = (gpus > 1).tolist()
        columns = {
            "id": names,
            "submit": submit[app],
            "gpus": gpus,
            "duration": gpu_hours * HOUR / gpus,
            "app": [f"app{owner:02}" for owner in app.tolist()],
            "level": [CLUSTER if gang else None for gang in is_gang],
            "slowdown": [text if gang else None for text, gang in zip(slowdown.tolist(), is_gang, strict=True)],
        }
        return made_trace(f"{self.name} {self.workload}", seed, columns)

    @property
    def is_search(self) -> bool:
        return self.workload == "w2"

    def _jobs_of_app(self, seed: int) -> Ints:
        is_single = stream(seed, "is_single").random(self.apps) < SINGLE_JOB_PROBABILITY
        many = np.rint(_lognormal(seed, "jobs", JOBS_MEDIAN, JOBS_SIGMA, self.apps)).clip(1, JOBS_MAX)
        return np.where(is_single, 1, many).astype(np.int64)

    def _submit(self, seed: int, gpu_hours: float) -> Floats:
        """Submission times by app. The first arrives at 0; the gaps are scaled to reach the intended load."""
        arrivals = np.concatenate([[0.0], np.cumsum(stream(seed, "submit").exponential(1.0, self.apps - 1))])
        span_seconds = gpu_hours * HOUR / (self.cluster_gpus * self.load)
        return arrivals / arrivals[-1] * span_seconds

    def _is_network_intensive(self, seed: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        count = round(self.network_intensive * self.apps)
        return stream(seed, "network").permutation(self.apps) < count


def _searched_hours(method: Method, seed: int, app: Ints, names: list[str], gpus: Ints, gpu_hours: Floats) -> float:
    """GPU-hours that are actually run when every app searches; an upper bound where that is not known beforehand."""
    jobs = zip(names, app.tolist(), gpus.tolist(), (gpu_hours * HOUR / gpus).tolist(), strict=True)
    trials = []
    for name, owner, gang, seconds in jobs:
        options = (Option(Shape(ACCELERATOR, gang, CLUSTER), 1.0),)
        trials.append(Arrival(Job(name, 0.0, options, app=f"app{owner:02}"), Truth(seconds, options)))
    return sum(search.gpu_seconds for search in searches_of(trials, method, seed)) / HOUR


def _lognormal(seed: int, column: str, median: float, sigma: float, count: int) -> Floats:
    return stream(seed, column).lognormal(np.log(median), sigma, count)
