"""Horae beside other schedulers of gangs on Kubernetes: the same nodes, the same Jobs, the same simulated kubelets.

`python -m bench.kubernetes_compare --runs 3` prints one line per run and a table. Each run has a control plane of its
own (the program that HORAE_CONTROL_PLANE names), 8 nodes of 8 GPUs, and three tenants, of which `vision` asks for more
than there is. With each seed, all systems run one after the other on the same gangs.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from kubernetes.client import Client, condition, eventually
from kubernetes.control_plane import ControlPlane
from kubernetes.objects import nodes
from kubernetes.simulated_nodes import SimulatedNodes

from bench.kubernetes_measures import GangTimes, PodTimes, measure, standstill
from bench.kubernetes_systems import GPUS_PER_POD, NODE_COUNT, RESTART_SECONDS, SYSTEMS, TENANTS, System
from horae.engines.kubernetes.api import JOBS, PODS, Json, KubernetesApi
from horae.engines.kubernetes.connection import read_kubeconfig
from horae.engines.kubernetes.informer import Change, Informer, News

START_SCALE = 0.001  # containers start in 5 to 120 ms, and stop within 30 ms
TRAINING_SECONDS = (2.5, 7.5)
PODS_MAX = 4
Figures = Mapping[str, float]
LIMIT_SECONDS = 180.0  # a run that is not done by then has come to a stop


class Gang(NamedTuple):
    at: float  # seconds after the begin
    tenant: str
    name: str
    pods: int
    seconds: float  # of training


def workload(seed: int) -> list[Gang]:
    """`vision` submits 24 gangs within 20 s, the other two 8 each within 45 s: about their equal share of the GPUs."""
    draw = random.Random(seed)
    found = []
    for tenant, count, window in zip(TENANTS, (24, 8, 8), (20, 45, 45), strict=True):
        for index in range(count):
            at, pods, seconds = draw.uniform(0, window), draw.randint(1, PODS_MAX), draw.uniform(*TRAINING_SECONDS)
            found.append(Gang(at, tenant, f"{tenant}-{index:02d}", pods, round(seconds, 2)))
    return sorted(found)


class Watch:
    """Notes when pods are bound, told to stop and ended, and when Jobs are complete."""

    def __init__(self, plane: ControlPlane) -> None:
        self.gangs: dict[str, GangTimes] = {}  # by the name of the Job
        self._lock = threading.Lock()
        self._owners: dict[str, str] = {}  # Jobs by the uid of the pod
        self._api = KubernetesApi(read_kubeconfig(plane.kubeconfig))
        self._informers = [Informer(self._api, PODS, self._pods), Informer(self._api, JOBS, self._jobs)]
        for each in self._informers:
            each.start()

    def add(self, gang: Gang) -> None:
        with self._lock:
            self.gangs[gang.name] = GangTimes(gang.tenant, gang.pods, GPUS_PER_POD, time.perf_counter())

    def completed(self) -> int:
        return sum(gang.completed < inf for gang in self.gangs.values())

    def close(self) -> None:
        for each in self._informers:
            each.stop()
        self._api.close()

    def _pods(self, news: list[News]) -> None:
        now = time.perf_counter()
        with self._lock:
            for each in news:
                if isinstance(each, Change):
                    self._pod(each, now)

    def _pod(self, change: Change, now: float) -> None:
        if change.object is not None:
            labels = change.object["metadata"].get("labels") or {}
            self._owners.setdefault(change.key, labels.get("batch.kubernetes.io/job-name", ""))
        gang = self.gangs.get(self._owners.get(change.key, ""))
        if gang is not None:
            _note(gang.pods.setdefault(change.key, PodTimes()), change.object, now)

    def _jobs(self, news: list[News]) -> None:
        now = time.perf_counter()
        for each in news:
            if isinstance(each, Change) and each.object is not None and condition(each.object, "Complete"):
                gang = self.gangs[each.object["metadata"]["name"]]
                gang.completed = min(gang.completed, now)


def _note(times: PodTimes, pod: Json | None, now: float) -> None:
    if pod is None:
        times.ended = min(times.ended, now)
        return
    if pod["spec"].get("nodeName"):
        times.bound = min(times.bound, now)
    if "deletionTimestamp" in pod["metadata"]:
        times.stopped = min(times.stopped, now)
    phase = pod["status"].get("phase")
    times.has_succeeded = phase == "Succeeded"
    if phase in ("Succeeded", "Failed"):
        times.ended = min(times.ended, now)


def run(name: str, seed: int, binary: Path) -> Figures | str:
    """The figures of one run; if it has not come to its end, how it stands."""
    system = SYSTEMS[name]
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        with (
            system.plane(binary, folder / "control-plane") as plane,
            SimulatedNodes(
                plane.kubeconfig, folder / "kubelets", scale=START_SCALE, seed=seed, resume_seconds=RESTART_SECONDS
            ) as kubelets,
        ):
            client = plane.client()
            _fill(client)
            with system.running(plane, folder):
                gangs = _train(system, plane, client, workload(seed))
            assert not kubelets.violations(), kubelets.violations()
    if any(gang.completed == inf for gang in gangs):
        return standstill(gangs, time.perf_counter())
    return measure(gangs, NODE_COUNT * GPUS_PER_POD)


def _fill(client: Client) -> None:
    for each in nodes(NODE_COUNT):
        client.create_node(each)
    for tenant in TENANTS:
        client.post("/api/v1/namespaces", {"metadata": {"name": tenant, "labels": {"horae.io/tenant": tenant}}})
        path = f"/api/v1/namespaces/{tenant}/serviceaccounts/default"
        eventually(lambda: client.find(path))  # noqa: B023 - it is called at once
    eventually(lambda: all(_is_usable(each) for each in client.items("/api/v1/nodes")) or None)


def _is_usable(node: Json) -> bool:
    return condition(node, "Ready") and not node["spec"].get("taints")


def _train(system: System, plane: ControlPlane, client: Client, gangs: Sequence[Gang]) -> list[GangTimes]:
    """Submits all gangs at their times and waits until they have completed, or until the limit."""
    watch = Watch(plane)
    begin = time.perf_counter()
    try:
        for gang in gangs:
            time.sleep(max(0.0, begin + gang.at - time.perf_counter()))
            watch.add(gang)
            client.create_job(gang.tenant, system.gang(gang.name, gang.pods, gang.seconds))
        while watch.completed() < len(gangs) and time.perf_counter() - begin < LIMIT_SECONDS:
            plane.check()
            time.sleep(0.2)
    finally:
        watch.close()
    return list(watch.gangs.values())


def table(results: Mapping[str, Sequence[Figures | str]]) -> str:
    """One row per figure, one column per system: the mean, and the least and the most of all runs."""
    done = {name: [each for each in runs if not isinstance(each, str)] for name, runs in results.items()}
    names = next((list(runs[0]) for runs in done.values() if runs), [])
    lines = ["| figure | " + " | ".join(results) + " |", "|---|" + "---:|" * len(results)]
    lines += [f"| {name} | " + " | ".join(_cell(runs, name) for runs in done.values()) + " |" for name in names]
    counts = (f"{len(done[name])} of {len(runs)}" for name, runs in results.items())
    return "\n".join([*lines, "| runs that came to their end | " + " | ".join(counts) + " |"])


def _cell(runs: Sequence[Figures], name: str) -> str:
    if not runs:
        return "-"
    values = [run[name] for run in runs]
    return f"{fmean(values):.3g} ({min(values):.3g} to {max(values):.3g})"


def _line(found: Figures | str) -> str:
    return found if isinstance(found, str) else ", ".join(f"{name} {value:.4g}" for name, value in found.items())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.kubernetes_compare", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="runs of each system, with the seeds 1, 2, … (3)")
    parser.add_argument("--first-seed", type=int, default=1, help="the seed of the first run (1)")
    parser.add_argument(
        "--systems",
        nargs="+",
        choices=SYSTEMS,
        default=list(SYSTEMS),
        metavar="SYSTEM",
        help=f"those to compare: {', '.join(SYSTEMS)} (all)",
    )
    asked = parser.parse_args()
    binary = os.environ.get("HORAE_CONTROL_PLANE")
    if not binary:
        raise SystemExit("set HORAE_CONTROL_PLANE to the program that `make -C tools/controlplane build` makes")
    results: dict[str, list[Figures | str]] = {name: [] for name in asked.systems}
    for seed in range(asked.first_seed, asked.first_seed + asked.runs):
        for name, runs in results.items():
            runs.append(found := run(name, seed, Path(binary)))
            print(f"{name}, seed {seed}: {_line(found)}", file=sys.stderr, flush=True)
    print(table(results))


if __name__ == "__main__":
    main()
