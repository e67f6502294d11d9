"""State with undo: every change records the previous value."""

from __future__ import annotations

from typing import Any


class UndoLog:
    """Changes since the last settlement. `undo` restores everything that was changed through `put` and `drop`."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, Any, Any]] = []
        self.is_trial = False  # nothing is settled: all changes will be undone

    def put(self, container: Any, key: Any, value: Any) -> None:
        """Sets container[key] = value; a dictionary may lack the key."""
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
        """Restores the state at the mark."""
        before = self._before
        while len(before) > mark:
            container, key, value = before.pop()
            if value is _ABSENT:
                del container[key]
            else:
                container[key] = value

    def settle(self) -> None:
        """Commits all changes: they can no longer be undone."""
        if not self.is_trial:
            self._before.clear()


_ABSENT = object()
