"""One run of a training script: its steps, its checkpoints, its reports."""

from __future__ import annotations

import atexit
import math
import os
import shutil
import time
from pathlib import Path
from typing import Any, Iterable, Iterator, SupportsFloat, TypeVar

from horae_sdk._agreement import Agreement, Announcement
from horae_sdk._checkpoints import Checkpoints
from horae_sdk._environment import Environment
from horae_sdk._files import write_json
from horae_sdk._reports import Reporter, progress_url
from horae_sdk._schedule import Schedule
from horae_sdk._speed import Speed
from horae_sdk._termination import Termination
from horae_sdk._version import __version__

PREEMPTED = 75  # the exit status of a run that was asked to leave and has saved: it is to be resumed
T = TypeVar("T")


def init(checkpoints: str | os.PathLike[str] = "checkpoints", every: float = 600.0, report_seconds: float = 1.0) -> Run:
    """Begin a run; call it once, early, in the main thread.

    `checkpoints` is the folder for checkpoints outside of Horae, `every` the seconds between two checkpoints, and
    `report_seconds` the least time between two reports of progress.
    """
    return Run(Environment.read(os.environ), Path(checkpoints), every, report_seconds)


class Run:
    """What `init` returns."""

    def __init__(self, environment: Environment, folder: Path, every: float, report_seconds: float) -> None:
        if not report_seconds > 0:
            raise ValueError(f"report_seconds={report_seconds!r}: the seconds between two reports must be positive")
        self.environment = environment
        self._checkpoints = Checkpoints((environment.checkpoint_dir or folder).absolute())
        self._agreement = Agreement(self._checkpoints.folder, self.rank, environment.world_size)
        self._schedule = Schedule(time.monotonic(), every, _on_monotonic_clock(environment.lease_ends_at))
        self._speed = Speed()
        self._scratch: Path | None = None
        self._loss: Any = None
        self._saved_since_asked = False
        published = self._checkpoints.published
        self.checkpoint: Path | None = published.path if published else environment.checkpoint
        """The newest complete checkpoint: a folder that an earlier epoch or this one has saved; None for none."""
        self.resumed = self.checkpoint is not None
        """Whether there was a checkpoint to resume from when the run began."""
        self._saved_steps = published.steps if published else environment.steps_done if self.resumed else 0.0
        self._steps_done = self._saved_steps
        self._step = self._steps_done  # the one that is under way, or the last
        if self.rank == 0 and environment.checkpoint_dir:
            environment.checkpoint_dir.mkdir(parents=True, exist_ok=True)
            write_json(environment.checkpoint_dir / "sdk.json", {"sdk": __version__})
        self._termination = Termination()
        self._termination.install()
        self._reporter = self._start_reports(report_seconds)
        atexit.register(self.close)

    @property
    def rank(self) -> int:
        return self.environment.rank

    @property
    def leaving(self) -> bool:
        """Whether this process was asked to save and leave."""
        return self._termination.asked

    def steps(self, loader: Iterable[T], start: int = 0, total: float | None = None) -> Iterator[tuple[int, T]]:
        """Yield (step, batch) until `total` steps are done, counted over all epochs.

        `step` is the number of steps that are done at the end of the loop's body: the first is `start + 1`, the last is
        `total`. The loader is iterated again when it ends; where neither `total` nor the job says how many steps there
        are, one pass is all. No batches are skipped for `start`.

        Raises SystemExit(75) once the run was asked to leave and nothing would be lost.
        """
        total = self.environment.steps_total if total is None else total
        step = start
        self._steps_done = self._step = start
        self._speed.restart(time.monotonic(), start)
        self._leave_if_saved()
        while total is None or step < total:
            before = step
            for batch in loader:
                step += 1
                self._step = step
                yield step, batch
                self._finish_step(step)
                if total is not None and step >= total:
                    return
                self._leave_if_saved()
            if total is None:
                return
            if step == before:
                raise ValueError(
                    f"the loader is empty after {step} of {total:g} steps: it must be iterable again, or hold them all"
                )

    def report(self, loss: Any = None, step: float | None = None) -> None:
        """Report the loss; and the number of steps done, where the loop is not that of `steps`.

        Loss is a number, or a tensor with one element, which is converted only when it is sent: training does not wait
        for the GPU.
        """
        if loss is not None:
            self._loss = loss.detach() if hasattr(loss, "detach") else float(loss)
        if step is not None:
            self._step = step
            self._finish_step(step)
        self._news()

    def checkpoint_due(self) -> bool:
        """Whether to save now: the run was asked to leave, or it is time. Only rank 0 saves."""
        if self.rank != 0:
            return False
        now = time.monotonic()
        speed = self._speed.steps_per_second
        asked = self.leaving and not self._saved_since_asked
        due = asked or self._schedule.due(now, 1.0 / speed if speed else 0.0)
        if due:
            self._schedule.begin_save(now)
        return due

    @property
    def checkpoint_dir(self) -> Path:
        """The folder for the next save, another one after each `saved`. What other ranks than 0 write is not kept."""
        if self.rank == 0:
            return self._checkpoints.next
        if self._scratch is None:
            self._scratch = self._checkpoints.folder / f"rank-{self.rank}"
            self._scratch.mkdir(parents=True, exist_ok=True)
        return self._scratch

    def saved(self, step: SupportsFloat) -> None:
        """Publish what was written into `checkpoint_dir`: the state after so many steps, over all epochs."""
        if self.rank == 0:
            done = float(step)
            steps = int(done) if done.is_integer() else done
            self.checkpoint = self._checkpoints.publish(steps).path
            self._steps_done = max(self._steps_done, steps)  # first: reports must not show more steps saved than done
            self._saved_steps = steps
            self._news()
        elif self._scratch is not None:
            shutil.rmtree(str(self._scratch), ignore_errors=True)
            self._scratch = None
        self._speed.pause(self._schedule.end_save(time.monotonic()))
        if self.leaving and not self._saved_since_asked:
            self._saved_since_asked = True
            if self.rank == 0:
                self._agreement.announce(self._first_common_step(self._step), leave=True)

    def agree_to_save(self, step: float) -> Announcement | None:
        """What every rank does after this step, for loops in which all ranks save together: save, perhaps leave.

        Called by every rank after every step. An answer is repeated until there is another one.
        """
        if not self._agreement.pending(step) and self.checkpoint_due():
            self._agreement.announce(self._first_common_step(step), self.leaving)
        return self._agreement.after(step)

    def close(self) -> None:
        """Send the last report, for at most two seconds. Called at exit."""
        atexit.unregister(self.close)
        self._termination.restore()
        if self._reporter:
            self._reporter.close()

    def _first_common_step(self, step: float) -> float:
        """The first step after which all ranks know what rank 0 announces at the end of this one."""
        return step if self.environment.world_size == 1 else step + 1

    def _finish_step(self, step: float) -> None:
        self._steps_done = step
        self._speed.step(time.monotonic(), step)
        self._news()

    def _leave_if_saved(self) -> None:
        """Leave where all ranks do; a single process also leaves when no step was done since the last save."""
        announced = self._agreement.after(self._steps_done)
        alone = self.environment.world_size == 1
        nothing_to_lose = alone and self.leaving and self._steps_done == self._saved_steps
        if nothing_to_lose or (announced and announced.leave):
            raise SystemExit(PREEMPTED)

    def _news(self) -> None:
        if self._reporter:
            self._reporter.wake()

    def _start_reports(self, seconds: float) -> Reporter | None:
        known = self.environment
        if not known.job or not known.url or known.rank != 0:
            return None
        reporter = Reporter(progress_url(known.url, known.job), known.token, self._progress, seconds)
        reporter.wake()
        return reporter

    def _progress(self) -> dict[str, object]:
        """The body of a report; called by the thread of the reporter."""
        loss = None if self._loss is None else float(self._loss)
        diverged = loss is not None and not math.isfinite(loss)
        saved = float(self._saved_steps)  # read before the steps done, which are written before it
        return {
            "epoch": self.environment.epoch,
            "steps": float(self._steps_done),
            "saved": saved,
            "loss": None if diverged else loss,
            "steps_per_second": self._speed.steps_per_second,
            "resumable": True,
            **({"diverged": True} if diverged else {}),
        }


def _on_monotonic_clock(unix_time: float | None) -> float | None:
    """A moment as time.monotonic() will show it, so that later changes of the wall clock do not matter."""
    return None if unix_time is None else time.monotonic() + (unix_time - time.time())
