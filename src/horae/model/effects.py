"""The effects of an event: all decisions, as plain data from which a scheduler can be rebuilt without any policy.

Jobs are identified by id and GPUs by name, so that a record does not depend on array positions. Fields with their
default value are omitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from horae.model.cluster import Cluster, Gpu
from horae.model.commands import CallForBids
from horae.model.decisions import Decision, Evidence, Grants, Notice, Pairs, Ranking, Shares
from horae.model.job_table import NONE, JobTable
from horae.model.notices import DecisionRejected, FactRejected
from horae.model.plans import Departure, Placement, Reaction, Round, RoundPlan
from horae.model.reasons import BehindHead, NoRoom, StopReason, Won
from horae.model.serialization import Plain, array_to_plain, from_plain, tagged, to_plain, untagged
from horae.model.shapes import Shape


class Effects(NamedTuple):
    """Everything that a policy influenced. The rest follows from the event and the state."""

    rounds: tuple[Plain, ...] = ()
    calls: tuple[CallForBids, ...] = ()
    rejected: tuple[DecisionRejected, ...] = ()
    is_void: bool = False  # the event itself was rejected and changed nothing


def effects_of(reaction: Reaction) -> Effects:
    return Effects(
        tuple(round_to_plain(round_) for round_ in reaction.rounds),
        tuple(command for command in reaction.commands if isinstance(command, CallForBids)),
        tuple(notice for notice in reaction.notices if isinstance(notice, DecisionRejected)),
        any(isinstance(notice, FactRejected) for notice in reaction.notices),
    )


# To plain data


def round_to_plain(round_: Round) -> dict[str, Plain]:
    names = dict(zip(round_.rows.tolist(), round_.job_ids, strict=True))
    line: dict[str, Plain] = {"round": round_.pool, "at": round_.at}
    if not round_.is_new:
        line["stands"] = True
    if round_.unsolved:
        line["unsolved"] = round_.unsolved
    return {**line, "decision": decision_to_plain(round_.decision, names), "plan": plan_to_plain(round_)}


def decision_to_plain(decision: Decision, names: Mapping[int, str]) -> Plain:
    match decision:
        case Ranking():
            plain = _ranking_to_plain(decision, names)
        case Shares():
            plain = _shares_to_plain(decision, names)
        case Grants():
            plain = _grants_to_plain(decision, names)
    if decision.memory is not None:
        plain["memory"] = decision.memory
    return plain


def _ranking_to_plain(ranking: Ranking, names: Mapping[int, str]) -> dict[str, Plain]:
    plain: dict[str, Plain] = {"ranking": [names[row] for row in ranking.order.tolist()]}
    if ranking.tier is not None:
        plain["tier"] = _by_id(ranking.tier, names)
    if ranking.allowed is not None:
        plain["allowed"] = _by_id(ranking.allowed, names)
    if len(ranking.promoted):
        plain["promoted"] = [names[row] for row in ranking.promoted.tolist()]
    plain |= {key: True for key in ("preemptive", "blocking") if getattr(ranking, key)}
    return plain | _until(ranking.stands_until)


def _shares_to_plain(shares: Shares, names: Mapping[int, str]) -> dict[str, Plain]:
    plain: dict[str, Plain] = {"shares": _by_id(shares.fraction, names), **_until(shares.stands_until)}
    if shares.pairs is not None:
        columns = zip(*(column.tolist() for column in shares.pairs), strict=True)
        plain["pairs"] = [[names[first], names[second], *rest] for first, second, *rest in columns]
    if shares.isolated_speed is not None:
        plain["isolated_speed"] = _by_id(shares.isolated_speed, names)
    if shares.evidence is not None:
        plain["evidence"] = {**to_plain(shares.evidence), "limit": _by_id(shares.evidence.limit, names)}
    return plain


def _grants_to_plain(grants: Grants, names: Mapping[int, str]) -> dict[str, Plain]:
    columns = (grants.row.tolist(), grants.option.tolist(), grants.lease_seconds.tolist())
    plain: dict[str, Plain] = {
        "grants": [[names[row], option, to_plain(seconds)] for row, option, seconds in zip(*columns, strict=True)],
        "rest": _ranking_to_plain(grants.rest, names),
    }
    if grants.partner is not None and grants.partner_option is not None:
        pairs = zip(grants.partner.tolist(), grants.partner_option.tolist(), strict=True)
        plain["beside"] = [[names[row], option] if row != NONE else None for row, option in pairs]
    if grants.rest_lease_seconds:
        plain["rest_lease_seconds"] = to_plain(grants.rest_lease_seconds)
    if len(grants.closed_apps) or grants.closed_until > -inf:
        plain["closed"] = [grants.closed_apps.tolist(), to_plain(grants.closed_until)]
    if grants.resizes:
        plain["resizes"] = True
    if grants.notices:
        plain["notices"] = to_plain(grants.notices)
    return plain


def _by_id(column: NDArray[Any], names: Mapping[int, str]) -> dict[str, Plain]:
    """A column by job id, without the rows that the decision does not name."""
    # All rows at once: one by one they would take most of the time of a decision about many jobs.
    values = column.tolist()
    if column.dtype.kind == "f" and not np.isfinite(column).all():
        values = [array_to_plain(row) for row in column] if column.ndim > 1 else array_to_plain(column)
    return {names[row]: values[row] for row in sorted(names, key=names.__getitem__)}


def _until(stands_until: float) -> dict[str, Plain]:
    return {} if stands_until == inf else {"stands_until": to_plain(stands_until)}


def plan_to_plain(round_: Round) -> Plain:
    job_id = dict(zip(round_.serials.tolist(), round_.job_ids, strict=True))
    plan = round_.plan
    starts = [_start_to_plain(item, round_.cluster.names(item.gpus), job_id) for item in plan.placements]
    plain: dict[str, Plain] = {
        "start": starts,
        "stop": [{"job": job_id[item.serial], "because": tagged(item.reason)} for item in plan.departures],
        "extend": [[job_id[serial], to_plain(seconds)] for serial, seconds in plan.extensions],
        "wait": [[demand, to_plain(reason)] for demand, reason in sorted(plan.blocked.items())],
        "head": to_plain(plan.head) if plan.head else None,
        "decline": [job_id[serial] for serial in plan.declined],
    }
    return {key: value for key, value in plain.items() if value}


def _start_to_plain(item: Placement, gpus: Sequence[Gpu], job_id: Mapping[int, str]) -> Plain:
    plain: dict[str, Plain] = {
        "job": job_id[item.serial],
        "option": item.option,
        "shape": to_plain(item.shape),
        "gpus": [str(gpu) for gpu in gpus],
        "rank": item.reason.rank,
    }
    if item.leaving:
        plain["leaving"] = list(item.leaving)
    if item.lease_seconds:
        plain["lease_seconds"] = to_plain(item.lease_seconds)
    if item.partner != NONE:
        plain["beside"] = [job_id[item.partner], item.partner_option]
    return plain


# From plain data


def decision_from_plain(plain: Plain, table: JobTable) -> Decision:
    """Rebuilds a decision for the present rows of a table."""
    rows = _Rows(table)
    memory = plain.get("memory")
    if "ranking" in plain:
        return _ranking_from_plain(plain, rows)._replace(memory=memory)
    if "shares" in plain:
        return _shares_from_plain(plain, rows)._replace(memory=memory)
    return _grants_from_plain(plain, rows)._replace(memory=memory)


class _Rows:
    """Maps job ids to rows of a table."""

    def __init__(self, table: JobTable) -> None:
        self._row = {job_id: row for row, job_id in enumerate(table.ids)}
        self._count, self._options = table.count, table.shape.shape[1]

    def of(self, job_ids: Iterable[str]) -> NDArray[np.int64]:
        return np.array([self._row[job_id] for job_id in job_ids], dtype=np.int64)

    def column(self, by_id: Mapping[str, Plain], dtype: type) -> NDArray[Any]:
        column: NDArray[Any] = np.zeros(self._count, dtype=dtype)
        column[self.of(by_id)] = np.array(list(by_id.values()), dtype=dtype)
        return column

    def options(self, by_id: Mapping[str, Plain], dtype: type) -> NDArray[Any]:
        """A column by row and option; tables differ in their capacity for options."""
        table: NDArray[Any] = np.zeros((self._count, self._options), dtype=dtype)
        for row, values in zip(self.of(by_id).tolist(), by_id.values(), strict=True):
            count = min(len(values), self._options)
            table[row, :count] = np.array(values[:count], dtype=dtype)
        return table


def _ranking_from_plain(plain: Plain, rows: _Rows) -> Ranking:
    return Ranking(
        rows.of(plain["ranking"]),
        plain.get("preemptive", False),
        plain.get("blocking", False),
        rows.column(plain["tier"], np.int64) if "tier" in plain else None,
        rows.options(plain["allowed"], np.bool_) if "allowed" in plain else None,
        rows.of(plain.get("promoted", ())),
        float(plain.get("stands_until", inf)),
    )


def _shares_from_plain(plain: Plain, rows: _Rows) -> Shares:
    pairs = evidence = isolated = None
    if "pairs" in plain:
        first, second, *rest = zip(*plain["pairs"], strict=True) if plain["pairs"] else ((),) * 5
        one, other = (np.array(column, dtype=np.int64) for column in rest[:2])
        pairs = Pairs(rows.of(first), rows.of(second), one, other, np.array(rest[2], dtype=np.float64))
    if "isolated_speed" in plain:
        isolated = rows.column(plain["isolated_speed"], np.float64)
    if "evidence" in plain:
        limit = rows.column(plain["evidence"]["limit"], np.int64)
        evidence = from_plain(Evidence, {**plain["evidence"], "limit": limit.tolist()})
    until = float(plain.get("stands_until", inf))
    return Shares(rows.options(plain["shares"], np.float64), until, pairs, evidence, isolated)


def _grants_from_plain(plain: Plain, rows: _Rows) -> Grants:
    job_ids, options, seconds = zip(*plain["grants"], strict=True) if plain["grants"] else ((), (), ())
    partner = partner_option = None
    if "beside" in plain:
        beside = [each or [None, NONE] for each in plain["beside"]]
        partner = np.array([NONE if name is None else rows.of([name])[0] for name, _ in beside], dtype=np.int64)
        partner_option = np.array([option for _, option in beside], dtype=np.int64)
    closed, until = plain.get("closed", [[], -inf])
    return Grants(
        rows.of(job_ids),
        np.array(options, dtype=np.int64),
        np.array(seconds, dtype=np.float64),
        _ranking_from_plain(plain["rest"], rows),
        float(plain.get("rest_lease_seconds", 0.0)),
        np.array(closed, dtype=np.int64),
        float(until),
        tuple(from_plain(Notice, notice) for notice in plain.get("notices", ())),
        plain.get("resizes", False),
        partner,
        partner_option,
    )


def plan_from_plain(plain: Plain, serial_of: Mapping[str, int], cluster: Cluster) -> RoundPlan:
    """Rebuilds a plan with jobs by serial, and GPUs by position in this cluster."""
    placements = []
    for item in plain.get("start", ()):
        partner, partner_option = item.get("beside", (None, NONE))
        placements.append(
            Placement(
                serial_of[item["job"]],
                item["option"],
                from_plain(Shape, item["shape"]),
                cluster.positions(map(Gpu.parse, item["gpus"])),
                tuple(item.get("leaving", ())),
                float(item.get("lease_seconds", 0.0)),
                Won(item["rank"]),
                NONE if partner is None else serial_of[partner],
                partner_option,
            )
        )
    head = plain.get("head")
    return RoundPlan(
        tuple(placements),
        tuple(
            Departure(serial_of[item["job"]], untagged(StopReason, item["because"])) for item in plain.get("stop", ())
        ),
        tuple((serial_of[job_id], float(seconds)) for job_id, seconds in plain.get("extend", ())),
        {demand: from_plain(NoRoom, reason) for demand, reason in plain.get("wait", ())},
        None if head is None else from_plain(BehindHead, head),
        tuple(serial_of[job_id] for job_id in plain.get("decline", ())),
    )
