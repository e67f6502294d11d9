"""Packing members of several sizes into nodes: each inside one node, on as few nodes as possible.

Best fit decreasing comes first: the largest member goes to the fullest node that holds it. That is exact while every
size divides the next larger one, as 1, 2, 4 and 8 do. Where it fails, other nodes are tried in turn, up to a bound on
the steps of one placement; a search that reaches the bound is a rejection.
"""

from __future__ import annotations

from itertools import accumulate
from operator import mul

import numpy as np

from horae.model.arrays import Ints

MEMBERS_MAX = 64  # larger gangs are packed by best fit alone
STEPS_MAX = 20_000


class Packing:
    """The packing of one gang into one of several cells; steps spent on cells that cannot hold it add up."""

    def __init__(self, members: tuple[int, ...]) -> None:
        self.members = members  # GPUs of each, largest first
        self.gpus = sum(members)
        self._rest = [*accumulate(reversed(members))][::-1]  # by member: GPUs of it and of all after it
        self._steps = STEPS_MAX
        self._searches = len(members) <= MEMBERS_MAX

    def into(self, rooms: Ints) -> Ints | None:
        """By node, the GPUs to take, given how many each has; None where the members do not fit."""
        # A node that is used holds at least one member, and whatever fits into some nodes fits into larger ones.
        largest = np.sort(rooms)[::-1][: len(self.members)].tolist()
        loads = self._loads(largest)
        return None if loads is None else _on_the_fullest(rooms, self._on_fewest(largest, loads))

    def _on_fewest(self, rooms: list[int], loads: list[int]) -> list[int]:
        """The loads on as few nodes as possible: the least number with enough room first, then by bisection."""
        self._steps = STEPS_MAX  # the gang has a placement already; this only looks for a better one
        room = [*accumulate(rooms)]
        count = low = next(n for n, gpus in enumerate(room, start=1) if gpus >= self.gpus)
        high = len(loads)
        while low < high:
            fewer = self._loads(rooms[:count])
            if fewer is None:
                low = count + 1
            else:
                loads, high = fewer, count
            count = (low + high) // 2
        return loads

    def _loads(self, rooms: list[int]) -> list[int] | None:
        """GPUs taken on each node that is used, or None; `rooms` in falling order."""
        if sum(rooms) < self.gpus or rooms[0] < self.members[0]:
            return None
        chosen = self._best_fit(rooms)
        if chosen is None and self._searches:
            chosen = self._search(rooms)
        if chosen is None:
            return None
        by_room: dict[int, list[int]] = {}
        for node in reversed(range(len(rooms))):
            by_room.setdefault(rooms[node], []).append(node)
        loads = [0] * len(rooms)
        for gpus, left in zip(self.members, chosen, strict=True):
            node = by_room[left].pop()
            loads[node] += gpus
            by_room.setdefault(left - gpus, []).append(node)
        return [load for load in loads if load]

    def _best_fit(self, rooms: list[int]) -> list[int] | None:
        """By member, the GPUs left in the node it goes to, the fewest that hold it; None if it does not fit."""
        count = _counted(rooms)
        chosen = []
        for gpus in self.members:
            left = next((left for left in range(gpus, len(count)) if count[left]), 0)
            if not left:
                return None
            count[left] -= 1
            count[left - gpus] += 1
            chosen.append(left)
        return chosen

    def _search(self, rooms: list[int]) -> list[int] | None:
        """The same by trying all nodes in turn. Nodes with equally many GPUs left are equivalent."""
        members, rest, smallest = self.members, self._rest, self.members[-1]
        count = _counted(rooms)
        full = _fullest(members, len(count))
        chosen: list[int] = []
        failed: set[tuple[int, ...]] = set()

        def place(position: int) -> bool:
            if position == len(members):
                return True
            key = (position, *count)
            if self._steps <= 0 or key in failed:
                return False
            self._steps -= 1
            gpus = members[position]
            if sum(map(mul, full[gpus], count)) >= rest[position]:
                for left in range(gpus, len(count)):
                    if not count[left]:
                        continue
                    after = left - gpus if left - gpus >= smallest else 0  # a remainder too small for any member is 0
                    count[left] -= 1
                    count[after] += 1
                    chosen.append(left)
                    if place(position + 1):
                        return True
                    chosen.pop()
                    count[left] += 1
                    count[after] -= 1
                    if left == gpus:
                        break  # anything else that this node would hold could be exchanged with the member
            failed.add(key)
            return False

        return chosen if place(0) else None


def _counted(rooms: list[int]) -> list[int]:
    """By number of GPUs: how many nodes have that many."""
    count = [0] * (rooms[0] + 1)
    for room in rooms:
        count[room] += 1
    return count


def _fullest(members: tuple[int, ...], stop: int) -> dict[int, list[int]]:
    """By size and by GPUs of a node: how many of them members of this size and of smaller ones can use at most."""
    full: dict[int, list[int]] = {}
    sizes: list[int] = []
    for size in sorted(set(members)):
        sizes.append(size)
        used = [0] * stop
        for gpus in range(1, stop):
            used[gpus] = max((each + used[gpus - each] for each in sizes if each <= gpus), default=0)
        full[size] = used
    return full


def _on_the_fullest(rooms: Ints, loads: list[int]) -> Ints:
    """By node, the GPUs to take: each load goes to the fullest node that holds it, so that large ones stay whole."""
    order = np.argsort(rooms, kind="stable")
    sizes = rooms[order]
    taken = np.zeros(len(rooms), dtype=np.int64)
    used: set[int] = set()
    position, former = 0, 0
    for load in sorted(loads, reverse=True):
        if load != former:
            position, former = int(np.searchsorted(sizes, load)), load
        while position in used:
            position += 1
        used.add(position)
        taken[order[position]] = load
    return taken
