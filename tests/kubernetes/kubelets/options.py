"""What the simulated kubelets are told on their command line."""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Options:
    kubeconfig: Path
    violations: Path
    containers: Path | None
    scale: float
    seed: int
    refused: float
    resume_seconds: float
    work_speed: float

    def draw(self, uid: str, purpose: str) -> float:
        """Between 0 and 1, the same for the same pod and purpose."""
        return random.Random(f"{self.seed}/{uid}/{purpose}").random()


def parse() -> Options:
    parser = argparse.ArgumentParser(prog="python -m kubernetes.kubelets")
    add = parser.add_argument
    add("kubeconfig", type=Path)
    add("--violations", type=Path, required=True, help="file of JSON lines; stays empty if all is well")
    add("--containers", type=Path, default=None, help="folder for what real containers print")
    add("--scale", type=float, default=1.0, help="factor for drawn times of starting and stopping")
    add("--seed", type=int, default=0)
    add("--refused", type=float, default=0.01, help="fraction of pods that are refused without a reason of theirs")
    add("--resume-seconds", type=float, default=0.0, help="until a gang that continues makes its first step")
    add("--work-speed", type=float, default=1.0, help="factor for the speed of training")
    return Options(**vars(parser.parse_args()))
