"""Names that are too long for a legend or a column: shortened, and still different from each other."""

from __future__ import annotations

from collections.abc import Sequence


def short_labels(names: Sequence[str], length: int) -> list[str]:
    """Each in at most so many characters. Those that come out alike are numbered, so that no two of them are."""
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
    """Without its middle: what tells two of them apart is at the end as often as at the beginning."""
    tail = (length - 1) // 2
    return f"{name[: length - 1 - tail]}…{name[len(name) - tail :]}"
