"""Runs questions about the future in processes of their own, each a copy of this one (`fork`).

A copy of the whole state costs milliseconds, and what is done to it is gone with the process.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf

from horae.model.serialization import Plain


def run_all(
    tasks: Sequence[Callable[[], Plain]], workers: int, ends_at: float, begins_until: float = inf
) -> list[Plain | None]:
    """The results of all tasks, in their order, by several processes at a time; None for those that failed, or were not
    done by `ends_at`, a time of `time.monotonic`. After `begins_until` none is begun but the first, one per worker."""
    results: list[Plain | None] = [None] * len(tasks)
    waiting = list(range(len(tasks)))[::-1]
    running: dict[int, tuple[int, int, bytes]] = {}  # by descriptor: process, task, what it has said
    try:
        while waiting or running:
            if time.monotonic() >= begins_until and len(waiting) <= len(tasks) - workers:
                waiting.clear()
                if not running:
                    break
            while waiting and len(running) < workers:
                number = waiting.pop()
                descriptor, pid = _start(tasks[number])
                running[descriptor] = pid, number, b""
            left = ends_at - time.monotonic()
            readable = select.select(list(running), [], [], max(left, 0.0))[0] if left > 0 else []
            if not readable:
                break
            for descriptor in readable:
                pid, number, said = running[descriptor]
                data = os.read(descriptor, 1 << 20)
                if data:
                    running[descriptor] = pid, number, said + data
                    continue
                del running[descriptor]
                os.close(descriptor)
                os.waitpid(pid, 0)
                with suppress(ValueError):
                    results[number] = json.loads(said)
    finally:
        for descriptor, (pid, _, _) in running.items():
            os.close(descriptor)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return results


def _start(task: Callable[[], Plain]) -> tuple[int, int]:
    """A process that does the task and writes its result; returns the descriptor to read it from, and its id."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return reading, pid
    status = 1
    try:
        os.close(reading)
        gc.disable()  # it would touch, and thereby copy, all that is shared
        text = json.dumps(task()).encode()
        while text:
            text = text[os.write(writing, text) :]
        status = 0
    finally:
        os._exit(status)  # nothing of the parent's is flushed, closed or removed
