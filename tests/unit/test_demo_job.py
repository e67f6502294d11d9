"""The training job of `horae demo`: preempted and resumed, it ends with the loss of an uninterrupted run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from patience import HANG_SECONDS

from horae.cli.demo.training_job import STOPPED
from horae.cli.demo.workload import PROGRAM

STEPS = 40


def start(folder: Path, speed: float, checkpoint: str = "") -> subprocess.Popen[str]:
    """The job as the demo starts it, on a GPU type with this speed."""
    folder.mkdir()
    settings = {"HORAE_CHECKPOINT_DIR": str(folder), "HORAE_CHECKPOINT": checkpoint, "HORAE_GPU_TYPE": "T4"}
    command = [sys.executable, "-I", "-S", str(PROGRAM), "7", str(STEPS), "A100=1", f"T4={speed}"]
    return subprocess.Popen(command, env={**os.environ, **settings}, stdout=subprocess.PIPE, text=True)


def finish(job: subprocess.Popen[str]) -> tuple[int, list[str]]:
    said, _ = job.communicate(timeout=HANG_SECONDS)
    return job.returncode, said.splitlines()


def test_it_ends_with_the_same_loss_whether_preempted_or_not(tmp_path: Path) -> None:
    code, whole = finish(start(tmp_path / "whole", 1000.0))
    assert (code, whole[0]) == (0, f"from step 0 of {STEPS} on T4, 1000 steps per second")

    first = start(tmp_path / "first", 4.0)
    assert first.stdout is not None
    first.stdout.readline()
    assert first.stdout.readline().startswith("step ")  # it has reported: there is something to save
    first.send_signal(signal.SIGTERM)
    assert finish(first)[0] == STOPPED
    saved = json.loads((tmp_path / "first" / "saved.json").read_text())
    assert 0 < saved["steps"] < STEPS
    code, rest = finish(start(tmp_path / "second", 1000.0, str(tmp_path / "first" / saved["path"])))
    assert (code, rest[0].split(" on ")[0]) == (0, f"from step {saved['steps']} of {STEPS}")
    assert rest[-1] == whole[-1]
    assert whole[-1].startswith("final loss 0.")


def test_it_learns(tmp_path: Path) -> None:
    _, whole = finish(start(tmp_path / "whole", 1000.0))
    loss = float(whole[-1].removeprefix("final loss "))
    from horae.cli.demo.training_job import FEATURES, HELD_OUT, loss_of  # noqa: PLC0415

    assert loss < 0.1 * loss_of([0.0] * FEATURES, 7, HELD_OUT)
