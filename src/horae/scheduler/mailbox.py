"""Commands that nobody has confirmed yet. Messages get lost; whatever is overdue is sent again."""

from __future__ import annotations

from math import inf

from horae.model.commands import Command, Start, Stop, Survey

_RESENDS_DOUBLED = 6  # the pause between two sendings grows up to 2**6 times


class Mailbox:
    def __init__(self, acknowledge_seconds: float, survey_seconds: float) -> None:
        self._acknowledge_seconds = acknowledge_seconds
        self._survey_seconds = survey_seconds
        self._open: dict[tuple[type, int, str], tuple[float, int, Start | Stop]] = {}  # due at, times sent, command
        self._survey_at = survey_seconds

    def sent(self, command: Start | Stop, now: float) -> None:
        grace_seconds = command.grace_seconds if isinstance(command, Stop) else 0.0
        for job_id in command.job_ids if isinstance(command, Start) else (command.job_id,):
            due_at = now + self._acknowledge_seconds + grace_seconds
            self._open[type(command), command.epoch, job_id] = (due_at, 1, command)

    def answered(self, kind: type, epoch: int, job_id: str) -> None:
        self._open.pop((kind, epoch, job_id), None)

    def ended(self, epoch: int, job_id: str) -> None:
        """Whatever was asked of this lease, it is over."""
        if self._open:
            self.answered(Start, epoch, job_id)
            self.answered(Stop, epoch, job_id)

    def left(self, epoch: int, job_id: str, other: str) -> None:
        """One of two has left; should the other be told to start again, then without it."""
        found = self._open.get((Start, epoch, other))
        if found is not None and isinstance(start := found[2], Start) and job_id in start.job_ids:
            place = start.job_ids.index(other)
            alone = start._replace(job_ids=(other,), steps_done=(start.steps_done[place],))
            self._open[Start, epoch, other] = (*found[:2], alone)

    def contents(self) -> list[str]:
        """What is still open, for those who compare two mailboxes."""
        return [*sorted(str(item) for item in self._open.items()), str(self._survey_at)]

    def surveyed(self, now: float) -> None:
        self._survey_at = now + self._survey_seconds

    def due_at(self, *, busy: bool) -> float:
        unanswered = min(due_at for due_at, _, _ in self._open.values()) if self._open else inf
        return min(unanswered, self._survey_at) if busy else unanswered

    def overdue(self, now: float, *, busy: bool) -> list[Command]:
        """What must be sent again; together with a survey, for the answer may be what was lost."""
        again: list[Command] = []
        for key, (due_at, times, command) in list(self._open.items()):
            if due_at <= now:
                pause = self._acknowledge_seconds * 2 ** min(times, _RESENDS_DOUBLED)
                self._open[key] = (now + pause, times + 1, command)
                again.append(command)
        if again or (busy and self._survey_at <= now):
            again.append(Survey())
            self._survey_at = now + self._survey_seconds
        return again
