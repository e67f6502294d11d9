"""An example of a training program that Horae may stop and resume: its steps are sleeps.

    python -m horae.engines.local.example_trainer --steps 100 --steps-per-second 10 --speed a100=20 --loss 0.05,1,0.2

It shows everything that such a program has to do: resume at its checkpoint, periodically write the number of saved
steps, and on SIGTERM finish its step, save and exit. As a trial of a search it also reports its loss, takes its number
of steps from the environment, and continues from an earlier job's checkpoint.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from math import ceil
from pathlib import Path
from types import FrameType

STOPPED = 75  # EX_TEMPFAIL of sysexits.h: try again later
CHECKPOINT_SECONDS = 0.25


class Stopper:
    """Records that SIGTERM was received."""

    def __init__(self) -> None:
        self.told = False
        signal.signal(signal.SIGTERM, self._tell)

    def _tell(self, number: int, frame: FrameType | None) -> None:
        self.told = True


class Checkpoint:
    def __init__(self, path: str) -> None:
        self._path = Path(path) if path else None
        self.due_at = time.monotonic() + CHECKPOINT_SECONDS

    def load(self) -> int:
        return _number(self._path)

    def take_over(self, former: Checkpoint) -> int:
        """The steps done by an earlier job and those before it; kept for the job that continues this one."""
        before = former.load() + _number(former._beside)
        if before and self._beside is not None:
            self._beside.write_text(f"{before}\n")
        return before

    @property
    def _beside(self) -> Path | None:
        return None if self._path is None else self._path.with_name(self._path.name + ".before")

    def save(self, steps: int) -> None:
        if self._path is not None:
            # Readers of the file see the old number or the new one, never a part of it.
            new = self._path.with_name(self._path.name + ".new")
            new.write_text(f"{steps}\n")
            new.replace(self._path)
        self.due_at = time.monotonic() + CHECKPOINT_SECONDS


class Losses:
    """A loss that falls as 1 / (rate x step + start) + floor, counted from the very first step."""

    def __init__(self, path: str, curve: tuple[float, float, float] | None, before: int) -> None:
        self._path, self._curve, self._before = path, curve, before

    def report(self, steps: int) -> None:
        if self._path and self._curve:
            rate, start, floor = self._curve
            loss = 1 / (rate * (self._before + steps) + start) + floor
            with Path(self._path).open("a", encoding="ascii") as file:
                file.write(f"{steps} {loss:.9g}\n")


def train(
    steps_total: int, steps_per_second: float, checkpoint: Checkpoint, losses: Losses, steps: int, stopper: Stopper
) -> int:
    """Runs the remaining steps and returns the exit code."""
    step_ends_at = time.monotonic()
    while steps < steps_total:
        if stopper.told:
            checkpoint.save(steps)
            print(f"stopped after step {steps}", flush=True)
            return STOPPED
        step_ends_at += 1 / steps_per_second
        time.sleep(max(step_ends_at - time.monotonic(), 0.0))
        steps += 1
        losses.report(steps)
        if time.monotonic() >= checkpoint.due_at:
            checkpoint.save(steps)
    checkpoint.save(steps)
    print(f"finished all {steps_total} steps", flush=True)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    stopper = Stopper()
    asked = _parser().parse_args(arguments)
    gpu_type = os.environ.get("HORAE_GPU_TYPE", "")
    checkpoint = Checkpoint(os.environ.get("HORAE_CHECKPOINT", ""))
    steps = max(int(float(os.environ.get("HORAE_STEPS_DONE", "0"))), checkpoint.load())
    total = asked.steps
    if total is None:
        total = ceil(float(os.environ["HORAE_STEPS_TOTAL"]) * (1 - 1e-9))  # a trial's part may have been rounded up
    before = checkpoint.take_over(Checkpoint(os.environ.get("HORAE_CONTINUES", "")))
    losses = Losses(os.environ.get("HORAE_REPORTS", ""), asked.loss, before)
    after = f" after {before} of earlier jobs" if before else ""
    print(f"step {steps} of {total} on {gpu_type or 'anything'}{after}", flush=True)
    speed = dict(asked.speed).get(gpu_type, asked.steps_per_second)
    return train(total, speed, checkpoint, losses, steps, stopper)


def _number(path: Path | None) -> int:
    try:
        return 0 if path is None else int(float(path.read_text()))
    except (OSError, ValueError, OverflowError):
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m horae.engines.local.example_trainer", description="Pretend to train."
    )
    is_told = "HORAE_STEPS_TOTAL" in os.environ
    parser.add_argument("--steps", type=int, required=not is_told, help="how many there are; else HORAE_STEPS_TOTAL")
    parser.add_argument("--steps-per-second", type=_speed, required=True, help="on GPUs of which --speed says nothing")
    parser.add_argument("--speed", type=_speed_of_type, action="append", default=[], metavar="TYPE=STEPS_PER_SECOND")
    parser.add_argument("--loss", type=_curve, metavar="RATE,START,FLOOR", help="1 / (RATE x step + START) + FLOOR")
    return parser


def _curve(text: str) -> tuple[float, float, float]:
    rate, start, floor = (float(part) for part in text.split(","))
    if not (rate >= 0 and start > 0):
        raise argparse.ArgumentTypeError(f"{text} is no curve; give a rate of 0 or more and a start above 0")
    return rate, start, floor


def _speed(text: str) -> float:
    speed = float(text)
    if not speed > 0:
        raise argparse.ArgumentTypeError(f"{text} is no speed; give a positive number")
    return speed


def _speed_of_type(text: str) -> tuple[str, float]:
    gpu_type, equals, speed = text.rpartition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} names no GPU type; write e.g. a100=20")
    return gpu_type, _speed(speed)


if __name__ == "__main__":
    sys.exit(main())
