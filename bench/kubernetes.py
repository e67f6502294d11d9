"""The Kubernetes engine at size: 1,000 nodes with 8,000 GPUs, and 500 gangs of 8 pods that are submitted at once.

The control plane is real and on this machine, beside the service and the simulated kubelets: all share its processors.
It is that of `make test-kubernetes`, as HORAE_CONTROL_PLANE names it.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from kubernetes.client import Client, condition, eventually
from kubernetes.control_plane import ControlPlane
from kubernetes.objects import job, node
from kubernetes.service import Service
from kubernetes.simulated_nodes import SimulatedNodes
from patience import HANG_SECONDS

from bench.cases import Result, loop_seconds
from horae.engines.kubernetes.api import JOBS, NAMESPACES, NODES, PODS, Kind, KubernetesApi
from horae.engines.kubernetes.connection import read_kubeconfig
from horae.engines.kubernetes.informer import Change, Informer, News, Synced

NODE_COUNT, GANGS, PODS_PER_GANG, GPUS_PER_POD = 1000, 500, 8, 2
STEADY_SECONDS = 30.0
CLIENTS = 8
CONFIGURATION = "spare: {policy: max-min, cadence: rounds, round_seconds: 300}\n"


@dataclass(frozen=True)
class Figures(Result):
    """`jobs` are pods, `seconds` the time from the first binding to the last."""

    text: str


def gangs_at_once() -> Result:
    binary = os.environ.get("HORAE_CONTROL_PLANE")
    if not binary:
        raise SystemExit("set HORAE_CONTROL_PLANE to the program that `make -C tools/controlplane build` makes")
    with tempfile.TemporaryDirectory() as name, ControlPlane(Path(binary), Path(name) / "control-plane") as running:
        folder = Path(name)
        with SimulatedNodes(running.kubeconfig, folder / "kubelets", scale=0.0001):
            client = running.client()
            _fill(client)
            with Service(folder / "service", running.kubeconfig, CONFIGURATION) as service:
                return _measure(running, client, service)


def _fill(client: Client) -> None:
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(lambda index: client.create_node(node(f"node-{index:04d}")), range(NODE_COUNT)))
    client.patch("/api/v1/namespaces/default", {"metadata": {"labels": {"horae.io/tenant": "team"}}})
    eventually(lambda: all(condition(each, "Ready") for each in client.items("/api/v1/nodes")) or None)


def _measure(plane: ControlPlane, client: Client, service: Service) -> Figures:
    bodies = [job(f"gang-{index}", PODS_PER_GANG, GPUS_PER_POD) for index in range(GANGS)]
    api = KubernetesApi(read_kubeconfig(plane.kubeconfig))
    bindings = _Bindings(api)
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(lambda body: client.create_job("default", body), bodies))
    bound = bindings.all()
    decided = _decided(service)
    used, began = _processor_seconds(service.loop_process()), time.perf_counter()
    time.sleep(STEADY_SECONDS)
    share = (_processor_seconds(service.loop_process()) - used) / (time.perf_counter() - began)
    memory = _memory_mib(service.loop_process())
    listed = _list_again(api)
    api.close()
    seconds, pods = bound[-1] - bound[0], len(bound)
    text = (
        f"{pods:,} pods of {GANGS} gangs on {NODE_COUNT:,} nodes: decided {decided:.2f} s after they were seen "
        f"(wanted 2), {pods / seconds:.0f} bindings per second (wanted 150); with all pods there the loop uses "
        f"{100 * share:.1f}% of a core (wanted 20%) and {memory:.0f} MB (wanted 800); everything listed anew, as after "
        f"a watch that has expired, in {listed:.2f} s (wanted 5)"
    )
    return Figures(pods, seconds, memory, loop_seconds(), text)


class _Bindings:
    """Notes when each pod was bound."""

    def __init__(self, api: KubernetesApi) -> None:
        self._at: dict[str, float] = {}
        self._done = Event()
        self._informer = Informer(api, PODS, self._tell)
        self._informer.start()

    def _tell(self, news: list[News]) -> None:
        for each in news:
            if isinstance(each, Change) and each.object is not None and each.object["spec"].get("nodeName"):
                self._at.setdefault(each.key, time.perf_counter())
        if len(self._at) >= GANGS * PODS_PER_GANG:
            self._done.set()

    def all(self) -> list[float]:
        """The times in order, once all pods are bound."""
        assert self._done.wait(HANG_SECONDS), f"only {len(self._at)} pods were bound"
        self._informer.stop()
        return sorted(self._at.values())


def _decided(service: Service) -> float:
    """From the time at which the service has submitted a Job to its lease: the longest."""
    with sqlite3.connect(f"file:{service.state / 'store.db'}?mode=ro", uri=True) as store:
        query = "SELECT max(granted_at - submitted_at) FROM leases JOIN jobs ON jobs.id = leases.job_id"
        return float(store.execute(query).fetchone()[0])


def _list_again(api: KubernetesApi) -> float:
    """A watch from a version that the server no longer has, for each kind: until all is known again."""
    began, done = time.perf_counter(), list[Kind]()

    def tell(news: list[News]) -> None:
        done.extend(each.kind for each in news if isinstance(each, Synced))

    informers = [Informer(api, kind, tell) for kind in (NODES, NAMESPACES, JOBS, PODS)]
    for each in informers:
        each.start()
    while len(done) < len(informers):
        time.sleep(0.01)
    for each in informers:
        each.stop()
    return time.perf_counter() - began


def _processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_mib(process: int) -> float:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


CASES: dict[str, Any] = {"kubernetes, 500 gangs of 8 pods on 1,000 nodes": gangs_at_once}
