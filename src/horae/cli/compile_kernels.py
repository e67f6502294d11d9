"""`horae compile`: kernels of policies, compiled before a run needs them."""

from __future__ import annotations

import os
import time
from typing import Annotated, Any

import typer

from horae.cli.text import examples
from horae.experiments.inputs import choose_policies, choose_setup
from horae.experiments.precompile import compile_all, kernels_of
from horae.model.setup import Cadence

app = typer.Typer(add_completion=False)
POLICIES = ["max-min", "themis"]  # other policies by shares, such as makespan, have the kernels of the first


@app.command(epilog=examples("horae compile", "horae compile max-min allox --nodes 20x8:V100"))
def compile_command(
    policies: Annotated[
        list[str] | None,
        typer.Argument(metavar="[POLICY]...", help="Policies; if none is named, max-min and themis."),
    ] = None,
    nodes: Annotated[
        list[str] | None,
        typer.Option(help="The cluster to run on, such as 20x8:V100; one without racks has kernels of its own."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Processes; as many as there are cores by default.")
    ] = None,
) -> None:
    """Compile the kernels of policies in advance, so that their first run does not wait for it.

    `make install` does this for the default policies. What was compiled before is only loaded.
    """
    begun = time.monotonic()
    setup = choose_setup(None, nodes, Cadence.ROUNDS, None) if nodes else None
    needed = kernels_of(list(choose_policies(policies or POLICIES).values()), setup)
    processes = workers or len(os.sched_getaffinity(0))
    for count, (each, seconds) in enumerate(compile_all(needed, processes, _Silent()), 1):
        print(f"[{count}/{len(needed)}] {each}: {seconds:.1f} s", flush=True)
    print(f"{len(needed)} kernels are ready, after {time.monotonic() - begun:.0f} s")


class _Silent:
    """A worker's progress is not shown: a kernel is compiled as a whole."""

    def started(self, number: int) -> None: ...

    def advanced(self, number: int, amount: Any) -> None: ...
