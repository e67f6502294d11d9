"""`--sharing`: the fractions of their speeds that two jobs on the same GPUs keep."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from horae.experiments.compare.run_spec import PolicyChoice
from horae.model.setup import Setup
from horae.model.speeds import Sharing
from horae.traces.sharing_table import on_types, read_sharing, sharing_rows
from horae.traces.speed_tables import read_gavel_json

SharingOption = Annotated[
    Path | None,
    typer.Option(
        "--sharing",
        help="What two jobs on the same GPUs keep of their speeds: model_a,model_b,gpu,gpus,kept_a,kept_b (CSV), or a "
        "throughputs file of Gavel (JSON).",
    ),
]


def with_sharing(setup: Setup, path: Path | None) -> Setup:
    """The same setup, in which the pairs of a file may share GPUs; used by both the scheduler and the engine."""
    if path is None:
        return setup
    return replace(setup, sharing=on_types(_rows(path), setup.cluster.accelerators, path))


def tell_of_sharing(setup: Setup, policies: Iterable[PolicyChoice], tell: Callable[[str], None]) -> None:
    """Reports policies that may share GPUs, where no table says which jobs can."""
    if not setup.sharing:
        for choice in policies:
            if choice.options.get("sharing") is True:
                tell(f"{choice.name}: sharing changes nothing without a table of pairs; give one with --sharing")


def _rows(path: Path) -> tuple[Sharing, ...]:
    if path.suffix != ".json":
        return read_sharing(path)
    table = read_gavel_json(path)
    return sharing_rows(table.pairs, table.measurements)
