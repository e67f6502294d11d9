"""Lots that are drawn once and for all: the same seed and numbers give the same lot, whoever else is there.

A generator deals its numbers out in the order of rows; these depend on nothing but whom they are for, so that a job
keeps its lot while others come and go.
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
    """Numbers as lots; different numbers have different lots."""
    lots = (numbers ^ (numbers >> np.uint64(30))) * _FIRST
    lots = (lots ^ (lots >> np.uint64(27))) * _SECOND
    mixed: Lots = lots ^ (lots >> np.uint64(31))
    return mixed


def draw(seed: int, *numbers: Ints) -> Lots:
    """A lot for each row of these columns, which may have any forms that go together."""
    lots: Lots = mix(np.array([seed % 2**64], dtype=np.uint64) + _STEP)
    for column in numbers:
        lots = mix((lots ^ np.asarray(column).astype(np.uint64)) + _STEP)
    return lots
