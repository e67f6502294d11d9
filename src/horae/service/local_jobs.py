"""The local engine as the service drives it: job files become launches."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

from horae.engines.engine import Moment
from horae.engines.local.engine import LocalEngine
from horae.engines.local.launch import Launch
from horae.engines.local.nvml import detect
from horae.model.cluster import Node
from horae.model.commands import Command
from horae.model.events import Event
from horae.model.serialization import Plain
from horae.service.models import JobSpec

OUTPUT_BYTES_MAX = 64 << 20


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

    def forget(self, job_id: str) -> None:
        self._engine.forget(job_id)

    def specification(self, job_id: str) -> Plain | None:
        return self._engine.specification(job_id)

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
                user=specification["row"]["user"] if self._as_submitter else "",
                output_bytes_max=OUTPUT_BYTES_MAX,
                specification=specification,
            )
        )


def detected_nodes() -> list[Node]:
    """This machine as NVML knows it: one node per GPU type, in the order in which their GPUs come."""
    found = detect()
    types = dict.fromkeys(_type_of(gpu.name) for gpu in found)
    host = socket.gethostname()
    counts = {name: sum(_type_of(gpu.name) == name for gpu in found) for name in types}
    return [
        Node(host if len(counts) == 1 else f"{host}-{name}", name, count, cpus=float(os.cpu_count() or 1))
        for name, count in counts.items()
    ]


def _type_of(name: str) -> str:
    """`NVIDIA A100-SXM4-80GB` is an A100."""
    words = name.replace("-", " ").split()
    return next((word for word in words if any(letter.isdigit() for letter in word)), "-".join(words))


def runs_as_root() -> bool:
    return os.geteuid() == 0
