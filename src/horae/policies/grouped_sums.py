"""Running sums within groups, for disciplines that serve several queues in turn."""

from __future__ import annotations

import numpy as np

from horae.model.arrays import Floats, Ints


def sums_before(group: Ints, amount: Floats | Ints, order: Ints) -> Floats:
    """By row: the sum over rows of its group that precede it in this order; zero for rows not in the order."""
    by_group = order[np.argsort(group[order], kind="stable")]
    amounts = amount[by_group].astype(np.float64)
    before = np.cumsum(amounts) - amounts
    groups = group[by_group]
    first = np.flatnonzero(np.diff(groups, prepend=groups[:1] - 1))
    sizes = np.diff(np.append(first, len(groups)))
    sums = np.zeros(len(group))
    sums[by_group] = before - np.repeat(before[first], sizes)
    return sums
