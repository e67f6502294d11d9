"""Whether a decision is allowed at all, from the records and the configuration alone, whatever the allocator says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from conformance.hived_protocol import Decision, Kind, Member, Request
from conformance.hived_records import Cell, Geometry, Gpu

Placements: TypeAlias = Mapping[str, tuple[Request, tuple[Member, ...]]]  # by gang


class Validity:
    """The cluster as the replay knows it: gangs that run or have reserved GPUs, and bad nodes."""

    def __init__(self, geometry: Geometry, placed: Placements, downgraded: Iterable[str], bad: Iterable[str]) -> None:
        self.geometry = geometry
        self.placed = placed
        self.downgraded = frozenset(downgraded)
        self.bad = frozenset(bad)

    def problem(self, request: Request, decision: Decision, reserved: Placements) -> str:
        """What is wrong with a decision for a new gang; "" if nothing is."""
        members = decision.members
        gpus = [gpu for each in members for gpu in self.geometry.gpus(each)]
        if sorted(len(each.gpus) for each in members) != sorted(request.members) or len(set(gpus)) != len(gpus):
            return "its members do not have the GPUs that they ask for"
        if any(each.node in self.bad for each in members):
            return "it is placed on a bad node"
        holders = self.holders(self.placed, gpus)
        if holders - decision.victims:
            return f"its GPUs are held by {sorted(holders - decision.victims)}"
        if self.holders(reserved, gpus) - decision.cancelled:
            return "its GPUs are reserved for another gang"
        if decision.kind is Kind.BIND and decision.victims:
            return "it is bound before its victims have left"
        protected = sorted(name for name in decision.victims if not self.may_preempt(request, name, decision))
        if protected:
            return f"it may not preempt {protected}"
        return self.broken_promise(request, decision, reserved) if request.priority >= 0 else ""

    def holders(self, placements: Placements, gpus: Iterable[Gpu]) -> set[str]:
        wanted = set(gpus)
        return {
            name
            for name, (_, members) in placements.items()
            if any(wanted & self.geometry.gpus(member) for member in members)
        }

    def may_preempt(self, request: Request, name: str, decision: Decision) -> bool:
        """Guaranteed gangs preempt opportunistic ones anywhere, and lower priorities of their own tenant."""
        victim = self.placed[name][0]
        if victim.priority < 0 or name in self.downgraded | decision.downgraded:
            return request.priority >= 0
        return victim.tenant == request.tenant and victim.priority < request.priority

    def broken_promise(self, request: Request, decision: Decision, reserved: Placements) -> str:
        """Every tenant's unused cells still fit into what is left of the cluster, level by level."""
        cells: dict[str, set[Cell]] = {}
        gone = self.downgraded | decision.downgraded | decision.cancelled
        everyone = {**self.placed, **reserved, request.name: (request, decision.members)}
        for name, (owner, members) in everyone.items():
            if owner.priority >= 0 and name not in gone and not owner.pinned_cell:
                for member in members:
                    cells.setdefault(owner.tenant, set()).update(self.geometry.cells(member, member.cell_type))
        return self.geometry.broken_promise(cells)
