"""The example in NumPy: preempted twice and moved, it ends with exactly the loss of an uninterrupted run."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import horae_sdk as horae
from sdk_jobs import Job, finish

EXAMPLE = Path(__file__).parents[2] / "examples/training/numpy_mlp.py"
STEPS = ("--steps", "3000")


def preempt(process: subprocess.Popen[str]) -> str:
    """Ask the run to leave once it trains; return what it printed."""
    assert process.stdout
    first = process.stdout.readline()
    second = process.stdout.readline()  # a first checkpoint, so that it is in the middle of training
    process.send_signal(signal.SIGTERM)
    status, output, errors = finish(process)
    assert status == horae.PREEMPTED, errors
    return first + second + output


def final_loss(output: str) -> str:
    return next(line for line in output.splitlines() if line.startswith("final loss"))


def test_preempted_twice_and_moved_to_another_gpu_type_the_result_is_exactly_the_same(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    status, whole, errors = finish(Job(tmp_path / "whole").start(EXAMPLE, *STEPS))
    assert status == 0, errors

    job = Job(tmp_path, variables={"HORAE_GPU_TYPE": "V100"})
    slowly = (*STEPS, "--pace", "0.3", "--every", "0.1")  # a quarter of an hour: it never ends by itself
    assert "from step 0 on V100" in preempt(job.start(EXAMPLE, *slowly))
    first = job.saved["steps"]
    job = job.next_epoch(HORAE_GPU_TYPE="A100")
    assert f"from step {first} on A100" in preempt(job.start(EXAMPLE, *slowly))
    second = job.saved["steps"]
    status, resumed, errors = finish(job.next_epoch().start(EXAMPLE, *STEPS))
    assert status == 0, errors
    assert f"from step {second} on A100" in resumed
    assert 0 < first < second < 3000
    assert final_loss(resumed) == final_loss(whole)
