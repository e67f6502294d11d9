"""Gangs of three tenants on a real control plane, and in the simulator, which knows only the mean start-up time."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import mean, quantiles
from typing import NamedTuple

from horae.experiments.simulate import simulate
from horae.model.jobs import Arrival, Truth
from horae.service.config import load_config
from horae.service.job_file import to_job
from horae.service.models import JobSpec
from kubernetes.client import condition
from kubernetes.cluster import Cluster
from kubernetes.objects import A100, H100, job, nodes, training
from kubernetes.service import Service

V100 = "Tesla-V100-SXM2-16GB"
SPEEDS: Mapping[str, Mapping[str, float]] = {
    "convolution": {"H100": 6.0, "A100": 5.0, "V100": 3.0},
    "transformer": {"H100": 10.0, "A100": 5.0, "V100": 1.5},
    "recurrent": {"H100": 4.0, "A100": 4.0, "V100": 3.2},
}
ROUND_SECONDS = 10.0
RESTART_SECONDS = 2.0
CONFIGURATION = f"""
restart_seconds: {RESTART_SECONDS}
tenants:
  nlp: {{cells: {{H100.node: 2, A100.node: 2, V100.node: 2}}, policy: max-min}}
  vision: {{cells: {{H100.node: 2, A100.node: 2, V100.node: 2}}, policy: {{tiresias: {{limits: [400, 1600]}}}}}}
  speech: {{cells: {{H100.node: 2, A100.node: 2, V100.node: 2}}, policy: {{themis: {{lease_seconds: 10}}}}}}
spare: {{policy: max-min, cadence: rounds, round_seconds: {ROUND_SECONDS}}}
""".replace(", policy:", f", cadence: rounds, round_seconds: {ROUND_SECONDS}, policy:", 3)
TENANTS = ("nlp", "vision", "speech")


class Gang(NamedTuple):
    name: str
    tenant: str
    arrives_at: float
    pods: int
    model: str
    steps: float

    @property
    def notes(self) -> dict[str, str]:
        speed = ";".join(f"{kind}={steps}" for kind, steps in SPEEDS[self.model].items())
        return {"horae.io/steps": f"{self.steps:g}", "horae.io/speed": speed}


class Times(NamedTuple):
    completion_seconds: float
    leases: int


@dataclass(frozen=True)
class Comparison:
    real: Mapping[str, Times]
    simulated: Mapping[str, float]  # completion times
    startup_seconds: float

    @property
    def difference(self) -> float:
        """Of the mean completion time, as a fraction of the real one."""
        real = mean(each.completion_seconds for each in self.real.values())
        return mean(self.simulated.values()) / real - 1

    @property
    def errors(self) -> list[float]:
        """By job: the error of its completion time, as a fraction."""
        return sorted(abs(self.simulated[name] / each.completion_seconds - 1) for name, each in self.real.items())

    def __str__(self) -> str:
        real = mean(each.completion_seconds for each in self.real.values())
        leases = mean(each.leases for each in self.real.values())
        deciles = quantiles(self.errors, n=10)
        return (
            f"{len(self.real)} gangs: mean completion {real:.1f} s, simulated {100 * self.difference:+.1f}%; half of "
            f"the gangs within {100 * deciles[4]:.0f}%, nine in ten within {100 * deciles[8]:.0f}%; {leases:.1f} "
            f"leases per gang, start-up {self.startup_seconds:.1f} s"
        )


def draw(count: int, seed: int, arrival_seconds: float, work_seconds: tuple[float, float, float]) -> list[Gang]:
    """`work_seconds`: the least, the mean of what is added, and the most of a gang's work on A100s."""
    least, more, most = work_seconds
    random, gangs, at = Random(seed), list[Gang](), 0.0
    for index in range(count):
        model = random.choice(sorted(SPEEDS))
        seconds = min(least + random.expovariate(1 / more), most)
        steps = round(seconds * SPEEDS[model]["A100"])
        gangs.append(Gang(f"gang-{index:02}", random.choice(TENANTS), at, random.choice((1, 1, 1, 2, 2)), model, steps))
        at += random.expovariate(1 / arrival_seconds)
    return gangs


def compare(cluster: Cluster, folder: Path, gangs: Sequence[Gang]) -> Comparison:
    cluster.add_nodes(*nodes(7, product=H100, prefix="h"), *nodes(7, product=A100, prefix="a"))
    cluster.add_nodes(*nodes(6, product=V100, prefix="v"))
    with Service(folder, cluster.control_plane.kubeconfig, CONFIGURATION) as service:
        real, startup = _run(cluster, service, gangs)
        simulated = _simulate(service.state, gangs, startup)
    return Comparison(real, simulated, startup)


def _run(cluster: Cluster, service: Service, gangs: Sequence[Gang]) -> tuple[dict[str, Times], float]:
    namespaces = {tenant: cluster.add_namespace({"horae.io/tenant": tenant}) for tenant in TENANTS}
    began = time.monotonic()
    for gang in gangs:
        time.sleep(max(began + gang.arrives_at - time.monotonic(), 0.0))
        notes = {**gang.notes, "horae.io/checkpoint": "true", "horae.io/model": ""}
        speed = gang.notes["horae.io/speed"]
        pods = {**training(gang.steps, speed), "horae.test/stops-after": "0.1"}
        body = job(gang.name, gang.pods, annotations=notes, pod_annotations=pods, backoff_limit=100)
        cluster.client.create_job(namespaces[gang.tenant], body)
    cluster.eventually(
        lambda: all(condition(cluster.client.job(namespaces[gang.tenant], gang.name), "Complete") for gang in gangs)
    )
    cluster.eventually(lambda: all(each.state == "finished" for each in service.client.jobs()))
    with sqlite3.connect(f"file:{service.state / 'store.db'}?mode=ro", uri=True) as store:
        jobs = store.execute("SELECT id, name, submitted_at, ended_at FROM jobs").fetchall()
        leases = store.execute("SELECT job_id, granted_at, started_at FROM leases").fetchall()
    startups = [started - granted for _, granted, started in leases if started is not None]
    counts = {job_id: sum(each[0] == job_id for each in leases) for job_id, *_ in jobs}
    return {name: Times(end - start, counts[job_id]) for job_id, name, start, end in jobs}, mean(startups)


def _simulate(state: Path, gangs: Sequence[Gang], startup_seconds: float) -> dict[str, float]:
    setup = load_config(state / "config.json").setup
    arrivals = []
    for gang in gangs:
        speeds = {kind: float(speed) for kind, speed in SPEEDS[gang.model].items()}
        spec = JobSpec.model_validate(
            {
                "name": gang.name,
                "run": "train",
                "tenant": gang.tenant,
                "gpus": 8 * gang.pods,
                "member_gpus": 8,
                "steps": gang.steps,
                "speed": speeds,
                "checkpoint": {},
                "locality": {"require": "cluster"} if gang.pods > 1 else {},
            }
        )
        submitted = to_job(spec, gang.name, "", setup, gang.arrives_at)
        truth = Truth(gang.steps, submitted.options, startup_seconds=startup_seconds, resume_seconds=startup_seconds)
        arrivals.append(Arrival(submitted, truth))
    records = simulate(setup, arrivals).recorder.records()
    return {record.job_id: record.ended_at - record.submitted_at for record in records}
