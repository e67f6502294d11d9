"""Stable random numbers: the same seed and identifiers give the same number, whatever other jobs are present.

A generator returns its numbers in the order of rows; these depend only on the identifiers they are drawn for, so that a
job keeps its number while others arrive and end.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from horae.model.arrays import Ints

Lots: TypeAlias = NDArray[np.uint64]

# The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA'14): every bit of a number moves half of the others.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def mix(numbers: Lots) -> Lots:
    """Hash numbers to random ones; different inputs give different outputs."""
    lots = (numbers ^ (numbers >> np.uint64(30))) * _FIRST
    lots = (lots ^ (lots >> np.uint64(27))) * _SECOND
    mixed: Lots = lots ^ (lots >> np.uint64(31))
    return mixed


def draw(seed: int, *numbers: Ints) -> Lots:
    """A random number for each row of these columns, which may have any shapes that broadcast."""
    lots: Lots = mix(np.array([seed % 2**64], dtype=np.uint64) + _STEP)
    for column in numbers:
        lots = mix((lots ^ np.asarray(column).astype(np.uint64)) + _STEP)
    return lots
