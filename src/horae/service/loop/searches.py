"""Searches that stop some of their trials: successive halving and HyperBand, by the losses that the trials report.

A trial is one job. At the end of a rung it is paused, as by `horae hold`, until every other trial of its bracket has
got there or is lost; then the best ones go on from where they were, and the others are stopped. What was decided is in
the table of trials, written in the transaction of the events that it led to: a new process decides nothing again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, select, update

from horae.engines.search.cohort import Cohort
from horae.model.searches import Rungs
from horae.service.store.schema import jobs, trials
from horae.service.sweeps import milestone

OPEN = ("running", "paused")


class Verb(Enum):
    PAUSE = "pause"
    GO_ON = "go on"
    STOP = "stop"


class Order(NamedTuple):
    """What becomes of a trial, and why."""

    job_id: str
    verb: Verb
    reason: str = ""


@dataclass(slots=True)
class _Trial:
    """A row of the table of trials, and the length of its job."""

    job_id: str
    search: int
    bracket: int
    size: int
    position: int
    rung: int
    state: str
    steps: float
    loss: float | None
    reached: bool
    steps_total: float

    @property
    def judged_by(self) -> float:
        """The loss by which it is compared; a trial without a valid one is the worst."""
        return inf if self.loss is None else self.loss

    def ends_rung(self, rung: int) -> bool:
        return self.state == "finished" or self.steps >= milestone(self.size, rung, self.steps_total)


class _Bracket:
    """The trials that are halved together."""

    def __init__(self, members: list[_Trial]) -> None:
        self.members = {trial.job_id: trial for trial in members}
        rung = max(trial.rung for trial in members)
        present = [each for each in members if each.rung == rung and each.state not in ("stopped", "lost")]
        reached = {trial.job_id: trial.judged_by for trial in present if trial.reached}
        self._cohort = Cohort(Rungs(members[0].size), [trial.job_id for trial in present], rung, reached)

    @property
    def is_open(self) -> bool:
        return any(trial.state in OPEN for trial in self.members.values())

    def reported(self, trial: _Trial, steps: float, loss: float | None) -> list[Order]:
        at = milestone(trial.size, trial.rung, trial.steps_total)
        if self._cohort.is_last or not self._cohort.awaits(trial.job_id) or steps < at:
            return []
        trial.steps, trial.loss = steps, loss
        self._reach(trial)
        return self._settle()

    def finished(self, trial: _Trial, steps: float, loss: float | None) -> list[Order]:
        trial.state, trial.steps = "finished", max(steps, trial.steps)
        if not self._cohort.awaits(trial.job_id):
            return []
        trial.loss = loss
        self._reach(trial)
        return self._settle()

    def lost(self, trial: _Trial) -> list[Order]:
        trial.state = "lost"
        if trial.job_id not in self._cohort.trials:
            return []
        self._cohort.lost(trial.job_id)
        return self._settle()

    def _reach(self, trial: _Trial) -> None:
        trial.reached = True
        self._cohort.reached(trial.job_id, trial.judged_by)

    def _settle(self) -> list[Order]:
        """Promotes as long as rungs are complete; trials that wait for others after that are paused."""
        orders: dict[str, Order] = {}
        while self._cohort.trials and self._cohort.is_complete and not self._cohort.is_last:
            orders |= {order.job_id: order for order in self._promote()}
        for job_id in self._cohort.trials:
            trial = self.members[job_id]
            if trial.reached and trial.state == "running" and not self._cohort.is_last:
                trial.state = "paused"
                reason = f"paused at step {trial.steps:g} until the other trials of its rung have got as far"
                orders[job_id] = Order(job_id, Verb.PAUSE, reason)
        return list(orders.values())

    def _promote(self) -> Iterator[Order]:
        cohort = self._cohort
        count = len(cohort.trials)
        dropped = cohort.promote()
        for trial in map(self.members.__getitem__, dropped):
            if trial.state in OPEN:
                trial.state = "stopped"
                yield Order(trial.job_id, Verb.STOP, _why(trial, len(cohort.trials), count))
        for trial in map(self.members.__getitem__, cohort.trials):
            trial.rung, trial.reached = cohort.rung, False
            if trial.ends_rung(cohort.rung) and not cohort.is_last:
                self._reach(trial)
            elif trial.state == "paused":
                trial.state = "running"
                yield Order(trial.job_id, Verb.GO_ON)


def _why(trial: _Trial, best: int, count: int) -> str:
    had = "no valid loss" if trial.loss is None else f"loss {trial.loss:.4g}"
    return f"stopped by its search: {had} at step {trial.steps:g}, and the best {best} of {count} go on"


class Searches:
    """All searches with trials that have not ended."""

    def __init__(self, connection: Connection) -> None:
        self._brackets: dict[str, _Bracket] = {}  # by job
        self._searches: set[int] = set()
        self._changed: dict[str, _Trial] = {}
        self._left: list[str] = []  # jobs that have ended since the last transaction
        self.stopped: set[str] = set()  # jobs that their search has stopped, and that may not have left yet
        wanted = select(trials.c.search).where(trials.c.state.in_(OPEN)).distinct()
        for search in connection.scalars(wanted).all():
            self.load(connection, search)
        leaving = select(trials.c.job_id).join(jobs, jobs.c.id == trials.c.job_id)
        unended = trials.c.state == "stopped", jobs.c.ended_at.is_(None)
        self.stopped.update(connection.scalars(leaving.where(*unended)))

    def load(self, connection: Connection, search: int) -> None:
        """Reads the trials of a search, if they are not known."""
        if search in self._searches:
            return
        self._searches.add(search)
        query = select(trials, jobs.c.steps_total).join(jobs, jobs.c.id == trials.c.job_id)
        brackets: dict[int, list[_Trial]] = {}
        for row in connection.execute(query.where(trials.c.search == search).order_by(trials.c.position)):
            brackets.setdefault(row.bracket, []).append(_Trial(**row._mapping))
        for members in brackets.values():
            bracket = _Bracket(members)
            if bracket.is_open:
                self._brackets.update(dict.fromkeys(bracket.members, bracket))

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._brackets

    def reported(self, job_id: str, steps: float, loss: float | None) -> list[Order]:
        """A trial has reported the end of its rung."""
        if job_id not in self._brackets:
            return []
        bracket = self._brackets[job_id]
        return self._noted(bracket, bracket.reported(bracket.members[job_id], steps, loss))

    def ended(self, job_id: str, state: str, steps: float, loss: float | None) -> list[Order]:
        """The job of a trial has ended; `loss`: that it reported last."""
        self._left.append(job_id)
        bracket = self._brackets.pop(job_id, None)
        if bracket is None:
            return []
        trial = bracket.members[job_id]
        self._changed[job_id] = trial
        if state == "finished":
            return self._noted(bracket, bracket.finished(trial, steps, loss))
        return [] if trial.state == "stopped" else self._noted(bracket, bracket.lost(trial))

    def _noted(self, bracket: _Bracket, orders: list[Order]) -> list[Order]:
        self._changed |= bracket.members
        self.stopped.update(order.job_id for order in orders if order.verb is Verb.STOP)
        return orders

    @property
    def has_changes(self) -> bool:
        return bool(self._changed)

    def write(self, connection: Connection) -> None:
        rows = [_values(trial) for trial in self._changed.values()]
        if rows:
            connection.execute(_UPDATE, rows)

    def written(self) -> None:
        self.stopped.difference_update(self._left)  # not before: another message may tell of the same end
        self._changed, self._left = {}, []


_MUTABLE = ("rung", "state", "steps", "loss", "reached")
_UPDATE = (
    update(trials)
    .where(trials.c.job_id == bindparam("trial_id"))
    .values({name: bindparam(f"new_{name}") for name in _MUTABLE})
)


def _values(trial: _Trial) -> dict[str, Any]:
    return {"trial_id": trial.job_id, **{f"new_{name}": getattr(trial, name) for name in _MUTABLE}}
