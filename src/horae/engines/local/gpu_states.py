"""GPUs that cannot be used: locks that no known lease explains, and what the driver reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import NamedTuple

from horae.engines.local.locks import Locks, held_by, is_free
from horae.engines.local.records import read_record, write_record
from horae.model.cluster import Cluster, Gpu
from horae.model.events import GpuChanged, GpuState

_CHECK_SECONDS = 1.0


class GpuNote(NamedTuple):
    state: GpuState
    note: str = ""


class ReportedGpus(NamedTuple):
    """GPUs that were reported as not usable, as far as is certain."""

    gpus: tuple[Gpu, ...]
    failed: Mapping[str, str] = {}  # by GPU: why; it stays out of use until an operator puts it back


USABLE = GpuNote(GpuState.USABLE)


class GpuStates:
    """Reports changes. What was reported is on record: the next service reports those GPUs again, as they are then."""

    def __init__(self, cluster: Cluster, locks: Locks, record: Path) -> None:
        self._locks = locks
        self._record = record
        self._by_lock: dict[Gpu, str] = {}
        self._by_driver: dict[Gpu, GpuNote] = {}
        self._failed: dict[Gpu, str] = {}  # the driver may announce a fault only once
        self._reported: dict[Gpu, GpuNote] = {}
        self._recorded: set[Gpu] = set()
        self._check_at = inf
        found = read_record(ReportedGpus, record)
        self._unknown = {gpu for gpu in found.gpus if cluster.has(gpu)} if found is not None else set()
        for name, note in found.failed.items() if found is not None else ():
            if cluster.has(Gpu.parse(name)):
                self._failed[Gpu.parse(name)] = note
        self._recorded |= self._unknown
        self._recorded_failed = dict(self._failed)

    @property
    def due_at(self) -> float:
        return 0.0 if self._unknown else self._check_at

    def probe(self, gpus: Iterable[Gpu], now: float) -> None:
        """Notes which of these GPUs are locked though no known lease has them."""
        for gpu in gpus:
            if not is_free(self._locks.of_gpu(gpu)):
                self.lock_taken(gpu, f"GPU {gpu} is {held_by(self._locks.of_gpu(gpu))}", now)

    def lock_taken(self, gpu: Gpu, note: str, now: float) -> None:
        self._by_lock.setdefault(gpu, note)
        self._check_at = min(self._check_at, now + _CHECK_SECONDS)

    def driver_reports(self, found: Mapping[Gpu, GpuNote]) -> None:
        """Replaces what the driver has reported; GPUs that are not named are usable."""
        self._by_driver = dict(found)
        for gpu, each in found.items():
            if each.state is GpuState.FAILED:
                self._failed.setdefault(gpu, each.note)

    def failed_on(self, node: str) -> list[Gpu]:
        return [gpu for gpu in self._failed if gpu.node == node]

    def forgive(self, gpus: Iterable[Gpu]) -> None:
        """Counts failed GPUs as usable again, unless the driver still reports a fault."""
        for gpu in gpus:
            self._failed.pop(gpu, None)
            self._by_driver.pop(gpu, None)

    def failure_of(self, gpus: Iterable[Gpu]) -> str:
        """Why one of these GPUs has failed; empty if none has."""
        return next((f"GPU {gpu}: {self._failed[gpu]}" for gpu in gpus if gpu in self._failed), "")

    def changes(self, now: float) -> list[GpuChanged]:
        """What has changed since it was last asked for."""
        if now >= self._check_at:
            self._by_lock = {gpu: note for gpu, note in self._by_lock.items() if not is_free(self._locks.of_gpu(gpu))}
            self._check_at = now + _CHECK_SECONDS if self._by_lock else inf
        current = {gpu: GpuNote(GpuState.FOREIGN, note) for gpu, note in self._by_lock.items()} | self._by_driver
        current |= {gpu: GpuNote(GpuState.FAILED, note) for gpu, note in self._failed.items()}
        concerned = {*current, *self._reported, *self._unknown}
        changed = [
            gpu
            for gpu in sorted(concerned)
            if gpu in self._unknown or current.get(gpu, USABLE) != self._reported.get(gpu, USABLE)
        ]
        self._unknown.clear()
        self._reported = current
        self._write(self._recorded | current.keys())
        return [GpuChanged(now, gpu, *current.get(gpu, USABLE)) for gpu in changed]

    def acknowledge(self) -> None:
        """The reports have been received: GPUs that are usable again need not be on record."""
        self._write(set(self._reported))

    def _write(self, gpus: set[Gpu]) -> None:
        if gpus != self._recorded or self._failed != self._recorded_failed:
            self._recorded, self._recorded_failed = gpus, dict(self._failed)
            failed = {str(gpu): note for gpu, note in sorted(self._failed.items())}
            with suppress(OSError):  # a full disk: the next service finds the locks itself
                write_record(self._record, ReportedGpus(tuple(sorted(gpus)), failed), durable=False)
