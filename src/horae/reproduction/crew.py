"""Cases in several processes at a time.

As in comparisons, processes are spawned, each with a pipe of its own: when one dies its pipe ends, and when the one who
started them dies theirs do.
"""

from __future__ import annotations

import signal
import sys
import traceback
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import connection as pipes
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from types import ModuleType
from typing import NamedTuple, TypeAlias

from horae.comparison.crew import RunLost
from horae.model.errors import BrokenInvariant, HoraeError
from horae.reproduction.gavel import Case, Tables
from horae.reproduction.progress import Progress
from horae.reproduction.simulation import Result, run_case

LEAVE_SECONDS = 5.0  # for a process that was told to


class Done(NamedTuple):
    """This part of the present case."""

    part: float


Message: TypeAlias = Done | Result | HoraeError
Numbered: TypeAlias = Generator[tuple[int, Result], None, None]  # by number of the case, as they come


def serve(connection: Connection, tables: Tables) -> None:
    """One case after the other until nobody has any more, or nobody is there."""
    try:
        while True:
            connection.send(_attempt(connection.recv(), tables, connection))
    except (EOFError, OSError):
        return


def _attempt(case: Case, tables: Tables, connection: Connection) -> Message:
    try:
        return run_case(case, tables, lambda part: connection.send(Done(part)))
    except OSError:  # the pipe's: a run touches no file
        raise
    except HoraeError as error:
        return error
    except Exception:  # to be told over there, whatever it is
        return BrokenInvariant(f"{case}: {traceback.format_exc()}")


class Worker:
    def __init__(self, tables: Tables) -> None:
        context = get_context("spawn")
        self.connection, far_end = context.Pipe()
        self.number = -1
        self._process: SpawnProcess = context.Process(target=serve, args=(far_end, tables), daemon=True)
        with _undisturbed():
            self._process.start()
        far_end.close()  # otherwise the pipe would not end with the worker

    def send(self, number: int, case: Case) -> None:
        self.number = number
        try:
            self.connection.send(case)
        except OSError:
            raise self._lost() from None

    def hear(self) -> Message:
        try:
            message: Message = self.connection.recv()
        except (EOFError, OSError):
            raise self._lost() from None
        return message

    def dismiss(self) -> None:
        self._process.terminate()
        self.connection.close()
        self._process.join(LEAVE_SECONDS)
        if self._process.is_alive():
            self._process.kill()

    def _lost(self) -> RunLost:
        self._process.join(LEAVE_SECONDS)
        problem = f"a process ended before its time (exit code {self._process.exitcode})"
        return RunLost(problem, remedy="if memory is short, use fewer --workers; finished runs are kept")


def run_in_processes(cases: Sequence[tuple[int, Case]], tables: Tables, workers: int, progress: Progress) -> Numbered:
    """Each result as it comes, with the number of its case."""
    crew: list[Worker] = []
    try:
        while len(crew) < min(workers, len(cases)):
            crew.append(Worker(tables))
        yield from _dispatch(cases, crew, progress)
    finally:
        for worker in crew:
            worker.dismiss()


def _dispatch(cases: Sequence[tuple[int, Case]], crew: Sequence[Worker], progress: Progress) -> Numbered:
    waiting, busy = deque(cases), {worker.connection: worker for worker in crew}
    for worker in crew:
        worker.send(*waiting.popleft())
    while busy:
        for ready in pipes.wait(list(busy)):
            worker = busy[ready]  # type: ignore[index]
            message = worker.hear()
            if isinstance(message, Done):
                progress.advanced(worker.number, message.part)
                continue
            if isinstance(message, HoraeError):
                raise message
            yield worker.number, message
            if waiting:
                worker.send(*waiting.popleft())
            else:
                del busy[worker.connection]


@contextmanager
def _undisturbed() -> Iterator[None]:
    """How a worker is born: deaf to Ctrl-C, and without the main module, which would be the whole command line."""
    resource_tracker.ensure_running()  # before, as whoever starts it hears Ctrl-C again afterwards
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
