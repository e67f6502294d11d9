"""Steps per second over the last half minute of training, without the time that saves take."""

from __future__ import annotations

from collections import deque

_WINDOW_SECONDS = 30.0
_MARK_SECONDS = 1.0  # between two marks: many short steps are one mark


class Speed:
    def __init__(self) -> None:
        self.steps_per_second = 0.0
        self._marks: deque[tuple[float, float]] = deque()  # (time without saves, steps done)
        self._paused_seconds = 0.0

    def restart(self, now: float, steps: float) -> None:
        """Begin to measure: no step before this one counts."""
        self._marks.clear()
        self._marks.append((now - self._paused_seconds, steps))

    def step(self, now: float, steps: float) -> None:
        """So many steps are done now."""
        if not self._marks:
            self.restart(now, steps)
            return
        time = now - self._paused_seconds
        marks = self._marks
        if time - marks[-1][0] >= _MARK_SECONDS:
            marks.append((time, steps))
            while len(marks) > 2 and time - marks[1][0] >= _WINDOW_SECONDS:
                marks.popleft()
        began_at, before = marks[0]
        if time > began_at:
            self.steps_per_second = max(steps - before, 0.0) / (time - began_at)

    def pause(self, seconds: float) -> None:
        """Leave out a time in which no step could be done."""
        self._paused_seconds += seconds
