"""Gandiva by its own rules, on cases that can be worked out by hand: slices, packing, migration, growth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from builders import ACCELERATOR, POOL, arrival, cluster, handle, job

from horae.driver import run
from horae.engines.simulated import SimulatedEngine
from horae.experiments.replay import replay_file
from horae.experiments.simulate import simulate
from horae.model.cluster import CLUSTER, NODE, Cluster, Node
from horae.model.commands import Start, Stop
from horae.model.decisions import Grants, Ranking
from horae.model.errors import PolicyError
from horae.model.events import Event, JobStarted, JobSubmitted, PolicyChanged, Tick
from horae.model.jobs import Arrival, Job, Truth
from horae.model.plans import Reaction
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.model.shapes import Option, Shape
from horae.model.speeds import Sharing
from horae.model.view import View
from horae.policies import check_policy, make_policy, registry
from horae.policies.conformance import PolicyFault
from horae.reports.recorder import Recorder
from horae.scheduler import Scheduler

TIME_SLICING = "gandiva-time-slicing"


def keeping(kept: float, *models: str) -> tuple[Sharing, ...]:
    """Any two of these models keep that part each, whatever their gangs."""
    pairs = [(one, other) for one in models or ("m",) for other in models or ("m",) if one <= other]
    return tuple(Sharing(pair, ACCELERATOR, gpus, (kept, kept)) for pair in pairs for gpus in (1, 2, 4))


def lab(machines: Cluster, sharing: tuple[Sharing, ...] = (), **options: object) -> Setup:
    pool = PoolSpec(POOL, TIME_SLICING, options, Cadence.EVENTS, 360.0)
    return Setup(machines, (pool,), sharing=sharing)


def elastic(id: str, at: float, speeds: Mapping[int, float], steps: float, **fields: Any) -> Arrival:
    options = tuple(Option(Shape(ACCELERATOR, gpus, NODE), speed) for gpus, speed in speeds.items())
    return Arrival(Job(id, at, options, steps_total=steps, **fields), Truth(steps, options))


def sensitive(id: str, at: float, gpus: int, steps: float, spread: float = 0.5, **fields: Any) -> Arrival:
    """A step a second in one node, fewer if spread over several."""
    options = (
        Option(Shape(ACCELERATOR, gpus, NODE), 1.0),
        Option(Shape(ACCELERATOR, gpus, CLUSTER), spread),
    )
    return Arrival(Job(id, at, options, steps_total=steps, **fields), Truth(steps, options))


class Diary:
    """Who was started and stopped when: (at, jobs and their GPUs) and (at, job)."""

    def __init__(self) -> None:
        self.starts: list[tuple[float, tuple[str, ...], int, str]] = []
        self.stops: list[tuple[float, str]] = []
        self.ended: dict[str, float] = {}

    def reacted(self, event: Event, reaction: Reaction) -> None:
        for command in reaction.commands:
            if isinstance(command, Start):
                self.starts.append((event.at, command.job_ids, len(command.gpus), command.shape.level))
            elif isinstance(command, Stop):
                self.stops.append((event.at, command.job_id))


def lived(setup: Setup, arrivals: Iterable[Arrival], outside: Iterable[Event] = ()) -> Diary:
    diary, recorder = Diary(), Recorder(setup)
    engine = SimulatedEngine(setup.cluster, recorder.expecting(arrivals), outside, sharing=setup.sharing)
    run(Scheduler(setup), engine, (recorder, diary), strict=True)
    diary.ended = {record.job_id: record.ended_at for record in recorder.records()}
    return diary


def decided(setup: Setup, *moments: Iterable[Job], at: float = 0.0) -> Grants:
    """The last decision, when these have come one moment after the other, a second each; all starts are confirmed."""
    scheduler, decision = Scheduler(setup), None
    for number, jobs in enumerate(moments):
        now = at if number == len(moments) - 1 and at else float(number)
        for each in jobs:
            handle(scheduler, JobSubmitted(now, each))
        waiting: list[Event] = [Tick(now)]
        while waiting:
            reaction = handle(scheduler, waiting.pop(0))
            decision = reaction.rounds[-1].decision if reaction.rounds else decision
            for command in reaction.commands:
                if isinstance(command, Start):
                    waiting += [JobStarted(now, job_id, command.epoch) for job_id in command.job_ids]
    assert isinstance(decision, Grants)
    return decision


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("options", [{}, {"packing_min": 0.0}, {"packing_min": 1.7}])
def test_the_policy_keeps_the_rules(seed: int, options: dict[str, object]) -> None:
    check_policy(make_policy(TIME_SLICING, options), seed)


@pytest.mark.parametrize(
    ("option", "value"),
    [("packing_min", -1.0), ("slice_seconds", 0), ("slice_seconds", float("inf")), ("horizon_seconds", -1.0)],
)
def test_an_option_that_makes_no_sense_is_told_with_a_remedy(option: str, value: object) -> None:
    with pytest.raises(PolicyError) as raised:
        make_policy(TIME_SLICING, {option: value})
    assert raised.value.field == option
    assert raised.value.remedy


# Slices


def test_two_gangs_that_do_not_fit_together_alternate_every_minute() -> None:
    """Each needs 150 s: a has 0 to 60, 120 to 180, 240 to 270; b the rest."""
    diary = lived(lab(cluster(1, 4)), [arrival("a", 0, 4, 150), arrival("b", 0, 3, 150)])
    assert [(at, ids[0]) for at, ids, _, _ in diary.starts] == [
        (0.0, "a"), (60.0, "b"), (120.0, "a"), (180.0, "b"), (240.0, "a"), (270.0, "b")
    ]  # fmt: skip
    assert diary.ended == {"a": 270.0, "b": 300.0}


def test_who_has_waited_longest_is_next_and_a_large_gang_is_not_passed_for_ever() -> None:
    """Where all fit nobody has a slice, so that the gang need not wait for its end; from there on it is one of five."""
    singles = [arrival(f"s{i}", 0, 1, 600) for i in range(3)]
    diary = lived(lab(cluster(1, 4)), [*singles, arrival("gang", 20, 4, 100), arrival("late", 30, 1, 600)])
    assert next((at, ids) for at, ids, gpus, _ in diary.starts if gpus == 4) == (20.0, ("gang",))
    assert diary.ended["gang"] < 300.0
    # In the first minutes everybody has its turn.
    first = {ids[0]: at for at, ids, _, _ in reversed(diary.starts)}
    assert max(first.values()) <= 120.0


def test_a_job_that_is_slow_to_restart_has_longer_slices() -> None:
    """Ten restarts of 10 s are 100 s, rounded up to two slices."""
    jobs = [arrival(name, 0, 4, 400, restart_seconds=10.0) for name in "ab"]
    diary = lived(lab(cluster(1, 4)), jobs)
    begun = [at for at, *_ in diary.starts]
    assert [later - sooner for sooner, later in pairwise(begun[:4])] == [120.0] * 3


def test_slices_are_as_long_as_is_asked_for() -> None:
    diary = lived(lab(cluster(1, 4), slice_seconds=30.0), [arrival(name, 0, 4, 90) for name in "ab"])
    assert [at for at, *_ in diary.starts] == [0.0, 30.0, 60.0, 90.0, 120.0, 150.0]


def test_nobody_takes_turns_where_all_fit() -> None:
    diary = lived(lab(cluster(2, 4)), [arrival(f"j{i}", 10 * i, 2, 500) for i in range(4)])
    assert len(diary.starts) == 4
    assert not diary.stops


def test_gangs_that_fit_by_count_but_in_no_node_take_turns_too() -> None:
    """Three gangs of 2 on two nodes of 3: six GPUs, but no room for the third."""
    diary = lived(lab(cluster(2, 3)), [arrival(name, 0, 2, 120) for name in "abc"])
    assert {ids[0] for at, ids, _, _ in diary.starts if at <= 60.0} == {"a", "b", "c"}
    assert max(diary.ended.values()) < 240.0


def test_who_waits_takes_the_type_that_has_room_and_then_the_least_loaded() -> None:
    """Both prefer a of 1 GPU; the second finds b free, and a third waits for b, which has 3 GPUs for 3 asked for."""
    machines = Cluster("two", (Node("n0", "a", 1), Node("n1", "b", 3)))
    options = (Option(Shape("a", 1, NODE), 2.0), Option(Shape("b", 1, NODE), 1.0))
    jobs = [Job(f"j{i}", 0.0, options, steps_total=1000.0) for i in range(5)]
    grants = decided(lab(machines), jobs)
    named = dict(zip(grants.row.tolist(), grants.option.tolist(), strict=True))
    assert named == {0: 0, 1: 1, 2: 1, 3: 1}  # the fifth is one too many: over-subscribed by 2 : 1 or by 4 : 3
    assert grants.rest_lease_seconds == 60.0


# Packing


def test_jobs_are_packed_where_gpus_are_short_and_no_more_than_have_to() -> None:
    """Three jobs on two GPUs: two share at 0.8 each. At 100 s the third ends, and the two part: 20 s are left."""
    jobs = [arrival(f"j{i}", 0, 1, 100, model="m") for i in range(3)]
    diary = lived(lab(cluster(1, 2), keeping(0.8)), jobs)
    assert [(at, ids) for at, ids, _, _ in diary.starts] == [
        (0.0, ("j0", "j1")), (0.0, ("j2",)), (100.0, ("j0",)), (100.0, ("j1",))
    ]  # fmt: skip
    assert diary.ended == {"j2": 100.0, "j0": 120.0, "j1": 120.0}


def test_those_who_keep_less_than_a_whole_speed_take_turns_instead() -> None:
    diary = lived(lab(cluster(1, 1), keeping(0.4)), [arrival(name, 0, 1, 100, model="m") for name in "ab"])
    assert [ids for _, ids, _, _ in diary.starts] == [("a",), ("b",), ("a",), ("b",)]


def test_the_pair_that_keeps_most_together_goes_first() -> None:
    """light + light keep 1.9, light + heavy 1.5, heavy + heavy 1.1; one pair is enough for five on four GPUs."""
    kept = {("h", "h"): 0.55, ("h", "l"): 0.75, ("l", "l"): 0.95}
    sharing = tuple(Sharing(models, ACCELERATOR, 1, (part, part)) for models, part in kept.items())
    jobs = [job(f"j{i}", 0.0, 1, 1000.0, model="hlhlh"[i]) for i in range(5)]
    grants = decided(lab(cluster(1, 4), sharing), jobs)
    assert grants.partner is not None
    pairs = [pair for pair in zip(grants.row.tolist(), grants.partner.tolist(), strict=True) if pair[1] >= 0]
    assert pairs == [(1, 3)]
    assert sorted(grants.row.tolist()) == [0, 1, 2, 4]


def test_gangs_of_different_sizes_do_not_share() -> None:
    grants = decided(
        lab(cluster(1, 2), keeping(0.9)), [job("one", 0.0, 1, 100.0, model="m"), job("two", 0.0, 2, 100.0, model="m")]
    )
    assert grants.partner is None


def test_a_pair_is_undone_when_it_keeps_too_little() -> None:
    """With `packing_min` 0 three share two GPUs, of which two keep 0.8 together; from 100 s on that is too little."""
    stricter = PolicyChanged(100.0, POOL, TIME_SLICING, {})
    jobs = [arrival(f"j{i}", 0, 1, 300, model="m") for i in range(3)]
    diary = lived(lab(cluster(1, 2), keeping(0.4), packing_min=0.0), jobs, [stricter])
    assert [ids for at, ids, _, _ in diary.starts if at < 100.0] == [("j0", "j1"), ("j2",)]
    # One of the two goes on at once, the other takes its turn; who was alone is not troubled before its slice is over.
    assert [(at, ids) for at, ids, _, _ in diary.starts if at == 100.0] == [(100.0, ("j0",))]
    assert sorted(id for at, id in diary.stops if at == 100.0) == ["j0", "j1"]
    assert all(len(ids) == 1 for at, ids, _, _ in diary.starts if at >= 100.0)


def test_a_pair_that_loses_less_than_its_restarts_stays_together_though_there_is_room() -> None:
    """From 100 s on, 19 s are left of each at 0.95: alone they would save one, and lose 30 to the restart."""
    jobs = [arrival(f"j{i}", 0, 1, 100 + 14 * (i < 2), model="m", restart_seconds=30.0) for i in range(3)]
    diary = lived(lab(cluster(1, 2), keeping(0.95)), jobs)
    assert len(diary.starts) == 2
    assert diary.ended["j0"] == pytest.approx(114 / 0.95)


def test_who_shares_has_its_slice_renewed_like_everybody_else() -> None:
    """Four on one GPU: two pairs, which alternate; both of a pair leave at the end of their slice."""
    diary = lived(lab(cluster(1, 1), keeping(0.8)), [arrival(name, 0, 1, 96, model="m") for name in "abcd"])
    assert [(at, ids) for at, ids, _, _ in diary.starts] == [
        (0.0, ("a", "b")), (60.0, ("c", "d")), (120.0, ("a", "b")), (180.0, ("c", "d"))
    ]  # fmt: skip
    assert diary.ended == {"a": 180.0, "b": 180.0, "c": 240.0, "d": 240.0}


def test_a_journal_of_granted_pairs_tells_who_shares_and_replays_to_the_last_byte(tmp_path: Path) -> None:
    page = tmp_path / "journal"
    jobs = [arrival(f"j{i}", 5.0 * i, 1, 100, model="m") for i in range(5)]
    simulate(lab(cluster(1, 2), keeping(0.8)), jobs, journal=page)
    assert '"beside":[["j' in page.read_text()
    assert replay_file(page).difference == ""


@dataclass(frozen=True)
class Reckless:
    """Grants the first two jobs the same GPU, whether or not they fit there."""

    name: ClassVar[str] = "reckless"

    def decide(self, view: View) -> Grants:
        order = np.argsort(view.jobs.serial)
        second = order[1:2]
        nought = np.zeros(len(second), dtype=np.int64)
        first = order[: len(second)]
        return Grants(first, nought, np.zeros(len(first)), Ranking(order), partner=second, partner_option=nought)


def test_a_grant_for_two_that_do_not_fit_together_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._LOADED, Reckless.name, Reckless)
    pool, jobs = PoolSpec(POOL, Reckless.name), [arrival(name, 0, 1, 100, model="m") for name in "ab"]
    machines = cluster(1, 2)
    assert [ids for _, ids, _, _ in lived(Setup(machines, (pool,), sharing=keeping(0.8)), jobs).starts] == [("a", "b")]
    with pytest.raises(PolicyError, match="do not fit on the same GPUs"):
        lived(Setup(machines, (pool,), sharing=keeping(0.0)), jobs)


def test_check_policy_looks_at_granted_pairs() -> None:
    with pytest.raises(PolicyFault, match="pairs jobs"):
        check_policy(Reckless)


# Growth


def test_a_job_grows_into_idle_gpus_and_shrinks_when_another_comes() -> None:
    """a asks for 2 and has 4 until b comes at 100 s; 10 s restart, then 2 a second until b ends at 200 s: 400 + 180.
    The last 1,420 steps take another 10 s and 355."""
    a = elastic("a", 0.0, {2: 2.0, 4: 4.0}, 2000.0, restart_seconds=10.0)
    diary = lived(lab(cluster(1, 4)), [a, arrival("b", 100, 2, 100)])
    assert [(at, ids[0], gpus) for at, ids, gpus, _ in diary.starts] == [
        (0.0, "a", 4), (100.0, "a", 2), (100.0, "b", 2), (200.0, "a", 4)
    ]  # fmt: skip
    assert diary.ended == {"b": 200.0, "a": 565.0}


def test_idle_gpus_go_to_whoever_gains_the_largest_part_of_its_speed() -> None:
    """Two GPUs are left: 2 to 4 makes a 1.9 times as fast, and b 1.2 times."""
    a = elastic("a", 0.0, {2: 2.0, 4: 3.8}, 5000.0).job
    b = elastic("b", 0.0, {2: 2.0, 4: 2.4}, 5000.0).job
    grants = decided(lab(cluster(1, 6)), [b, a])
    first = dict(reversed(list(zip(grants.row.tolist(), grants.option.tolist(), strict=True))))
    assert first == {0: 0, 1: 1}


def test_nobody_is_made_smaller_than_it_asked_for() -> None:
    """Both ask for 2 and would do with 1; on two GPUs they take turns."""
    jobs = [elastic(name, 0.0, {2: 2.0, 1: 1.0}, 240.0) for name in "ab"]
    diary = lived(lab(cluster(1, 2)), jobs)
    assert {gpus for _, _, gpus, _ in diary.starts} == {2}
    assert diary.ended == {"a": 180.0, "b": 240.0}


def test_a_job_grows_only_if_it_makes_up_for_the_restart() -> None:
    """b ends at 100 s. a has 140 of 340 steps left then, 70 s at 2 a second; at 4 it is 35 s, and the restart 40."""
    a = elastic("a", 0.0, {2: 2.0, 4: 4.0}, 340.0, restart_seconds=40.0)
    diary = lived(lab(cluster(1, 4)), [a, arrival("b", 0, 2, 100)])
    assert diary.ended["a"] == 170.0
    quicker = elastic("a", 0.0, {2: 2.0, 4: 4.0}, 340.0, restart_seconds=30.0)
    diary = lived(lab(cluster(1, 4)), [quicker, arrival("b", 0, 2, 100)])
    assert diary.ended["a"] == 165.0


def test_a_short_horizon_forbids_what_would_pay_later() -> None:
    """In 60 s at 4 instead of 2 a second a job saves 30 s, which a restart of 40 s eats up."""
    a = elastic("a", 0.0, {2: 2.0, 4: 4.0}, 2000.0, restart_seconds=40.0)
    jobs = [a, arrival("b", 0, 2, 100)]
    assert len(lived(lab(cluster(1, 4)), jobs).starts) == 3
    assert len(lived(lab(cluster(1, 4), horizon_seconds=60.0), jobs).starts) == 2


# Migration


def test_a_job_that_is_spread_moves_together_when_a_neighbour_has_ended() -> None:
    """z has a GPU on each node until x ends at 300 s, with 145 steps done; 10 s later it goes on at full speed."""
    jobs = [arrival("x", 0, 3, 300), arrival("y", 0, 3, 900), sensitive("z", 10, 2, 1000.0, restart_seconds=10.0)]
    diary = lived(lab(cluster(2, 4)), jobs)
    assert [(at, level) for at, ids, _, level in diary.starts if ids == ("z",)] == [(10.0, CLUSTER), (300.0, NODE)]
    assert diary.ended["z"] == pytest.approx(300.0 + 10.0 + 855.0)


def test_a_job_that_would_gain_less_than_its_restart_stays_spread() -> None:
    """20 steps are left at 0.5 a second: 40 s, or 20 s and the restart of 30."""
    jobs = [arrival("x", 0, 3, 300), arrival("y", 0, 3, 900), sensitive("z", 10, 2, 165.0, restart_seconds=30.0)]
    diary = lived(lab(cluster(2, 4)), jobs)
    assert [at for at, ids, _, _ in diary.starts if ids == ("z",)] == [10.0]
    assert diary.ended["z"] == 340.0


def test_a_job_moves_to_a_faster_type_that_has_become_idle() -> None:
    machines = Cluster("two", (Node("n0", "fast", 1), Node("n1", "slow", 1)))
    options = (Option(Shape("fast", 1, NODE), 4.0), Option(Shape("slow", 1, NODE), 1.0))
    jobs = [Job(f"j{i}", 0.0, options, steps_total=400.0 + 800.0 * i, restart_seconds=5.0) for i in range(2)]
    diary = lived(lab(machines), [Arrival(each, Truth(each.steps_total or 0.0, options)) for each in jobs])
    assert diary.ended == {"j0": 100.0, "j1": 100.0 + 5.0 + 1100.0 / 4.0}


def test_two_that_could_move_do_so_one_after_the_other() -> None:
    """Four nodes of 3 with a gang of 2 each leave one GPU each, for p and q. Two of the gangs end at 100 s: p moves at
    once, and q when the pool looks again, a round later."""
    gangs = [arrival(f"g{i}", 0, 2, 100 if i % 2 else 2000) for i in range(4)]
    diary = lived(lab(cluster(4, 3)), [*gangs, *(sensitive(name, 10, 2, 1000.0) for name in "pq")])
    moves = [(at, ids[0], level) for at, ids, _, level in diary.starts if ids[0] in "pq"]
    assert moves == [(10.0, "p", CLUSTER), (10.0, "q", CLUSTER), (100.0, "p", NODE), (460.0, "q", NODE)]
