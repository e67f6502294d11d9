"""What a new user waits for: the help, and first answers without any compiled kernel, in seconds of the wall."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.cases import Result, loop_seconds

SAMPLE_JOBS = 300
FEW_JOBS = "id,submit,gpus,duration\nbert,0,8,6h\nvgg,10m,2,45m\n"


def _command(jobs: int, *arguments: str, runs: int = 1) -> Result:
    """The fastest run of a command, each with an empty folder of kernels."""
    fastest = min(_seconds(arguments) for _ in range(runs))
    return Result(jobs, fastest, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024, loop_seconds())


def _seconds(arguments: tuple[str, ...]) -> float:
    with TemporaryDirectory() as folder:
        (Path(folder) / "few.csv").write_text(FEW_JOBS)
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(Path(folder) / "kernels")}
        started = time.perf_counter()
        command = [sys.executable, "-m", "horae", *arguments]
        subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=True)
        return time.perf_counter() - started


CASES: dict[str, Callable[[], Result]] = {
    "first minutes, help": partial(_command, 1, "--help", runs=5),
    "first minutes, simulated demo": partial(_command, SAMPLE_JOBS, "demo", "--simulated"),
    "first minutes, two jobs, max-min, no kernels": partial(
        _command, 2, "simulate", "--jobs", "few.csv", "--policy", "max-min", runs=3
    ),
    "first minutes, two jobs, themis, no kernels": partial(
        _command, 2, "simulate", "--jobs", "few.csv", "--policy", "themis", runs=3
    ),
    "first minutes, 300 jobs, max-min, kernels compiled on the way": partial(
        _command, SAMPLE_JOBS, "simulate", "--policy", "max-min"
    ),
    "first minutes, 300 jobs, themis, kernels compiled on the way": partial(
        _command, SAMPLE_JOBS, "simulate", "--policy", "themis"
    ),
    "first minutes, kernels compiled in advance": partial(_command, 1, "compile"),
}
LIMITS_SECONDS = {
    "first minutes, help": 0.5,
    "first minutes, two jobs, max-min, no kernels": 3.0,
    "first minutes, two jobs, themis, no kernels": 3.0,
}
