"""Progress for people: bars on a terminal, a line for each finished run elsewhere. Nothing of it goes to stdout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from horae.experiments.compare.run_spec import RunSpec
from horae.model.safe_text import counted


class ProgressBars:
    """One bar for the whole, in jobs, and one for each run in progress."""

    watches_jobs = True

    def __init__(self, console: Console) -> None:
        self._rich = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("jobs"),
            TimeElapsedColumn(),
            TextColumn("left:"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._tasks: Sequence[RunSpec] = ()
        self._jobs = 0
        self._whole: TaskID | None = None
        self._bars: dict[int, TaskID] = {}
        self._ended: dict[int, int] = {}  # by run: jobs, of those that are finished or in progress

    def shown(self) -> AbstractContextManager[object]:
        return self._rich

    def begins(self, tasks: Sequence[RunSpec], missing: Sequence[int], jobs: int) -> None:
        self._tasks, self._jobs = tasks, jobs
        if missing:
            self._whole = self._rich.add_task("all runs", total=jobs * len(missing))

    def started(self, index: int) -> None:
        self._bars[index] = self._rich.add_task(escape(str(self._tasks[index])), total=self._jobs)

    def advanced(self, index: int, jobs: int) -> None:
        # Another draw may have more jobs than the first; a bar never exceeds its total.
        self._ended[index] = min(jobs, self._jobs)
        self._rich.update(self._bars[index], completed=self._ended[index])
        if self._whole is not None:
            self._rich.update(self._whole, completed=sum(self._ended.values()))

    def finished(self, index: int, jobs: int) -> None:
        self.advanced(index, self._jobs)
        self._rich.remove_task(self._bars.pop(index))


class ProgressLines:
    """One line per finished run, for logs."""

    watches_jobs = False

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._tasks: Sequence[RunSpec] = ()
        self._missing = self._done = 0

    def shown(self) -> AbstractContextManager[object]:
        return nullcontext()

    def begins(self, tasks: Sequence[RunSpec], missing: Sequence[int], jobs: int) -> None:
        self._tasks, self._missing = tasks, len(missing)
        if len(missing) < len(tasks):
            self._tell(f"{len(tasks) - len(missing)} of {len(tasks)} runs are there already")

    def started(self, index: int) -> None: ...

    def advanced(self, index: int, jobs: int) -> None: ...

    def finished(self, index: int, jobs: int) -> None:
        self._done += 1
        self._tell(f"{self._done}/{self._missing}: {self._tasks[index]}: {counted(jobs, 'job')}")
