"""What the loop needs of an engine besides the protocol of all engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from horae.engines.engine import Engine
from horae.model.cluster import Gpu
from horae.model.serialization import Plain
from horae.service.models import JobSpec


class LiveEngine(Engine, Protocol):
    def watch(self, descriptor: int) -> None:
        """Makes `wait` return when this descriptor is readable."""
        ...

    def prepare(self, job_id: str, spec: JobSpec, specification: Plain) -> None:
        """Tells how a job is run, before its start; `specification` is kept and given back."""
        ...

    def forget(self, job_id: str) -> None:
        """Tells that a job has ended for good."""
        ...

    def specification(self, job_id: str) -> Plain | None:
        """What `prepare` was given for a job that was found running."""
        ...

    def take_idle(self) -> Mapping[Gpu, float]:
        """For how many seconds GPUs were not used since the last call, of those that the engine has measured."""
        ...

    def explain(self, why: Callable[[str], str]) -> None:
        """Called in every cycle, with a way to ask why a job waits, for engines whose users look for it elsewhere."""
        ...

    def repair(self, node: str) -> None:
        """Tells that an operator vouches for the GPUs of a node: those that have failed count as usable again."""
        ...
