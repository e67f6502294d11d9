"""The runs of Pollux's comparison: as in the files, with one change at a time, and with the found changes together.

The changes that were found to matter are those of `FOUND`. The data folder says nothing about them; they were inferred
from percentiles published for light load, where hardly any job waits (docs/reference/pollux-results.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from horae.model.errors import InputError
from horae_evaluation.pollux.experiment import POLICIES, PolluxCase, PolluxResult, Published, Source, run_case

AS_READ, TOGETHER = "as the files have it", "these three together"
FOUND: Mapping[str, Mapping[str, Any]] = {
    "a first start costs 30 s too": {"start_seconds": 30.0},
    "steps by gradient noise": {"by_noise": True},
    "yolov3: 8 of a batch at once": {"share_max": (("yolov3", 8),)},
}
OTHERS: Mapping[str, Mapping[str, Any]] = {
    "restarts cost nothing": {"restart_seconds": 0.0},
    "restarts cost 60 s": {"restart_seconds": 60.0},
    "restarts cost 120 s": {"restart_seconds": 120.0},
    "decisions at every event": {"round_seconds": 0.0},
    "rounds of 300 s": {"round_seconds": 300.0},
    "fullest node first": {"spreads": False},
    "steps as if packed": {"is_placed": False},
}
OF_POLICY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "tiresias": {
        "limit of 4 GPU-hours": {"limit_gpu_hours": 4.0},
        "limit of 64 GPU-hours": {"limit_gpu_hours": 64.0},
        "one queue": {"limit_gpu_hours": 1e6},
        "back to the top after 8 times its run": {"promote_after": 8.0},
    },
    "optimus": {
        "sizes change every 60 s": {"interval_seconds": 60.0},
        "sizes change every 120 s": {"interval_seconds": 120.0},
        "sizes change every 1,800 s": {"interval_seconds": 1800.0},
        "resized whatever a restart costs": {"damping": 0.0},
        "no more GPUs than were asked for": {"gpus_max": 1.0},
        "just the GPUs that were asked for": {"is_elastic": False},
    },
}


@dataclass(frozen=True)
class PolluxRow:
    policy: str
    change: str
    case: PolluxCase
    result: PolluxResult
    published: Published | None

    @property
    def difference(self) -> float | None:
        return None if self.published is None else self.result.mean_seconds / self.published.mean_seconds - 1


def cases(policy: str, base: PolluxCase, *, with_variants: bool) -> Iterator[tuple[str, PolluxCase]]:
    yield AS_READ, base
    together = base
    for name, change in FOUND.items():
        together = replace(together, **change)
        if with_variants:
            yield name, replace(base, **change)
    yield TOGETHER, together
    if with_variants:
        for name, change in {**OTHERS, **OF_POLICY[policy]}.items():
            yield name, replace(base, **change)
        if base.set_name != "realistic":
            yield "sizes as users chose them", replace(base, set_name="realistic")


def rows(
    source: Source,
    policies: Sequence[str],
    base: PolluxCase,
    *,
    with_variants: bool = True,
    told: Callable[[str, str], None] = lambda policy, change: None,
) -> list[PolluxRow]:
    found = []
    for policy in policies:
        if policy not in POLICIES:
            raise InputError(f"is {policy!r}", field="--policy", remedy=f"use {', '.join(POLICIES)}")
        for change, case in cases(policy, replace(base, policy=policy), with_variants=with_variants):
            if (case.set_name, case.workload) not in source.tasks and change != AS_READ:
                continue  # the folder has no such set
            told(policy, change)
            published = source.published.get((case.set_name, policy, case.workload))
            found.append(PolluxRow(policy, change, case, run_case(case, source), published))
    return found


def as_plain(rows: Sequence[PolluxRow]) -> list[dict[str, Any]]:
    return [{**asdict(row), "difference": row.difference} for row in rows]
