"""The schedulers that are compared on Kubernetes: how each is started, and what a gang looks like to it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from kubernetes.client import Json
from kubernetes.control_plane import ControlPlane
from kubernetes.objects import job, training
from kubernetes.service import Service

from bench.kubernetes_kueue import QUEUE, kueue

NODE_COUNT = 8
GPUS_PER_POD = 8
RESTART_SECONDS = 0.25
ROUND_SECONDS = 1.0
TURN_ROUNDS = 3  # not the 10 by default: jobs here are shorter than that, and none would be preempted
TENANTS = ("vision", "nlp", "speech")
GATES = ("GenericWorkload", "GangScheduling", "WorkloadWithJob")
_OF_ALL_TENANTS = "".join(f"  {tenant}: {{weight: 1}}\n" for tenant in TENANTS)
_ROUNDS = f"cadence: rounds, round_seconds: {ROUND_SECONDS:g}, rules: {{turn_rounds: {TURN_ROUNDS}}}"
_SHARED = f"restart_seconds: {RESTART_SECONDS}\ntenants:\n{_OF_ALL_TENANTS}spare: {{policy: %s, {_ROUNDS}}}\n"
_FIFO = f"restart_seconds: {RESTART_SECONDS}\ntenants:\n{_OF_ALL_TENANTS}spare: {{policy: fifo, cadence: events}}\n"
_CELLS = f"""restart_seconds: {RESTART_SECONDS}
tenants:
  vision: {{weight: 1}}
  nlp: {{cells: {{H100.node: 4}}, policy: fifo, cadence: events}}
  speech: {{cells: {{H100.node: 4}}, policy: fifo, cadence: events}}
spare: {{policy: fifo, cadence: events}}
"""


@dataclass(frozen=True)
class System:
    """`plane` makes the control plane with what belongs to it; `running` starts what is not a part of it."""

    plane: Callable[[Path, Path], ControlPlane]
    running: Callable[[ControlPlane, Path], AbstractContextManager[object]]
    gang: Callable[[str, int, float], Json]  # name, pods, seconds of training


def horae(configuration: str) -> System:
    def running(plane: ControlPlane, folder: Path) -> Service:
        return Service(folder / "service", plane.kubeconfig, configuration)

    return System(ControlPlane, running, _gang_of_horae)


def _gang_of_horae(name: str, pods: int, seconds: float) -> Json:
    notes = {"horae.io/steps": f"{seconds:g}", "horae.io/speed": "H100=1", "horae.io/checkpoint": "true"}
    return job(name, pods, GPUS_PER_POD, annotations=notes, pod_annotations=training(seconds, "H100=1"))


def kube_scheduler(gates: tuple[str, ...] = ()) -> System:
    return System(lambda binary, folder: _plane_with_scheduler(binary, folder, gates), _nothing, _plain_gang)


def _plane_with_scheduler(binary: Path, folder: Path, gates: tuple[str, ...]) -> ControlPlane:
    configuration = folder / "scheduler.json"
    plane = ControlPlane(
        binary,
        folder,
        flags=[f"--feature-gates={','.join(f'{gate}=true' for gate in gates)}"] if gates else [],
        api_flags=["--runtime-config=scheduling.k8s.io/v1alpha2=true"] if gates else [],
        scheduler_flags=[f"--config={configuration}"],
        with_scheduler=True,
    )
    configuration.write_text(json.dumps(_scheduler_configuration(plane)))
    return plane


def _scheduler_configuration(plane: ControlPlane) -> Json:
    """The back-off of pods that could not be placed, 1 to 10 s by default, is as short as is allowed: training is."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(plane.kubeconfig), "qps": 500, "burst": 1000},
        "leaderElection": {"leaderElect": False},
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 1,
    }


def _plain_gang(name: str, pods: int, seconds: float) -> Json:
    notes = training(seconds, "H100=1")
    return job(name, pods, GPUS_PER_POD, pod_annotations=notes, scheduler="default-scheduler", suspend=False)


def with_kueue() -> System:
    def running(plane: ControlPlane, folder: Path) -> AbstractContextManager[None]:
        return kueue(plane, folder / "kueue", TENANTS, NODE_COUNT * GPUS_PER_POD)

    return System(lambda binary, folder: _plane_with_scheduler(binary, folder, ()), running, _gang_of_kueue)


def _gang_of_kueue(name: str, pods: int, seconds: float) -> Json:
    body = _plain_gang(name, pods, seconds)
    body["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": QUEUE}
    body["spec"]["suspend"] = True
    return body


@contextmanager
def _nothing(plane: ControlPlane, folder: Path) -> Iterator[None]:
    yield


SYSTEMS: dict[str, System] = {
    "horae-hierarchical": horae(_SHARED % "hierarchical"),
    "horae-max-min": horae(_SHARED % "max-min"),
    "horae-cells": horae(_CELLS),
    "horae-fifo": horae(_FIFO),
    "kueue": with_kueue(),
    "kube-scheduler-gangs": kube_scheduler(GATES),
    "kube-scheduler": kube_scheduler(),
}
