"""Every error that Horae raises on purpose.

    HoraeError
    ├── InputError            what a user wrote is wrong: file, line, field and remedy (exit code 2)
    │   ├── ClusterError      a cluster that cannot be: no GPUs, a level that does not divide a node
    │   ├── JobError          a job that cannot be: no shapes, a negative size
    │   ├── PolicyError       an unknown policy or option
    │   └── JournalError      a journal that cannot be read or does not replay
    └── BrokenInvariant       a bug in Horae: the plan or the state contradicts a promise
        ├── InvalidTransition a job was moved to a status that it cannot reach from where it is
        └── LimitReached      a loop of a decision is still running at its bound

A refusal (a job that can never fit, a job that must wait) is not an error; it is a `Reason`.
"""

from __future__ import annotations

from collections.abc import Iterator

PART_CHARACTERS_MAX = 2000


class HoraeError(Exception):
    """The root of the tree."""


class InputError(HoraeError):
    """What a user wrote is wrong. The message is one line and ends with the remedy."""

    def __init__(self, problem: str, *, remedy: str = "", file: str = "", line: int = 0, field: str = "") -> None:
        self.problem = problem
        self.remedy = remedy
        self.file = file
        self.line = line
        self.field = field
        super().__init__(problem)

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.file and self.line else self.file
        parts = [part for part in (place, _short(self.field), _short(self.problem)) if part]
        return ": ".join(parts) + (f"; {_short(self.remedy)}" if self.remedy else "")

    def located(self, *, file: str = "", line: int = 0, field: str = "") -> InputError:
        """The same error, told where it happened; what is already known stays."""
        return type(self)(
            self.problem,
            remedy=self.remedy,
            file=self.file or file,
            line=self.line or line,
            field=self.field or field,
        )


def _short(text: str) -> str:
    """A name or a list in a user's file has any length; each part of a message has one that can be read."""
    return text if len(text) <= PART_CHARACTERS_MAX else f"{text[: PART_CHARACTERS_MAX - 3]}..."


class ClusterError(InputError):
    pass


class JobError(InputError):
    pass


class PolicyError(InputError):
    pass


class JournalError(InputError):
    pass


class BrokenInvariant(HoraeError):
    """A promise of the scheduler does not hold. This is a bug, and the run stops here rather than go on wrongly."""


class LimitReached(BrokenInvariant):
    """A loop that must end is still running at its bound."""


class InvalidTransition(BrokenInvariant):
    """A job was moved to a status that it cannot reach; the story says how it got where it is."""

    def __init__(self, job: str, status: str, signal: str) -> None:
        self.job = job
        self.status = status
        self.signal = signal
        super().__init__(f"job {job} is {status} and got the signal {signal}, which has no meaning there")


# Loops that must end: each has a bound, and one that reaches it is a typed error instead of a process that hangs.


def bounded(limit: int, what: str) -> Iterator[int]:
    """Count up to the limit; a loop that is still running then raises, naming what it was doing."""
    yield from range(limit)
    raise LimitReached(f"{what} did not end within {limit} steps")
