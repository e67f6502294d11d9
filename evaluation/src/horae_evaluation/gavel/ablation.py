"""From the public mechanism's rules to Horae's, one rule at a time: the effect of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from horae.model.setup import RoundRules
from horae_evaluation.gavel.rows import HOUR, Solve, Spread, by_case
from horae_evaluation.gavel.setup import COMPATIBLE, OURS, GavelCase

RESTART_SECONDS = 60.0


@dataclass(frozen=True)
class Rung:
    workload: str
    jobs_per_hour: float
    rules: str
    hours: Spread
    change: Spread  # of the mean completion time against the first rung, seed by seed


def rungs(case: GavelCase) -> dict[str, GavelCase]:
    """The steps of the ablation; all are compared with the first."""
    ours = replace(case, rules=OURS)
    found = {
        "compatible: the public mechanism's rules": replace(case, rules=COMPATIBLE),
        **{f"compatible, {words}": replace(case, rules=rules) for words, rules in _one_rule_off().items()},
        "ours: all of these off": ours,
        f"ours, restarts cost {RESTART_SECONDS:g} s": replace(ours, restart_seconds=RESTART_SECONDS),
    }
    if case.workload == "multi":
        found["ours, spread gangs at their measured speed"] = replace(ours, spread_is_slower=True)
    return found


def _one_rule_off() -> dict[str, RoundRules]:
    return {
        "types given out together": replace(COMPATIBLE, type_order=OURS.type_order),
        "new shares every round": replace(COMPATIBLE, reconsider_seconds=OURS.reconsider_seconds),
        "no fill": replace(COMPATIBLE, fill=OURS.fill),
        "longer turns": replace(COMPATIBLE, turn_rounds=OURS.turn_rounds),
    }


def ladder(rates: Mapping[str, Sequence[float]], like: GavelCase, seeds: int, solve: Solve) -> list[Rung]:
    ladders = [
        rungs(replace(like, workload=workload, jobs_per_hour=rate)) for workload, each in rates.items() for rate in each
    ]
    results = iter(by_case([case for each in ladders for case in each.values()], seeds, solve))
    found = []
    for each in ladders:
        hours = {name: [result.completion_mean_seconds / HOUR for result in next(results)] for name in each}
        base = next(iter(hours.values()))
        for name, values in hours.items():
            change = [value / first - 1 for value, first in zip(values, base, strict=True)]
            case = each[name]
            found.append(Rung(case.workload, case.jobs_per_hour, name, Spread.of(values), Spread.of(change)))
    return found
