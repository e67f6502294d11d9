"""GPUs of this machine as the driver sees them, with a stand-in for its library."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
from local_jobs import FOREVER, GPUS, Bench, a_bench, a_start
from patience import wait_until

from horae.engines.local import nvml
from horae.engines.local.gpu_watch import GpuWatch
from horae.engines.local.launch import Launch
from horae.engines.local.nvml import DetectedGpu, Nvml, in_order_of
from horae.engines.local.processes import user_name
from horae.model.cluster import Cluster, Node
from horae.model.commands import Stop
from horae.model.events import Ending, GpuState, JobEnded

LOST, TIMEOUT, NOT_SUPPORTED = 15, 10, 3


class NVMLError(Exception):  # the name that the library has
    def __init__(self, value: int) -> None:
        self.value = value
        super().__init__(value)


@dataclass
class Driver:
    """Two GPUs, and what happens to them. The names are those of the library."""

    pids: dict[int, list[int]] = field(default_factory=dict)
    ecc: dict[int, int] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    xids: list[tuple[int, int]] = field(default_factory=list)
    busy: dict[int, int] = field(default_factory=dict)
    has_events: bool = True
    NVMLError: type[NVMLError] = NVMLError

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetIndex(self, handle: int) -> int:
        return handle

    def nvmlDeviceGetName(self, handle: int) -> bytes:
        return b"Tesla X"

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(total=1 << 30)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=pid) for pid in self.pids.get(handle, [])]

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:
        if handle not in self.busy:
            raise NVMLError(NOT_SUPPORTED)
        return SimpleNamespace(gpu=self.busy[handle])

    def nvmlDeviceGetTotalEccErrors(self, handle: int, kind: int, counter: int) -> int:
        if handle in self.lost:
            raise NVMLError(LOST)
        if handle not in self.ecc:
            raise NVMLError(NOT_SUPPORTED)
        return self.ecc[handle]

    def nvmlEventSetCreate(self) -> object:
        if not self.has_events:
            raise NVMLError(NOT_SUPPORTED)
        return object()

    def nvmlDeviceRegisterEvents(self, handle: int, kinds: int, events: object) -> None:
        pass

    def nvmlEventSetWait_v2(self, events: object, milliseconds: int) -> SimpleNamespace:
        if not self.xids:
            raise NVMLError(TIMEOUT)
        device, xid = self.xids.pop()
        return SimpleNamespace(device=device, eventData=xid)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with a_bench(tmp_path) as bench:
        yield bench


def look(driver: Driver) -> dict[object, object]:
    """What a watch finds at its first look."""
    looked: list[None] = []
    watch = GpuWatch(Nvml(driver), GPUS[:2], lambda pid: False, lambda: looked.append(None), look_seconds=1e6)
    wait_until(lambda: watch.looked_at > 0)
    watch.close()
    return {gpu: tuple(note) for gpu, note in watch.found.items()}


def test_gpus_are_detected() -> None:
    assert Nvml(Driver()).detect() == [DetectedGpu(n, "Tesla X", f"GPU-{n}", 1 << 30) for n in range(2)]


def test_without_a_driver_there_are_no_gpus() -> None:
    if nvml.load() is not None:
        pytest.skip("this machine has GPUs")
    assert nvml.detect() == []


@pytest.mark.parametrize(
    ("driver", "found"),
    [
        (Driver(), {}),
        (Driver(has_events=False), {}),
        (Driver(ecc={0: 0, 1: 0}), {}),
        (Driver(ecc={1: 3}), {GPUS[1]: (GpuState.FAILED, "3 uncorrectable memory errors")}),
        (Driver(lost={0}), {GPUS[0]: (GpuState.FAILED, "the driver has lost it")}),
        (Driver(xids=[(1, 79), (0, 31)]), {GPUS[1]: (GpuState.FAILED, "Xid 79")}),
        (Driver(pids={0: [1 << 30]}), {}),  # it has ended just now
        (
            Driver(pids={0: [os.getpid()]}),
            {GPUS[0]: (GpuState.FOREIGN, f"{user_name(os.getuid())} ({os.getpid()})")},
        ),
    ],
)
def test_what_is_wrong_with_a_gpu(driver: Driver, found: dict[object, object]) -> None:
    assert look(driver) == found


def test_a_fault_that_was_announced_once_is_remembered() -> None:
    library = Nvml(Driver(xids=[(0, 79)]))
    assert [library.fault(0), library.fault(0), library.fault(1)] == ["Xid 79", "Xid 79", ""]


def test_processes_of_others_are_reported_and_those_of_our_jobs_are_not(bench: Bench) -> None:
    driver = Driver(pids={1: [os.getpid()]})
    engine = bench.started(Launch("job", f"echo $$ $CUDA_VISIBLE_DEVICES > pid; {FOREVER}"), nvml=Nvml(driver))
    (foreign,) = bench.next_events(engine)
    assert foreign[1:3] == (GPUS[1], GpuState.FOREIGN)
    pid, devices = (bench.folder().work / "pid").read_text().split()
    assert devices == "GPU-0"
    driver.pids = {0: [int(pid)]}
    assert engine._watch is not None
    engine._watch.ask()
    (usable,) = bench.next_events(engine)
    assert usable[1:] == (GPUS[1], GpuState.USABLE, "")
    engine.execute([Stop(0, "job", 0.0)])
    assert bench.the_end(engine).ending is Ending.STOPPED


def test_a_job_that_fails_with_its_gpu_is_lost(bench: Bench) -> None:
    driver = Driver()
    engine = bench.engine(Launch("job", "echo no device; exit 1"), nvml=Nvml(driver))
    driver.xids.append((0, 79))
    engine.execute([a_start()])
    events = bench.next_events(engine)
    while not any(isinstance(event, JobEnded) for event in events):
        events += bench.next_events(engine)
    assert [event[1:3] for event in events] == [(GPUS[0], GpuState.FAILED), ("job", 0)]
    assert events[-1][3:] == (Ending.LOST, 0.0, "GPU a/0: Xid 79; exit code 1: no device")


def test_a_gpu_that_has_failed_stays_out_of_use_until_an_operator_puts_it_back(bench: Bench) -> None:
    driver = Driver(ecc={0: 0, 1: 3})
    first = bench.engine(nvml=Nvml(driver))
    assert [event[1:] for event in bench.next_events(first)] == [
        (GPUS[1], GpuState.FAILED, "3 uncorrectable memory errors")
    ]
    driver.xids.append((0, 79))
    assert first._watch is not None
    first._watch.ask()
    assert [event[1:] for event in bench.next_events(first)] == [(GPUS[0], GpuState.FAILED, "Xid 79")]
    first.wait(0.0)
    first.close()
    bench.engines.remove(first)
    second = bench.engine(nvml=Nvml(driver))  # its driver does not announce the Xid again
    found = {event[1:3] for event in bench.next_events(second)}
    assert found == {(GPUS[0], GpuState.FAILED), (GPUS[1], GpuState.FAILED)}
    second.repair("a")
    found = {event[1:3] for event in bench.next_events(second)}
    assert found == {(GPUS[0], GpuState.USABLE), (GPUS[1], GpuState.USABLE)}
    driver.ecc[1] = 4
    assert second._watch is not None
    second._watch.ask()
    assert [event[1:] for event in bench.next_events(second)] == [
        (GPUS[1], GpuState.FAILED, "4 uncorrectable memory errors")
    ]


def test_gpus_that_compute_nothing_are_measured() -> None:
    watch = GpuWatch(Nvml(Driver(busy={0: 0, 1: 40})), GPUS[:2], lambda pid: False, lambda: None, look_seconds=1e6)
    wait_until(lambda: watch.looked_at > 0)
    looked_at = watch.looked_at
    watch.ask()
    wait_until(lambda: watch.looked_at > looked_at)
    watch.close()
    measured = watch.take_idle()
    assert measured[GPUS[0]] > 0.0 == measured[GPUS[1]]
    assert watch.take_idle() == {}


def test_gpus_are_found_by_their_type() -> None:
    lab = Cluster("lab", (Node("h-V100", "V100", 1), Node("h-A100", "A100", 2)))
    names = ("NVIDIA A100-SXM4-80GB", "Tesla V100-PCIE-16GB", "NVIDIA A100-SXM4-80GB")
    detected = [DetectedGpu(number, name, f"GPU-{number}", 1) for number, name in enumerate(names)]
    assert list(map(str, in_order_of(detected, lab))) == ["h-A100/0", "h-V100/0", "h-A100/1"]
    assert list(map(str, in_order_of(detected[:1], Cluster("x", (Node("n", "big", 2),))))) == ["n/0"]
