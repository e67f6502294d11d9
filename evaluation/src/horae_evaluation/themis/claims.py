"""The runs for one claim about Themis: configurations over paired seeds, and the findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TypeAlias

import numpy as np

from horae.model.searches import Method
from horae_evaluation.themis.experiment import POLICIES, ThemisCase, ThemisResult

Solve: TypeAlias = Callable[[Sequence[ThemisCase]], Mapping[str, ThemisResult]]  # by a case's text


@dataclass(frozen=True)
class ClaimPoint:
    """One configuration over all seeds."""

    label: str
    at: float  # its position on the axis
    results: tuple[ThemisResult, ...]

    def values(self, name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.array([getattr(result, name) for result in self.results])

    def median(self, name: str) -> float:
        return float(np.median(self.values(name)))

    def range(self, name: str) -> tuple[float, float]:
        return float(self.values(name).min()), float(self.values(name).max())


@dataclass(frozen=True)
class Finding:
    """What was claimed, and whether it holds by both rhos; `holds` None: nothing to check."""

    claim: str
    measured: str
    holds: bool | None


@dataclass(frozen=True)
class Chapter:
    number: int
    title: str
    axis: str
    lines: Mapping[str, tuple[ClaimPoint, ...]]  # by name: points along the axis
    findings: tuple[Finding, ...]


def points_of(
    solve: Solve, seeds: Sequence[int], configurations: Sequence[tuple[str, float, ThemisCase]]
) -> list[ClaimPoint]:
    cases = [replace(case, seed=seed) for _, _, case in configurations for seed in seeds]
    results = solve(cases)
    return [
        ClaimPoint(label, at, tuple(results[str(replace(case, seed=seed))] for seed in seeds))
        for label, at, case in configurations
    ]


def given(**options: float | bool | str) -> dict[str, float | bool | str]:
    """Options that differ from their defaults."""
    defaults = {"noise": 0.0, "f": 0.8, "lease_seconds": 1200.0, "overstates": 0.0, "window_leases": 1.0}
    return {name: value for name, value in options.items() if value != defaults.get(name)}


# The eight claims of Themis' evaluation: the runs each needs, and the findings

BASELINES = ("tiresias", "optimus", "gandiva", "slaq")
FILTERS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
LEASES_SECONDS = (300.0, 600.0, 1200.0, 2400.0)
NETWORK = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
NOISE = (0.0, 0.05, 0.1, 0.2)
RHOS = ("rho_paper_max", "rho_measured_max")
OURS = ("themis", "themis, chain")


def chapters(solve: Solve, seeds: Sequence[int], chosen: Sequence[int]) -> list[Chapter]:
    makers = {
        1: _fairness, 2: _gpu_time, 3: _contention, 4: _network, 5: _noise, 6: _knobs, 7: liars, 8: _overheads,
        9: beyond, 10: searches,
    }  # fmt: skip
    return [makers[number](solve, seeds) for number in chosen]


def _by_policy(solve: Solve, seeds: Sequence[int], workload: str) -> list[ClaimPoint]:
    cases = [(name, float(at), ThemisCase(workload, name, 0)) for at, name in enumerate((*OURS, *BASELINES))]
    return points_of(solve, seeds, cases)


def _fairness(solve: Solve, seeds: Sequence[int]) -> Chapter:
    lines, findings = {}, []
    for workload in ("w1", "w2"):
        points = _by_policy(solve, seeds, workload)
        lines[workload] = tuple(points)
        for rho in RHOS:
            findings += [each for own in points[: len(OURS)] for each in _order(workload, rho, own, points)]
    return Chapter(1, "Max rho by policy", "policy", lines, tuple(findings))


def _order(workload: str, rho: str, own: ClaimPoint, points: Sequence[ClaimPoint]) -> list[Finding]:
    others = {point.label: point.median(rho) for point in points if point.label in BASELINES}
    best, worst = min(others, key=others.__getitem__), max(others, key=others.__getitem__)
    mine = own.median(rho)
    said = f"{workload}, {rho}: {own.label} {mine:.2f}, " + ", ".join(f"{n} {v:.2f}" for n, v in others.items())
    if rho == "rho_paper_max":
        said += f"; no schedule could do better than {own.median('rho_floor_max'):.2f} for that app"
    by = f"{workload}, {rho}: {own.label}: {others[worst] / mine:.2f}x"
    return [
        Finding("the lowest median max rho", f"{said}; next is {best}", mine < others[best]),
        Finding("2x below the worst", by, others[worst] >= 2 * mine),
    ]


def _gpu_time(solve: Solve, seeds: Sequence[int]) -> Chapter:
    lines, findings = {}, []
    for workload in ("w1", "w2"):
        points = _by_policy(solve, seeds, workload)
        lines[workload] = tuple(points)
        hours = {point.label: point.median("gpu_hours") for point in points}
        relative = ", ".join(f"{name} {hours[name] / hours['themis'] - 1:+.1%}" for name in BASELINES)
        if workload == "w1":
            near = all(abs(value / hours["themis"] - 1) <= 0.05 for value in hours.values())
            findings.append(Finding("GPU time about equal on W1", f"beside themis: {relative}", near))
        else:
            findings.append(
                Finding(
                    "on W2 about 5% less than Gandiva, far less than SLAQ",
                    f"beside themis: {relative}",
                    hours["gandiva"] >= 1.02 * hours["themis"] and hours["slaq"] >= 1.1 * hours["themis"],
                )
            )
    return Chapter(2, "GPU time by policy", "policy", lines, tuple(findings))


def _contention(solve: Solve, seeds: Sequence[int]) -> Chapter:
    divisors = (1, 2, 4)
    lines: dict[str, tuple[ClaimPoint, ...]] = {}
    for name in (*OURS, *BASELINES):
        cases = [(f"1/{part}", float(part), ThemisCase("w2", name, 0, divided_by=part)) for part in divisors]
        lines[name] = tuple(points_of(solve, seeds, cases))
    findings = []
    for rho in RHOS:
        growth = {name: points[-1].median(rho) / points[0].median(rho) for name, points in lines.items()}
        said = ", ".join(f"{name} x{value:.2f}" for name, value in growth.items())
        for own in OURS:
            least = growth[own] <= min(growth[name] for name in BASELINES)
            findings.append(Finding("max rho grows least on a quarter of the cluster", f"{rho}, {own}: {said}", least))
    return Chapter(3, "Contention", "the cluster divided by", lines, tuple(findings))


def _network(solve: Solve, seeds: Sequence[int]) -> Chapter:
    lines = {}
    for name in (*OURS, "gandiva"):
        cases = [(f"{part:.0%}", part, ThemisCase("w2", name, 0, network_intensive=part)) for part in NETWORK]
        lines[name] = tuple(points_of(solve, seeds, cases))
    findings = []
    for rho in RHOS:
        for own in OURS:
            gap = [g.median(rho) - t.median(rho) for t, g in zip(lines[own], lines["gandiva"], strict=True)]
            said = ", ".join(f"{part:.0%} {value:+.3f}" for part, value in zip(NETWORK, gap, strict=True))
            findings.append(Finding("the gap to Gandiva widens", f"{rho}, {own}: {said}", gap[-1] > gap[0]))
    hardest = max(lines["themis"], key=lambda point: point.median("over_share"))
    said = ", ".join(f"{point.label} {point.median('over_share'):.1%}" for point in lines["themis"])
    findings.append(Finding("sharing incentive is hardest at 40-60%", f"apps over 1: {said}", hardest.at in (0.4, 0.6)))
    return Chapter(4, "Network-intensive apps", "part of the apps", lines, tuple(findings))


def _noise(solve: Solve, seeds: Sequence[int]) -> Chapter:
    lines, findings = {}, []
    for workload, own in product(("w1", "w2"), OURS):
        cases = [(f"{part:.0%}", part, ThemisCase(workload, own, 0, given(noise=part))) for part in NOISE]
        lines[f"{workload}, {own}"] = points = tuple(points_of(solve, seeds, cases))
        for rho in RHOS:
            grown = points[-1].median(rho) / points[0].median(rho) - 1
            said = f"{workload}, {own}, {rho}: {grown:+.1%}"
            findings.append(Finding("+-20% adds 11% at most", said, grown <= 0.11))
    return Chapter(5, "Error of estimates", "up to", lines, tuple(findings))


def _knobs(solve: Solve, seeds: Sequence[int]) -> Chapter:
    lines: dict[str, tuple[ClaimPoint, ...]] = {}
    findings = []
    for workload, own in product(("w1", "w2"), OURS):
        by_filter = points_of(
            solve, seeds, [(f"f {part:g}", part, ThemisCase(workload, own, 0, given(f=part))) for part in FILTERS]
        )
        by_lease = points_of(
            solve, seeds,
            [(f"{s / 60:g} min", s / 60, ThemisCase(workload, own, 0, given(lease_seconds=s))) for s in LEASES_SECONDS],
        )  # fmt: skip
        lines[f"{workload}, {own}, by f"], lines[f"{workload}, {own}, by lease"] = tuple(by_filter), tuple(by_lease)
        for rho in RHOS:
            for kind, points, claim in (("f", by_filter, -0.6), ("lease", by_lease, 0.6)):
                medians = [point.median(rho) for point in points]
                rank = _rank_correlation([point.at for point in points], medians)
                said = f"{workload}, {own}, {rho}: {rank:+.2f} ({', '.join(f'{value:.3f}' for value in medians)})"
                holds = rank <= claim if claim < 0 else rank >= claim
                wanted = "at most -0.6" if claim < 0 else "at least 0.6"
                findings.append(Finding(f"rank correlation of {kind} with max rho {wanted}", said, holds))
    return Chapter(6, "The filter f and the lease", "f, or minutes", lines, tuple(findings))


def _rank_correlation(at: Sequence[float], medians: Sequence[float]) -> float:
    """Spearman's rank correlation; 0 where all medians are equal, because ranks are then undefined."""
    from scipy.stats import spearmanr  # noqa: PLC0415  (a second to import, which other commands should not pay)

    return float(spearmanr(at, medians).statistic) if np.ptp(medians) else 0.0


def _overheads(solve: Solve, seeds: Sequence[int]) -> Chapter:
    points = _by_policy(solve, seeds, "w2")[:1]
    median, p95 = points[0].median("decision_median_seconds") * 1e3, points[0].median("decision_p95_seconds") * 1e3
    said = f"bids, auctions, placement and plan together: {median:.1f} ms, 95th percentile {p95:.1f} ms"
    finding = Finding("bids take 29 ms (334 at the 95th), the auction 354 ms", said, median < 29)
    return Chapter(8, "Overheads", "policy", {"w2": tuple(points)}, (finding,))


assert set(BASELINES) < set(POLICIES)


# Beyond Themis' evaluation: misreporting apps, additional options, and other search methods

OVERSTATES = (0.0, 0.1, 0.2, 0.33, 0.5, 1.0)
DECLARES = (-0.5, -0.2)  # understatements, possible only in the declared work
_EFFECTS = {"completion": "completion_mean_seconds", "GPU-hours": "gpu_hours", "starts": "starts"}
WATCHED = 42  # half of the apps arrive before it


def liars(solve: Solve, seeds: Sequence[int]) -> Chapter:
    """What an app gains by overstating: in its agent's bids, or already in the work it declares at submission."""
    half = ThemisCase("w2", "themis", 0, divided_by=2, watched=WATCHED)
    chain = replace(half, policy="themis, chain")

    def says(honest: ThemisCase, part: float) -> ThemisCase:
        return replace(honest, options={**honest.options, "liar": WATCHED, "overstates": part}) if part else honest

    lies: dict[str, list[tuple[float, ThemisCase]]] = {
        "said, seats too": [(part, says(replace(half, options={"poll": "said"}), part)) for part in OVERSTATES],
        "said": [(part, says(half, part)) for part in OVERSTATES],
        "said, chain": [(part, says(chain, part)) for part in OVERSTATES],
        "declared": [(part, replace(chain, declares=part)) for part in (*DECLARES, *OVERSTATES)],
    }
    named = {
        name: tuple(points_of(solve, seeds, [(f"{part:.0%}", part, case) for part, case in cases]))
        for name, cases in lies.items()
    }
    findings = []
    for name, points in named.items():
        honest = next(point for point in points if not point.at).values("watched_completion_seconds")
        gain = {point.at: float(np.median(point.values("watched_completion_seconds") / honest - 1)) for point in points}
        told = f"{name}: its completion time: " + ", ".join(f"{part:.0%} {value:+.1%}" for part, value in gain.items())
        losses = [value for part, value in gain.items() if part > 1 / 3]
        findings += [
            Finding("a liar gains nothing", told, min(gain.values()) >= -0.005),
            Finding("and loses when it overstates by more than a third", told, min(losses) > 0.01),
        ]
    return Chapter(7, "What a liar gains, on half of the cluster", "overstates by", named, tuple(findings))


def beyond(solve: Solve, seeds: Sequence[int]) -> Chapter:
    half = ThemisCase("w2", "themis, chain", 0, divided_by=2)
    options: list[tuple[str, ThemisCase]] = [
        ("as it is", half),
        ("no payments", replace(half, options={"payments": False})),
        ("bids as in the paper", replace(half, options={"to_the_end": True})),
        ("T_id of the paper", replace(half, policy="themis")),
        ("private T_id", replace(half, options={"aim": "private"})),
        ("restarts not counted", replace(half, options={"restarts": False})),
        ("2 leases ahead", replace(half, options={"window_leases": 2.0})),
        ("4 leases ahead", replace(half, options={"window_leases": 4.0})),
        ("durations unknown", replace(half, durations_known=False)),
        ("unknown, band 1", replace(half, options={"band": 1.0}, durations_known=False)),
    ]
    points = points_of(solve, seeds, [(label, float(at), case) for at, (label, case) in enumerate(options)])
    one = ThemisCase("w1", "themis, chain", 0, watched=WATCHED)
    split = points_of(
        solve, seeds,
        [
            ("whole", 0.0, one), ("split in 4", 1.0, replace(one, is_split=True)),
            ("whole, by tenant", 2.0, replace(one, options={"by_tenant": True})),
            ("split in 4, by tenant", 3.0, replace(one, options={"by_tenant": True}, is_split=True)),
        ],
    )  # fmt: skip
    hours = [point.median("watched_completion_seconds") / 3600 for point in split]
    said = ", ".join(f"{point.label} {value:.2f} h" for point, value in zip(split, hours, strict=True))
    base = points[0]
    findings = [
        Finding("to split an app gains nothing by tenant", said, hours[3] >= hours[2] * 0.99),
        *(
            Finding(
                f"{point.label}: effect",
                f"max rho_measured {point.median('rho_measured_max') - base.median('rho_measured_max'):+.3f}, "
                + ", ".join(
                    f"{words} {point.median(name) / base.median(name) - 1:+.1%}" for words, name in _EFFECTS.items()
                ),
                None,
            )
            for point in points[1:]
        ),
    ]
    return Chapter(9, "Beyond Themis", "option", {"w2, half of the cluster": tuple(points)}, tuple(findings))


def searches(solve: Solve, seeds: Sequence[int]) -> Chapter:
    """W2's apps with other optimisers; each at the load of 0.8, computed from the maximum work it may do."""
    names = ("themis", "themis, chain", "tiresias", "gandiva")
    lines, findings = {}, []
    for method in (Method.HALVING, Method.HYPERBAND, Method.CURVES, Method.GRID):
        cases = [(name, float(at), ThemisCase("w2", name, 0, method=method.value)) for at, name in enumerate(names)]
        lines[method.value] = points = tuple(points_of(solve, seeds, cases))
        rho = {point.label: point.median("rho_measured_max") for point in points}
        said = f"{method.value}: " + ", ".join(f"{name} {value:.2f}" for name, value in rho.items())
        best = min(rho.values())
        findings.append(Finding("the lowest max rho, measured", said, rho["themis, chain"] <= best))
    return Chapter(10, "Other ways to search", "policy", lines, tuple(findings))
