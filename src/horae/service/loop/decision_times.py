"""How long decisions take, for metrics: also of those between two looks."""

from __future__ import annotations


class DecisionTimes:
    def __init__(self) -> None:
        self.count = 0
        self.last_seconds = 0.0
        self._slowest_seconds = 0.0  # since it was last taken

    def note(self, seconds: float) -> None:
        self.count += 1
        self.last_seconds = seconds
        self._slowest_seconds = max(self._slowest_seconds, seconds)

    def take_slowest(self) -> float:
        """The longest since the last call; 0 if there was none."""
        slowest, self._slowest_seconds = self._slowest_seconds, 0.0
        return slowest
