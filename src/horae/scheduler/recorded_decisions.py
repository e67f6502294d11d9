"""Recorded decisions, from which a scheduler is rebuilt without calling any policy."""

from __future__ import annotations

from collections import deque

from horae.model.commands import CallForBids
from horae.model.decisions import Decision
from horae.model.effects import Effects, decision_from_plain, plan_from_plain
from horae.model.errors import BrokenInvariant
from horae.model.notices import DecisionRejected
from horae.model.plans import RoundPlan
from horae.model.serialization import Plain
from horae.model.view import View
from horae.scheduler.gpu_ledger import GpuLedger
from horae.scheduler.pool import Pool


class Rejected(Exception):
    """A decision that is not carried out."""

    def __init__(self, notice: DecisionRejected) -> None:
        self.notice = notice


class Record:
    """Recorded effects; decisions are taken from them one after the other."""

    def __init__(self, effects: Effects, ledger: GpuLedger) -> None:
        self._rounds = deque(effects.rounds)
        self._calls = {call.pool: call for call in effects.calls}
        self._rejected = {notice.pool: notice for notice in effects.rejected}
        self._ledger = ledger

    def fold(self, pool: Pool, view: View) -> tuple[Decision, RoundPlan]:
        rejected = self._rejected.pop(pool.spec.name, None)
        if rejected is not None:
            raise Rejected(rejected)
        plain = self._next(pool)
        decision = decision_from_plain(plain["decision"], pool.table)
        pool.fold(view, decision, is_new=not plain.get("stands", False), unsolved=plain.get("unsolved", ""))
        pool.standing(view, decision)
        return decision, self._plan(plain, pool)

    def rejects(self, pool: Pool) -> bool:
        return pool.spec.name in self._rejected

    def newcomers(self, pool: Pool) -> RoundPlan:
        return self._plan(self._next(pool), pool)

    def call(self, pool: Pool) -> CallForBids | None:
        return self._calls.get(pool.spec.name)

    def _plan(self, plain: Plain, pool: Pool) -> RoundPlan:
        serial_of = {pool.table.ids[row]: serial for serial, row in pool.table.row.items()}
        return plan_from_plain(plain["plan"], serial_of, self._ledger.cluster)

    def _next(self, pool: Pool) -> Plain:
        if not self._rounds or self._rounds[0]["round"] != pool.spec.name:
            raise BrokenInvariant(f"the record has no round of pool {pool.spec.name} here")
        return self._rounds.popleft()
