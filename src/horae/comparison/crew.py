"""Runs in several processes at a time.

Processes are spawned, not forked, because polars does not survive a fork. Each has a pipe of its own: when a worker
dies, whatever the cause, its pipe ends, and that is how the others are not left waiting for it.
"""

from __future__ import annotations

import pickle
import signal
import sys
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import connection as pipes
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import ModuleType

from horae.comparison.progress import Progress
from horae.comparison.worker import Ended, Errand, Luggage, Message, Results, serve
from horae.model.errors import InputError

LEAVE_SECONDS = 5.0  # for a process that was told to


class RunLost(InputError):
    """Of a run there is no result, and it is not the fault of what it was given."""


class Worker:
    def __init__(self, luggage: Path) -> None:
        context = get_context("spawn")
        self.connection, far_end = context.Pipe()
        self.errand: Errand | None = None
        self._process: SpawnProcess = context.Process(target=serve, args=(far_end, luggage), daemon=True)
        with _undisturbed():
            self._process.start()
        far_end.close()  # otherwise the pipe would not end with the worker

    def send(self, errand: Errand) -> None:
        self.errand = errand
        try:
            self.connection.send(errand)
        except OSError:
            raise self._lost() from None

    def hear(self) -> Message:
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            raise self._lost() from None

    def dismiss(self) -> None:
        self._process.terminate()  # before its pipe ends, of which it might complain
        self.connection.close()
        self._process.join(LEAVE_SECONDS)
        if self._process.is_alive():
            self._process.kill()

    def _lost(self) -> InputError:
        self._process.join(LEAVE_SECONDS)
        assert self.errand is not None
        return lost(self.errand, _manner(self._process.exitcode))


def lost(errand: Errand, how: str) -> InputError:
    return RunLost(f"the run of {errand.task} {how}", remedy="if memory is short, use fewer --workers")


def run_in_processes(errands: Sequence[Errand], luggage: Luggage, workers: int, progress: Progress) -> Results:
    """Each result as it comes, with its index."""
    crew: list[Worker] = []
    with tempfile.TemporaryDirectory(prefix="horae-") as folder:
        file = Path(folder) / "luggage"
        file.write_bytes(pickle.dumps(luggage, protocol=5))
        try:
            while len(crew) < min(workers, len(errands)):
                crew.append(Worker(file))
            yield from _dispatch(errands, crew, progress)
        finally:
            for worker in crew:
                worker.dismiss()


def _dispatch(errands: Sequence[Errand], crew: Sequence[Worker], progress: Progress) -> Results:
    waiting = deque(errands)
    busy: dict[Connection, Worker] = {}

    def employ(worker: Worker) -> None:
        if waiting:
            progress.started(waiting[0].number)
            worker.send(waiting.popleft())
            busy[worker.connection] = worker

    for worker in crew:
        employ(worker)
    while busy:
        for ready in pipes.wait(list(busy)):
            worker = busy[ready]  # type: ignore[index]
            errand, message = worker.errand, worker.hear()
            assert errand is not None
            if isinstance(message, Ended):
                progress.advanced(errand.number, message.jobs)
                continue
            del busy[worker.connection]
            if isinstance(message, MemoryError):
                raise lost(errand, "ran out of memory")
            if isinstance(message, BaseException):
                raise message
            employ(worker)
            yield errand.number, message


def _manner(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return f"was killed ({signal.Signals(-exit_code).name})"
    return f"ended before its time (exit code {exit_code})"


@contextmanager
def _undisturbed() -> Iterator[None]:
    """How a worker is born: deaf to Ctrl-C, which is the business of the one who started it, and without a main module.

    A spawned process imports the main module again. That would be the command line with all its libraries, or a script
    of somebody's that would run once more.
    """
    # Whoever starts the tracker hears Ctrl-C again afterwards, and the first worker would start it.
    resource_tracker.ensure_running()
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
