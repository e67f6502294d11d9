"""Runs until it is killed."""

from __future__ import annotations

import asyncio

from kubernetes.kubelets.kubelets import Kubelets
from kubernetes.kubelets.options import parse


async def main() -> None:
    async with asyncio.TaskGroup() as tasks:  # a bug in one task ends the process, so that a test sees it
        Kubelets(parse(), tasks).start()


if __name__ == "__main__":
    asyncio.run(main())
