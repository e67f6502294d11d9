"""Training scripts that run as an engine starts them, and a service that receives their reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from patience import HANG_SECONDS

SOURCE = Path(__file__).parents[1] / "sdk/src"
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("HORAE_", "RANK", "WORLD_SIZE"))}
STARTED: list[subprocess.Popen[str]] = []  # by the present test, which may fail before they end


@dataclass
class Job:
    """A job as an engine starts it: a folder, and a variable for each thing that it is told."""

    folder: Path
    epoch: int = 1
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def checkpoint_dir(self) -> Path:
        return self.folder / f"epoch-{self.epoch}"

    @property
    def saved(self) -> dict[str, Any]:
        return json.loads((self.checkpoint_dir / "saved.json").read_text())

    @property
    def environment(self) -> dict[str, str]:
        return {
            "HORAE_JOB": "job-1",
            "HORAE_EPOCH": str(self.epoch),
            "HORAE_CHECKPOINT_DIR": str(self.checkpoint_dir),
            **self.variables,
        }

    def next_epoch(self, **variables: str) -> Job:
        """The same job after it left, resumed from what it has published."""
        path = self.checkpoint_dir / self.saved["path"]
        told = {"HORAE_CHECKPOINT": str(path), "HORAE_STEPS_DONE": str(self.saved["steps"])}
        return Job(self.folder, self.epoch + 1, {**self.variables, **told, **variables})

    def start(self, script: str | Path, *arguments: str) -> subprocess.Popen[str]:
        """Run a script, given as its text or its file, as a process of its own."""
        code = [str(script)] if isinstance(script, Path) else ["-c", textwrap.dedent(script)]
        process = subprocess.Popen(
            [sys.executable, "-u", *code, *arguments],
            env={**CLEAN, "PYTHONPATH": str(SOURCE), "OPENBLAS_NUM_THREADS": "1", **self.environment},
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        STARTED.append(process)
        return process


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """The exit status and the output of a process that ends by itself."""
    output, errors = process.communicate(timeout=HANG_SECONDS)
    return process.returncode, output, errors


class Service:
    """Receives reports; `answer` is the status that it answers with, and may wait."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.answer: Callable[[], int] = lambda: 200
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                status = service.answer()
                service.requests.append((self.path, dict(self.headers), json.loads(content)))
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", f"{service.url}/elsewhere")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False  # a handler may hang on purpose
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [body for _, _, body in self.requests]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
