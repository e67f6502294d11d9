"""What a job is told in a pool that works by shares: its part, what it is owed, and what GPUs are worth."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
from command_line import horae

from horae.cli.why import describe, describe_share
from horae.experiments.explain_journal import JournalExplanation, explain_journal
from horae.experiments.log_time import LogTime
from horae.experiments.simulate import simulate
from horae.model.cluster import Cluster, Node
from horae.model.decisions import Limit, Shares
from horae.model.events import ClusterChanged, JobStarted, JobSubmitted, Tick
from horae.model.explanations import ShapeShare, ShareExplanation, Solve, TypeWorth
from horae.model.jobs import Arrival, Job, Truth
from horae.model.setup import Cadence, PoolSpec, RoundRules, Setup
from horae.model.shapes import Option, Shape
from horae.model.view import View
from horae.policies.max_min import MaxMin
from horae.policies.registry import POLICIES
from horae.scheduler import Scheduler
from horae.solvers.solution import Unsolved

LAB = Cluster("lab", (Node("v", "v100", 1), Node("p", "p100", 1)))
ON_V100, ON_P100, ON_L4 = (Shape(name, 1, "node") for name in ("v100", "p100", "l4"))
OBJECTIVE = "the least level of any job, of its equal share"


@dataclass(frozen=True)
class GivesUp:
    """Max-min, but for a solver that gives up on more than two jobs."""

    name: ClassVar[str] = "gives-up"

    def decide(self, view: View) -> Shares:
        if len(view.jobs) > 2:
            raise Unsolved("max-min fairness", "too many jobs")
        return MaxMin().decide(view)


def two_speeds(id: str, on_v100: float, on_p100: float, at: float = 0.0) -> Arrival:
    options = (Option(ON_V100, on_v100), Option(ON_P100, on_p100))
    return Arrival(Job(id, at, options, steps_total=40_000.0), Truth(40_000.0, options))


def ask(path: Path, job_id: str, at: float, jobs: list[Arrival], policy: str = "max-min") -> JournalExplanation:
    pool = PoolSpec("all", policy, cadence=Cadence.ROUNDS, round_seconds=100.0, rules=RoundRules(turn_rounds=10.0))
    simulate(Setup(LAB, (pool,)), jobs, journal=path / "run.jsonl")
    return explain_journal(path / "run.jsonl", job_id, at)


def three() -> list[Arrival]:
    """Who is fast on a V100, who is fairly fast, and who does not care: all get 32/39 of what an equal share is."""
    return [two_speeds("a", 4, 1), two_speeds("b", 3, 1), two_speeds("c", 2, 2)]


def told(item: JournalExplanation) -> ShareExplanation:
    assert item.explanation.share is not None
    return item.explanation.share


def rounded(item: ShareExplanation) -> ShareExplanation:
    """The same but for the last digits, which depend on the order of sums."""
    shapes = tuple(
        replace(each, fraction=round(each.fraction, 9), owed_seconds=round(each.owed_seconds, 6))
        for each in item.shapes
    )
    assert item.solve is not None
    types = tuple(
        replace(each, price=round(each.price, 9), relative=round(each.relative, 9)) for each in item.solve.types
    )
    solve = replace(item.solve, value=round(item.solve.value, 9), bound=round(item.solve.bound, 9), types=types)
    return replace(item, shapes=shapes, solve=solve)


def seconds_on(item: JournalExplanation, accelerator: str) -> float:
    """The time that it had there, from the story of its starts and ends."""
    total, since = 0.0, None
    for at, line in item.story:
        if line.startswith("started on"):
            since = at if accelerator in line else None
        elif since is not None and line.startswith("left"):
            total, since = total + at - since, None
    return total if since is None else total + told(item).counted_at - since


@pytest.mark.parametrize(("job_id", "on_v100", "on_p100"), [("a", 20, 0), ("b", 19, 7), ("c", 0, 32)])
def test_a_job_is_told_its_share_its_debts_and_what_gpus_are_worth(
    tmp_path: Path, job_id: str, on_v100: float, on_p100: float
) -> None:
    item = ask(tmp_path, job_id, 9000, three())
    had = seconds_on(item, "v100"), seconds_on(item, "p100")
    assert 0 < sum(had) <= 9000
    want = ShareExplanation(
        counted_at=9000.0,
        shared_at=0.0,
        shapes=(
            ShapeShare(ON_V100, on_v100 / 39, had[0], 9000 * on_v100 / 39 - had[0]),
            ShapeShare(ON_P100, on_p100 / 39, had[1], 9000 * on_p100 / 39 - had[1]),
        ),
        solve=Solve(
            OBJECTIVE,
            value=32 / 39,
            bound=32 / 39,
            limit=Limit.SCARCE,
            types=(TypeWorth("v100", True, 24 / 39, 1.0), TypeWorth("p100", True, 8 / 39, 1 / 3)),
        ),
    )
    assert rounded(told(item)) == rounded(want)


def test_alone_a_job_is_kept_from_more_by_its_own_time(tmp_path: Path) -> None:
    item = told(ask(tmp_path, "a", 900, [two_speeds("a", 4, 1)]))
    assert item.solve is not None
    assert item.solve.limit is Limit.TIME
    assert [each.price for each in item.solve.types] == [0.0, 0.0]


def test_between_two_rounds_a_newcomer_has_no_share_yet(tmp_path: Path) -> None:
    item = told(ask(tmp_path, "late", 160, [*three(), two_speeds("late", 1, 1, at=150)]))
    assert [(each.fraction, each.owed_seconds) for each in item.shapes] == [(0.0, 0.0), (0.0, 0.0)]
    assert item.solve is not None
    assert item.solve.limit is None


def test_if_the_last_solve_failed_a_job_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, GivesUp.name, GivesUp)
    jobs = [two_speeds("a", 4, 1), two_speeds("b", 3, 1), two_speeds("c", 2, 2, at=150)]
    item = ask(tmp_path, "c", 900, jobs, "gives-up")
    assert told(item).unsolved == "max-min fairness was not solved: too many jobs"
    assert told(item).shared_at == 0.0
    assert told(item).solve is None
    unsolved = "  unsolved  max-min fairness was not solved: too many jobs; the shares of 0.00 h stand"
    assert unsolved in describe(item)


def test_under_a_ranking_there_is_no_share_to_tell_of(tmp_path: Path) -> None:
    assert ask(tmp_path, "c", 900, three(), "fifo").explanation.share is None


def test_shares_of_a_cluster_that_has_changed_are_told_without_its_prices() -> None:
    scheduler = Scheduler(Setup(LAB, (PoolSpec("all", "max-min", round_seconds=100.0),)))
    for event in (JobSubmitted(0.0, two_speeds("a", 4, 1).job), Tick(0.0), ClusterChanged(1.0, (Node("l", "l4", 1),))):
        scheduler.handle(event)
    explanation = scheduler.explain("a")
    assert explanation is not None
    assert explanation.share is not None
    assert explanation.share.solve is None
    assert explanation.share.shapes[0].fraction == 1.0


def test_the_answer_in_words_names_shares_debts_and_prices() -> None:
    """Of an explanation that was made up, for how long anybody ran is not the matter here."""
    shapes = ShapeShare(ON_V100, 0.487, 1116, -142), ShapeShare(ON_P100, 0.179, 0, 359), ShapeShare(ON_L4, 0, 0, 0)
    types = TypeWorth("v100", True, 0.615, 1.0), TypeWorth("p100", True, 0.205, 1 / 3), TypeWorth("l4", False, 0, 0)
    solve = Solve(OBJECTIVE, 0.8205, 0.8205, Limit.SCARCE, types)
    assert describe_share(ShareExplanation(2000.0, 0.0, shapes, solve), LogTime()) == [
        "  share     48.7% of its time on 1 x v100 in one node, has had 0.31 h and is 0.04 h ahead; "
        "17.9% of its time on 1 x p100 in one node, has had 0.00 h and is owed 0.10 h (by 0.56 h)",
        "  no more   GPUs: all of those it could use better are given out",
        f"  the aim   {OBJECTIVE}: 0.8205, and no shares have better than 0.8205",
        "  GPUs      v100 is full; one more would better that by 0.615; p100 is worth 0.33 of a v100; "
        "l4 is worth nothing",
    ]


@pytest.mark.parametrize(
    ("full", "want"),
    [
        ((), "no type is full, and one more GPU would better nothing"),
        (("v100",), "v100 is full, but one more GPU would better nothing"),
        (("v100", "p100"), "v100 and p100 are full, but one more GPU would better nothing"),
    ],
)
def test_where_nothing_is_scarce_no_type_is_worth_more(full: tuple[str, ...], want: str) -> None:
    types = tuple(TypeWorth(name, name in full, 0.0, 0.0) for name in ("v100", "p100"))
    item = ShareExplanation(0.0, 0.0, (), Solve(OBJECTIVE, 1.0, 1.0, Limit.TIME, types))
    assert describe_share(item, LogTime())[-1] == f"  GPUs      {want}"


def test_json_has_words_for_what_keeps_a_job_from_more(tmp_path: Path) -> None:
    ask(tmp_path, "c", 900, three())
    printed = horae("why", "c", "--at", 900, "--journal", tmp_path / "run.jsonl", "-o", "json").out
    share = json.loads(printed)["share"]
    assert share["solve"]["limit"] == {"kind": "scarce", "text": "GPUs: all of those it could use better are given out"}
    assert [shape["shape"]["accelerator"] for shape in share["shapes"]] == ["v100", "p100"]


def test_after_a_gpu_type_is_gone_the_evidence_of_the_last_solve_is_left_out() -> None:
    scheduler = Scheduler(Setup(LAB, (PoolSpec("all", "max-min"),)))
    submitted = two_speeds("a", 2.0, 1.0).job
    for event in (JobSubmitted(0.0, submitted), Tick(0.0), JobStarted(0.0, "a", 0)):
        scheduler.handle(event)
    before = scheduler.explain("a")
    scheduler.handle(ClusterChanged(1.0, (), ("p",)))
    after = scheduler.explain("a")
    assert before is not None and before.share is not None and before.share.solve is not None
    assert after is not None and after.share is not None and after.share.solve is None
