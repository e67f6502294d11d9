"""Small programs with pairs in their kernel: what HiGHS says of them, and that HiGHS takes over where it must."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from pools_of_types import Instance

from horae.model.arrays import Floats
from horae.model.decisions import Shares
from horae.model.view import View
from horae.solvers.space_sharing import master, simplex_kernel
from horae.solvers.space_sharing.objectives import share_finish_time, share_makespan, share_max_min, share_throughput

MODELS = 12


def share_with_floors(view: View) -> Shares:
    slow = view.jobs.speed.max(axis=1) * 0.05
    return share_throughput(view, view.jobs.speed, "steps a second", floor=slow)


ALL: tuple[Callable[[View], Shares], ...] = (share_max_min, share_makespan, share_finish_time, share_with_floors)


def pool(seed: int, jobs: int = 40, jobs_per_gpu: float = 2.0) -> View:
    """As many classes as jobs, on three types."""
    random = np.random.default_rng(seed)
    factors = np.column_stack([np.ones(MODELS), random.uniform(0.3, 1, MODELS), random.uniform(0.05, 0.6, MODELS)])
    speed = random.uniform(0.5, 20, MODELS)[:, None] * factors
    kept = random.uniform(0.2, 1, (MODELS, MODELS, 3))
    kept[random.random(kept.shape) < 0.2] = 0.0
    model = random.integers(0, MODELS, jobs)
    return Instance(
        speed[model],
        [1] * jobs,
        random.uniform(0.5, 3, jobs).tolist(),
        [max(int(jobs / 3 / jobs_per_gpu), 1)] * 3,
        steps_left=(10 ** random.uniform(2, 6, jobs)).tolist(),
        age_seconds=random.uniform(0, 1e4, jobs).tolist(),
        isolated_seconds=random.uniform(0, 1e4, jobs).tolist(),
        kept=kept,
        model=model.tolist(),
    ).view()


def speeds(view: View, shares: Shares) -> Floats:
    jobs, pairs = view.jobs, shares.pairs
    assert pairs is not None
    speed: Floats = (shares.fraction * jobs.speed).sum(axis=1)
    one = pairs.first, pairs.first_option
    other = pairs.second, pairs.second_option
    for (row, option), (partner, _) in ((one, other), (other, one)):
        kept = view.kept[jobs.model[row], jobs.model[partner], jobs.shape[row, option]]
        np.add.at(speed, row, pairs.fraction * jobs.speed[row, option] * kept)
    return speed


def answers(view: View, share: Callable[[View], Shares]) -> tuple[float, float]:
    evidence = share(view).evidence
    assert evidence is not None
    return evidence.value, evidence.bound


@pytest.fixture
def never_large(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: master.Small) -> None:
        raise AssertionError("HiGHS was asked")

    monkeypatch.setattr(master.Small, "_enlarge", refuse)


@pytest.mark.usefixtures("never_large")
@pytest.mark.parametrize("jobs_per_gpu", [0.8, 1.5, 4.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_kernel_finds_what_highs_finds(seed: int, jobs_per_gpu: float, monkeypatch: pytest.MonkeyPatch) -> None:
    view = pool(seed, jobs_per_gpu=jobs_per_gpu)
    small, levels = [answers(view, share) for share in ALL[:3]], speeds(view, share_max_min(view))
    monkeypatch.setattr(master, "CLASSES_MAX", 0)
    assert small == [pytest.approx(answers(view, share), rel=1e-7) for share in ALL[:3]]
    assert levels == pytest.approx(speeds(view, share_max_min(view)), rel=1e-7)


@pytest.mark.parametrize("share", ALL)
def test_highs_takes_over_where_the_kernel_fails_at_once(
    share: Callable[[View], Shares], monkeypatch: pytest.MonkeyPatch
) -> None:
    view = pool(0)
    small = answers(view, share)
    monkeypatch.setattr(simplex_kernel, "improve", lambda *_: np.inf)
    assert small == pytest.approx(answers(view, share), rel=1e-7)


@pytest.mark.parametrize("share", ALL)
def test_highs_takes_over_where_the_kernel_fails_on_the_way(
    share: Callable[[View], Shares], monkeypatch: pytest.MonkeyPatch
) -> None:
    view, improve, calls = pool(1), simplex_kernel.improve, []

    def once(
        board: simplex_kernel.SharingData, task: simplex_kernel.RightHandSide, basis: simplex_kernel.SharingBasis
    ) -> float:
        calls.append(1)
        return improve(board, task, basis) if len(calls) == 1 else np.inf

    small, levels = answers(view, share), speeds(view, share_max_min(view))
    monkeypatch.setattr(simplex_kernel, "improve", once)
    monkeypatch.setattr(simplex_kernel, "raise_others", lambda *of: of[-1])  # nobody is held
    assert small == pytest.approx(answers(view, share), rel=1e-7)
    calls.clear()
    assert levels == pytest.approx(speeds(view, share_max_min(view)), rel=1e-7)


def test_a_basis_made_anew_is_the_one_it_was() -> None:
    """The inverse times the columns is one, as written out here."""
    view = pool(2)
    found: list[master.Small] = []
    make = master.Small.solve

    def solve(program: master.Small) -> object:
        found.append(program)
        return make(program)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(master.Small, "solve", solve)
        share_max_min(view, fill=False)
    program = found[0]
    basis, task = program._basis, program._task()
    assert basis is not None
    before, size = dict(zip(basis.column.tolist(), basis.amount.tolist(), strict=True)), len(basis.column)
    simplex_kernel.renew(program._board, task, basis)
    index, entry = np.empty(size + 5, dtype=np.int64), np.empty(size + 5)
    matrix = np.zeros((size, size))
    for place, column in enumerate(basis.column):
        count = simplex_kernel._write(program._board, task.need, column, index, entry)
        np.add.at(matrix[:, place], index[:count], entry[:count])
    assert basis.inverse @ matrix == pytest.approx(np.eye(size), abs=1e-9)
    assert dict(zip(basis.column.tolist(), basis.amount.tolist(), strict=True)) == pytest.approx(before, abs=1e-9)
