"""Rows of HiveD's experiment: a tenant's waiting time on a private cluster, by quota and with cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from horae.model.serialization import Plain, to_plain
from horae_evaluation.hived.experiment import Affinity, HivedCase, HivedResult, SharingKind, TenantResult

Solve = Callable[[Sequence[HivedCase]], Mapping[HivedCase, HivedResult]]
NOTICEABLE_SECONDS = 60.0  # a job that waits longer by this much counts as delayed


@dataclass(frozen=True)
class TenantRow:
    """One tenant under the three kinds of sharing."""

    workload: str
    policy: str
    affinity: str
    placement: str  # with quotas: pack or spread
    tenant: str
    private: TenantResult
    quota: TenantResult
    cells: TenantResult
    delayed_by_quota: float  # fraction of its jobs that wait noticeably longer than on the private cluster
    worst_by_quota_seconds: float  # the maximum delay
    is_identical: bool  # with cells every job starts when it does on the private cluster


@dataclass(frozen=True)
class GuestRow:
    """Work without a guarantee, beside the tenants' jobs."""

    workload: str
    policy: str
    binding: str
    preemptions: int
    fragmentation: float
    later_mean_seconds: float  # than on the private cluster, jobs with a guarantee
    later_p99_seconds: float
    later_max_seconds: float


@dataclass(frozen=True)
class LoanRow:
    """One tenant whose jobs may borrow, compared with its private cluster."""

    workload: str
    policy: str
    tenant: str
    private: TenantResult
    borrowing: TenantResult
    later_starts: float  # fraction of its jobs that start later than on the private cluster
    latest_start_seconds: float  # the maximum delay
    later_ends: float  # fraction of its jobs that end later
    latest_end_seconds: float


def loan_rows(workload: str, policy: str, solve: Solve) -> list[LoanRow]:
    private = HivedCase(workload, policy, SharingKind.PRIVATE)
    lending = replace(private, sharing=SharingKind.CELLS, borrow=True)
    found = solve([private, lending])
    one, two = found[private], found[lending]
    rows = []
    for mine, theirs in zip(one.tenants, two.tenants, strict=True):
        names = [name for name in one.starts if one.tenant_of[name] == mine.tenant]
        starts = np.array([two.starts[name] - one.starts[name] for name in names])
        ends = np.array([two.ends[name] - one.ends[name] for name in names])
        figures = float((starts > 0).mean()), float(starts.max()), float((ends > 0).mean()), float(ends.max())
        rows.append(LoanRow(workload, policy, mine.tenant, mine, theirs, *figures))
    return rows


def tenant_rows(workload: str, policy: str, affinity: Affinity, spreads: bool, solve: Solve) -> list[TenantRow]:
    cases = {sharing: HivedCase(workload, policy, sharing, affinity) for sharing in SharingKind}
    cases[SharingKind.QUOTA] = replace(cases[SharingKind.QUOTA], spreads=spreads)
    placement = "spread" if spreads else "pack"
    found = solve(list(cases.values()))
    private, quota, cells = (found[cases[sharing]] for sharing in SharingKind)
    rows = []
    for one, two, three in zip(private.tenants, quota.tenants, cells.tenants, strict=True):
        names = [name for name in private.starts if private.tenant_of[name] == one.tenant]
        later = np.array([quota.starts[name] - private.starts[name] for name in names])
        same = all(cells.starts[name] == private.starts[name] for name in names)
        delayed = float((later > NOTICEABLE_SECONDS).mean())
        by = workload, policy, affinity.value, placement, one.tenant
        rows.append(TenantRow(*by, one, two, three, delayed, float(later.max()), same))
    return rows


def guest_rows(workload: str, policy: str, part: float, solve: Solve) -> list[GuestRow]:
    private = HivedCase(workload, policy, SharingKind.PRIVATE, opportunistic=part)
    dynamic = replace(private, sharing=SharingKind.CELLS)
    cases = {"dynamic": dynamic, "static": replace(dynamic, static_binding=True)}
    found = solve([private, *cases.values()])
    rows = []
    for binding, case in cases.items():
        result = found[case]
        later = np.array([at - found[private].starts[name] for name, at in result.starts.items()])
        rows.append(
            GuestRow(
                workload,
                policy,
                binding,
                result.preemptions,
                result.fragmentation,
                float(later.mean()),
                float(np.quantile(later, 0.99)),
                float(later.max()),
            )
        )
    return rows


def failures(rows: Sequence[TenantRow]) -> list[str]:
    """The rows where cells are not as good as a private cluster."""
    return [
        f"{row.workload}, {row.policy}, {row.affinity} affinity: to tenant {row.tenant} cells are not a private cluster"
        for row in rows
        if not row.is_identical
    ]


def as_plain(rows: Sequence[TenantRow | GuestRow | LoanRow]) -> list[Plain]:
    return [to_plain(row) for row in rows]
