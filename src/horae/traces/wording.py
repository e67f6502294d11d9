"""What a user wrote, as it is shown to them again: short, on one line, and with nothing that a terminal would obey."""

from __future__ import annotations

SHOWN_MAX = 60  # characters, with the quotes


def printable(text: str) -> str:
    """The text with control characters and the like written out."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def quoted(text: str) -> str:
    short = text if len(text) <= SHOWN_MAX - 2 else text[: SHOWN_MAX - 5] + "..."
    return f"'{printable(short)}'"


def shown(value: object) -> str:
    """A value of a file, in the words of files rather than of Python."""
    match value:
        case None:
            return "empty"
        case bool():
            return str(value).lower()
        case str():
            return quoted(value)
    text = printable(repr(value))
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 3] + "..."
