"""Shortens names that are too long for a legend or a column, and keeps them distinct."""

from __future__ import annotations

from collections.abc import Sequence


def short_labels(names: Sequence[str], length: int) -> list[str]:
    """Each name in at most this many characters; equal results are numbered, so that all labels differ."""
    taken: set[str] = {name for name in names if len(name) <= length}
    found: dict[str, str] = {}
    for name in names:
        if name not in found:
            found[name] = name if len(name) <= length else _distinct(name, length, taken)
            taken.add(found[name])
    return [found[name] for name in names]


def _distinct(name: str, length: int, taken: set[str]) -> str:
    label, number = _middle(name, length), 2
    while label in taken:
        mark = f" #{number}"
        label, number = _middle(name, length - len(mark)) + mark, number + 1
    return label


def _middle(name: str, length: int) -> str:
    """The name without its middle: names differ at the end as often as at the beginning."""
    tail = (length - 1) // 2
    return f"{name[: length - 1 - tail]}…{name[len(name) - tail :]}"
