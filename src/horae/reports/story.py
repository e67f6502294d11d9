"""The story of one job: a fold over events and reactions, the same for a live run and for a journal."""

from __future__ import annotations

from dataclasses import dataclass, field

from horae.model.cells import Gpu
from horae.model.commands import Start
from horae.model.events import Ending, Event, JobCancelled, JobEnded, JobSubmitted
from horae.model.jobs import Job
from horae.model.plans import Reaction, Round

_ENDINGS = {
    Ending.FINISHED: "finished",
    Ending.FAILED: "failed",
    Ending.STOPPED: "left its GPUs, its work saved",
    Ending.LOST: "was lost with its hardware",
}


@dataclass
class Story:
    """An observer that keeps what happened to one job, in words."""

    job_id: str
    lines: list[tuple[float, str]] = field(default_factory=list)  # (seconds, what happened)

    def reacted(self, event: Event, reaction: Reaction) -> None:
        if isinstance(event, JobSubmitted) and event.job.id == self.job_id:
            self._add(event.at, _submission(event.job))
        elif isinstance(event, JobEnded) and event.job_id == self.job_id:
            self._add(event.at, _ENDINGS[event.ending] + (f": {event.message}" if event.message else ""))
        elif isinstance(event, JobCancelled) and event.job_id == self.job_id:
            self._add(event.at, "cancelled by its owner")
        for round_ in reaction.rounds:
            self._planned(round_)
        for command in reaction.commands:
            if isinstance(command, Start) and self.job_id in command.job_ids:
                self._add(event.at, f"started on {command.shape} ({self._nodes(command.gpus)})")

    def _planned(self, round_: Round) -> None:
        if not round_.plan.departures or self.job_id not in round_.job_ids:
            return
        serial = int(round_.serials[round_.job_ids.index(self.job_id)])
        for departure in round_.plan.departures:
            if departure.serial == serial:
                self._add(round_.at, str(departure.reason))

    def _nodes(self, gpus: tuple[Gpu, ...]) -> str:
        unique = list(dict.fromkeys(gpu.node for gpu in gpus))
        return ", ".join(unique[:4]) + (f" and {len(unique) - 4} more nodes" if len(unique) > 4 else "")

    def _add(self, at: float, line: str) -> None:
        if (at, line) not in self.lines[-1:]:  # a command may be sent twice
            self.lines.append((at, line))


def _submission(job: Job) -> str:
    others = len(job.options) - 1
    more = f" or {others} other shape{'s' if others > 1 else ''}" if others else ""
    return f"submitted by {job.owner}: {job.options[0].shape}{more}"
