"""`horae health`: whether the service works."""

from __future__ import annotations

import json

import typer

from horae.cli.live.plain import plain
from horae.cli.output import Output, OutputFormat
from horae.cli.text import examples
from horae.client import Client
from horae.model.safe_text import printable

app = typer.Typer(add_completion=False)


@app.command(epilog=examples("horae health", "horae health -o json"))
def health(output: Output = OutputFormat.TABLE) -> None:
    """Tell whether the service works and its configuration file is in force; the exit code is 1 if not."""
    with Client() as client:
        found = client.health()
    if output is OutputFormat.JSON:
        print(json.dumps(plain(found), indent=2))
        raise typer.Exit(not found.ready or bool(found.configuration))
    for name, is_right in (("store", found.store), ("scheduler", found.scheduler)):
        print(f"{name:13}  {'ok' if is_right else 'does not answer'}")
    print(printable(f"{'configuration':13}  {found.configuration or 'in force'}"))
    if not found.ready or found.configuration:
        raise typer.Exit(1)
