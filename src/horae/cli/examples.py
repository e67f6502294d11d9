"""The examples at the end of a command's help."""

from __future__ import annotations

from rich.markup import escape

HEADING = "Examples:"


def examples(*commands: str) -> str:
    """An epilog with one command per line, none of which typer takes for its own markup."""
    return "\n".join([HEADING, *map(escape, commands)])
