"""What pods have written, kept where the service looks for output: suspension deletes pods with their logs."""

from __future__ import annotations

import threading
from pathlib import Path

from horae.engines.local.job_files import JobFolder

OUTPUT_BYTES_MAX = 8 << 20  # of one job; older output makes room


class Outputs:
    """Safe to use from several threads."""

    def __init__(self, state: Path) -> None:
        self._folder = state / "engine"
        self._lock = threading.Lock()

    def keep(self, job_id: str, epoch: int, pod: str, text: str) -> None:
        """Appends the end of a pod's output to that of its job."""
        path = JobFolder.of(self._folder, job_id).output
        entry = f"--- {pod}, lease {epoch}: the end of its output ---\n{text.rstrip()}\n".encode()
        with self._lock:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() and path.stat().st_size + len(entry) > OUTPUT_BYTES_MAX:
                self._begin_anew(path)
            with path.open("ab") as file:
                file.write(entry)

    def _begin_anew(self, path: Path) -> None:
        """As the local engine does: the full file is renamed to the position of its first byte, the one before goes."""
        older = [each for each in path.parent.glob(f"{path.name}.*") if each.suffix[1:].isdecimal()]
        start = max((int(each.suffix[1:]) + each.stat().st_size for each in older), default=0)
        for each in older:
            each.unlink()
        path.rename(path.with_name(f"{path.name}.{start}"))
