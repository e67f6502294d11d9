"""When a checkpoint is due, besides when the job is asked to leave. All times are seconds of one monotonic clock."""

from __future__ import annotations

_UNKNOWN_SAVE_SECONDS = 30.0  # assumed until a save was measured
_SLACK_SECONDS = 2.0


class Schedule:
    """A checkpoint is due every so many seconds, and once before the lease ends."""

    def __init__(self, now: float, every_seconds: float, lease_ends_at: float | None) -> None:
        if not every_seconds >= 0:
            raise ValueError(f"every={every_seconds!r}: the seconds between two checkpoints cannot be negative")
        self._every_seconds = every_seconds
        self._began_at = now
        self._lease_ends_at = lease_ends_at
        self._saved_at = now
        self._save_seconds: float | None = None  # of the slowest save so far
        self._save_began_at: float | None = None

    def due(self, now: float, step_seconds: float) -> bool:
        """Whether to save now; asked once per step, so the next chance is a step away."""
        lease_due_at = self._lease_due_at(step_seconds)
        for_lease = lease_due_at is not None and self._saved_at < lease_due_at <= now
        return for_lease or now - self._saved_at >= self._every_seconds

    def begin_save(self, now: float) -> None:
        self._save_began_at = now

    def end_save(self, now: float) -> float:
        """Remember a save; return the seconds that it took."""
        seconds = now - (now if self._save_began_at is None else self._save_began_at)
        self._save_seconds = max(seconds, self._save_seconds or 0.0)
        self._saved_at, self._save_began_at = now, None
        return seconds

    def _lease_due_at(self, step_seconds: float) -> float | None:
        """The moment from which a save ends just before the lease does, but not in the first half of the lease."""
        if self._lease_ends_at is None or self._lease_ends_at <= self._began_at:
            return None
        save_seconds = _UNKNOWN_SAVE_SECONDS if self._save_seconds is None else self._save_seconds
        needed = 1.5 * save_seconds + 2.0 * step_seconds + _SLACK_SECONDS
        return self._lease_ends_at - min(needed, (self._lease_ends_at - self._began_at) / 2.0)
