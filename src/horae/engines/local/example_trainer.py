"""An example of a training program that Horae may stop and resume: its steps are sleeps.

    python -m horae.engines.local.example_trainer --steps 100 --steps-per-second 10 --speed a100=20 --loss 0.05,1,0.2

It shows everything that such a program has to do: resume at its checkpoint, periodically save and publish another,
and on SIGTERM finish its step, save and exit. As a trial of a search it also reports its loss, takes its number of
steps from the environment, and continues from an earlier job's checkpoint.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from math import ceil
from pathlib import Path
from types import FrameType
from typing import NamedTuple

STOPPED = 75  # EX_TEMPFAIL of sysexits.h: try again later
CHECKPOINT_SECONDS = 0.25


class Stopper:
    """Records that SIGTERM was received."""

    def __init__(self) -> None:
        self.told = False
        signal.signal(signal.SIGTERM, self._tell)

    def _tell(self, number: int, frame: FrameType | None) -> None:
        self.told = True


class State(NamedTuple):
    """What a checkpoint holds: the steps of this job, and those of earlier jobs whose work it continues."""

    steps: int = 0
    before: int = 0

    @classmethod
    def load(cls, path: str) -> State:
        """The state in a checkpoint; nothing done if there is none."""
        try:
            saved = json.loads(Path(path).read_text()) if path else {}
            return cls(int(saved.get("steps", 0)), int(saved.get("before", 0)))
        except (OSError, ValueError, AttributeError):
            return cls()


class Checkpoints:
    """Saves states in the folder of this lease, and publishes each when it is complete."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder) if folder else None
        self._last: Path | None = None
        self.due_at = time.monotonic() + CHECKPOINT_SECONDS

    def save(self, state: State) -> None:
        if self._folder is not None:
            file = self._folder / f"steps-{state.steps}.json"
            file.write_text(json.dumps(state._asdict()))
            # The file is complete before it is published; readers see the old publication or the new one.
            new = self._folder / "saved.json.new"
            new.write_text(json.dumps({"steps": state.steps, "path": file.name}))
            new.replace(self._folder / "saved.json")
            if self._last not in (None, file):
                self._last.unlink(missing_ok=True)
            self._last = file
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
    steps_total: int, steps_per_second: float, checkpoints: Checkpoints, losses: Losses, state: State, stopper: Stopper
) -> int:
    """Runs the remaining steps and returns the exit code."""
    step_ends_at = time.monotonic()
    while state.steps < steps_total:
        if stopper.told:
            checkpoints.save(state)
            print(f"stopped after step {state.steps}", flush=True)
            return STOPPED
        step_ends_at += 1 / steps_per_second
        time.sleep(max(step_ends_at - time.monotonic(), 0.0))
        state = state._replace(steps=state.steps + 1)
        losses.report(state.steps)
        if time.monotonic() >= checkpoints.due_at:
            checkpoints.save(state)
    checkpoints.save(state)
    print(f"finished all {steps_total} steps", flush=True)
    return 0


def begin() -> State:
    """Where to begin: at the newest checkpoint of this job, else at that of the job whose work it continues."""
    state = State.load(os.environ.get("HORAE_CHECKPOINT", ""))
    steps = max(state.steps, int(float(os.environ.get("HORAE_STEPS_DONE", "0"))))
    former = State.load(os.environ.get("HORAE_CONTINUES", ""))
    return State(steps, state.before or former.steps + former.before)


def main(arguments: Sequence[str] | None = None) -> int:
    stopper = Stopper()
    asked = _parser().parse_args(arguments)
    gpu_type = os.environ.get("HORAE_GPU_TYPE", "")
    state = begin()
    total = asked.steps
    if total is None:
        total = ceil(float(os.environ["HORAE_STEPS_TOTAL"]) * (1 - 1e-9))  # a trial's part may have been rounded up
    losses = Losses(os.environ.get("HORAE_REPORTS", ""), asked.loss, state.before)
    after = f" after {state.before} of earlier jobs" if state.before else ""
    print(f"step {state.steps} of {total} on {gpu_type or 'anything'}{after}", flush=True)
    speed = dict(asked.speed).get(gpu_type, asked.steps_per_second)
    return train(total, speed, Checkpoints(os.environ.get("HORAE_CHECKPOINT_DIR", "")), losses, state, stopper)


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
