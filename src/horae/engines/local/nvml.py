"""The GPUs of this machine as the driver's library NVML sees them: names, users and faults.

`pynvml` is imported only where it is installed; without it, or without a driver, GPUs are emulated.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple

from horae.model.cluster import Cluster, Gpu

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
        self._forgiven_errors: dict[int, int] = {}  # by index: memory errors that an operator knows of
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
        return f"{errors} uncorrectable memory errors" if errors > self._forgiven_errors.get(index, 0) else ""

    def forgive(self, index: int) -> None:
        """Forgets the faults of a GPU so far; one that lasts, such as a GPU that is lost, is found again."""
        self._take_announcements()
        self._faults.pop(index, None)
        with suppress(self._library.NVMLError):
            self._forgiven_errors[index] = int(
                self._library.nvmlDeviceGetTotalEccErrors(self._handles[index], _UNCORRECTED, _VOLATILE)
            )

    def pids(self, index: int) -> list[int]:
        """The processes that compute on a GPU."""
        try:
            found = self._library.nvmlDeviceGetComputeRunningProcesses(self._handles[index])
        except self._library.NVMLError:
            return []
        return [int(process.pid) for process in found]

    def utilization(self, index: int) -> int | None:
        """The percentage of the last moment in which a GPU computed; None where the driver does not tell."""
        try:
            return int(self._library.nvmlDeviceGetUtilizationRates(self._handles[index]).gpu)
        except self._library.NVMLError:
            return None

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


def type_of(name: str) -> str:
    """`NVIDIA A100-SXM4-80GB` is an A100."""
    words = name.replace("-", " ").split()
    return next((word for word in words if any(letter.isdigit() for letter in word)), "-".join(words))


def in_order_of(detected: Sequence[DetectedGpu], cluster: Cluster) -> list[Gpu]:
    """The GPUs of the cluster that these are, by type and position; by position alone where types have other names."""
    gpus = [Gpu(node.name, number) for node in cluster.nodes for number in range(node.gpus)]
    types = [node.accelerator for node in cluster.nodes for _ in range(node.gpus)]
    left = dict(zip(gpus, types, strict=True))
    found: list[Gpu] = []
    for each in detected:
        same = next((gpu for gpu, name in left.items() if name == type_of(each.name)), None)
        if same is None:
            return gpus[: len(detected)]
        del left[same]
        found.append(same)
    return found


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name
