"""How time of classes in company is dealt out to jobs, who may share, and what policies with sharing keep to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from pools_of_types import Instance

from horae.model.arrays import Floats
from horae.model.decisions import Limit, Pairs, Shares
from horae.model.job_table import JobColumns
from horae.model.view import View
from horae.policies import check_policy
from horae.solvers.solution import Unsolved
from horae.solvers.space_sharing.columns import company_of
from horae.solvers.space_sharing.objectives import share_finish_time, share_makespan, share_max_min, share_throughput


def share_total(view: View) -> Shares:
    return share_throughput(view, view.jobs.speed, "steps a second")


@dataclass(frozen=True)
class Sharing:
    """A policy that only shares."""

    name: ClassVar[str] = "sharing"
    uses_lengths: ClassVar[bool] = True  # some of what it is given does
    share: Callable[[View], Shares] = share_max_min

    def decide(self, view: View) -> Shares:
        return self.share(view)


def pool(model: Sequence[int], gpus: Sequence[int], kept: float = 0.9, gang: Sequence[int] = ()) -> Instance:
    """Jobs of models that are twice as fast on the second type; all keep as much beside each other."""
    models, types = max(model) + 1, len(gpus)
    speed = np.array([[(1.0 + number) * (1 + kind) for kind in range(types)] for number in model])
    return Instance(
        speed,
        list(gang) or [1] * len(model),
        [1.0] * len(model),
        gpus,
        kept=np.full((models, models, types), kept),
        model=list(model),
    )


def leased_together(view: View, *couples: tuple[int, int]) -> View:
    """These jobs share GPUs now."""
    epoch = np.full(len(view.jobs), -1)
    for number, couple in enumerate(couples):
        epoch[np.isin(view.jobs.serial, couple)] = 100 + number
    return view._replace(jobs=JobColumns(view.now, {**view.jobs._columns, "epoch": epoch}, len(view.jobs)))


def couples_of(view: View, pairs: Pairs | None) -> set[tuple[int, int]]:
    assert pairs is not None
    serial = view.jobs.serial
    return set(zip(serial[pairs.first].tolist(), serial[pairs.second].tolist(), strict=True))


def time_of(view: View, shares: Shares) -> Floats:
    assert shares.pairs is not None
    time: Floats = shares.fraction.sum(axis=1)
    for rows in (shares.pairs.first, shares.pairs.second):
        np.add.at(time, rows, shares.pairs.fraction)
    return time


@pytest.mark.parametrize("share", [share_max_min, share_makespan, share_finish_time, share_total])
def test_a_policy_that_shares_keeps_all_the_rules(share: Callable[[View], Shares]) -> None:
    check_policy(Sharing(share))


@pytest.mark.parametrize(
    ("jobs", "couples"),
    [
        (2, {(0, 1)}),
        (3, {(0, 1), (1, 2), (0, 2)}),
        (4, {(0, 1), (2, 3)}),
        (7, {(0, 1), (2, 3), (4, 5), (5, 6), (4, 6)}),
    ],
)
def test_a_class_with_itself_goes_two_by_two(jobs: int, couples: set[tuple[int, int]]) -> None:
    view = pool([0] * jobs, [1]).view()
    shares = share_max_min(view)
    assert couples_of(view, shares.pairs) == couples
    assert time_of(view, shares) == pytest.approx(np.full(jobs, min(2 / jobs, 1.0)))


def test_who_shares_now_goes_on_together() -> None:
    view = leased_together(pool([0] * 6, [1]).view(), (0, 3), (1, 5))
    assert couples_of(view, share_max_min(view).pairs) == {(0, 3), (1, 5), (2, 4)}


def test_who_shares_now_goes_on_together_across_classes() -> None:
    """Beside their own kind they keep nothing; each class has the time of the other to itself."""
    kept = np.array([[0.0, 0.9], [0.9, 0.0]])[:, :, None]
    instance = pool([0, 0, 1, 1, 1], [1])._replace(kept=kept)
    view = leased_together(instance.view(), (0, 4), (1, 2))
    shares = share_max_min(view)
    assert shares.pairs is not None
    couples = couples_of(view, shares.pairs)
    assert {(0, 4), (1, 2)} <= couples
    assert len(couples) == 4  # jobs of both, less one
    time = time_of(view, shares)
    assert time[:2] == pytest.approx(np.full(2, time[0]))
    assert time[2:] == pytest.approx(np.full(3, time[2]))


def test_two_that_do_not_fit_never_share() -> None:
    kept = np.array([[0.9, 0.0], [0.9, 0.9]])[:, :, None].repeat(2, axis=2)  # the first fits beside its own kind only
    view = pool([0, 0, 1, 1], [1, 1])._replace(kept=kept).view()
    assert couples_of(view, share_max_min(view).pairs) <= {(0, 1), (2, 3)}


def test_gangs_of_different_sizes_never_share() -> None:
    view = pool([0, 0, 0, 0], [4], gang=[2, 1, 2, 1]).view()
    assert couples_of(view, share_max_min(view).pairs) <= {(0, 2), (1, 3)}


def test_pairs_are_worth_it_where_both_keep_more_than_half() -> None:
    for kept, level in ((0.4, 0.5), (0.9, 0.9)):
        evidence = share_max_min(pool([0, 0], [1], kept).view()).evidence
        assert evidence is not None
        assert evidence.value == pytest.approx(level)
        assert evidence.bound == pytest.approx(level)


def test_shapes_of_different_levels_share_only_where_there_is_no_common_one() -> None:
    """Two jobs with a node and a cluster shape, and one that accepts the cluster shape alone."""
    speed, spread = np.array([[1.0], [1.0], [0.0]]), np.array([[0.5], [0.5], [0.5]])
    kept = np.full((2, 2, 1), 0.9)
    instance = Instance(speed, [1] * 3, [1.0] * 3, [1], spread=spread, kept=kept, model=[0, 0, 1])
    company = company_of(instance.view(), instance.view().jobs.speed)
    places = np.flatnonzero(company.possible.ravel())
    _, one, other, _, _ = company.duos(places)
    found = {
        (company.row[a], company.option[a], company.row[b], company.option[b]) for a, b in zip(one, other, strict=True)
    }
    assert found == {(0, 0, 0, 0), (0, 1, 0, 1), (0, 1, 1, 0), (1, 0, 0, 1)}


def test_floors_that_contradict_leave_the_program_unsolved() -> None:
    view = pool([0, 0], [1]).view()
    floor = np.full(2, 0.8)
    kept = share_throughput(view, view.jobs.speed, "steps a second", floor=floor)
    assert kept.pairs is not None
    assert kept.pairs.fraction == pytest.approx([1.0])
    with pytest.raises(Unsolved):
        share_throughput(view, view.jobs.speed, "steps a second", floor=floor + 0.2)


def test_the_evidence_says_what_is_scarce_and_who_runs_all_the_time() -> None:
    view = pool([0, 0, 0], [1, 1]).view()
    evidence = share_max_min(view).evidence
    assert evidence is not None
    assert evidence.is_full.all()
    assert set(evidence.limit.tolist()) <= {int(Limit.TIME), int(Limit.SCARCE)}
    assert (evidence.prices > 0).any()


@pytest.mark.parametrize("share", [share_makespan, share_finish_time])
def test_jobs_of_unknown_length_have_what_is_left_over(share: Callable[[View], Shares]) -> None:
    """The first needs all of the only GPU, and gives up none of its speed; the others have nothing to say."""
    for kept, couples in ((0.9, set[tuple[int, int]]()), (1.0, {(0, 1)})):
        view = of_unknown_length(pool([0, 0], [1], kept).view(), 1)
        shares = share(view)
        assert couples_of(view, shares.pairs) == couples
        assert time_of(view, shares)[0] == pytest.approx(1.0)
    view = of_unknown_length(pool([0, 0], [1]).view(), 0, 1)
    assert couples_of(view, share(view).pairs) == {(0, 1)}


def of_unknown_length(view: View, *serials: int) -> View:
    steps = np.where(np.isin(view.jobs.serial, serials), np.nan, 1.0)
    return view._replace(jobs=JobColumns(view.now, {**view.jobs._columns, "steps_total": steps}, len(view.jobs)))
