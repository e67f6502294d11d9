"""The simulated kubelets as a process of a test, and what they have found."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Self

from kubernetes.client import Json
from kubernetes.processes import Process

_TESTS = Path(__file__).parents[1]


class SimulatedNodes:
    """Serves all nodes with the label `horae.test/simulated=true`; the options are those of `kubernetes.kubelets`."""

    def __init__(
        self,
        kubeconfig: Path,
        folder: Path,
        *,
        scale: float = 0.01,
        seed: int = 0,
        refused: float = 0.0,
        resume_seconds: float = 0.0,
        work_speed: float = 1.0,
    ) -> None:
        self.containers = folder / "containers"
        self.containers.mkdir(parents=True, exist_ok=True)
        self._violations = folder / "violations.jsonl"
        self._violations.touch()
        self._taken = 0
        numbers = {
            "scale": scale,
            "seed": seed,
            "refused": refused,
            "resume-seconds": resume_seconds,
            "work-speed": work_speed,
        }
        files = [str(kubeconfig), f"--violations={self._violations}", f"--containers={self.containers}"]
        command = [sys.executable, "-m", "kubernetes.kubelets", *files, *(f"--{k}={v}" for k, v in numbers.items())]
        path = os.pathsep.join(filter(None, [str(_TESTS), os.environ.get("PYTHONPATH", "")]))
        self._process = Process("kubelets", command, folder / "kubelets.log", {**os.environ, "PYTHONPATH": path})

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        self._process.start()

    def kill(self) -> None:
        self._process.kill()

    def pause(self) -> None:
        self._process.pause()

    def resume(self) -> None:
        self._process.resume()

    def check(self) -> None:
        """Raises ProcessEnded if the kubelets have ended by themselves."""
        self._process.check()

    def violations(self) -> list[Json]:
        """What no scheduler may do and was seen, without what was taken."""
        self.check()
        return [json.loads(line) for line in self._violations.read_text().splitlines()[self._taken :]]

    def take_violations(self) -> list[Json]:
        """The same, for a test that expects some: a test with violations that are not taken fails."""
        found = self.violations()
        self._taken += len(found)
        return found

    def output(self, pod: Json) -> str:
        """What a real container has printed."""
        metadata = pod["metadata"]
        return (self.containers / f"{metadata['namespace']}_{metadata['name']}.log").read_text()
