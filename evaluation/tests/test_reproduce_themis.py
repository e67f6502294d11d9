"""The claims of Themis' evaluation, from runs that are made up: which are made, and what is said of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path

import pytest
from command_line import horae
from horae_evaluation.gavel.results import runs_digest
from horae_evaluation.themis.claims import BASELINES, Chapter, chapters
from horae_evaluation.themis.experiment import POLICIES, ThemisCase, ThemisResult, cluster_of, run_case, workload_of
from horae_evaluation.themis.figures import chapter_figure, draw
from horae_evaluation.themis.page import page, philly_page
from horae_evaluation.themis.philly import PhillyRow
from horae_evaluation.themis.results import RUNS

PLAIN = ThemisResult(**{field.name: 1.0 for field in fields(ThemisResult)} | {"starts": 10})  # type: ignore[arg-type]
RHO = ("rho_paper_max", "rho_measured_max")


def claimed(
    numbers: Sequence[int], result: Callable[[ThemisCase], ThemisResult], seeds: int = 2
) -> tuple[list[Chapter], set[str]]:
    """Chapters as these results would have them, and the runs that were asked for."""
    asked: set[str] = set()

    def solve(cases: Sequence[ThemisCase]) -> Mapping[str, ThemisResult]:
        asked.update(map(str, cases))
        return {str(case): result(case) for case in cases}

    return chapters(solve, range(seeds), numbers), asked


def verdicts(chapter: Chapter, claim: str) -> list[bool | None]:
    return [finding.holds for finding in chapter.findings if finding.claim.startswith(claim)]


def with_rho(value: float) -> ThemisResult:
    return replace(PLAIN, rho_paper_max=value, rho_measured_max=value)


def test_every_policy_that_is_compared_runs_on_the_same_seeds() -> None:
    _, asked = claimed([1], lambda case: PLAIN, seeds=3)
    assert len(asked) == 2 * 3 * (len(BASELINES) + 2)
    for seed in range(3):
        assert f"tiresias, w1, seed {seed}" in asked


def test_order_and_distance_hold_only_where_they_do() -> None:
    rho = {"themis": 1.0, "themis, chain": 2.0, "gandiva": 2.5}
    (chapter,), _ = claimed([1], lambda case: with_rho(rho.get(case.policy, 1.5)))
    # By workload and rho, as published and with chains.
    assert verdicts(chapter, "the lowest median max rho") == [True, False] * 4
    assert verdicts(chapter, "2x below the worst") == [True, False] * 4


def test_ranks_of_the_filter_and_of_the_lease_are_told() -> None:
    def result(case: ThemisCase) -> ThemisResult:
        f, lease = float(case.options.get("f", 0.8)), float(case.options.get("lease_seconds", 1200.0))
        return with_rho(10 - f + lease / 1e5 if case.workload == "w1" else 10 + f - lease / 1e5)

    (chapter,), _ = claimed([6], result)
    assert verdicts(chapter, "rank correlation of f") == [True] * 4 + [False] * 4
    assert verdicts(chapter, "rank correlation of lease") == [True] * 4 + [False] * 4


@pytest.mark.parametrize(("factor", "holds"), [(1.10, True), (1.12, False)])
def test_errors_of_estimates_may_add_a_ninth(factor: float, holds: bool) -> None:
    (chapter,), _ = claimed([5], lambda case: with_rho(factor if case.options.get("noise") == 0.2 else 1.0))
    assert verdicts(chapter, "+-20%") == [holds] * 8


def test_who_gains_by_which_lie_is_told_apart() -> None:
    def result(case: ThemisCase) -> ThemisResult:
        believed = case.options.get("poll") == "said"
        lie = float(case.options.get("overstates", 0.0)) or case.declares
        return replace(PLAIN, watched_completion_seconds=100 * (1 - lie / 4 if believed else 1 + abs(lie) / 4))

    (chapter,), _ = claimed([7], result)
    assert verdicts(chapter, "a liar gains nothing") == [False, True, True, True]
    assert verdicts(chapter, "and loses") == [False, True, True, True]


def test_splitting_pays_unless_all_is_by_tenant() -> None:
    def result(case: ThemisCase) -> ThemisResult:
        gains = case.is_split and not case.options.get("by_tenant")
        return replace(PLAIN, watched_completion_seconds=50 if gains else 100)

    (chapter,), _ = claimed([9], result)
    assert verdicts(chapter, "to split an app gains nothing by tenant") == [True]


def test_a_page_has_a_table_a_figure_and_a_verdict_for_each_claim() -> None:
    made, _ = claimed(range(1, 11), lambda case: PLAIN)
    text = page(made)
    for chapter in made:
        assert f"## {chapter.number}. {chapter.title}\n\n2 seeds.\n" in text
        assert f"(../images/themis-{chapter.number}.png)" in text
        assert chapter.findings
    assert "| w1 | themis | 1.00 | 1.00 | 1.00 | 1.00 to 1.00 | 1.00 | 1.000 | 100.0% | 0.00 | 1 | 10 |\n" in text
    assert "- **does not hold**: 2x below the worst: w1, rho_paper_max: themis: 1.00x.\n" in text


def test_the_page_of_philly_has_a_row_for_each_policy() -> None:
    row = PhillyRow("max-min", 8287, 0.508, 3.81, 0.895, 0.746, 3600 * 32.41, 1_182_273.0, 468, 1.0)
    assert philly_page([row]).splitlines()[2] == ("| max-min | 0.51 | 3.81 | 0.895 | 74.6% | 32.41 | 1,182,273 | 468 |")


def test_a_smaller_cluster_has_the_same_workload() -> None:
    case = ThemisCase("w2", "themis", 0)
    half = replace(case, divided_by=2)
    assert sum(node.gpus for node in cluster_of(half).nodes) == 128
    assert workload_of(half) == workload_of(case)


def test_an_app_that_declares_more_has_as_much_to_do() -> None:
    case = ThemisCase("w2", "themis", 0, watched=42)
    said, true = workload_of(replace(case, declares=1.0)).arrivals, workload_of(case).arrivals
    assert [each.truth for each in said] == [each.truth for each in true]
    more = {a.job.app_id for a, b in zip(said, true, strict=True) if a.job.steps_total != b.job.steps_total}
    assert more == {"app42"}
    mine = next((a.job, b.job) for a, b in zip(said, true, strict=True) if a.job.app_id == "app42")
    assert mine[0].steps_total == pytest.approx(2 * (mine[1].steps_total or 0.0))
    assert mine[0].later_gpu_seconds == pytest.approx(2 * mine[1].later_gpu_seconds)


def test_every_case_says_in_words_all_that_makes_it_another() -> None:
    base = ThemisCase("w2", "themis", 0)
    others = [
        replace(base, workload="w1"), replace(base, policy="slaq"), replace(base, seed=1),
        replace(base, options={"f": 0.0}), replace(base, divided_by=2), replace(base, network_intensive=0.0),
        replace(base, method="grid"), replace(base, is_split=True), replace(base, declares=0.5),
        replace(base, durations_known=False),
    ]  # fmt: skip
    assert len({str(case) for case in (base, *others)}) == 1 + len(others)
    assert set(POLICIES) >= {case.policy for case in others}


def test_a_claim_that_does_not_exist_is_told() -> None:
    assert horae("reproduce", "themis", "--claim", "11").complaint == ("--claim: is [11]; give numbers from 1 to 10")


def test_a_run_of_w2_measures_what_no_schedule_could_do_better() -> None:
    result = run_case(ThemisCase("w2", "themis, chain", 0, {"f": 0.5}, watched=42))
    assert 0 < result.rho_floor_max <= result.rho_paper_max
    assert result.rho_measured_mean <= result.rho_measured_max
    assert 0 < result.rho_measured_jain <= 1
    assert result.starts > 4000
    assert result.watched_completion_seconds > 0
    assert result.watched_rho <= result.rho_measured_max


def test_every_claim_has_a_figure_with_medians_and_ranges(tmp_path: Path) -> None:
    made, _ = claimed(range(1, 11), lambda case: with_rho(1.0 + case.seed))
    for chapter in made:
        figure = chapter_figure(chapter)
        figure.draw_without_rendering()
        assert len(figure.axes) == 2
        assert figure.get_supxlabel().startswith(f"{chapter.title}. Medians over 2 seeds")
    names = [path.name for path in draw(made[:1], tmp_path)]
    assert names == ["themis-1.pdf", "themis-1.svg", "themis-1.png"]


def test_the_modules_that_results_depend_on_are_there() -> None:
    assert len(runs_digest(RUNS)) == 64
