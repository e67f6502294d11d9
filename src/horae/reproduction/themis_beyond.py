"""Beyond Themis' evaluation: who lies, options that it has not, and other ways to search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from horae.model.searches import Method
from horae.reproduction.themis import Case
from horae.reproduction.themis_points import Chapter, Finding, Solve, points_of

OVERSTATES = (0.0, 0.1, 0.2, 0.33, 0.5, 1.0)
DECLARES = (-0.5, -0.2)  # less than there is, which only what it declares can be
_EFFECTS = {"completion": "completion_mean_seconds", "GPU-hours": "gpu_hours", "starts": "starts"}
WATCHED = 42  # half of the apps have come before


def liars(solve: Solve, seeds: Sequence[int]) -> Chapter:
    """One app overstates: in what its agent says, or already in what it declares when it comes."""
    half = Case("w2", "themis", 0, divided_by=2, watched=WATCHED)
    chain = replace(half, policy="themis, chain")

    def says(honest: Case, part: float) -> Case:
        return replace(honest, options={**honest.options, "liar": WATCHED, "overstates": part}) if part else honest

    lies: dict[str, list[tuple[float, Case]]] = {
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
    half = Case("w2", "themis, chain", 0, divided_by=2)
    options: list[tuple[str, Case]] = [
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
    one = Case("w1", "themis, chain", 0, watched=WATCHED)
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
    """W2's apps with other optimisers; each at the load of 0.8, reckoned with what it may do at most."""
    names = ("themis", "themis, chain", "tiresias", "gandiva")
    lines, findings = {}, []
    for method in (Method.HALVING, Method.HYPERBAND, Method.CURVES, Method.GRID):
        cases = [(name, float(at), Case("w2", name, 0, method=method.value)) for at, name in enumerate(names)]
        lines[method.value] = points = tuple(points_of(solve, seeds, cases))
        rho = {point.label: point.median("rho_measured_max") for point in points}
        said = f"{method.value}: " + ", ".join(f"{name} {value:.2f}" for name, value in rho.items())
        best = min(rho.values())
        findings.append(Finding("the lowest max rho, measured", said, rho["themis, chain"] <= best))
    return Chapter(10, "Other ways to search", "policy", lines, tuple(findings))
