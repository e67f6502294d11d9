"""`horae speed`: how fast models train, by GPU type, gang and locality, and where each number comes from."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from horae.cli.output import Data, Output, OutputFormat, console, need_data, right
from horae.cli.text import examples
from horae.model.cluster import CLUSTER, NODE
from horae.model.errors import InputError
from horae.model.shapes import Shape
from horae.model.speeds import Measurement
from horae.speed.published_speeds import SHIPPED
from horae.speed.table import SpeedBook, TableSpeed
from horae.traces import speed_tables

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="How fast models train, and where each number comes from.",
    epilog=examples("horae speed ls", "horae speed show 'VGG16 (TensorFlow FP32, batch size 32)'"),
)

TABLES: dict[str, Callable[[Path], Sequence[Measurement]]] = {
    "gavel": speed_tables.read_gavel_csv,
    "itp": speed_tables.read_itp,
    "pollux": speed_tables.read_pollux,
}
SHIPPED_NAME = "shipped"
GANGS = (1, 2, 4, 8, 16, 32, 64)  # gangs that are shown, where anything is known about them

Tables = Annotated[
    list[str] | None,
    typer.Option("--table", help=f"{SHIPPED_NAME}, {', '.join(TABLES)}, or a throughputs file of Gavel (JSON)."),
]


def speed_book(names: Sequence[str], data: Path | None, field: str = "--table") -> SpeedBook:
    """All these tables in one book; of two values for the same entry the first counts."""
    return SpeedBook.of(*(_table(name, data, field) for name in names))


def _table(name: str, data: Path | None, field: str) -> Sequence[Measurement]:
    if name == SHIPPED_NAME:
        return SHIPPED
    if name in TABLES:
        return TABLES[name](need_data(data))
    if name.endswith(".json"):
        return speed_tables.read_gavel_json(Path(name)).measurements
    known = ", ".join([SHIPPED_NAME, *TABLES])
    raise InputError(f"there is no table {name!r}", field=field, remedy=f"use {known}, or a .json file of Gavel's")


@app.command("ls", epilog=examples("horae speed ls", "horae speed ls --table gavel --data traces"))
def ls(table: Tables = None, data: Data = None, output: Output = OutputFormat.TABLE) -> None:
    """List what was measured."""
    rows = speed_book(table or [SHIPPED_NAME], data).rows()
    if output is OutputFormat.JSON:
        print(json.dumps([_plain(*row) for row in rows], indent=2))
    else:
        _print([(model, shape, estimate) for model, shape, estimate in rows])


@app.command(
    "show",
    epilog=examples(
        "horae speed show 'VGG16 (TensorFlow FP32, batch size 32)'", "horae speed show CycleGAN --table speeds.json"
    ),
)
def show(
    model: Annotated[str, typer.Argument(help="A model, as `horae speed ls` calls it.")],
    table: Tables = None,
    data: Data = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show one model over gang sizes, what was never measured by its fitted curve."""
    book = speed_book(table or [SHIPPED_NAME], data)
    if model not in book.models:
        close = " or ".join(get_close_matches(model, book.models, n=3, cutoff=0.3)) or "horae speed ls"
        raise InputError(f"nothing is known of {model!r}", field="MODEL", remedy=f"try {close}")
    accelerators = list(dict.fromkeys(shape.accelerator for name, shape, _ in book.rows() if name == model))
    rows = [
        (model, shape, estimate)
        for accelerator in accelerators
        for level in (NODE, CLUSTER)
        for gpus in GANGS
        if (estimate := book.lookup(model, shape := Shape(accelerator, gpus, level))) is not None
    ]
    if output is OutputFormat.JSON:
        print(json.dumps([_plain(*row) for row in rows], indent=2))
        return
    _print(rows)
    for accelerator in accelerators:
        curve = book.curve(model, accelerator)
        if curve is not None:
            print(f"{accelerator}: the curve is off its own rows by {curve.error_max:.0%} at most")


def _print(rows: Sequence[tuple[str, Shape, TableSpeed]]) -> None:
    table = Table("model", "GPU type", *right("GPUs"), "in one", *right("steps/s"), "source")
    for model, shape, estimate in rows:
        speed = f"{estimate.steps_per_second:,.4g}" if estimate.steps_per_second else "does not fit"
        table.add_row(escape(model), shape.accelerator, str(shape.gpus), shape.level, speed, escape(estimate.source))
    console().print(table)


def _plain(model: str, shape: Shape, estimate: TableSpeed) -> dict[str, object]:
    return {"model": model, **shape._asdict(), **estimate._asdict()}
