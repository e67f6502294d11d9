"""Histories in which questions are asked: one virtual cluster each of Philly and Helios, its lengths unknown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

import polars as pl

from horae.driver import run
from horae.engines.engine import Moment
from horae.engines.simulated import SimulatedEngine
from horae.forks.beliefs import PastJob
from horae.forks.forward import Watch
from horae.model.cluster import Cluster, Node
from horae.model.errors import InputError
from horae.model.jobs import Arrival
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.scheduler import Scheduler
from horae.traces.jobs import arrivals
from horae_evaluation.philly import data as philly

RESTART_SECONDS = 30.0
ROUND_SECONDS = 300.0
POLICIES: dict[str, tuple[str, dict[str, object], Cadence]] = {
    "fifo with backfill": ("fifo", {"backfill": True}, Cadence.EVENTS),
    "tiresias": ("tiresias", {}, Cadence.ROUNDS),
    "max-min": ("max-min", {}, Cadence.ROUNDS),
}
PHILLY_VC, PHILLY_NODES = "2869ce", 10  # of the 16 that it is said to have had: with all of them hardly a job waits
# Of 20, and without the gangs that need most of a cluster, which keep it either empty or overloaded for days.
HELIOS_VC, HELIOS_NODES, HELIOS_GPUS_MAX = "vcvGl", 9, 64
HELIOS_FILE = "helios/venus_2vc_sept2020.csv.gz"


@dataclass(frozen=True)
class History:
    name: str
    cluster: Cluster
    arrivals: tuple[Arrival, ...]

    def setup(self, policy: str) -> Setup:
        """As the service would have it: between rounds, jobs start at once where GPUs are free."""
        name, options, cadence = POLICIES[policy]
        spec = PoolSpec("all", name, options, cadence, ROUND_SECONDS, admits_between_rounds=cadence is Cadence.ROUNDS)
        return Setup(self.cluster, (spec,))

    def run(self, policy: str) -> Watch:
        """What happens to every job."""
        seen = Watch()
        run(Scheduler(self.setup(policy)), SimulatedEngine(self.cluster, self.arrivals), [seen])
        return seen

    def visit(self, policy: str, moments: list[float], look: Callable[[int, Scheduler], None]) -> None:
        """Runs the history, and calls `look` at each of these moments, which are in order. `look` changes nothing."""
        scheduler, engine = Scheduler(self.setup(policy)), _Pausing(self.cluster, self.arrivals)
        for number, moment in enumerate(moments):
            engine.pauses_at = moment
            run(scheduler, engine, enough=lambda: engine.now >= engine.pauses_at)
            scheduler.now = max(scheduler.now, moment)
            look(number, scheduler)


class _Pausing(SimulatedEngine):
    """An engine that also stops between two events."""

    pauses_at = inf

    def wait(self, until: float) -> Moment | None:
        return super().wait(min(until, self.pauses_at))


def philly_history(data: Path) -> History:
    jobs = philly.philly_jobs(data)
    jobs = jobs.filter(jobs["submit_s"].is_between(*philly.WINDOW) & (jobs["vc"] == PHILLY_VC))
    return _history("Philly", jobs.with_columns(pl.lit("").alias("user")), PHILLY_NODES)


def helios_history(data: Path) -> History:
    columns = {"job_id": None, "user": None, "vc": None, "submit_s": 0, "num_gpu": 1, "duration_s": 1}
    jobs = philly.read_columns(data, HELIOS_FILE, columns)
    return _history(
        "Helios", jobs.filter((jobs["vc"] == HELIOS_VC) & (jobs["num_gpu"] <= HELIOS_GPUS_MAX)), HELIOS_NODES
    )


def _history(name: str, jobs: pl.DataFrame, nodes: int) -> History:
    if jobs.is_empty():
        raise InputError(f"the data has no jobs of {name}", field="--data", remedy="fetch the files again")
    cluster = Cluster(
        name.lower(), tuple(Node(f"n{index}", philly.ACCELERATOR, philly.GPUS_PER_NODE) for index in range(nodes))
    )
    ordered = jobs.sort("submit_s", maintain_order=True)
    made, _ = arrivals(philly.as_trace(ordered, "user" if name == "Helios" else "vc"), cluster, whole_nodes=True)
    first = made[0].job.submitted_at
    return History(name, cluster, tuple(_hidden(each, first) for each in made))


def _hidden(arrival: Arrival, first: float) -> Arrival:
    """The job as a user submits it, without its length."""
    job = replace(
        arrival.job, submitted_at=arrival.job.submitted_at - first, steps_total=None, restart_seconds=RESTART_SECONDS,
        user=arrival.job.tenant, tenant="default",
    )  # fmt: skip
    return replace(arrival, job=job)


def past_at(history: History, seen: Watch, moment: float, count: int = 1000) -> list[PastJob]:
    """The latest jobs that had ended by then, as the service knows them, in order of submission."""
    ended = [each for each in history.arrivals if seen.ended.get(each.job.id, moment) < moment]
    latest = sorted(ended, key=lambda each: each.job.submitted_at)[-count:]
    return [PastJob(each.job, seconds_of(each)) for each in latest]


def seconds_of(arrival: Arrival) -> float:
    return arrival.truth.steps_total / arrival.truth.options[0].steps_per_second
