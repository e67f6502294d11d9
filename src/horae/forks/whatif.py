"""What would have happened under another policy, on another cluster, with other reservations or weights.

The state at a past moment is run forward twice, as it was configured and as changed, with the jobs that the log has and
their true lengths: the difference is the change's. Beside both stands what was recorded. Without a change, the recorded
events are decided again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random

from horae.driver import raise_rejected
from horae.forks.account import Account, with_all_nodes
from horae.forks.beliefs import Beliefs
from horae.forks.change import Change
from horae.forks.forward import run_forward
from horae.forks.present import Present
from horae.forks.recording import Recording
from horae.model.errors import InputError
from horae.model.events import ClusterChanged, Event, JobEnded
from horae.model.jobs import Arrival, Truth
from horae.model.plans import Reaction
from horae.model.setup import Setup
from horae.model.setup_changes import changes, fixed_field
from horae.scheduler import Scheduler


@dataclass(frozen=True)
class Outcomes:
    """The schedules that are compared."""

    recorded: Account
    same: Account  # as configured, run forward; the recorded events decided again if nothing is changed
    changed: Account
    since: float
    until: float
    change: tuple[str, ...]  # in words
    believed: frozenset[str]  # jobs whose true length is not known: they had not ended, or were cancelled
    cut_off_at: float | None = None  # where the time budget ended a run forward

    @property
    def is_replay(self) -> bool:
        return not self.change


def whatif(recording: Recording, change: Change, is_over: Callable[[], bool] = lambda: False) -> Outcomes:
    """`is_over`: whether the time budget is used up."""
    wanted = change.of(recording.setup)
    if wanted == recording.setup:
        again = _replayed(recording)
        return Outcomes(recording.account, again, again, recording.since, recording.until, (), frozenset())
    truths, believed = _truths(recording)
    same = _Forward(recording, Change(), recording.setup, truths, believed, is_over)
    changed = _Forward(recording, change, wanted, truths, believed, is_over)
    ends = [each.cut_off_at for each in (same, changed) if each.cut_off_at is not None]
    return Outcomes(
        recording.account, same.account, changed.account, recording.since, recording.until, tuple(change.words()),
        frozenset(believed), min(ends, default=None),
    )  # fmt: skip


def _replayed(recording: Recording) -> Account:
    """The recorded events, decided again."""
    scheduler = recording.scheduler()
    account = Account(scheduler, _setup_with_nodes(recording, recording.setup), recording.since)
    for event, effects in recording.events:
        reaction = scheduler.handle(event, effects)
        raise_rejected(reaction)
        account.reacted(event, reaction)
    return account


def _setup_with_nodes(recording: Recording, setup: Setup) -> Setup:
    later = [event for event in recording.outside if isinstance(event, ClusterChanged)]
    return replace(setup, cluster=with_all_nodes(setup.cluster, later))


def _truths(recording: Recording) -> tuple[dict[str, Truth], set[str]]:
    """The length of every job, and those for which it is drawn from those of the others."""
    scheduler, lengths = recording.scheduler(), recording.lengths
    jobs = {**Present.of(scheduler).jobs, **{job.id: job for job in recording.submitted}}
    beliefs, rng = Beliefs(lengths.past_jobs()), Random("lengths")
    known = {job_id: lengths.truth(job_id) for job_id in jobs}
    truths = {job_id: truth for job_id, truth in known.items() if truth is not None}
    believed = {job_id for job_id, truth in known.items() if truth is None}
    for job_id in sorted(believed):
        truths[job_id] = beliefs.truth(jobs[job_id], lengths.worked_seconds(job_id), rng)
    return truths, believed


class _Forward:
    """Runs the state forward until all jobs whose true length is known have ended."""

    def __init__(
        self,
        recording: Recording,
        change: Change,
        wanted: Setup,
        truths: Mapping[str, Truth],
        believed: set[str],
        is_over: Callable[[], bool],
    ) -> None:
        self.cut_off_at: float | None = None
        self._is_over = is_over
        self._awaited = {job_id for job_id in truths if job_id not in believed}
        scheduler, first = _prepared(recording, wanted)
        self._scheduler = scheduler
        self.account = Account(scheduler, _setup_with_nodes(recording, wanted), recording.since)
        arrivals = [Arrival(job, truths[job.id]) for job in recording.submitted]
        outside = change.kept(recording.outside, wanted)
        run_forward(
            scheduler, truths, arrivals, [self.account, self], self._is_enough, outside=outside, changes=first,
            strict=True,
        )  # fmt: skip

    def reacted(self, event: Event, reaction: Reaction) -> None:
        if isinstance(event, JobEnded) and event.job_id not in self._scheduler.jobs.live:  # otherwise it runs again
            self._awaited.discard(event.job_id)

    def _is_enough(self) -> bool:
        if self._is_over():
            self.cut_off_at = self._scheduler.now
            return True
        return not self._awaited


def _prepared(recording: Recording, wanted: Setup) -> tuple[Scheduler, list[Event]]:
    """The state at the moment, and the events that change its setup: none where the log begins."""
    if recording.dump is None:
        return Scheduler(wanted), []
    if wanted == recording.setup:
        return recording.scheduler(), []
    field = fixed_field(recording.setup, wanted)
    if field:
        problem = f"{field} cannot change while jobs run"
        raise InputError(problem, field="since", remedy="begin where the log begins")
    scheduler = recording.scheduler()
    return scheduler, changes(recording.setup, wanted, scheduler.now)
