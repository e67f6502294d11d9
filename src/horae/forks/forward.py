"""Runs a copy of a scheduler forward: the simulated engine takes over what runs, with believed speeds and lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from horae.driver import Observer, deliver, run
from horae.engines.simulated import SimulatedEngine
from horae.forks.present import Present
from horae.model.commands import Start
from horae.model.errors import InputError
from horae.model.events import Ending, Event, JobEnded, JobStarted
from horae.model.jobs import Arrival, Truth
from horae.model.notices import ChangeRefused
from horae.model.plans import Reaction
from horae.model.status import CANCELLING, STARTING, STOPPING
from horae.scheduler import Scheduler


def run_forward(
    scheduler: Scheduler,
    truths: Mapping[str, Truth],
    arrivals: Iterable[Arrival] = (),
    observers: Sequence[Observer] = (),
    enough: Callable[[], bool] = lambda: False,
    *,
    outside: Iterable[Event] = (),
    changes: Iterable[Event] = (),
    strict: bool = False,
    present: Present | None = None,
) -> None:
    """Runs until nothing is left to happen, or `enough` returns true. The scheduler is changed: give it a copy.

    `truths` has the length and the speeds of every live job; `arrivals` are the jobs that come later, in order;
    `outside` are later events of users, operators and hardware. `changes` are made first: one that is refused is an
    error. With `strict` a policy that fails is one, too. `present` is that of the scheduler, where it is known already.

    The simulated engine loses no messages, so it is not surveyed.
    """
    cluster = scheduler.present_setup().cluster if changes else scheduler.setup.cluster
    engine = SimulatedEngine(cluster, arrivals, outside, sharing=scheduler.setup.sharing)
    scheduler.unacknowledged.stop_surveys()
    events = _take_over(scheduler, engine, truths, present or Present.of(scheduler))
    deliver(scheduler, engine, events, tuple(observers), strict=strict)
    deliver(scheduler, engine, changes, (*observers, _NoRefusals()), strict=strict)
    run(scheduler, engine, observers, enough=enough, strict=strict)


class _NoRefusals:
    """An observer of changes: one that is refused is an error."""

    def reacted(self, event: Event, reaction: Reaction) -> None:
        for notice in reaction.notices:
            if isinstance(notice, ChangeRefused):
                raise InputError(f"{notice.change} is not possible: {notice.problem}", remedy=notice.remedy)


def _take_over(
    scheduler: Scheduler, engine: SimulatedEngine, truths: Mapping[str, Truth], present: Present
) -> list[Event]:
    """Gives the engine what runs now; returns what it would report of commands that are on their way."""
    now = engine.now = scheduler.now
    events: list[Event] = []
    for job_id, job in present.jobs.items():
        arrival, found = Arrival(job, truths[job_id]), scheduler.jobs.on_gpus(job_id)
        if found is None:
            engine.expect(arrival)
            continue
        pool, serial = found
        table, row = pool.table, pool.table.row[serial]
        lease = scheduler.leases.by_epoch[int(table.epoch[row])]
        steps = float(present.steps_done[pool.spec.name][row])
        partner = next((scheduler.jobs.id_of[other] for other in lease.bundle if other != serial), "")
        engine.take_over(
            arrival, lease.epoch, scheduler.ledger.names(lease.gpus), lease.shape, steps,
            max(float(table.productive_at[row]), now), partner, float(table.pace[row]),
            scheduler.ledger.cell_levels(lease.gpus),
        )  # fmt: skip
        status = int(table.status[row])
        if status == STARTING:
            events.append(JobStarted(now, job_id, lease.epoch))
        elif status in (STOPPING, CANCELLING):
            events.append(engine.leave(job_id))
    return events


@dataclass
class Watch:
    """An observer that notes what happens to jobs."""

    started: dict[str, float] = field(default_factory=dict)  # the first start of each
    ended: dict[str, float] = field(default_factory=dict)
    shapes: dict[str, str] = field(default_factory=dict)  # the first that each gets

    def reacted(self, event: Event, reaction: Reaction) -> None:
        for command in reaction.commands:
            if isinstance(command, Start):
                for job_id in command.job_ids:
                    self.shapes.setdefault(job_id, str(command.shape))
        if isinstance(event, JobStarted):
            self.started.setdefault(event.job_id, event.at)
        elif isinstance(event, JobEnded) and event.ending in (Ending.FINISHED, Ending.FAILED):
            self.ended[event.job_id] = event.at

    def starts_at(self, job_id: str) -> float:
        return self.started.get(job_id, inf)

    def ends_at(self, job_id: str) -> float:
        return self.ended.get(job_id, inf)
