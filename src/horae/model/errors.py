"""Every error that Horae raises on purpose.

    HoraeError
    ├── InputError            what a user wrote is wrong: file, line, field and remedy (exit code 2)
    │   ├── ClusterError      a cluster that cannot be: no GPUs, a level that does not divide a node
    │   ├── JobError          a job that cannot be: no shapes, a negative size
    │   ├── PolicyError       an unknown policy or option
    │   └── JournalError      a journal that cannot be read or does not replay
    ├── ServiceError          a service that cannot be reached, or that rejects a request (exit code 2)
    └── BrokenInvariant       a bug in Horae: the plan or the state contradicts a promise
        ├── InvalidTransition a job was moved to a status that it cannot reach from where it is
        └── LimitReached      a loop of a decision is still running at its bound

A refusal (a job that can never fit, a job that must wait) is not an error; it is a `Reason`.
"""

from __future__ import annotations

from collections.abc import Iterator

PART_CHARACTERS_MAX = 2000


class HoraeError(Exception):
    """The base class of all errors that Horae raises."""


class InputError(HoraeError):
    """The user's input is wrong. The message is one line and ends with the remedy."""

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
        """The same error with its location added; parts that are already known are kept."""
        return type(self)(
            self.problem,
            remedy=self.remedy,
            file=self.file or file,
            line=self.line or line,
            field=self.field or field,
        )


def _short(text: str) -> str:
    """Shortens part of a message: names and lists in user files have any length."""
    return text if len(text) <= PART_CHARACTERS_MAX else f"{text[: PART_CHARACTERS_MAX - 3]}..."


class ClusterError(InputError):
    """A cluster that cannot exist: no GPUs, a level that does not divide a node."""


class JobError(InputError):
    """A job that cannot exist: no shapes, a negative size."""


class PolicyError(InputError):
    """An unknown policy or option, or a policy that breaks the rules."""


class JournalError(InputError):
    """A journal that cannot be read or does not replay."""


class ServiceError(HoraeError):
    """The service cannot be reached, or rejects a request. The message is one line and ends with the remedy."""

    def __init__(self, problem: str, *, remedy: str = "", field: str = "", status: int = 0) -> None:
        self.problem = problem
        self.remedy = remedy
        self.field = field
        self.status = status  # of HTTP; 0: there was no answer
        super().__init__(problem)

    def __str__(self) -> str:
        parts = [part for part in (_short(self.field), _short(self.problem)) if part]
        return ": ".join(parts) + (f"; {_short(self.remedy)}" if self.remedy else "")


class BrokenInvariant(HoraeError):
    """An invariant of the scheduler does not hold.

    This is a bug; the run stops rather than continue with a wrong state.
    """


class LimitReached(BrokenInvariant):
    """A loop that must terminate is still running at its bound."""


class InvalidTransition(BrokenInvariant):
    """A job was moved to a status that it cannot reach; the message includes its history."""

    def __init__(self, job: str, status: str, signal: str) -> None:
        self.job = job
        self.status = status
        self.signal = signal
        super().__init__(f"job {job} is {status} and got the signal {signal}, which has no meaning there")


# Loops that must terminate: each has a bound, and reaching it raises a typed error instead of hanging the process.


def bounded(limit: int, what: str) -> Iterator[int]:
    """Counts up to the limit, then raises an error that names what the loop was doing."""
    yield from range(limit)
    raise LimitReached(f"{what} did not end within {limit} steps")
