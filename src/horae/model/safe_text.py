"""Makes user-written text safe to display: short, on one line, and without control sequences for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

SHOWN_MAX = 60  # characters, with the quotes


def printable(text: str) -> str:
    """The text with control characters and the like escaped."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def quoted(text: str) -> str:
    short = text if len(text) <= SHOWN_MAX - 2 else text[: SHOWN_MAX - 5] + "..."
    return f"'{printable(short)}'"


def shown(value: object) -> str:
    """A value of a file, in the notation of files rather than of Python."""
    match value:
        case None:
            return "empty"
        case bool():
            return str(value).lower()
        case str():
            return quoted(value)
    return brief(value)


def brief(value: object) -> str:
    """The beginning of a value's `repr`. The rest is never built: with aliases, a small file can hold a huge value."""
    text = ""
    for piece in _pieces(value):
        text += piece
        if len(text) > SHOWN_MAX:
            break
    text = printable(text)
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 3] + "..."


def _pieces(value: object) -> Iterator[str]:
    match value:
        case dict():
            yield "{"
            for number, (key, item) in enumerate(value.items()):
                yield ", " if number else ""
                yield from _pieces(key)
                yield ": "
                yield from _pieces(item)
            yield "}"
        case list() | tuple():
            yield "[" if isinstance(value, list) else "("
            for number, item in enumerate(value):
                yield ", " if number else ""
                yield from _pieces(item)
            yield "]" if isinstance(value, list) else ")"
        case str():
            yield repr(value[: SHOWN_MAX + 1])
        case int() if abs(value) >= 10**SHOWN_MAX:
            yield hex(value)  # Python refuses to write thousands of decimal digits
        case _:
            yield repr(value)


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 GPU`, `1,024 GPUs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
