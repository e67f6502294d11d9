"""An example of a training program that Horae may stop and resume: its steps are naps.

    python -m horae.engines.trainer --steps 100 --steps-per-second 10 --speed a100=20

It shows all that such a program has to do: resume where it was, say now and then how many steps are safe, and on
SIGTERM finish its step, save and leave.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

STOPPED = 75  # EX_TEMPFAIL of sysexits.h: try again later
CHECKPOINT_SECONDS = 0.25


class Stopper:
    """Remembers that SIGTERM came."""

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
        if self._path is None:
            return 0
        try:
            return int(float(self._path.read_text()))
        except (OSError, ValueError, OverflowError):
            return 0

    def save(self, steps: int) -> None:
        if self._path is not None:
            # Whoever reads the file finds the old number or the new one, never half of it.
            new = self._path.with_name(self._path.name + ".new")
            new.write_text(f"{steps}\n")
            new.replace(self._path)
        self.due_at = time.monotonic() + CHECKPOINT_SECONDS


def train(steps_total: int, steps_per_second: float, checkpoint: Checkpoint, steps: int, stopper: Stopper) -> int:
    """Do what is left and return the exit code."""
    step_ends_at = time.monotonic()
    while steps < steps_total:
        if stopper.told:
            checkpoint.save(steps)
            print(f"stopped after step {steps}", flush=True)
            return STOPPED
        step_ends_at += 1 / steps_per_second
        time.sleep(max(step_ends_at - time.monotonic(), 0.0))
        steps += 1
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
    print(f"step {steps} of {asked.steps} on {gpu_type or 'anything'}", flush=True)
    return train(asked.steps, dict(asked.speed).get(gpu_type, asked.steps_per_second), checkpoint, steps, stopper)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m horae.engines.trainer", description="Pretend to train.")
    parser.add_argument("--steps", type=int, required=True, help="how many there are in all")
    parser.add_argument("--steps-per-second", type=_speed, required=True, help="on GPUs of which --speed says nothing")
    parser.add_argument("--speed", type=_speed_of_type, action="append", default=[], metavar="TYPE=STEPS_PER_SECOND")
    return parser


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
