"""The loop's process over a machine of any size: `python -m bench.live_loop CONFIG`.

Its jobs are entries in a table, which start at once and end when they are told to. Everything else is the product's.
"""

from __future__ import annotations

import os
import selectors
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from horae.engines.engine import Moment
from horae.model.cluster import Cluster, Gpu
from horae.model.commands import Command, Start, Stop, Survey
from horae.model.events import Ending, Event, JobEnded, JobStarted, Running, Surveyed
from horae.model.serialization import Plain
from horae.scheduler.gpu_ledger import GpuLedger
from horae.service.clock import LogClock
from horae.service.config import ServiceConfig
from horae.service.loop.__main__ import Contact, main
from horae.service.models import JobSpec


class TableMachine:
    """Implements the engine that the loop's process needs."""

    def __init__(self, clock: LogClock) -> None:
        self._now = clock.now
        self._running: dict[str, tuple[int, tuple[Gpu, ...], tuple[str, ...]]] = {}
        self._selector = selectors.DefaultSelector()
        self._asleep, self._alarm = os.pipe()
        self._selector.register(self._asleep, selectors.EVENT_READ)

    @property
    def is_running(self) -> bool:
        return False

    def wait(self, until: float) -> Moment:
        self._selector.select(max(until - self._now(), 0.0))
        return Moment(self._now(), ())

    def wake(self) -> None:
        os.write(self._alarm, b"\0")

    def watch(self, descriptor: int) -> None:
        self._selector.register(descriptor, selectors.EVENT_READ)

    def execute(self, commands: Sequence[Command]) -> Sequence[Event]:
        replies: list[Event] = []
        for command in commands:
            match command:
                case Start():
                    for job_id in command.job_ids:
                        self._running[job_id] = command.epoch, command.gpus, command.cells
                        replies.append(JobStarted(self._now(), job_id, command.epoch))
                case Stop():
                    self._running.pop(command.job_id, None)
                    replies.append(JobEnded(self._now(), command.job_id, command.epoch, Ending.STOPPED, 0.0))
                case Survey():
                    found = [Running(job, epoch, gpus, 0.0, cells=cells) for job, (epoch, gpus, cells) in self._items()]
                    replies.append(Surveyed(self._now(), tuple(found)))
        return replies

    def _items(self) -> list[tuple[str, tuple[int, tuple[Gpu, ...], tuple[str, ...]]]]:
        return list(self._running.items())

    def prepare(self, job_id: str, spec: JobSpec, specification: Plain) -> None: ...

    def forget(self, job_id: str) -> None: ...

    def specification(self, job_id: str) -> Plain | None: ...

    def stop_all(self) -> None: ...

    def close(self) -> None: ...

    def set_cluster(self, cluster: Cluster) -> None: ...

    def begin(self, hardware: GpuLedger) -> None: ...

    def take_idle(self) -> Mapping[Gpu, float]:
        return {}

    def explain(self, why: Callable[[str], str]) -> None: ...

    def repair(self, node: str) -> None: ...


def _machine(config: ServiceConfig, clock: LogClock, term: int, contact: Contact) -> TableMachine:
    return TableMachine(clock)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), _machine))
