"""The local engine as the service drives it: job files become launches."""

from __future__ import annotations

import os
from collections.abc import Sequence

from horae.engines.engine import Moment
from horae.engines.local.engine import LocalEngine
from horae.engines.local.launch import Launch
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


def runs_as_root() -> bool:
    return os.geteuid() == 0
