"""What a process of a comparison does. It starts in a fraction of a second because it imports nothing but the core."""

from __future__ import annotations

import pickle
import signal
import traceback
from collections.abc import Generator, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple, TypeAlias

from horae.comparison.progress import Counter
from horae.comparison.task import Task
from horae.comparison.workload import Workload
from horae.driver import Observer
from horae.experiment import simulate
from horae.model.errors import BrokenInvariant
from horae.model.jobs import Arrival
from horae.model.view import Policy
from horae.policies.registry import POLICIES
from horae.reports.log import RunLog


class Errand(NamedTuple):
    number: int  # of the task
    task: Task
    watched: bool


class Luggage(NamedTuple):
    """What every worker needs, once."""

    workload: Workload
    policies: Mapping[str, type[Policy]]  # those that the package does not have itself


class Ended(NamedTuple):
    """So many jobs of the present errand."""

    jobs: int


Message: TypeAlias = Ended | RunLog | BaseException
Results: TypeAlias = Generator[tuple[int, RunLog], None, None]  # by number of the task, as they come


def execute(task: Task, arrivals: Sequence[Arrival], observers: Sequence[Observer] = ()) -> RunLog:
    failures = task.failures
    return simulate(
        task.setup,
        arrivals,
        failures.plan(task.setup, task.seed, arrivals),
        checkpoint_seconds=failures.checkpoint_seconds,
        observers=observers,
    ).log


class Draws:
    """The draw at hand. Tasks come sorted by seed, so the one before is not needed again."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._seed: int | None = None
        self._arrivals: list[Arrival] = []

    def __getitem__(self, seed: int) -> list[Arrival]:
        if seed != self._seed:
            self._arrivals = self._workload(seed)
            self._seed = seed
        return self._arrivals


def serve(connection: Connection, luggage_file: Path) -> None:
    """Do one errand after the other until nobody has any more, or nobody is there."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the business of the one who started this process
    luggage: Luggage = pickle.loads(luggage_file.read_bytes())
    POLICIES.update(luggage.policies)
    draws = Draws(luggage.workload)
    try:
        while True:
            connection.send(_attempt(connection.recv(), draws, connection))
    except (EOFError, OSError):  # nobody is there any more, perhaps since the middle of a message
        return


def _attempt(errand: Errand, draws: Draws, connection: Connection) -> Message:
    observers = [Counter(lambda jobs: connection.send(Ended(jobs)))] if errand.watched else []
    try:
        return execute(errand.task, draws[errand.task.seed], observers)
    except OSError:  # the pipe's: a run touches no file
        raise
    except Exception as error:  # to be raised over there, whatever it is
        error.add_note(traceback.format_exc())
        return _portable(error)


def _portable(error: Exception) -> Exception:
    """The same error if it survives the way to another process, otherwise what it says."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        substitute = BrokenInvariant(f"{type(error).__name__}: {error}")
        substitute.add_note(traceback.format_exc())
        return substitute
    return error
