"""`horae replay`: a journal, decided again and compared line by line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from horae.cli.text import examples
from horae.experiments.replay import replay_file

app = typer.Typer(add_completion=False)


@app.command(epilog=examples("horae simulate --policy fifo --journal run.jsonl", "horae replay run.jsonl"))
def replay(journal: Annotated[Path, typer.Argument(help="A file made with --journal.")]) -> None:
    """Feed a journal's events to a fresh scheduler; everything must come out the same, bit for bit."""
    replayed = replay_file(journal)
    if replayed.difference:
        print(f"{journal}: differs at {replayed.difference}")
        raise typer.Exit(1)
    print(f"{journal}: {replayed.events} events and {replayed.commands} commands, all the same")
