"""The eight claims of Themis' evaluation: which runs each needs, and what they say."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from horae.reproduction.themis import POLICIES, Case
from horae.reproduction.themis_beyond import beyond, liars, searches
from horae.reproduction.themis_points import Chapter, Finding, Point, Solve, given, points_of

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


def _by_policy(solve: Solve, seeds: Sequence[int], workload: str) -> list[Point]:
    cases = [(name, float(at), Case(workload, name, 0)) for at, name in enumerate((*OURS, *BASELINES))]
    return points_of(solve, seeds, cases)


def _fairness(solve: Solve, seeds: Sequence[int]) -> Chapter:
    lines, findings = {}, []
    for workload in ("w1", "w2"):
        points = _by_policy(solve, seeds, workload)
        lines[workload] = tuple(points)
        for rho in RHOS:
            findings += [each for own in points[: len(OURS)] for each in _order(workload, rho, own, points)]
    return Chapter(1, "Max rho by policy", "policy", lines, tuple(findings))


def _order(workload: str, rho: str, own: Point, points: Sequence[Point]) -> list[Finding]:
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
    lines: dict[str, tuple[Point, ...]] = {}
    for name in (*OURS, *BASELINES):
        cases = [(f"1/{part}", float(part), Case("w2", name, 0, divided_by=part)) for part in divisors]
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
        cases = [(f"{part:.0%}", part, Case("w2", name, 0, network_intensive=part)) for part in NETWORK]
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
        cases = [(f"{part:.0%}", part, Case(workload, own, 0, given(noise=part))) for part in NOISE]
        lines[f"{workload}, {own}"] = points = tuple(points_of(solve, seeds, cases))
        for rho in RHOS:
            grown = points[-1].median(rho) / points[0].median(rho) - 1
            said = f"{workload}, {own}, {rho}: {grown:+.1%}"
            findings.append(Finding("+-20% adds 11% at most", said, grown <= 0.11))
    return Chapter(5, "Error of estimates", "up to", lines, tuple(findings))


def _knobs(solve: Solve, seeds: Sequence[int]) -> Chapter:
    lines: dict[str, tuple[Point, ...]] = {}
    findings = []
    for workload, own in product(("w1", "w2"), OURS):
        by_filter = points_of(
            solve, seeds, [(f"f {part:g}", part, Case(workload, own, 0, given(f=part))) for part in FILTERS]
        )
        by_lease = points_of(
            solve, seeds,
            [(f"{s / 60:g} min", s / 60, Case(workload, own, 0, given(lease_seconds=s))) for s in LEASES_SECONDS],
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
    """Spearman's; 0 where all medians are equal, because there is no rank then, and nothing to be seen of the claim."""
    from scipy.stats import spearmanr  # noqa: PLC0415  (a second to import, which other commands should not pay)

    return float(spearmanr(at, medians).statistic) if np.ptp(medians) else 0.0


def _overheads(solve: Solve, seeds: Sequence[int]) -> Chapter:
    points = _by_policy(solve, seeds, "w2")[:1]
    median, p95 = points[0].median("decision_median_seconds") * 1e3, points[0].median("decision_p95_seconds") * 1e3
    said = f"bids, auctions, placement and plan together: {median:.1f} ms, 95th percentile {p95:.1f} ms"
    finding = Finding("bids take 29 ms (334 at the 95th), the auction 354 ms", said, median < 29)
    return Chapter(8, "Overheads", "policy", {"w2": tuple(points)}, (finding,))


assert set(BASELINES) < set(POLICIES)
