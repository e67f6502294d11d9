"""Maps each GPU of a tenant's cell to a GPU of the real cell.

Two GPUs that are close together in the tenant's cell must be as close in the real one, so children of a cell are
permuted as a whole, level by level. Within that freedom, the GPUs that a job is about to use go where the fewest guests
have to leave. GPUs already in use keep their mapping.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, islice, product

import numpy as np

from horae.model.arrays import Bools, Ints
from horae.model.chains import Chain

_COVERINGS_MAX = 256


def map_cell(sizes: Sequence[int], present: Ints, fixed: Bools, wanted: Bools, has_guest: Bools, top: int) -> Ints:
    """By GPU of the tenant's cell: its GPU of the real cell, both counted from the first.

    `sizes` are the GPUs per cell by level, from a single GPU up to this cell. `present` is the mapping so far, which
    GPUs that are `fixed` keep, as do cells above the level `top`.
    """
    mapping = present.copy()
    _map_children(sizes, len(sizes) - 1, 0, 0, mapping, present, fixed, wanted, has_guest, top)
    return mapping


def _map_children(
    sizes: Sequence[int],
    level: int,
    first: int,
    real_first: int,
    mapping: Ints,
    present: Ints,
    fixed: Bools,
    wanted: Bools,
    has_guest: Bools,
    top: int,
) -> None:
    """Map one cell of a level onto another of that level, given by the first GPU of each."""
    if level == 0:
        mapping[first] = real_first
        return
    size = sizes[level - 1]
    children = range(first, first + sizes[level], size)
    taken: dict[int, int] = {}  # by child: the first GPU of the real one
    for child in children:
        inside = fixed[child : child + size]
        if level > top or inside.any():
            taken[child] = int(present[child + int(inside.argmax())]) // size * size
    left = [each for each in range(real_first, real_first + sizes[level], size) if each not in taken.values()]
    count = {child: int(np.count_nonzero(wanted[child : child + size])) for child in children}
    for child in sorted((each for each in children if each not in taken), key=lambda each: (-count[each], each)):
        same = real_first + child - first
        evicted = {real: max(0, count[child] - _idle(has_guest, real, size)) for real in left}
        taken[child] = min(left, key=lambda real: (evicted[real], real != same, real))
        left.remove(taken[child])
    for child, real in taken.items():
        _map_children(sizes, level - 1, child, real, mapping, present, fixed, wanted, has_guest, top)


def _idle(has_guest: Bools, first: int, size: int) -> int:
    return size - int(np.count_nonzero(has_guest[first : first + size]))


def coverings(
    chain: Chain, levels: Sequence[int], places: Sequence[int], members: Sequence[int]
) -> Iterator[list[int]]:
    """Candidate levels of cells, by GPU, that could cover a gang with no member in several cells:
    one level for all members first, then one level per member."""
    nodes = len({gpu // chain.node_gpus for gpu in places})
    for level in levels:
        if len({gpu // chain.gpus[level] for gpu in places}) <= nodes:
            yield [level] * len(places)
    if sum(members) != len(places):
        return
    ends = list(accumulate(members))
    parts = [places[end - size : end] for end, size in zip(ends, members, strict=True)]
    fit = [[each for each in levels if len({gpu // chain.gpus[each] for gpu in part}) == 1] for part in parts]
    for chosen in islice(product(*fit), _COVERINGS_MAX):
        yield [level for level, size in zip(chosen, members, strict=True) for _ in range(size)]
