"""The results that Gavel's authors published (OSDI'20), and the mapping from their policies to ours.

The figures by arrival rate are those of the notebooks in the repository stanford-futuredata/gavel: one draw (seed 0) of
their generator, the mean completion time of jobs 4,000 to 5,000 on 36 V100, 36 P100 and 36 K80.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from math import isfinite, nan
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from horae.experiments.compare.run_spec import PolicyChoice
from horae.model.errors import InputError
from horae.model.setup import RoundRules

FILE = Path("gavel") / "published_by_rate.csv"
COLUMNS = ("workload", "metric", "policy", "rate_jobs_per_h", "value")
COMPLETION = "avg_jct_h"
WORKLOADS: Mapping[str, str] = MappingProxyType({"single_gpu": "single", "multi_gpu": "multi"})  # by their name: ours
AWARE_MAX_MIN = "max_min_fairness_perf"

POLICIES: Mapping[str, PolicyChoice] = MappingProxyType(
    {
        "fifo": PolicyChoice("fifo-on-fastest", {"aware": False}),
        "fifo_perf": PolicyChoice("fifo-on-fastest", {}),
        "fifo_packed": PolicyChoice("fifo-on-fastest", {"sharing": True}),
        "max_min_fairness": PolicyChoice("max-min", {"aware": False}),
        AWARE_MAX_MIN: PolicyChoice("max-min", {}),
        "max_min_fairness_packed": PolicyChoice("max-min", {"sharing": True}),
        "finish_time_fairness": PolicyChoice("finish-time-fairness", {"aware": False, "reference": "v100"}),
        "finish_time_fairness_perf": PolicyChoice("finish-time-fairness", {}),
        "allox": PolicyChoice("allox", {}),
        "gandiva": PolicyChoice("gandiva", {}),
    }
)

# By policy of ours: its rules, where they differ from the default. GPUs that are matched one at a time are
# matched badly; the authors' mechanism has both rules, for all policies, with 1,920 s.
RULES: Mapping[str, RoundRules] = MappingProxyType({"allox": RoundRules(reconsider_seconds=7200.0, fill=True)})

# 500 jobs that are all submitted at the beginning; hours, from the same notebooks.
MAKESPAN_JOBS = 500
MAKESPAN_HOURS: Mapping[str, float] = MappingProxyType(
    {"fifo": 426.6, "gandiva": 263.9, "makespan_perf": 169.4, "makespan_packed": 168.1}
)
MAKESPAN_POLICIES: Mapping[str, PolicyChoice] = MappingProxyType(
    {
        "fifo": POLICIES["fifo"],
        "gandiva": POLICIES["gandiva"],
        "makespan_perf": PolicyChoice("makespan", {}),
        "makespan_packed": PolicyChoice("makespan", {"sharing": True}),
    }
)


class PublishedPoint(NamedTuple):
    workload: str  # single or multi
    policy: str  # the authors' name
    jobs_per_hour: float


Published = Mapping[PublishedPoint, float]  # mean completion time in hours


def read_published(data: Path) -> dict[PublishedPoint, float]:
    """Reads `gavel/published_by_rate.csv`: the mean completion times among its metrics."""
    path = data / FILE
    found: dict[PublishedPoint, float] = {}
    for line, row in _rows(path):
        if row["metric"] != COMPLETION:
            continue
        if row["workload"] not in WORKLOADS:
            raise _wrong(path, line, row, "workload", f"use {' or '.join(WORKLOADS)}")
        rate, hours = (_positive(path, line, row, field) for field in ("rate_jobs_per_h", "value"))
        found[PublishedPoint(WORKLOADS[row["workload"]], row["policy"], rate)] = hours
    if not found:
        raise InputError(f"has no metric {COMPLETION!r}", file=str(path), field="metric", remedy="fetch the file again")
    return found


def published_hours(published: Published, workload: str, policy: str, jobs_per_hour: float) -> float:
    """The published hours, nan where there are none; rates are compared as written, not to the last bit."""
    rates = {round(point.jobs_per_hour, 6): point for point in published if point[:2] == (workload, policy)}
    point = rates.get(round(jobs_per_hour, 6))
    return nan if point is None else published[point]


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows with their line numbers; the file has a few hundred."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        remedy = "name the folder that holds it with --data or HORAE_DATA"
        raise InputError("is not in the data folder", file=str(path), remedy=remedy) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", file=str(path), remedy="fetch the file again") from None
    table = csv.DictReader(lines, restval="")
    for column in COLUMNS:
        if column not in (table.fieldnames or ()):
            raise InputError("is missing", file=str(path), line=1, field=column, remedy="fetch the file again")
    yield from ((table.line_num, row) for row in table)


def _positive(path: Path, line: int, row: Mapping[str, str], field: str) -> float:
    try:
        value = float(row[field])
    except ValueError:
        value = nan
    if not (isfinite(value) and value > 0):
        raise _wrong(path, line, row, field, "give a number above 0")
    return value


def _wrong(path: Path, line: int, row: Mapping[str, str], field: str, remedy: str) -> InputError:
    return InputError(f"is {row[field]!r}", file=str(path), line=line, field=field, remedy=remedy)
