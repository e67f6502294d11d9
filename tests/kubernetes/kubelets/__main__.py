"""Runs until it is killed."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import signal
import sys

from kubernetes.kubelets.kubelets import Kubelets
from kubernetes.kubelets.options import parse


async def main() -> None:
    async with asyncio.TaskGroup() as tasks:  # a bug in one task ends the process, so that a test sees it
        Kubelets(parse(), tasks).start()


if __name__ == "__main__":
    # httpcore tries to import this module in every request; where it is not installed, Python searches all folders.
    if importlib.util.find_spec("sniffio") is None:
        sys.modules["sniffio"] = None  # type: ignore[assignment]
    # A shell that starts tests in the background has them ignore this signal, and they pass that on.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
