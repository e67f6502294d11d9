"""A job of the demo: it fits a linear model by gradient descent, at the pace of the GPU type that it runs on.

    python -I -S training_job.py SEED STEPS A100=10 V100=6 T4=3

Preempted and resumed, it ends with exactly the loss of an uninterrupted run: the batch of a step depends on the seed
and the step only, and a checkpoint has the weights with all their digits. Nothing but the standard library is used,
neither Horae nor its SDK, so it also shows what any program has to do to be preempted without loss of work.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from random import Random
from types import FrameType
from urllib.parse import urlsplit

FEATURES, BATCH, RATE, NOISE = 8, 16, 0.02, 0.1
STOPPED = 75  # EX_TEMPFAIL of sysexits.h: it has saved and is to be resumed
SAVE_SECONDS, REPORT_SECONDS = 5.0, 1.0
TIMEOUT_SECONDS = 1.0  # of a report; training goes on without it
HELD_OUT = -1  # the step of the batch that no step trains on

Weights = list[float]


class Termination:
    """Whether this process was told to save and leave."""

    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGTERM, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked = True


def batch(seed: int, step: int) -> list[tuple[list[float], float]]:
    """The inputs of a step, each with a noisy linear function of it, which the model learns."""
    truth = [Random(f"truth {seed} {index}").uniform(-2, 2) for index in range(FEATURES)]
    random = Random(f"batch {seed} {step}")
    inputs = [[random.gauss(0, 1) for _ in range(FEATURES)] for _ in range(BATCH)]
    return [(x, dot(truth, x) + random.gauss(0, NOISE)) for x in inputs]


def dot(left: list[float], right: list[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))


def loss_of(weights: Weights, seed: int, step: int) -> float:
    """The mean squared error over the batch of a step."""
    return sum((dot(weights, x) - y) ** 2 for x, y in batch(seed, step)) / BATCH


def train(weights: Weights, seed: int, step: int) -> tuple[Weights, float]:
    """The weights after one step of gradient descent, and the loss before it."""
    gradient, loss = [0.0] * FEATURES, 0.0
    for x, y in batch(seed, step):
        error = dot(weights, x) - y
        loss += error**2 / BATCH
        gradient = [g + 2 * error * each / BATCH for g, each in zip(gradient, x, strict=True)]
    return [w - RATE * g for w, g in zip(weights, gradient, strict=True)], loss


class Checkpoints:
    """Saves into the folder of this lease, and publishes each checkpoint when it is complete."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self.saved = 0
        self.due_at = time.monotonic() + SAVE_SECONDS

    def save(self, step: int, weights: Weights) -> None:
        name = f"step-{step}.json"
        (self._folder / name).write_text(json.dumps({"step": step, "weights": weights}))
        # Renamed, so that a reader sees the former publication or this one.
        new = self._folder / "saved.json.new"
        new.write_text(json.dumps({"steps": step, "path": name}))
        new.replace(self._folder / "saved.json")
        self.saved = step
        self.due_at = time.monotonic() + SAVE_SECONDS


def load(path: str) -> tuple[int, Weights]:
    """The step and the weights of a checkpoint; an empty path is a fresh start."""
    if not path:
        return 0, [0.0] * FEATURES
    found = json.loads(Path(path).read_text())
    return int(found["step"]), [float(each) for each in found["weights"]]


class Reports:
    """Posts the progress to the service, now and then."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        found = urlsplit(environment.get("HORAE_URL", ""))
        self._address = (found.hostname, found.port) if found.hostname else None
        self._path = f"/v1/jobs/{environment.get('HORAE_JOB', '')}/progress"
        self._headers = {
            "Authorization": f"Bearer {environment.get('HORAE_TOKEN', '')}",
            "Content-Type": "application/json",
        }
        self._epoch = int(environment.get("HORAE_EPOCH", "0"))
        self.due_at = time.monotonic() + REPORT_SECONDS

    def post(self, step: int, saved: int, loss: float, speed: float) -> None:
        self.due_at = time.monotonic() + REPORT_SECONDS
        if self._address is None:
            return
        body = {"epoch": self._epoch, "steps": step, "saved": saved, "loss": loss, "steps_per_second": speed}
        connection = HTTPConnection(*self._address, timeout=TIMEOUT_SECONDS)
        with closing(connection), suppress(OSError, HTTPException):  # a later report has the latest state anyway
            connection.request("POST", self._path, json.dumps({**body, "resumable": True}), self._headers)
            connection.getresponse().read()


def run(seed: int, steps_total: int, speeds: Mapping[str, float], environment: Mapping[str, str]) -> int:
    """Trains from the newest checkpoint on; returns the exit code."""
    termination, reports = Termination(), Reports(environment)
    checkpoints = Checkpoints(environment.get("HORAE_CHECKPOINT_DIR", "."))
    step, weights = load(environment.get("HORAE_CHECKPOINT", ""))
    gpu_type = environment.get("HORAE_GPU_TYPE", "")
    speed = speeds.get(gpu_type, max(speeds.values()))
    print(f"from step {step} of {steps_total} on {gpu_type or 'this machine'}, {speed:g} steps per second", flush=True)
    first, began_at = step, time.monotonic()
    while step < steps_total:
        if termination.asked:
            checkpoints.save(step, weights)
            print(f"saved step {step} and left", flush=True)
            return STOPPED
        step += 1
        weights, loss = train(weights, seed, step)
        # To the end of the step by the clock, so that a slow machine makes up for slow steps.
        time.sleep(max(began_at + (step - first) / speed - time.monotonic(), 0.0))
        if time.monotonic() >= checkpoints.due_at:
            checkpoints.save(step, weights)
        if time.monotonic() >= reports.due_at:
            reports.post(step, checkpoints.saved, loss, (step - first) / (time.monotonic() - began_at))
            print(f"step {step}, loss {loss:.6f}", flush=True)
    checkpoints.save(step, weights)
    print(f"final loss {loss_of(weights, seed, HELD_OUT)!r}", flush=True)
    return 0


if __name__ == "__main__":
    pairs = (word.split("=") for word in sys.argv[3:])
    sys.exit(run(int(sys.argv[1]), int(sys.argv[2]), {kind: float(speed) for kind, speed in pairs}, os.environ))
