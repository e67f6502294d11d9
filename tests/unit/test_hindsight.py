"""What a journal answers when somebody asks why a job did not run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from builders import arrival, cluster, job, with_truth

from horae.experiments.explain_journal import JournalExplanation, explain_journal
from horae.experiments.simulate import simulate
from horae.model.cluster import Cluster
from horae.model.errors import InputError, JournalError
from horae.model.events import Event, Health, NodeChanged
from horae.model.jobs import Arrival
from horae.model.reasons import (
    AwaitsDecision,
    AwaitsVictims,
    BehindHead,
    Never,
    NoPool,
    NoRoom,
    Unclaimed,
)
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.model.status import Status


def ask(
    path: Path,
    job_id: str,
    at: float,
    jobs: Iterable[Arrival],
    policy: str = "fifo",
    lab: Cluster | None = None,
    outside: Iterable[Event] = (),
    **fields: Any,
) -> JournalExplanation:
    """Run these jobs with a journal, and ask it."""
    pool = PoolSpec("all", policy, **fields)
    simulate(Setup(lab or cluster(nodes=1, gpus=4), (pool,)), jobs, outside, journal=path / "run.jsonl")
    return explain_journal(path / "run.jsonl", job_id, at)


def test_a_job_without_room_is_told_who_has_it_and_who_must_leave(tmp_path: Path) -> None:
    jobs = [arrival("short", 0, 1, 100), arrival("long", 0, 3, 500), arrival("wide", 10, 2, 50)]
    item = ask(tmp_path, "wide", 50, jobs).explanation
    assert item.status is Status.PENDING
    assert isinstance(item.reason, NoRoom)
    assert [(holder.job_id, holder.ends_at) for holder in item.holders] == [("short", 100.0), ("long", 500.0)]
    assert item.unblocking is not None
    # One GPU of the short job is not enough: the long one must leave, and then the short one may stay.
    assert [holder.job_id for holder in item.unblocking.leaving] == ["long"]
    assert item.unblocking.at == 500.0


def test_a_job_behind_a_head_is_told_that_it_would_fit_otherwise(tmp_path: Path) -> None:
    jobs = [arrival("now", 0, 3, 100), arrival("head", 10, 4, 50), arrival("thin", 20, 1, 10)]
    item = ask(tmp_path, "thin", 50, jobs).explanation
    assert isinstance(item.reason, BehindHead)
    assert item.reason.head == "head"
    assert item.ahead == ("head",)
    assert item.unblocking is not None
    assert item.unblocking.leaving == ()


def test_a_job_that_can_never_run_is_told_so(tmp_path: Path) -> None:
    item = ask(tmp_path, "huge", 50, [arrival("huge", 0, 9, 100)]).explanation
    assert item.status is Status.REFUSED
    assert isinstance(item.reason, Never)
    assert item.reason.largest_gpus == 4
    assert item.unblocking is None


def test_a_tenant_without_a_pool_is_told_so(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"tenants": ("red",), "nodes": ("n0",)}
    item = ask(tmp_path, "blue", 50, [arrival("blue", 0, 1, 100, tenant="blue")], **fields).explanation
    assert isinstance(item.reason, NoPool)


def test_between_rounds_a_job_waits_for_the_next_decision(tmp_path: Path) -> None:
    jobs = [arrival("a", 0, 1, 1000), arrival("b", 50, 1, 1000)]
    item = ask(tmp_path, "b", 60, jobs, cadence=Cadence.ROUNDS, round_seconds=100.0).explanation
    assert isinstance(item.reason, AwaitsDecision)
    assert item.next_decision_at == 100.0


def test_a_job_that_the_policy_gives_nothing_is_told_so(tmp_path: Path) -> None:
    jobs = [arrival(f"red {index}", index, 1, 1000, tenant="red") for index in range(3)]
    item = ask(tmp_path, "red 2", 60, jobs, "yarn-cs", options={"maximum": 0.5}).explanation
    assert isinstance(item.reason, Unclaimed)


def test_a_job_that_is_not_ranked_is_not_given_another_jobs_reason(tmp_path: Path) -> None:
    """Both want what is not there; only the first was ranked, for the second would be beyond the queue's maximum."""
    jobs = [arrival("others", 0, 3, 1000, tenant="other"), arrival("first", 1, 2, 1000), arrival("second", 2, 2, 1000)]
    options = {"maximum": 0.9, "reclaim": False}
    assert isinstance(ask(tmp_path, "first", 60, jobs, "yarn-cs", options=options).explanation.reason, NoRoom)
    assert isinstance(ask(tmp_path, "second", 60, jobs, "yarn-cs", options=options).explanation.reason, Unclaimed)


def test_a_job_of_the_same_size_as_the_head_waits_behind_it(tmp_path: Path) -> None:
    jobs = [arrival("now", 0, 3, 100), arrival("head", 10, 4, 50), arrival("like the head", 20, 4, 10)]
    assert isinstance(ask(tmp_path, "head", 50, jobs).explanation.reason, NoRoom)
    assert isinstance(ask(tmp_path, "like the head", 50, jobs).explanation.reason, BehindHead)


def test_the_story_tells_by_whom_a_job_was_preempted(tmp_path: Path) -> None:
    jobs = [arrival("long", 0, 4, 1000), arrival("short", 100, 4, 10)]
    looked = ask(tmp_path, "long", 105, jobs, "srtf")
    assert [line for _, line in looked.story] == [
        "submitted by default: 4 x v100 in one node",
        "started on 4 x v100 in one node (n0)",
        "preempted by short",
        "left its GPUs, its work saved",
    ]
    assert isinstance(looked.explanation.reason, NoRoom)


def test_a_job_for_which_others_leave_is_about_to_start(tmp_path: Path) -> None:
    """The simulated engine stops at once, so the moment is caught by cutting the journal after the stop."""
    jobs = [arrival("long", 0, 4, 1000), arrival("short", 100, 4, 10)]
    ask(tmp_path, "long", 105, jobs, "srtf")
    lines = (tmp_path / "run.jsonl").read_text().splitlines(keepends=True)
    stopped = next(index for index, line in enumerate(lines) if '"ending":"stopped"' in line)
    (tmp_path / "cut.jsonl").write_text("".join(lines[:stopped]))
    item = explain_journal(tmp_path / "cut.jsonl", "short").explanation
    assert item.status is Status.HOLDING
    assert item.reason == AwaitsVictims(("long",))


def test_where_nodes_are_away_nothing_that_runs_would_help(tmp_path: Path) -> None:
    lab = cluster(nodes=2, gpus=4)
    away = [NodeChanged(5.0, "n1", Health.FAILED), NodeChanged(900.0, "n1", Health.HEALTHY)]
    wide = with_truth(job("wide", 10, 8, 50, level="cluster"), 50)
    item = ask(tmp_path, "wide", 50, [arrival("now", 0, 4, 100), wide], lab=lab, outside=away).explanation
    assert isinstance(item.reason, NoRoom)
    assert item.unblocking is None


@pytest.mark.parametrize(("at", "status"), [(50, Status.RUNNING), (500, Status.FINISHED)])
def test_a_job_that_runs_or_has_ended_waits_for_nothing(tmp_path: Path, at: float, status: Status) -> None:
    item = ask(tmp_path, "a", at, [arrival("a", 0, 1, 100)]).explanation
    assert (item.status, item.reason) == (status, None)
    assert item.at == at


def test_an_unknown_job_and_one_that_comes_later_are_told_apart(tmp_path: Path) -> None:
    jobs = [arrival("first", 0, 1, 100), arrival("later", 70, 1, 100)]
    with pytest.raises(InputError, match=r"submitted after 0.01 h \(50 s\)"):
        ask(tmp_path, "later", 50, jobs)
    with pytest.raises(InputError, match="did you mean first"):
        explain_journal(tmp_path / "run.jsonl", "frist")


def test_what_is_no_journal_is_told_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("hello\n")
    with pytest.raises(JournalError, match=r"x\.jsonl:1"):
        explain_journal(tmp_path / "x.jsonl", "a")
