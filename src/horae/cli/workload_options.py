"""The options of a workload, the same for every command; `workload` reads it, and imports more."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from horae.traces import BROKEN_MAX

TraceFormat = Annotated[str | None, typer.Option("--format", help="Of the trace; found out by default.")]
Map = Annotated[
    str | None,
    typer.Option(
        "--map", help="Its columns by our names: submit=Start,gpus=n,duration=run:h; without a unit, seconds."
    ),
]
Where = Annotated[str | None, typer.Option(help="Only the rows with these cells: vc=ee9e8c.")]
Types = Annotated[
    str | None, typer.Option(help="GPU types of the trace by another name of the cluster: fast=H100,slow=V100.")
]
WholeNodes = Annotated[bool, typer.Option(help="Gangs larger than a node take whole nodes.")]
Speeds = Annotated[
    list[str] | None,
    typer.Option(help="Speeds by model from: shipped, gavel, itp, pollux, or a throughputs file of Gavel (JSON)."),
]
Strict = Annotated[bool, typer.Option(help="A broken row of the trace is an error.")]
BrokenMax = Annotated[
    float, typer.Option(min=0.0, max=1.0, help="The fraction of broken rows up to which they are only reported.")
]


@dataclass(frozen=True, kw_only=True)
class WorkloadOptions:
    """The options as written; None and empty values stand for omitted ones."""

    format: str | None = None
    mapping: str | None = None
    where: str | None = None
    types: str | None = None
    whole_nodes: bool = True
    speeds: tuple[str, ...] = ()  # tables; none: run times as the trace has them
    data: Path | None = None
    strict: bool = False
    broken_max: float = BROKEN_MAX
