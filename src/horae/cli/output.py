"""How results are printed: tables for people, JSON, CSV and Markdown for everything else."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column

from horae.model.errors import InputError


class OutputFormat(Enum):
    TABLE = "table"
    JSON = "json"


Data = Annotated[Path | None, typer.Option("--data", envvar="HORAE_DATA", help="The folder with the published traces.")]
Output = Annotated[OutputFormat, typer.Option("-o", "--output", help="How to print the result.")]


def console() -> Console:
    """A console; a wide one where the output is not a terminal, so that tables are not wrapped."""
    made = Console()
    return made if made.is_terminal else Console(width=200)


def right(*headings: str) -> list[Column]:
    return [Column(heading, justify="right") for heading in headings]


def need_data(data: Path | None) -> Path:
    if data is None:
        raise InputError("no data folder was named", field="--data", remedy="use --data DIR or set HORAE_DATA")
    if not data.is_dir():
        raise InputError("is not a folder", file=str(data), field="--data", remedy="name the folder with the traces")
    return data
