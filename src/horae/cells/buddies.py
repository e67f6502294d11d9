"""The cells of one chain that no reservation is bound to, as a buddy system.

A GPU is *bound* when a tenant's cell lies on it, *bad* when its hardware is down, and otherwise *fit*. Free cells are
the largest cells of fit GPUs only: taking one splits the smallest that suffices, releasing it joins buddies as soon as
all of them are fit. Two counts by level say what may be taken without breaking a reservation:

    open[level]   cells without a bound GPU
    sound[level]  cells of fit GPUs only

Every tenant gets the cells it reserved as long as `open` covers them on every level, and gets them on good hardware as
long as `sound` does. Jobs that may be evicted at any time (*guests*) count as absent; of two free cells the one with
fewer guests is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from horae.cells.undo_log import UndoLog
from horae.model.chains import Chain
from horae.model.errors import BrokenInvariant


class Buddies:
    def __init__(self, chain: Chain, ledger: UndoLog) -> None:
        self.chain = chain
        self._put = ledger.put
        counts = [chain.cells(level) for level in range(len(chain.types))]
        self.open = list(counts)
        self.sound = list(counts)
        self.bound = [[0] * count for count in counts]  # by level and cell: bound GPUs; not kept inside a bound cell
        self._unfit = [[0] * count for count in counts]  # by level and cell: GPUs that are not fit; likewise
        self._listed = [bytearray(count) for count in counts]  # whether it is a free cell
        # By level and number of guests: the free cells, as bits of one number.
        self.free: list[list[int]] = [[0] * (gpus + 1) for gpus in chain.gpus]
        self.free[-1][0] = (1 << counts[-1]) - 1
        self._listed[-1][:] = b"\1" * counts[-1]
        self.bad_mask = [0] * len(chain.nodes)  # by node: a bit for each GPU
        self.guest_mask = [0] * len(chain.nodes)
        self._guests = [[0] * count for count in counts]  # by level and cell, from nodes upwards

    # Queries

    def guests(self, level: int, cell: int) -> int:
        if level >= self.chain.node_level:
            return self._guests[level][cell]
        return self._inside(self.guest_mask, level, cell).bit_count()

    def bad(self, level: int, cell: int) -> int:
        """GPUs of a cell whose hardware is down."""
        if level <= self.chain.node_level:
            return self._inside(self.bad_mask, level, cell).bit_count()
        nodes = self.chain.gpus[level] // self.chain.node_gpus
        return sum(mask.bit_count() for mask in self.bad_mask[cell * nodes : (cell + 1) * nodes])

    def _inside(self, masks: Sequence[int], level: int, cell: int) -> int:
        """The bits of a cell no larger than a node, shifted to the right end."""
        gpus, node_gpus = self.chain.gpus[level], self.chain.node_gpus
        first = cell * gpus
        return masks[first // node_gpus] >> first % node_gpus & (1 << gpus) - 1

    def is_open(self, level: int, cell: int) -> bool:
        """Whether no GPU of the cell is bound."""
        if self.bound[level][cell]:
            return False
        return not any(
            self.bound[above][index] == self.chain.gpus[above] for above, index in self._ancestors(level, cell)
        )

    def can_take(self, level: int, cell: int, promised: Sequence[int]) -> bool:
        """Whether an open cell may be bound for its reservation: larger reservations can still be met without it."""
        return all(
            self.bound[above][index] or self.open[above] > promised[above]
            for above, index in self._ancestors(level, cell)
        )

    def _ancestors(self, level: int, cell: int) -> Iterator[tuple[int, int]]:
        for above in range(level + 1, len(self.chain.types)):
            cell //= self.chain.fanout[above]
            yield above, cell

    # Choosing

    def choose(self, level: int, promised: Sequence[int]) -> int | None:
        """The free cell for a reservation: good hardware first, then fewest guests, then smallest split.

        None if there is no such cell on good hardware that the other reservations leave.
        """
        in_reach = all(sound >= due for sound, due in zip(self.sound, promised, strict=True))
        best: tuple[int, int] | None = None  # guests, cell
        for above in range(level, len(self.chain.types)):
            if in_reach and above > level and self.sound[above] <= promised[above]:
                break  # none may be split; where the smaller ones have run out there always is one
            for cells in self.free[above]:
                cell = self._lowest(above, cells, level, promised, in_reach=in_reach)
                if cell is not None:
                    found = self._descend(above, cell, level)
                    best = found if best is None or found[0] < best[0] else best
                    break
            if best is not None and not best[0]:
                break
        return None if best is None else best[1]

    def _lowest(self, above: int, cells: int, level: int, promised: Sequence[int], *, in_reach: bool) -> int | None:
        if in_reach or not cells:
            return (cells & -cells).bit_length() - 1 if cells else None
        while cells:  # some reservations cannot be met on good hardware: check that they can still be met at all
            cell = (cells & -cells).bit_length() - 1
            first = cell * self.chain.gpus[above] // self.chain.gpus[level]
            if self.can_take(level, first, promised):
                return cell
            cells &= cells - 1
        return None

    def _descend(self, above: int, cell: int, level: int) -> tuple[int, int]:
        """The part of a free cell with the fewest guests; the first on a tie."""
        while above > level:
            first = cell * self.chain.fanout[above]
            above -= 1
            cell = first
            if self.guests(above, first):
                last = first + self.chain.fanout[above + 1]
                cell = min(range(first, last), key=lambda child: self.guests(above, child))
        return self.guests(level, cell), cell

    def choose_bad(self, level: int, promised: Sequence[int]) -> int:
        """The cell with the least bad hardware that the other reservations leave;
        one exists as long as they can be met."""
        found = [
            (self.bad(level, cell), self.guests(level, cell), cell)
            for cell in range(self.chain.cells(level))
            if self.is_open(level, cell) and self.can_take(level, cell, promised)
        ]
        if not found:
            raise BrokenInvariant(f"chain {self.chain.name}: no {self.chain.types[level]} is left for its reservation")
        return min(found)[2]

    # Updates

    def bind(self, level: int, cell: int) -> None:
        """Binds an open cell to a tenant."""
        if not self.is_open(level, cell):
            raise BrokenInvariant(f"chain {self.chain.name}: {self.chain.types[level]} {cell} is bound twice")
        for gpu in self._bad_gpus(level, cell):
            self._restore(0, gpu)
        self._withdraw(level, cell)
        self._count_bound(level, cell, 1)

    def unbind(self, level: int, cell: int) -> None:
        if self.bound[level][cell] != self.chain.gpus[level]:
            raise BrokenInvariant(f"chain {self.chain.name}: {self.chain.types[level]} {cell} is not bound")
        self._count_bound(level, cell, -1)
        self._restore(level, cell)
        for gpu in self._bad_gpus(level, cell):
            self._withdraw(0, gpu)

    def _count_bound(self, level: int, cell: int, sign: int) -> None:
        put, gpus = self._put, self.chain.gpus
        put(self.bound[level], cell, gpus[level] if sign > 0 else 0)
        for below in range(level + 1):
            put(self.open, below, self.open[below] - sign * (gpus[level] // gpus[below]))
        for above, index in self._ancestors(level, cell):
            before = self.bound[above][index]
            now = before + sign * gpus[level]
            put(self.bound[above], index, now)
            if not before:
                put(self.open, above, self.open[above] - 1)
            elif not now:
                put(self.open, above, self.open[above] + 1)

    def _bad_gpus(self, level: int, cell: int) -> list[int]:
        gpus, node_gpus = self.chain.gpus[level], self.chain.node_gpus
        if not self.bad(level, cell):
            return []
        inside = range(cell * gpus, (cell + 1) * gpus)
        return [gpu for gpu in inside if self.bad_mask[gpu // node_gpus] >> gpu % node_gpus & 1]

    def set_bad(self, node: int, mask: int) -> None:
        """Sets which GPUs of a node are down."""
        first = node * self.chain.node_gpus
        before = self.bad_mask[node]
        changed = before ^ mask
        for bit in range(self.chain.node_gpus):
            if not changed >> bit & 1:
                continue
            gpu = first + bit
            went = bool(mask >> bit & 1)
            is_open = self.is_open(0, gpu)
            if went and is_open:
                self._withdraw(0, gpu)
            self._put(self.bad_mask, node, self.bad_mask[node] ^ 1 << bit)
            if not went and is_open:
                self._restore(0, gpu)

    def _withdraw(self, level: int, cell: int) -> None:
        """Removes a cell of fit GPUs that is no longer fit."""
        put, gpus, fanout = self._put, self.chain.gpus, self.chain.fanout
        for below in range(level + 1):
            put(self.sound, below, self.sound[below] - gpus[level] // gpus[below])
        put(self._unfit[level], cell, gpus[level])
        if self._listed[level][cell]:
            self._unlist(level, cell)
        else:  # the free cell that holds it is split, down to here
            above, index = level, cell
            while not self._listed[above][index]:
                inside, above, index = index, above + 1, index // fanout[above + 1]
                for child in range(index * fanout[above], (index + 1) * fanout[above]):
                    if child != inside:
                        self._list(above - 1, child)
            self._unlist(above, index)
        for above, index in self._ancestors(level, cell):
            before = self._unfit[above][index]
            put(self._unfit[above], index, before + gpus[level])
            if not before:
                put(self.sound, above, self.sound[above] - 1)

    def _restore(self, level: int, cell: int) -> None:
        """Restores a cell that again has only fit GPUs."""
        put, gpus, fanout = self._put, self.chain.gpus, self.chain.fanout
        for below in range(level + 1):
            put(self.sound, below, self.sound[below] + gpus[level] // gpus[below])
        put(self._unfit[level], cell, 0)
        joined, found = level, cell
        for above, index in self._ancestors(level, cell):
            now = self._unfit[above][index] - gpus[level]
            put(self._unfit[above], index, now)
            if not now:
                put(self.sound, above, self.sound[above] + 1)
                for child in range(index * fanout[above], (index + 1) * fanout[above]):
                    if child != found:
                        self._unlist(above - 1, child)
                joined, found = above, index
        self._list(joined, found)

    def _list(self, level: int, cell: int) -> None:
        self._put(self._listed[level], cell, 1)
        by_guests, guests = self.free[level], self.guests(level, cell)
        self._put(by_guests, guests, by_guests[guests] | 1 << cell)

    def _unlist(self, level: int, cell: int) -> None:
        self._put(self._listed[level], cell, 0)
        by_guests, guests = self.free[level], self.guests(level, cell)
        self._put(by_guests, guests, by_guests[guests] ^ 1 << cell)

    def set_guests(self, node: int, mask: int) -> None:
        """Sets on which GPUs of a node guests run."""
        put, chain = self._put, self.chain
        before = self.guest_mask[node]
        moved = mask.bit_count() - before.bit_count()
        around = ((chain.node_level, node), *self._ancestors(chain.node_level, node))
        pieces = [(level, cell) for level, cell in around if self._listed[level][cell]]
        if not pieces:
            pieces = [piece for piece in self._listed_inside(node) if self._touches(piece, before ^ mask)]
        for piece in pieces:
            self._unlist(*piece)
        put(self.guest_mask, node, mask)
        if moved:
            for level, cell in around:
                put(self._guests[level], cell, self._guests[level][cell] + moved)
        for piece in pieces:
            self._list(*piece)

    def _listed_inside(self, node: int) -> Iterator[tuple[int, int]]:
        """The free cells smaller than the node that lie in it."""
        for level in range(self.chain.node_level):
            inside = self.chain.node_gpus // self.chain.gpus[level]
            listed = self._listed[level]
            for cell in range(node * inside, (node + 1) * inside):
                if listed[cell]:
                    yield level, cell

    def _touches(self, piece: tuple[int, int], mask: int) -> bool:
        level, cell = piece
        gpus = self.chain.gpus[level]
        return bool(mask >> cell * gpus % self.chain.node_gpus & (1 << gpus) - 1)
