"""The conformance suite passes every policy of ours and names the fault of each that breaks a rule."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from math import inf, nan
from typing import Any, ClassVar

import numpy as np
import pytest

from horae.model.decisions import Decision, Grants, Pairs, Ranking, Shares
from horae.model.errors import PolicyError
from horae.model.view import View
from horae.policies import POLICIES, PolicyFault, check_policy, find_policy, make_policy
from horae.policies import registry as registry_module
from horae.policies.registry import option_defaults


def everybody(view: View) -> Any:
    return np.argsort(view.jobs.serial)


@dataclass(frozen=True)
class Sound:
    name: ClassVar[str] = "sound"
    patience: float = 1.0  # an option of its own

    def decide(self, view: View) -> Decision:
        return Ranking(everybody(view), preemptive=True)


class SharesTooMuch(Sound):
    name = "shares-too-much"

    def decide(self, view: View) -> Decision:
        return Shares(np.where(view.jobs.shape >= 0, 1.0, 0.0) / max(view.jobs.shape.shape[1], 1))


class SharesMoreThanAllTime(Sound):
    name = "shares-more-than-all-time"

    def decide(self, view: View) -> Decision:
        return Shares(np.where(view.jobs.shape >= 0, 2.0, 0.0))


class GrantsTooMuch(Sound):
    name = "grants-too-much"

    def decide(self, view: View) -> Decision:
        rows = everybody(view)
        option = (view.jobs.shape[rows] >= 0).argmax(axis=1)
        return Grants(rows, option, np.full(len(rows), 60.0), Ranking(rows))


class RanksTwice(Sound):
    name = "ranks-twice"

    def decide(self, view: View) -> Decision:
        return Ranking(np.repeat(everybody(view), 2))


class WritesToAColumn(Sound):
    name = "writes-to-a-column"

    def decide(self, view: View) -> Decision:
        view.jobs.weight[:] = 1.0
        return Ranking(everybody(view))


class WritesToWhatWasWorkedOut(Sound):
    name = "writes-to-what-was-worked-out"

    def decide(self, view: View) -> Decision:
        view.jobs.waiting_seconds.fill(-1.0)
        return Ranking(everybody(view))


class TakesRowsAsTheyCome(Sound):
    name = "takes-rows-as-they-come"

    def decide(self, view: View) -> Decision:
        return Ranking(np.arange(len(view.jobs)))


class BreaksTiesByRow(Sound):
    name = "breaks-ties-by-row"

    def decide(self, view: View) -> Decision:
        return Ranking(np.argsort(view.jobs.gpus, kind="stable"))


class DrawsLots(Sound):
    name = "draws-lots"

    def decide(self, view: View) -> Decision:
        order = everybody(view).tolist()
        random.shuffle(order)
        return Ranking(np.array(order, dtype=np.int64))


@dataclass(frozen=True)
class CountsItsCalls:
    name: ClassVar[str] = "counts-its-calls"
    calls: list[int] = field(default_factory=list)

    def decide(self, view: View) -> Decision:
        self.calls.append(1)
        order = everybody(view)
        return Ranking(order[::-1] if len(self.calls) % 2 else order)


class FailsWhenEmpty(Sound):
    name = "fails-when-empty"

    def decide(self, view: View) -> Decision:
        view.jobs.serial.max()
        return Ranking(everybody(view))


class FailsInACrowd(Sound):
    name = "fails-in-a-crowd"

    def decide(self, view: View) -> Decision:
        return Ranking(everybody(view), stands_until=view.now + 1 / (4 - min(len(view.jobs), 4)))


class ForgetsHolders(Sound):
    name = "forgets-holders"

    def decide(self, view: View) -> Decision:
        return Ranking(np.flatnonzero(view.jobs.pending), preemptive=True)


class NeverSaysWhen(Sound):
    name = "never-says-when"

    def decide(self, view: View) -> Decision:
        return Ranking(everybody(view), stands_until=nan)


class AnswersInWords(Sound):
    name = "answers-in-words"

    def decide(self, view: View) -> Decision:
        return "all of them"  # type: ignore[return-value]


class RanksStrangers(Sound):
    name = "ranks-strangers"

    def decide(self, view: View) -> Decision:
        return Ranking(everybody(view) + 1)


class AllowsNothing(Sound):
    name = "allows-nothing"

    def decide(self, view: View) -> Decision:
        return Ranking(everybody(view), allowed=np.zeros(view.jobs.shape.shape, dtype=bool))


@dataclass(frozen=True)
class PairsNeighbours:
    """The first two of equal gangs on one GPU type share GPUs for a little while, if these models are to be paired."""

    name: ClassVar[str] = "pairs-neighbours"
    models: tuple[int, ...] = (0, 1)

    def decide(self, view: View) -> Decision:
        jobs = view.jobs
        rows = everybody(view)
        rows = rows[np.isin(jobs.model[rows], self.models)]
        accelerator, gpus = (column[jobs.shape[rows, 0]] for column in (view.shape_accelerator, view.shape_gpus))
        alike = (accelerator[:, None] == accelerator) & (gpus[:, None] == gpus) & (view.capacity[accelerator] >= gpus)
        first, second = (rows[part[:1]] for part in np.nonzero(np.triu(alike, 1)))
        nought = np.zeros(len(first), dtype=np.int64)
        pairs = Pairs(first, second, nought, nought, np.full(len(first), 0.1))
        return Shares(np.zeros(jobs.shape.shape), pairs=pairs)


class PairsWhoDoNotFit(PairsNeighbours):
    name = "pairs-who-do-not-fit"

    def __init__(self) -> None:
        super().__init__(models=(2,))  # two of the third model keep nothing of their speeds


class PairsWithItself(Sound):
    name = "pairs-with-itself"

    def decide(self, view: View) -> Decision:
        rows = everybody(view)[:1]
        nought = np.zeros(len(rows), dtype=np.int64)
        return Shares(np.zeros(view.jobs.shape.shape), pairs=Pairs(rows, rows, nought, nought, np.full(len(rows), 0.1)))


def test_a_policy_that_pairs_jobs_which_keep_some_speed_passes() -> None:
    check_policy(PairsNeighbours)


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_of_ours_keeps_the_rules(name: str) -> None:
    for seed in range(3):
        check_policy(POLICIES[name], seed)


@pytest.mark.parametrize("name", [name for name, kind in POLICIES.items() if "sharing" in option_defaults(kind)])
def test_every_policy_of_ours_keeps_the_rules_where_jobs_share(name: str) -> None:
    check_policy(make_policy(name, {"sharing": True}))


def test_a_sound_policy_of_somebody_else_passes_as_a_class_and_as_an_object() -> None:
    check_policy(Sound)
    check_policy(Sound(patience=2.0))


@pytest.mark.parametrize(
    ("broken", "fault"),
    [
        (SharesTooMuch, "over-allocates: it gives away"),
        (SharesMoreThanAllTime, "over-allocates: it gives a job more than all of its time"),
        (GrantsTooMuch, "over-allocates: it grants"),
        (RanksTwice, "over-allocates: it ranks a job twice"),
        (WritesToAColumn, "mutates its view"),
        (WritesToWhatWasWorkedOut, "mutates its view: jobs.waiting_seconds has changed"),
        (TakesRowsAsTheyCome, "depends on job order"),
        (BreaksTiesByRow, "depends on job order"),
        (DrawsLots, "is random"),
        (CountsItsCalls, "asked the same again it answers differently"),
        (FailsWhenEmpty, "fails when empty: ValueError"),
        (FailsInACrowd, "fails on a view: ZeroDivisionError"),
        (ForgetsHolders, "does not rank every job that runs"),
        (NeverSaysWhen, "does not say until when its decision stands"),
        (AnswersInWords, "answers with str"),
        (RanksStrangers, "ranks rows that do not exist"),
        (AllowsNothing, "allows it no shape"),
        (PairsWhoDoNotFit, "pairs jobs that do not fit on the same GPUs"),
        (PairsWithItself, "pairs a job with itself"),
    ],
)
def test_a_broken_policy_is_rejected_with_a_message_that_names_the_fault(broken: Callable[[], Any], fault: str) -> None:
    with pytest.raises(PolicyFault) as raised:
        check_policy(broken)
    assert fault in str(raised.value)
    assert raised.value.remedy
    assert "shown by" in str(raised.value)


@dataclass(frozen=True)
class WantsAnOption:
    limit: float
    name: ClassVar[str] = "wants-an-option"

    def decide(self, view: View) -> Decision:
        return Ranking(everybody(view))


def test_a_policy_that_cannot_be_made_without_options_is_rejected() -> None:
    with pytest.raises(PolicyFault, match="cannot be made without options"):
        check_policy(WantsAnOption)  # type: ignore[arg-type]


def test_numbers_that_yaml_takes_for_words_are_numbers() -> None:
    assert make_policy("tiresias", {"limits": ["1e3"], "promote_after": "1e1"}) == make_policy(
        "tiresias", {"limits": [1000], "promote_after": 10}
    )


def test_a_module_that_leaves_when_it_is_imported_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, ("sound", "Sound"))

    def leave(point: EntryPoint) -> object:
        raise SystemExit(3)

    monkeypatch.setattr(EntryPoint, "load", leave)
    with pytest.raises(PolicyError, match="cannot be imported: SystemExit: 3"):
        find_policy("sound")


def test_what_is_no_policy_at_all_is_told_so() -> None:
    with pytest.raises(PolicyFault, match="is no policy"):
        check_policy(object)  # type: ignore[arg-type]


def test_a_policy_that_cannot_travel_to_another_process_is_rejected() -> None:
    @dataclass(frozen=True)
    class Homebound(Sound):
        name: ClassVar[str] = "homebound"

    with pytest.raises(PolicyFault, match="cannot be sent to another process"):
        check_policy(Homebound)


def _install(monkeypatch: pytest.MonkeyPatch, *points: tuple[str, str]) -> None:
    made = [EntryPoint(name, f"{__name__}:{value}", "horae.policies") for name, value in points]
    monkeypatch.setattr(registry_module, "installed", lambda: made)
    monkeypatch.setattr(EntryPoint, "load", lambda point: globals()[point.attr])
    monkeypatch.setattr(registry_module, "_LOADED", {})


def test_a_policy_of_another_package_is_found_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, ("sound", "Sound"))
    assert make_policy("sound", {"patience": 3}) == Sound(patience=3.0)


def test_a_policy_of_another_package_is_checked_when_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, ("draws-lots", "DrawsLots"))
    with pytest.raises(PolicyError) as raised:
        make_policy("draws-lots")
    assert "is random" in str(raised.value)
    assert "DrawsLots" in str(raised.value)


def test_an_entry_point_and_its_class_must_agree_on_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, ("other", "Sound"))
    with pytest.raises(PolicyError, match="calls itself 'sound'"):
        find_policy("other")


def test_an_unknown_name_is_answered_with_all_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, ("sound", "Sound"))
    with pytest.raises(PolicyError) as raised:
        find_policy("magic")
    assert "sound" in raised.value.remedy
    assert "tiresias" in raised.value.remedy


def test_an_endless_stand_is_fine() -> None:
    assert Ranking(np.arange(0)).stands_until == inf


class ReadsLengths(Sound):
    name = "reads-lengths"

    def decide(self, view: View) -> Decision:
        rows = everybody(view)
        return Ranking(rows[np.lexsort((view.jobs.serial[rows], view.jobs.seconds_left[rows]))])


class SaysSo(ReadsLengths):
    name = "says-so"
    uses_lengths: ClassVar[bool] = True


def test_a_policy_that_reads_run_times_must_say_so() -> None:
    with pytest.raises(PolicyFault, match="decides by run times, and does not say so"):
        check_policy(ReadsLengths)
    check_policy(SaysSo)


class StandsUntilThePast(Sound):
    name = "stands-until-the-past"

    def decide(self, view: View) -> Decision:
        return Ranking(everybody(view), stands_until=view.now - 10)


def test_a_decision_cannot_stand_until_the_past() -> None:
    with pytest.raises(PolicyFault, match="stands until a time that is past"):
        check_policy(StandsUntilThePast)
