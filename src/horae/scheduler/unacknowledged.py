"""Commands that the engine has not confirmed yet. Messages get lost; overdue commands are sent again."""

from __future__ import annotations

from collections import Counter
from math import inf

from horae.model.commands import Command, Start, Stop, Survey

_RESENDS_DOUBLED = 6  # the retry interval grows up to 2**6 times


class Unacknowledged:
    def __init__(self, acknowledge_seconds: float, survey_seconds: float) -> None:
        self._acknowledge_seconds = acknowledge_seconds
        self._survey_seconds = survey_seconds
        # By kind, epoch and job: due time, number of sends, command.
        self.open: dict[tuple[type, int, str], tuple[float, int, Start | Stop]] = {}
        self.survey_at = survey_seconds

    def sent(self, command: Start | Stop, now: float) -> None:
        due_at = now + self._acknowledge_seconds
        if isinstance(command, Stop):
            self.open[Stop, command.epoch, command.job_id] = (due_at + command.grace_seconds, 1, command)
            return
        for job_id in command.job_ids:
            self.open[Start, command.epoch, job_id] = (due_at, 1, command)

    def is_open(self, kind: type, epoch: int, job_id: str) -> bool:
        return (kind, epoch, job_id) in self.open

    def told_to_leave(self) -> Counter[int]:
        """By epoch: jobs that were told to leave exactly once; jobs told more often are late."""
        return Counter(epoch for (kind, epoch, _), (_, times, _) in self.open.items() if kind is Stop and times == 1)

    def answered(self, kind: type, epoch: int, job_id: str) -> None:
        self.open.pop((kind, epoch, job_id), None)

    def ended(self, epoch: int, job_id: str) -> None:
        """Drops all commands of this lease, which has ended."""
        if self.open:
            self.open.pop((Start, epoch, job_id), None)
            self.open.pop((Stop, epoch, job_id), None)

    def left(self, epoch: int, job_id: str, other: str) -> None:
        """Removes a job that has left a shared lease from the pending start of the other job."""
        found = self.open.get((Start, epoch, other))
        if found is not None and isinstance(start := found[2], Start) and job_id in start.job_ids:
            place = start.job_ids.index(other)
            alone = start._replace(
                job_ids=(other,), steps_done=(start.steps_done[place],), resumes=(start.resumes[place],)
            )
            self.open[Start, epoch, other] = (*found[:2], alone)

    def stop_surveys(self) -> None:
        """From now on the engine is surveyed only with commands that are sent again: it loses no messages."""
        self._survey_seconds = self.survey_at = inf

    def surveyed(self, now: float) -> None:
        self.survey_at = now + self._survey_seconds

    def due_at(self, *, busy: bool) -> float:
        unanswered = min(due_at for due_at, _, _ in self.open.values()) if self.open else inf
        return min(unanswered, self.survey_at) if busy else unanswered

    def overdue(self, now: float, *, busy: bool) -> list[Command]:
        """Commands to be sent again; sent with a survey, because the answer may be what was lost."""
        again: list[Command] = []
        for key, (due_at, times, command) in list(self.open.items()):
            if due_at <= now:
                pause = self._acknowledge_seconds * 2 ** min(times, _RESENDS_DOUBLED)
                self.open[key] = (now + pause, times + 1, command)
                again.append(command)
        if again or (busy and self.survey_at <= now):
            again.append(Survey())
            self.survey_at = now + self._survey_seconds
        return again


class Outbox:
    """The commands of one reaction; those that need an acknowledgement are kept until it arrives."""

    def __init__(self, unacknowledged: Unacknowledged) -> None:
        self.unacknowledged = unacknowledged
        self.commands: list[Command] = []

    def send(self, command: Start | Stop, now: float) -> None:
        self.commands.append(command)
        self.unacknowledged.sent(command, now)

    def take(self) -> tuple[Command, ...]:
        commands = tuple(self.commands)
        self.commands = []
        return commands
