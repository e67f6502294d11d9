"""Progress of the runs, for people: one bar on a terminal, a line for each finished run elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from horae_evaluation.gavel.run import GavelResult
from horae_evaluation.gavel.setup import GavelCase

ESTIMATE_SECONDS = 1800.0  # window for estimating the remaining time: one run may take minutes


class ReproductionProgress(Protocol):
    """Receives progress; runs are identified by their index."""

    def shown(self) -> AbstractContextManager[object]: ...

    def begins(self, cases: Sequence[GavelCase], missing: Sequence[int]) -> None: ...

    def started(self, number: int) -> None: ...

    def advanced(self, number: int, part: float) -> None: ...

    def finished(self, number: int, result: GavelResult) -> None: ...


class Bar:
    def __init__(self, console: Console) -> None:
        self._rich = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:.1f}%"),
            TimeElapsedColumn(),
            TextColumn("left:"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            speed_estimate_period=ESTIMATE_SECONDS,
        )
        self._task = self._rich.add_task("runs", total=None, visible=False)
        self._parts: dict[int, float] = {}  # of runs in progress or finished
        self._missing = self._done = 0

    def shown(self) -> AbstractContextManager[object]:
        return self._rich

    def begins(self, cases: Sequence[GavelCase], missing: Sequence[int]) -> None:
        self._missing = len(missing)
        self._show()

    def started(self, number: int) -> None: ...

    def advanced(self, number: int, part: float) -> None:
        self._parts[number] = part
        self._show()

    def finished(self, number: int, result: GavelResult) -> None:
        self._done += 1
        self.advanced(number, 1.0)

    def _show(self) -> None:
        self._rich.update(
            self._task,
            description=f"{self._done} of {self._missing} runs",
            total=self._missing,
            completed=sum(self._parts.values()),
            visible=self._missing > 0,
        )


class ReproductionLines:
    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._cases: Sequence[GavelCase] = ()
        self._missing = self._done = 0

    def shown(self) -> AbstractContextManager[object]:
        return nullcontext()

    def begins(self, cases: Sequence[GavelCase], missing: Sequence[int]) -> None:
        self._cases, self._missing = cases, len(missing)
        if len(missing) < len(cases):
            self._tell(f"{len(cases) - len(missing)} of {len(cases)} runs are there already")

    def started(self, number: int) -> None: ...

    def advanced(self, number: int, part: float) -> None: ...

    def finished(self, number: int, result: GavelResult) -> None:
        self._done += 1
        hours = result.completion_mean_seconds / 3600
        took = f"{result.processor_seconds:,.0f} s of processor time"
        self._tell(f"{self._done}/{self._missing}: {self._cases[number]}: {hours:.2f} h, in {took}")
