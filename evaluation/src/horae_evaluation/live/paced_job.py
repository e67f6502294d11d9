"""A job that takes time but no processor: its steps are pauses of random lengths.

    paced_job.py NAME SEED STEPS A100=4.0 V100=2.0

It starts up, makes STEPS steps at the given mean speed of its GPU type, reports progress, and saves when told to leave.
Lengths of steps and start-ups are random, but NAME and SEED determine them all: a start-up by how often the job was
started before, a step by its number. So a simulation can have the same jobs. The file that LIVE_TIMES names gets one
line per start, and one when the lease ends, with when its first step began and its last one ended, in seconds since
boot.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from random import Random

import horae_sdk

STARTUP_SECONDS = (1.0, 5.0)  # of every start: uniform between these
LOAD_SECONDS = 1.0  # to load a checkpoint, on top of that
JOB_DEVIATION = 0.1  # relative, of the speed of a whole job
STEP_DEVIATION = 0.3  # relative, of a single step
REPORT_SECONDS = 2.0


def main(name: str, seed: str, steps_total: int, speeds: dict[str, float]) -> None:
    began_at = _process_start()
    run = horae_sdk.init(report_seconds=REPORT_SECONDS)
    times, epoch = Path(os.environ["LIVE_TIMES"]), f"{run.environment.job} {run.environment.epoch}"
    done = int((run.checkpoint / "step").read_text()) if run.checkpoint else 0
    _start_up(run, began_at + startup_seconds(seed, name, _note_start(times, epoch), resumes=done > 0))
    step_seconds = steps_seconds(seed, name, steps_total)
    speed = speeds[run.environment.gpu_type or ""]
    first_at = at = _now()
    try:
        for step, _ in run.steps(range(steps_total), start=done, total=steps_total):
            # To the end of the step by the clock, so that a slow machine does not make slow steps.
            at += step_seconds[step - 1] / speed
            time.sleep(max(at - _now(), 0.0))
            if run.checkpoint_due():
                (run.checkpoint_dir / "step").write_text(str(step))
                run.saved(step)
    finally:
        _append(times, f"steps {epoch} {first_at} {at}\n")


def startup_seconds(seed: object, name: str, starts_before: int, *, resumes: bool) -> float:
    """How long this start of a job takes, to its first step; `resumes`: from a checkpoint."""
    drawn = Random(f"start {seed} {name} {starts_before}").uniform(*STARTUP_SECONDS)
    return drawn + (LOAD_SECONDS if resumes else 0.0)


def steps_seconds(seed: object, name: str, steps_total: int) -> list[float]:
    """How long each step of a job takes, where the mean speed of all jobs is one step per second."""
    job = lognormal(Random(f"job {seed} {name}"), JOB_DEVIATION)
    random = Random(f"steps {seed} {name}")
    return [job * lognormal(random, STEP_DEVIATION) for _ in range(steps_total)]


def _note_start(times: Path, epoch: str) -> int:
    """Notes a start, and returns how often the job was started before."""
    own = f"start {epoch.split(maxsplit=1)[0]} "
    before = sum(line.startswith(own) for line in times.read_text().splitlines()) if times.exists() else 0
    _append(times, f"start {epoch}\n")
    return before


def _append(file: Path, line: str) -> None:
    with file.open("a") as opened:
        opened.write(line)


def _start_up(run: horae_sdk.Run, until: float) -> None:
    while not run.leaving and _now() < until:
        time.sleep(min(0.1, max(until - _now(), 0.0)))


def lognormal(random: Random, deviation: float) -> float:
    """A factor of mean 1 with this relative deviation, up to its square."""
    return random.lognormvariate(-(deviation**2) / 2, deviation)


def _now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _process_start() -> float:
    """When this process was started, on the clock of `_now`: starting Python is a part of the start-up."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    pairs = (word.split("=") for word in sys.argv[4:])
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), {kind: float(speed) for kind, speed in pairs})
