"""A scheduler that goes on whatever happens: rejected decisions, rejected events, dumps, and memory of decisions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from builders import cluster, job

from horae.driver import Guarded
from horae.experiments.simulate import simulate
from horae.model.commands import Start, Survey
from horae.model.decisions import Ranking
from horae.model.effects import Effects, effects_of
from horae.model.errors import BrokenInvariant, PolicyError
from horae.model.events import Ending, Event, JobEnded, JobStarted, JobSubmitted, Tick
from horae.model.jobs import Arrival, Truth
from horae.model.notices import DecisionRejected, FactRejected
from horae.model.plans import Reaction
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.model.status import Status
from horae.model.view import View
from horae.policies import registry
from horae.scheduler import Scheduler
from horae.scheduler.leases import Leases


@dataclass(frozen=True)
class Moody:
    """First come, first served, and counts its decisions; some of them fail."""

    name: ClassVar[str] = "moody"
    fails_from: int = 10**9
    fails_until: int = 10**9

    def decide(self, view: View) -> Ranking:
        count = view.memory if isinstance(view.memory, int) else 0
        if self.fails_from <= view.now < self.fails_until:
            raise ZeroDivisionError("a bad day")
        return Ranking(np.argsort(view.jobs.serial, kind="stable"), memory=count + 1)


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(registry._LOADED, Moody.name, Moody)
    yield


def _setup(gpus: int = 1, **options: object) -> Setup:
    return Setup(cluster(gpus=gpus), (PoolSpec("all", "moody", options, Cadence.EVENTS, 60.0),))


def test_a_policy_that_fails_changes_nothing_and_is_asked_again_a_round_later() -> None:
    scheduler = Scheduler(_setup(fails_from=0, fails_until=50))
    scheduler.handle(JobSubmitted(0.0, job("a")))
    reaction = scheduler.handle(Tick(0.0))
    assert reaction.commands == () and reaction.rounds == ()
    error = (
        "policy: policy 'moody' failed at 0 s: ZeroDivisionError: a bad day; fix it; horae.policies.check_policy helps"
    )
    assert [type(notice) for notice in reaction.notices] == [DecisionRejected]
    assert error in str(reaction.notices[0])
    assert scheduler.status("a") is Status.PENDING
    assert scheduler.next_wakeup_at == 60.0
    assert [type(command) for command in scheduler.handle(Tick(60.0)).commands] == [Start]


def test_in_a_simulation_a_policy_that_fails_ends_the_run() -> None:
    submitted = job("a")
    with pytest.raises(PolicyError, match="a bad day"):
        simulate(_setup(fails_from=0), [Arrival(submitted, Truth(100.0, submitted.options))])


def test_a_decision_may_remember_plain_data_for_the_next() -> None:
    scheduler = Scheduler(_setup())
    for number in range(3):
        scheduler.handle(JobSubmitted(float(number), job(f"j{number}", float(number))))
        scheduler.handle(Tick(float(number)))
    assert scheduler.pools.all[0].memory == 3
    assert Scheduler.restore(json.loads(json.dumps(scheduler.dump()))).pools.all[0].memory == 3


HISTORY: tuple[Event, ...] = (
    JobSubmitted(0.0, job("a")),
    JobSubmitted(0.0, job("b")),
    Tick(0.0),
    JobStarted(0.0, "a", 0),
    JobEnded(100.0, "a", 0, Ending.FINISHED, 100.0),
    Tick(100.0),
    JobStarted(100.0, "b", 1),
)


@pytest.mark.parametrize("events_max", [1, 3, 1000])
def test_an_event_that_breaks_an_invariant_is_rolled_back_and_the_engine_is_surveyed(
    events_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded, plain = Guarded(Scheduler(_setup()), events_max), Scheduler(_setup())
    for event in HISTORY[:4]:
        guarded.handle(event)
        plain.handle(event)

    def half(self: Leases, *_: object) -> None:
        self.by_epoch.clear()
        raise BrokenInvariant("half of it is done")

    with monkeypatch.context() as broken:
        broken.setattr(Leases, "leave", half)
        reaction = guarded.handle(HISTORY[4])
    assert reaction == Reaction((Survey(),), (), (FactRejected("JobEnded", "BrokenInvariant: half of it is done"),))
    assert guarded.scheduler.dump() == plain.dump()
    for event in HISTORY[4:]:
        assert guarded.handle(event).commands == plain.handle(event).commands
    assert guarded.scheduler.dump() == plain.dump()


def test_a_tick_that_breaks_an_invariant_leaves_all_pools_on_their_last_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    guarded = Guarded(Scheduler(_setup()))
    for event in HISTORY[:2]:
        guarded.handle(event)

    def fail(*_: object) -> None:
        raise BrokenInvariant("no start")

    with monkeypatch.context() as broken:
        broken.setattr(Leases, "start", fail)
        reaction = guarded.handle(Tick(0.0))
    assert reaction.commands == (Survey(),)
    assert [type(notice) for notice in reaction.notices] == [DecisionRejected]
    assert guarded.scheduler.status("a") is Status.PENDING
    assert guarded.next_wakeup_at == 60.0
    assert [type(command) for command in guarded.handle(Tick(60.0)).commands] == [Start]


def test_an_event_that_was_rejected_stays_so_when_its_effects_are_folded() -> None:
    scheduler = Scheduler(_setup())
    scheduler.handle(HISTORY[0])
    before = scheduler.dump()
    rejected = Reaction((Survey(),), (), (FactRejected("JobSubmitted", "bad"),))
    assert scheduler.handle(HISTORY[1], effects_of(rejected)) == Reaction((), ())
    assert scheduler.dump() == before


def test_effects_that_lack_a_round_are_an_error() -> None:
    scheduler = Scheduler(_setup())
    scheduler.handle(HISTORY[0])
    with pytest.raises(BrokenInvariant, match="the record has no round of pool all here"):
        scheduler.handle(Tick(0.0), Effects())


def test_a_dump_of_another_version_is_refused_with_a_remedy() -> None:
    plain = Scheduler(_setup()).dump() | {"version": 99}
    with pytest.raises(Exception, match="a dump of version 99; use the Horae that made it, or a newer one"):
        Scheduler.restore(plain)
