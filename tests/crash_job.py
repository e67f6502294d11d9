"""A job that checks by itself that it is alone: it locks its own file and one per GPU, and records what goes wrong.

    crash_job.py FOLDER STEPS [--child]

FOLDER gets locks, one line per published checkpoint, and `violations`. With --child it starts a process in a session of
its own, as some data loaders do; that one holds the locks, too.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import horae_sdk


def main(folder: Path, steps: int, *, has_child: bool) -> None:
    job = os.environ["HORAE_JOB"]
    names = [f"job-{job}", *(f"gpu-{number}" for number in os.environ["HORAE_GPUS"].split(","))]
    locks = [_take(folder, name, job) for name in names]
    if has_child:
        descriptors = [lock.fileno() for lock in locks]
        subprocess.Popen(["sleep", "300"], start_new_session=True, pass_fds=descriptors)
    run = horae_sdk.init(every=0.2)
    start = int((run.checkpoint / "step").read_text()) if run.resumed and run.checkpoint else 0
    saved = folder / f"saved-{job}"
    published = int(saved.read_text().split()[-1]) if saved.exists() else 0
    if start < published:
        _complain(folder, f"job {job} resumes at {start}, and had published {published}")
    for step in run.steps(range(start, steps), start=start, total=steps):
        number = step[0] if isinstance(step, tuple) else step
        time.sleep(0.05)
        if run.checkpoint_due():
            (run.checkpoint_dir / "step").write_text(str(number))
            run.saved(number)
            with saved.open("a") as file:
                file.write(f"{number}\n")
    _append(folder / "finished", job)


def _take(folder: Path, name: str, job: str) -> IO[str]:
    file = (folder / name).open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        _complain(folder, f"{name} is in use, found by job {job} in lease {os.environ['HORAE_EPOCH']}")
    os.set_inheritable(file.fileno(), True)
    return file


def _complain(folder: Path, text: str) -> None:
    _append(folder / "violations", text)


def _append(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(f"{line}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), has_child="--child" in sys.argv)
