"""How long a comparison takes: eight policies on the four Philly virtual clusters, from the command to the table.

Run it with `HORAE_DATA=... python -m bench.compare`. Seconds are of the wall, for what counts here is waiting.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

POLICIES = ("fifo", "sjf", "srtf", "srsf", "las", "tiresias", "gittins", "drf")
NODES = ("ee9e8c=64x8", "7f04ca=32x8", "0e4a51=32x8", "2869ce=16x8")
LIMIT_SECONDS = 60.0


class Waiting(NamedTuple):
    first_seconds: float
    again_seconds: float  # all of it from the cache


def philly_eight_policies(data: Path, cache: Path, workers: int = 2) -> Waiting:
    command = [sys.executable, "-m", "horae.cli.main", "compare", str(data / "philly/philly_4vc.csv.gz"), "--quiet"]
    command += ["--workers", str(workers), "--cache", str(cache)]
    command += [word for group in NODES for word in ("--nodes", group)]
    command += [word for policy in POLICIES for word in ("--policy", policy)]
    return Waiting(_seconds(command), _seconds(command))


def _seconds(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        waiting = philly_eight_policies(Path(os.environ["HORAE_DATA"]), Path(folder))
    print(f"philly, eight policies, two workers: {waiting.first_seconds:.0f} s, wanted under {LIMIT_SECONDS:.0f} s")
    print(f"the same again, from the cache: {waiting.again_seconds:.1f} s")
