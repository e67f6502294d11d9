"""Processes that do errands for one who may be interrupted at any moment."""

from __future__ import annotations

import select
import signal
import socket
import threading
from collections.abc import Sequence
from multiprocessing import resource_tracker, util

import pytest
from patience import HANG_SECONDS

from horae.experiments.workers import Tell, Work, WorkerSpec, WorkerTask, run_in_processes


class Nobody:
    def started(self, number: int, /) -> None:
        pass

    def advanced(self, number: int, amount: float, /) -> None:
        pass


def doubling(luggage: int) -> Work[int, int]:
    def work(task: int, tell: Tell) -> int:
        return luggage * task

    return work


ERRANDS = [WorkerTask(number, number) for number in range(5)]
TRADE = WorkerSpec(doubling, 2)


def test_every_errand_is_done_once() -> None:
    assert sorted(run_in_processes(ERRANDS, TRADE, 2, Nobody())) == [(number, 2 * number) for number in range(5)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl_c", "termination"])
def test_a_signal_that_another_thread_got_waits_until_the_worker_is_born(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Otherwise a process is left half told what to do, and complains."""
    over = threading.Event()
    bystander = threading.Thread(target=over.wait)
    bystander.start()
    spawn = util.spawnv_passfds
    born: list[int] = []
    noticed, wakeup = socket.socketpair()
    wakeup.setblocking(False)

    def disturbed(path: bytes, arguments: Sequence[str], descriptors: Sequence[int]) -> int:
        assert bystander.ident is not None
        born.append(spawn(path, arguments, descriptors))
        signal.pthread_kill(bystander.ident, number)
        assert select.select([noticed], [], [], HANG_SECONDS)[0], "the signal was not delivered"
        return born[-1]

    resource_tracker.ensure_running()  # it is born the same way
    monkeypatch.setattr(util, "spawnv_passfds", disturbed)

    def interrupt(got: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(number, interrupt)
    wakeup_before = signal.set_wakeup_fd(wakeup.fileno())  # gets a byte as soon as a signal is there, in any thread
    try:
        with pytest.raises(KeyboardInterrupt):
            list(run_in_processes(ERRANDS, TRADE, 2, Nobody()))
    finally:
        signal.set_wakeup_fd(wakeup_before)
        signal.signal(number, before)
        over.set()
        bystander.join()
        noticed.close()
        wakeup.close()
    assert len(born) == 1
    assert capfd.readouterr().err == ""
