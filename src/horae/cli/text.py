"""Text for terminals. It needs no library: `horae --help` imports this."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with terminal control characters escaped."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def examples(*commands: str) -> str:
    """The end of a command's help, one example per line; the first character keeps typer from joining lines."""
    return "\n".join(["\b", "Examples:", *(f"  {command}" for command in commands)])
