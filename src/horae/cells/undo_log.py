"""A state that can be taken back: every change remembers what was there before."""

from __future__ import annotations

from typing import Any


class Ledger:
    """Changes since the last settlement. Whatever is changed through `put` and `drop`, `undo` restores."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, Any, Any]] = []
        self.is_trial = False  # nothing is settled: all of it will be undone

    def put(self, container: Any, key: Any, value: Any) -> None:
        """container[key] = value; a dictionary may lack the key."""
        if type(container) is dict:
            self._before.append((container, key, container.get(key, _ABSENT)))
        else:
            self._before.append((container, key, container[key]))
        container[key] = value

    def drop(self, container: dict[Any, Any], key: Any) -> None:
        self._before.append((container, key, container.pop(key)))

    def mark(self) -> int:
        return len(self._before)

    def undo(self, mark: int = 0) -> None:
        """Everything is again as it was at the mark."""
        before = self._before
        while len(before) > mark:
            container, key, value = before.pop()
            if value is _ABSENT:
                del container[key]
            else:
                container[key] = value

    def settle(self) -> None:
        """From here on there is no way back."""
        if not self.is_trial:
            self._before.clear()


_ABSENT = object()
