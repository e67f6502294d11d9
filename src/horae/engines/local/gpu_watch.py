"""Watches the GPUs of this machine in a thread of its own, because a driver in trouble may answer late or never."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from horae.engines.local import processes
from horae.engines.local.gpu_states import GpuNote
from horae.engines.local.nvml import Nvml
from horae.model.cluster import Gpu
from horae.model.events import GpuState

_LOOK_SECONDS = 10.0


class GpuWatch:
    """`gpus` are named in the order of NVML; `is_ours` tells whether a process belongs to a job of the engine, and
    `wake` is called when something has changed or was asked for."""

    def __init__(
        self,
        nvml: Nvml,
        gpus: Sequence[Gpu],
        is_ours: Callable[[int], bool],
        wake: Callable[[], None],
        look_seconds: float = _LOOK_SECONDS,
    ) -> None:
        self._nvml = nvml
        self._gpus = gpus
        self._is_ours = is_ours
        self._wake = wake
        self._look_seconds = look_seconds
        self._asked = threading.Event()
        self._is_closed = False
        self.found: Mapping[Gpu, GpuNote] = {}
        self._idle: dict[Gpu, float] = {}
        self._measured_at = time.monotonic()
        self._to_forgive: set[Gpu] = set()
        self._forgiven: set[Gpu] = set()
        self.looked_at = 0.0  # when the last look began, on the monotonic clock
        self._thread = threading.Thread(target=self._run, name="gpu-watch", daemon=True)
        self._thread.start()

    def ask(self) -> None:
        """Has the GPUs looked at now; `looked_at` tells when it is done."""
        self._asked.set()

    def forgive(self, gpus: Iterable[Gpu]) -> None:
        """Forgets the faults of these GPUs at the next look, which is now."""
        self._to_forgive |= set(gpus)
        self.ask()

    def take_forgiven(self) -> set[Gpu]:
        """GPUs whose faults were forgotten; `found` says what is wrong with them since."""
        forgiven, self._forgiven = self._forgiven, set()
        return forgiven

    def take_idle(self) -> dict[Gpu, float]:
        """By GPU that was measured since the last call: for how many seconds it computed nothing."""
        idle, self._idle = self._idle, {}
        return idle

    def _measure(self, began_at: float) -> None:
        """Counts the time since the last look for GPUs that are idle now."""
        seconds, self._measured_at = began_at - self._measured_at, began_at
        idle, counted = self._idle, {}
        for index, gpu in enumerate(self._gpus):
            percent = self._nvml.utilization(index)
            if percent is not None:
                unused = min(seconds, 2 * self._look_seconds) if percent == 0 else 0.0
                counted[gpu] = idle.get(gpu, 0.0) + unused
        self._idle = {**idle, **counted}

    def close(self) -> None:
        self._is_closed = True
        self._asked.set()
        self._thread.join(1.0)  # longer only if the driver does not answer

    def _run(self) -> None:
        while not self._is_closed:
            began_at = time.monotonic()
            forgiven, self._to_forgive = self._to_forgive, set()
            for index, gpu in enumerate(self._gpus):
                if gpu in forgiven:
                    self._nvml.forgive(index)
            found = {gpu: note for index, gpu in enumerate(self._gpus) if (note := self._look(index)) is not None}
            self._measure(began_at)
            is_news = found != self.found or self._asked.is_set()
            self._asked.clear()
            self.found, self.looked_at = found, began_at
            self._forgiven = self._forgiven | forgiven
            if is_news and not self._is_closed:
                self._wake()
            self._asked.wait(self._look_seconds)

    def _look(self, index: int) -> GpuNote | None:
        """The state of a GPU that is not usable; None if it is."""
        fault = self._nvml.fault(index)
        if fault:
            return GpuNote(GpuState.FAILED, fault)
        foreign = [pid for pid in self._nvml.pids(index) if not self._is_ours(pid)]
        users = [f"{name} ({pid})" for pid in sorted(foreign) if (name := _user(pid))]
        return GpuNote(GpuState.FOREIGN, ", ".join(users)) if users else None


def _user(pid: int) -> str:
    """The name of the user of a process; empty if it has ended."""
    try:
        return processes.user_name(Path(f"/proc/{pid}").stat().st_uid)
    except OSError:
        return ""
