"""The GPUs of this machine as the driver's library NVML sees them: names, users and faults.

`pynvml` is imported only where it is installed; without it, or without a driver, GPUs are emulated.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple

_GPU_IS_LOST = 15  # NVML_ERROR_GPU_IS_LOST
_UNCORRECTED, _VOLATILE = 1, 0  # the type and the counter of memory errors: since the driver was loaded
_XID_CRITICAL_ERROR = 8  # nvmlEventTypeXidCriticalError
# Faults of a program, not of the GPU: they end the job that caused them and nothing else.
_XIDS_OF_PROGRAMS = frozenset({8, 13, 31, 43, 45, 68, 109})


class DetectedGpu(NamedTuple):
    number: int  # as NVML counts
    name: str
    uuid: str
    memory_bytes: int


class Nvml:
    """The functions of NVML that are needed. `library` is `pynvml`, or stands in for it."""

    def __init__(self, library: Any) -> None:
        self._library = library
        library.nvmlInit()
        count = int(library.nvmlDeviceGetCount())
        self._handles = [library.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        self._faults: dict[int, str] = {}  # by index: faults that the driver has announced, which is done once
        self._events = self._listen()

    def detect(self) -> list[DetectedGpu]:
        """All GPUs of this machine, in the order of NVML, which need not be that of CUDA."""
        return [
            DetectedGpu(
                index,
                _text(self._library.nvmlDeviceGetName(handle)),
                _text(self._library.nvmlDeviceGetUUID(handle)),
                int(self._library.nvmlDeviceGetMemoryInfo(handle).total),
            )
            for index, handle in enumerate(self._handles)
        ]

    def fault(self, index: int) -> str:
        """Why a GPU is not usable; empty if it is."""
        self._take_announcements()
        if index in self._faults:
            return self._faults[index]
        try:
            errors = self._library.nvmlDeviceGetTotalEccErrors(self._handles[index], _UNCORRECTED, _VOLATILE)
        except self._library.NVMLError as error:
            is_lost = getattr(error, "value", None) == _GPU_IS_LOST
            return "the driver has lost it" if is_lost else ""
        return f"{errors} uncorrectable memory errors" if errors else ""

    def pids(self, index: int) -> list[int]:
        """The processes that compute on a GPU."""
        try:
            found = self._library.nvmlDeviceGetComputeRunningProcesses(self._handles[index])
        except self._library.NVMLError:
            return []
        return [int(process.pid) for process in found]

    def _listen(self) -> Any:
        events = None
        with suppress(self._library.NVMLError):  # not supported by all GPUs
            events = self._library.nvmlEventSetCreate()
            for handle in self._handles:
                self._library.nvmlDeviceRegisterEvents(handle, _XID_CRITICAL_ERROR, events)
        return events

    def _take_announcements(self) -> None:
        with suppress(self._library.NVMLError):  # there is none left
            while self._events is not None:
                event = self._library.nvmlEventSetWait_v2(self._events, 0)
                if event.eventData not in _XIDS_OF_PROGRAMS:
                    index = int(self._library.nvmlDeviceGetIndex(event.device))
                    self._faults[index] = f"Xid {event.eventData}"


def load() -> Nvml | None:
    """NVML, or None where there is no library, no driver or no GPU."""
    try:
        library = import_module("pynvml")
    except ImportError:
        return None
    try:
        found = Nvml(library)
    except (library.NVMLError, OSError):
        return None
    return found if found.detect() else None


def detect() -> list[DetectedGpu]:
    """All GPUs of this machine that NVML knows."""
    found = load()
    return [] if found is None else found.detect()


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name
