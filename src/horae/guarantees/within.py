"""Which GPUs of a node a member of a gang gets: as close together as can be, then with few guests to send away."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_REMEMBERED_MAX = 1 << 17


class Within:
    """The nodes of one chain are alike, so what was found once is remembered."""

    def __init__(self, gpus: Sequence[int]) -> None:
        self._gpus = tuple(gpus)  # of a cell, by level up to the node
        self._found: dict[tuple[int, int, int], int] = {}

    def choose(self, fit: int, guests: int, count: int) -> int:
        """So many of the fit GPUs, all as bits of one number; there must be as many."""
        guests &= fit
        key = fit, guests, count
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= _REMEMBERED_MAX:
                self._found.clear()
            found = self._found[key] = self._search(fit, guests, count)
        return found

    def _search(self, fit: int, guests: int, count: int) -> int:
        for level, gpus in enumerate(self._gpus):
            cells = [mask for mask in self._cells(level) if (fit & mask).bit_count() >= count] if gpus >= count else []
            if cells:
                return self._fill(level, _tightest(cells, fit, guests, count), fit, guests, count)
        raise ValueError(f"{fit.bit_count()} GPUs are fewer than {count}")

    def _cells(self, level: int, inside: int | None = None) -> Iterable[int]:
        gpus = self._gpus[level]
        masks = ((1 << gpus) - 1 << first for first in range(0, self._gpus[-1], gpus))
        return masks if inside is None else (mask for mask in masks if mask & inside)

    def _fill(self, level: int, cell: int, fit: int, guests: int, count: int) -> int:
        """Whole children while they are needed whole, the rest in the one that it fills best."""
        fit &= cell
        if fit.bit_count() == count:
            return fit
        chosen = 0
        children = [mask for mask in self._cells(level - 1, cell) if fit & mask]
        while count:
            cells = [mask for mask in children if (fit & mask).bit_count() >= count]
            if cells:
                return chosen | self._fill(level - 1, _tightest(cells, fit, guests, count), fit, guests, count)
            largest = max(children, key=lambda mask: ((fit & ~guests & mask).bit_count(), (fit & mask).bit_count()))
            children.remove(largest)
            chosen |= fit & largest
            count -= (fit & largest).bit_count()
        return chosen


def _tightest(cells: Sequence[int], fit: int, guests: int, count: int) -> int:
    """Few guests to send away, then little left over, then the first."""
    return min(
        cells, key=lambda mask: (max(0, count - (fit & ~guests & mask).bit_count()), (fit & mask).bit_count(), mask)
    )
