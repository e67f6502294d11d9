"""Reads a log: the state at a past moment, and everything after it that does not depend on the schedule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from horae.forks.account import Account, with_all_nodes
from horae.forks.lengths import Lengths
from horae.journal import EffectsReader, JournalEntry
from horae.model.effects import Effects
from horae.model.errors import InputError
from horae.model.events import (
    TIME_IS_UP,
    ClusterChanged,
    CurveRevised,
    Event,
    GpuChanged,
    JobCancelled,
    JobHeld,
    JobReleased,
    JobResumable,
    JobSubmitted,
    NodeChanged,
    PolicyChanged,
    SpeedRevised,
    TenantsChanged,
)
from horae.model.jobs import Job
from horae.model.serialization import Plain
from horae.model.setup import Setup
from horae.scheduler import Scheduler

# Events of users, operators, hardware and estimators; those of engines follow from commands.
OUTSIDE = (
    JobCancelled, JobHeld, JobReleased, JobResumable, NodeChanged, GpuChanged, ClusterChanged, PolicyChanged,
    TenantsChanged, CurveRevised, SpeedRevised,
)  # fmt: skip


class BeforeTheLog(InputError):
    """The moment is before the first event of the log."""


@dataclass(frozen=True)
class Recording:
    setup: Setup  # at the moment
    dump: Plain | None  # the state at the moment; None: the log begins with it
    since: float  # the first event after the moment
    until: float  # the last event
    events: tuple[tuple[Event, Effects | None], ...]  # all after the moment; effects only where an event was rejected
    submitted: tuple[Job, ...]  # after the moment
    outside: tuple[Event, ...]
    account: Account  # of what happened
    lengths: Lengths

    def scheduler(self) -> Scheduler:
        """A copy of the state at the moment."""
        return Scheduler(self.setup) if self.dump is None else Scheduler.restore(self.dump)


def read_recording(
    scheduler: Scheduler, entries: Iterable[JournalEntry], since: float | None = None, name: str = "journal"
) -> Recording:
    """Applies the recorded effects of all entries; `since` None: from the first of them on.

    The scheduler has the state before the entries, and is changed.
    """
    reader, ahead = EffectsReader(name), _with_last(entries)
    is_fresh = not scheduler.jobs.live and scheduler.now == 0.0
    for entry, is_last in ahead:
        if since is None or entry.event.at >= since:
            if is_fresh and since is not None and since < entry.event.at:
                raise BeforeTheLog("is before the first event", field="since", remedy="name a later moment")
            break
        is_fresh = False
        scheduler.handle(entry.event, _effects(reader, entry, is_last=is_last))
    else:
        raise InputError("there is no later event", field="since", remedy="name an earlier moment")
    dump = None if is_fresh else scheduler.dump()
    setup = scheduler.setup if is_fresh else scheduler.present_setup()
    rest = [(entry, is_last), *ahead]
    moment = max(scheduler.now, entry.event.at if since is None else since)
    everything = replace(setup, cluster=with_all_nodes(setup.cluster, (each.event for each, _ in rest)))
    account, lengths = Account(scheduler, everything, moment), Lengths(scheduler)
    events: list[tuple[Event, Effects | None]] = []
    for each, is_end in rest:
        effects = _effects(reader, each, is_last=is_end)
        reaction = scheduler.handle(each.event, effects)
        account.reacted(each.event, reaction)
        lengths.reacted(each.event, reaction)
        events.append((each.event, effects if effects is not None and effects.is_void else None))
    outside = [event for event, effects in events if isinstance(event, OUTSIDE) and effects is None]
    return Recording(
        setup, dump, moment, scheduler.now, tuple(events), tuple(_submitted(events)),
        tuple(event for event in outside if not _is_time_limit(event)), account, lengths,
    )  # fmt: skip


def _with_last(entries: Iterable[JournalEntry]) -> Iterator[tuple[JournalEntry, bool]]:
    """Each entry, and whether it is the last."""
    former: JournalEntry | None = None
    for entry in entries:
        if former is not None:
            yield former, False
        former = entry
    if former is not None:
        yield former, True


def _effects(reader: EffectsReader, entry: JournalEntry, *, is_last: bool) -> Effects | None:
    """What was recorded; None where a crash cut the record of the last event short: it is decided again."""
    if is_last and entry.lines and not entry.is_whole:
        return None
    return reader.read(entry)


def _is_time_limit(event: Event) -> bool:
    """Whether this follows from how long a job has run, rather than from the time of day."""
    return isinstance(event, JobCancelled) and event.reason.startswith(TIME_IS_UP)


def _submitted(events: Iterable[tuple[Event, Effects | None]]) -> list[Job]:
    found: dict[str, Job] = {}
    for event, effects in events:
        if isinstance(event, JobSubmitted) and effects is None:
            found.setdefault(event.job.id, event.job)
    return sorted(found.values(), key=lambda job: job.submitted_at)
