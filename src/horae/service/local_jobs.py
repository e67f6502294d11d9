"""The local engine as the service drives it: job files become launches."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence

from horae.engines.engine import Moment
from horae.engines.local.engine import LocalEngine
from horae.engines.local.launch import Launch
from horae.engines.local.nvml import detect, type_of
from horae.model.cluster import Cluster, Gpu, Node
from horae.model.commands import Command
from horae.model.events import Event
from horae.model.serialization import Plain
from horae.scheduler.gpu_ledger import GpuLedger
from horae.service.models import JobSpec

OUTPUT_BYTES_MAX = 64 << 20
NO_USER = "/"  # no account has this name: a job without a user must not run as root


class LocalJobs:
    """Implements `LiveEngine` with processes on this machine."""

    def __init__(self, engine: LocalEngine, *, as_submitter: bool = False) -> None:
        self._engine = engine
        self._as_submitter = as_submitter  # the service is root: jobs run as the Unix users who submitted them

    def wait(self, until: float) -> Moment | None:
        return self._engine.wait(until)

    def execute(self, commands: Sequence[Command]) -> Sequence[Event]:
        return self._engine.execute(commands)

    def wake(self) -> None:
        self._engine.wake()

    def watch(self, descriptor: int) -> None:
        self._engine.watch(descriptor)

    @property
    def is_running(self) -> bool:
        return self._engine.is_running

    def set_cluster(self, cluster: Cluster) -> None:
        self._engine.set_cluster(cluster)

    def begin(self, hardware: GpuLedger) -> None:
        """The engine has found what runs when it was made."""

    def stop_all(self) -> None:
        self._engine.stop_all()

    def close(self) -> None:
        self._engine.close()

    def forget(self, job_id: str) -> None:
        self._engine.forget(job_id)

    def specification(self, job_id: str) -> Plain | None:
        return self._engine.specification(job_id)

    def take_idle(self) -> Mapping[Gpu, float]:
        return self._engine.take_idle()

    def explain(self, why: Callable[[str], str]) -> None:
        """Users ask the service itself."""

    def repair(self, node: str) -> None:
        self._engine.repair(node)

    def prepare(self, job_id: str, spec: JobSpec, specification: Plain) -> None:
        job = specification["job"]
        self._engine.expect(
            Launch(
                job_id=job_id,
                command=spec.run,
                workdir=spec.workdir,
                environment=dict(spec.env),
                grace_seconds=spec.grace,
                steps_total=spec.steps,
                continues=job.get("continues", ""),
                processes=spec.processes,
                user=(specification["row"]["user"] or NO_USER) if self._as_submitter else "",
                output_bytes_max=OUTPUT_BYTES_MAX,
                has_terminal=spec.pty,
                specification=specification,
            )
        )


def detected_nodes() -> list[Node]:
    """This machine as NVML knows it: one node per GPU type, in the order in which their GPUs come."""
    found = detect()
    types = dict.fromkeys(type_of(gpu.name) for gpu in found)
    host = socket.gethostname()
    counts = {name: sum(type_of(gpu.name) == name for gpu in found) for name in types}
    return [
        Node(host if len(counts) == 1 else f"{host}-{name}", name, count, cpus=float(os.cpu_count() or 1))
        for name, count in counts.items()
    ]


def runs_as_root() -> bool:
    return os.geteuid() == 0
