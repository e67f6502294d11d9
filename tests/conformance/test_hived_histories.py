"""HiveD's recorded histories, answered by the scheduler: whatever differs is known and explained."""

from __future__ import annotations

import copyreg
from copy import deepcopy
from types import MappingProxyType

import pytest
from conformance.hived_histories import Class, Replayer, after_the_end, best_replay, go_on
from conformance.hived_known import LESS_LOCAL, WORSE
from conformance.hived_records import FOLDER, histories
from conformance.scheduler_allocator import SchedulerAllocator

from horae.scheduler import Scheduler

recorded = pytest.mark.skipif(not FOLDER, reason="HORAE_CONFORMANCE names no folder with HiveD's histories")

CRASHES = [name for name, each in histories().items() if each["end"] != "full"]


copyreg.pickle(MappingProxyType, lambda view: (MappingProxyType, (dict(view),)))  # which cannot be copied


def copied(replayer: Replayer) -> Replayer:
    """A replayer in the same state; its scheduler is restored from a dump."""
    assert isinstance(replayer.allocator, SchedulerAllocator)
    scheduler = replayer.allocator.scheduler
    return deepcopy(replayer, {id(scheduler): Scheduler.restore(scheduler.dump())})


@recorded
@pytest.mark.parametrize("name", histories() or ["none"])
def test_every_difference_to_a_history_is_known(name: str) -> None:
    replay = best_replay(histories()[name], SchedulerAllocator)
    worse = {each.step: str(each) for each in replay.of(Class.WORSE)}
    assert worse.keys() == WORSE.get(name, {}).keys(), worse
    assert len(replay.of(Class.LESS_LOCAL)) == LESS_LOCAL.get(name, 0), replay.of(Class.LESS_LOCAL)
    assert not replay.is_artefact, replay.ended  # it may end where both have decided otherwise for a good reason


@recorded
@pytest.mark.parametrize("name", CRASHES or ["none"])
def test_ours_continues_where_theirs_crashes(name: str) -> None:
    """The step at which theirs crashes is not recorded, so every kind of step is tried."""
    history = histories()[name]
    replayer = Replayer(history, SchedulerAllocator, checks=False)
    replay = replayer.run()
    for own in history["steps"][replay.compared :]:
        go_on(replayer, own)
    for step in after_the_end(history):
        go_on(copied(replayer), step)


@recorded
def test_known_differences_are_of_records_that_exist() -> None:
    assert {*WORSE, *LESS_LOCAL} <= histories().keys()
