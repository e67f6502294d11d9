"""Runs tasks in several processes.

Processes are spawned, not forked, because polars does not survive a fork. Each has its own pipe: when a worker dies,
whatever the cause, its pipe closes, so the parent does not wait for it; and when the parent dies, the workers' pipes
close.
"""

from __future__ import annotations

import pickle
import signal
import sys
import tempfile
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing import connection as pipes
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from horae.model.errors import BrokenInvariant, InputError

Task = TypeVar("Task")
Result = TypeVar("Result")
Luggage = TypeVar("Luggage")

LEAVE_SECONDS = 5.0  # for a process to exit when told to

Tell: TypeAlias = Callable[[float], None]  # reports the progress of a task
Work: TypeAlias = Callable[[Task, Tell], Result]
Results: TypeAlias = Generator[tuple[int, Result], None, None]  # by task number, in order of completion


class RunLost(InputError):
    """A run has no result, for a reason other than its input."""


class WorkerTask(NamedTuple, Generic[Task]):
    number: int
    task: Task  # its text is its name


class Watcher(Protocol):
    """Receives progress; tasks are identified by their numbers."""

    def started(self, number: int, /) -> None: ...

    def advanced(self, number: int, amount: Any, /) -> None: ...


class _Advanced(NamedTuple):
    """Progress of the current task."""

    amount: float


class WorkerSpec(NamedTuple, Generic[Luggage, Task, Result]):
    """How a worker is made: in every process `open_shop`, a module-level function,
    turns the luggage into the worker."""

    open_shop: Callable[[Luggage], Work[Task, Result]]
    luggage: Luggage  # sent to every worker once


def serve(connection: Connection, trade_file: Path) -> None:
    """Runs one task after the other until there are none left, or the parent has gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent process
    trade: WorkerSpec[Any, Any, Any] = pickle.loads(trade_file.read_bytes())
    work = trade.open_shop(trade.luggage)
    try:
        while True:
            connection.send(_attempt(work, connection.recv(), connection))
    except (EOFError, OSError):  # the parent has gone, perhaps in the middle of a message
        return


def _attempt(work: Work[Task, Result], task: Task, connection: Connection) -> Result | Exception:
    try:
        return work(task, lambda amount: connection.send(_Advanced(amount)))
    except OSError:  # of the pipe: a run touches no file
        raise
    except Exception as error:  # to be raised in the parent, whatever it is
        error.add_note(traceback.format_exc())
        return _portable(error)


def _portable(error: Exception) -> Exception:
    """The same error if it can be pickled, otherwise one with its text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        substitute = BrokenInvariant(f"{type(error).__name__}: {error}")
        substitute.add_note(traceback.format_exc())
        return substitute
    return error


class Worker(Generic[Task]):
    def __init__(self, trade_file: Path) -> None:
        context = get_context("spawn")
        self.connection, far_end = context.Pipe()
        self.errand: WorkerTask[Task] | None = None
        self._process: SpawnProcess = context.Process(target=serve, args=(far_end, trade_file), daemon=True)
        self._process.start()
        far_end.close()  # otherwise the pipe would not close with the worker

    def send(self, errand: WorkerTask[Task]) -> None:
        self.errand = errand
        try:
            self.connection.send(errand.task)
        except OSError:
            raise self._lost() from None

    def hear(self) -> Any:
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            raise self._lost() from None

    def dismiss(self) -> None:
        self._process.terminate()  # before its pipe closes, about which it might complain
        self.connection.close()
        self._process.join(LEAVE_SECONDS)
        if self._process.is_alive():
            self._process.kill()

    def _lost(self) -> RunLost:
        self._process.join(LEAVE_SECONDS)
        assert self.errand is not None
        return lost(self.errand, _manner(self._process.exitcode))


def lost(errand: WorkerTask[Any], how: str) -> RunLost:
    return RunLost(f"the run of {errand.task} {how}", remedy="if memory is short, use fewer --workers")


def run_in_processes(
    errands: Sequence[WorkerTask[Task]], trade: WorkerSpec[Luggage, Task, Result], workers: int, watcher: Watcher
) -> Results[Result]:
    """Yields each result with its number, in order of completion."""
    crew: list[Worker[Task]] = []
    with ExitStack() as stack:
        with _signals_later(signal.SIGINT, signal.SIGTERM):  # or the folder might be made and not be recorded
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="horae-"))
        file = Path(folder) / "trade"
        file.write_bytes(pickle.dumps(trade, protocol=5))
        try:
            while len(crew) < min(workers, len(errands)):
                with _undisturbed():
                    crew.append(Worker(file))
            yield from _dispatch(errands, crew, watcher)
        finally:
            for worker in crew:
                worker.dismiss()


def _dispatch(errands: Sequence[WorkerTask[Task]], crew: Sequence[Worker[Task]], watcher: Watcher) -> Results[Any]:
    waiting = deque(errands)
    busy: dict[Connection, Worker[Task]] = {}

    def employ(worker: Worker[Task]) -> None:
        if waiting:
            watcher.started(waiting[0].number)
            worker.send(waiting.popleft())
            busy[worker.connection] = worker

    for worker in crew:
        employ(worker)
    while busy:
        for ready in pipes.wait(list(busy)):
            worker = busy[ready]  # type: ignore[index]
            errand, message = worker.errand, worker.hear()
            assert errand is not None
            if isinstance(message, _Advanced):
                watcher.advanced(errand.number, message.amount)
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
    """A context for spawning workers: they ignore Ctrl-C, which the parent handles, and have no main module.

    A spawned process imports the main module again. That would be the command line with all its libraries, or a user's
    script that would run once more.
    """
    with _signals_later(signal.SIGINT, signal.SIGTERM):
        # Starting the resource tracker re-enables Ctrl-C afterwards, and the first worker would start it.
        resource_tracker.ensure_running()
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # a child inherits it
        try:
            yield
        finally:
            sys.modules["__main__"] = main
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _signals_later(*numbers: signal.Signals) -> Iterator[None]:
    """Defers Python's handling of these signals to the end of the context, once.

    A mask does not defer it: the signal goes to another thread (polars has some), and the handler runs in this one.
    """
    if threading.current_thread() is not threading.main_thread():  # handlers run in the main thread only
        yield
        return
    arrived: list[int] = []
    handlers = {number: handler for number in numbers if callable(handler := signal.getsignal(number))}
    for number in handlers:
        signal.signal(number, lambda got, frame: arrived.append(got))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for got in dict.fromkeys(arrived):
            signal.raise_signal(got)
