"""The eight claims of Themis' evaluation, and what goes beyond it: which runs each needs, and what they say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from scipy.stats import spearmanr

from horae.reproduction.themis import POLICIES, Case, Result

Solve: TypeAlias = Callable[[Sequence[Case]], Mapping[str, Result]]  # by what a case says in words

BASELINES = ("tiresias", "optimus", "gandiva", "slaq")
FILTERS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
LEASES_SECONDS = (300.0, 600.0, 1200.0, 2400.0)
NETWORK = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
NOISE = (0.0, 0.05, 0.1, 0.2)
OVERSTATES = (0.0, 0.1, 0.2, 0.33, 0.5, 1.0)
_EFFECTS = {"completion": "completion_mean_seconds", "GPU-hours": "gpu_hours", "starts": "starts"}
CHAIN = "themis, chain"  # beyond the paper: T_id is no less than the longest chain of an app's jobs
WATCHED = 42  # half of the apps have come before


@dataclass(frozen=True)
class Point:
    """One configuration over all seeds."""

    label: str
    at: float  # where it stands on the axis
    results: tuple[Result, ...]

    def values(self, name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.array([getattr(result, name) for result in self.results])

    def median(self, name: str) -> float:
        return float(np.median(self.values(name)))

    def range(self, name: str) -> tuple[float, float]:
        return float(self.values(name).min()), float(self.values(name).max())


@dataclass(frozen=True)
class Finding:
    """What was claimed, and whether it holds by both rhos; `holds` None: nothing to hold."""

    claim: str
    measured: str
    holds: bool | None


@dataclass(frozen=True)
class Chapter:
    number: int
    title: str
    axis: str
    lines: Mapping[str, tuple[Point, ...]]  # by name: points along the axis
    findings: tuple[Finding, ...]


def _points(solve: Solve, seeds: Sequence[int], configurations: Sequence[tuple[str, float, Case]]) -> list[Point]:
    cases = [replace(case, seed=seed) for _, _, case in configurations for seed in seeds]
    results = solve(cases)
    return [
        Point(label, at, tuple(results[str(replace(case, seed=seed))] for seed in seeds))
        for label, at, case in configurations
    ]


def chapters(solve: Solve, seeds: Sequence[int], chosen: Sequence[int]) -> list[Chapter]:
    makers = {1: _fairness, 2: _gpu_time, 3: _contention, 4: _network, 5: _noise, 6: _knobs, 7: _liars, 8: _overheads}
    made = [makers[number](solve, seeds) for number in chosen if number in makers]
    return [*made, *([_beyond(solve, seeds)] if 9 in chosen else [])]


def _by_policy(solve: Solve, seeds: Sequence[int], workload: str) -> list[Point]:
    cases = [(name, Case(workload, name, 0)) for name in ("themis", *BASELINES)]
    cases.insert(1, (CHAIN, Case(workload, "themis", 0, {"aim": "chain"})))
    return _points(solve, seeds, [(name, float(at), case) for at, (name, case) in enumerate(cases)])


def _fairness(solve: Solve, seeds: Sequence[int]) -> Chapter:
    lines, findings = {}, []
    for workload in ("w1", "w2"):
        points = _by_policy(solve, seeds, workload)
        lines[workload] = tuple(points)
        for rho in ("rho_paper_max", "rho_measured_max"):
            own, chain = points[0].median(rho), points[1].median(rho)
            others = {point.label: point.median(rho) for point in points if point.label in BASELINES}
            best, worst = min(others, key=others.__getitem__), max(others, key=others.__getitem__)
            said = f"{workload}, {rho}: themis {own:.2f} ({CHAIN} {chain:.2f}), " + ", ".join(
                f"{n} {v:.2f}" for n, v in others.items()
            )
            if rho == "rho_paper_max":
                said += f"; no schedule could do better than {points[0].median('rho_floor_max'):.2f} for that app"
            findings += [
                Finding("the lowest median max rho", f"{said}; next is {best}", own < others[best]),
                Finding(
                    "2x below the worst", f"{workload}, {rho}: {others[worst] / own:.2f}x", others[worst] >= 2 * own
                ),
            ]
    return Chapter(1, "Max rho by policy", "policy", lines, tuple(findings))


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
    for name in ("themis", *BASELINES):
        cases = [(f"1/{part}", float(part), Case("w2", name, 0, divided_by=part)) for part in divisors]
        lines[name] = tuple(_points(solve, seeds, cases))
    findings = []
    for rho in ("rho_paper_max", "rho_measured_max"):
        growth = {name: points[-1].median(rho) / points[0].median(rho) for name, points in lines.items()}
        said = ", ".join(f"{name} x{value:.2f}" for name, value in growth.items())
        least = min(growth, key=growth.__getitem__)
        findings.append(Finding("max rho grows least on a quarter of the cluster", f"{rho}: {said}", least == "themis"))
    return Chapter(3, "Contention", "the cluster divided by", lines, tuple(findings))


def _network(solve: Solve, seeds: Sequence[int]) -> Chapter:
    lines = {}
    for name in ("themis", "gandiva"):
        cases = [(f"{part:.0%}", part, Case("w2", name, 0, network_intensive=part)) for part in NETWORK]
        lines[name] = tuple(_points(solve, seeds, cases))
    findings = []
    for rho in ("rho_paper_max", "rho_measured_max"):
        gap = [g.median(rho) - t.median(rho) for t, g in zip(lines["themis"], lines["gandiva"], strict=True)]
        said = ", ".join(f"{part:.0%} {value:+.3f}" for part, value in zip(NETWORK, gap, strict=True))
        findings.append(Finding("the gap to Gandiva widens", f"{rho}: {said}", gap[-1] > gap[0]))
    hardest = max(lines["themis"], key=lambda point: point.median("over_share"))
    said = ", ".join(f"{point.label} {point.median('over_share'):.1%}" for point in lines["themis"])
    findings.append(Finding("sharing incentive is hardest at 40-60%", f"apps over 1: {said}", hardest.at in (0.4, 0.6)))
    return Chapter(4, "Network-intensive apps", "part of the apps", lines, tuple(findings))


def _noise(solve: Solve, seeds: Sequence[int]) -> Chapter:
    lines, findings = {}, []
    for workload in ("w1", "w2"):
        cases = [(f"{part:.0%}", part, Case(workload, "themis", 0, _some(noise=part))) for part in NOISE]
        lines[workload] = points = tuple(_points(solve, seeds, cases))
        for rho in ("rho_paper_max", "rho_measured_max"):
            grown = points[-1].median(rho) / points[0].median(rho) - 1
            findings.append(Finding("+-20% adds 11% at most", f"{workload}, {rho}: {grown:+.1%}", grown <= 0.11))
    return Chapter(5, "Error of estimates", "up to", lines, tuple(findings))


def _some(**options: float) -> dict[str, float | bool | str]:
    """Options that are not what they are without saying."""
    defaults = {"noise": 0.0, "f": 0.8, "lease_seconds": 1200.0, "overstates": 0.0, "window_leases": 1.0}
    return {name: value for name, value in options.items() if value != defaults.get(name)}


def _knobs(solve: Solve, seeds: Sequence[int]) -> Chapter:
    lines: dict[str, tuple[Point, ...]] = {}
    findings = []
    for workload in ("w1", "w2"):
        by_filter = _points(
            solve, seeds, [(f"f {part:g}", part, Case(workload, "themis", 0, _some(f=part))) for part in FILTERS]
        )
        by_lease = _points(
            solve, seeds,
            [(f"{s / 60:g} min", s / 60, Case(workload, "themis", 0, _some(lease_seconds=s))) for s in LEASES_SECONDS],
        )  # fmt: skip
        lines[f"{workload}, by f"], lines[f"{workload}, by lease"] = tuple(by_filter), tuple(by_lease)
        for rho in ("rho_paper_max", "rho_measured_max"):
            for kind, points, claim in (("f", by_filter, -0.6), ("lease", by_lease, 0.6)):
                medians = [point.median(rho) for point in points]
                rank = float(spearmanr([point.at for point in points], medians).statistic)
                said = f"{workload}, {rho}: {rank:+.2f} ({', '.join(f'{value:.3f}' for value in medians)})"
                holds = rank <= claim if claim < 0 else rank >= claim
                wanted = "at most -0.6" if claim < 0 else "at least 0.6"
                findings.append(Finding(f"rank correlation of {kind} with max rho {wanted}", said, holds))
    return Chapter(6, "The filter f and the lease", "f, or minutes", lines, tuple(findings))


def _liars(solve: Solve, seeds: Sequence[int]) -> Chapter:
    def case(part: float) -> Case:
        lie: dict[str, float | bool | str] = {"liar": WATCHED, "overstates": part} if part else {}
        return Case("w2", "themis", 0, lie, divided_by=2, watched=WATCHED)

    points = _points(solve, seeds, [(f"{part:.0%}", part, case(part)) for part in OVERSTATES])
    honest = points[0].values("watched_completion_seconds")
    gains = [float(np.median(point.values("watched_completion_seconds") / honest - 1)) for point in points]
    said = ", ".join(f"{point.label} {gain:+.1%}" for point, gain in zip(points, gains, strict=True))
    findings = (
        Finding("a liar gains nothing", f"its completion time: {said}", min(gains[1:]) >= -0.005),
        Finding("and loses when it overstates by more than a third", f"its completion time: {said}", gains[-2] > 0.01),
    )
    return Chapter(7, "What a liar gains", "overstates by", {"w2, half of the cluster": tuple(points)}, findings)


def _overheads(solve: Solve, seeds: Sequence[int]) -> Chapter:
    points = _by_policy(solve, seeds, "w2")[:1]
    median, p95 = points[0].median("decision_median_seconds") * 1e3, points[0].median("decision_p95_seconds") * 1e3
    said = f"bids, auctions, placement and plan together: {median:.1f} ms, 95th percentile {p95:.1f} ms"
    finding = Finding("bids take 29 ms (334 at the 95th), the auction 354 ms", said, median < 29)
    return Chapter(8, "Overheads", "policy", {"w2": tuple(points)}, (finding,))


def _beyond(solve: Solve, seeds: Sequence[int]) -> Chapter:
    options: list[tuple[str, Case]] = [
        ("as it is", Case("w2", "themis", 0, divided_by=2)),
        ("no payments", Case("w2", "themis", 0, {"payments": False}, divided_by=2)),
        ("bids as in the paper", Case("w2", "themis", 0, {"to_the_end": True}, divided_by=2)),
        ("aims at private T_id", Case("w2", "themis", 0, {"aim": "private"}, divided_by=2)),
        ("aims at chain T_id", Case("w2", "themis", 0, {"aim": "chain"}, divided_by=2)),
        ("restarts not counted", Case("w2", "themis", 0, {"restarts": False}, divided_by=2)),
        ("a window of 2 leases", Case("w2", "themis", 0, {"window_leases": 2.0}, divided_by=2)),
        ("a window of 4 leases", Case("w2", "themis", 0, {"window_leases": 4.0}, divided_by=2)),
        ("durations unknown", Case("w2", "themis", 0, durations_known=False, divided_by=2)),
        ("unknown, band 1", Case("w2", "themis", 0, {"band": 1.0}, durations_known=False, divided_by=2)),
    ]
    points = _points(solve, seeds, [(label, float(at), case) for at, (label, case) in enumerate(options)])
    one = Case("w1", "themis", 0, watched=WATCHED)
    split = _points(
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
        Finding("to split an app gains nothing when entitlement is by tenant", said, hours[3] >= hours[2] * 0.99),
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


assert set(BASELINES) < set(POLICIES)
