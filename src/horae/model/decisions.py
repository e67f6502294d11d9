"""What a policy may answer. The three kinds are closed: a mechanism knows how to carry out each of them.

Rows are positions in the view's columns. `stands_until` is when the answer may change although nothing happens; until
then, and as long as nothing does happen, nobody needs to ask again. It must hold whatever the plan makes of the answer:
count who might start as started, and who might be displaced as waiting. Too early costs a look, too late is wrong.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple, TypeAlias

import numpy as np

from horae.model.arrays import Bools, Floats, Ints

_NO_ROWS: Ints = np.empty(0, dtype=np.int64)


class Ranking(NamedTuple):
    """An order: best first. One that preempts names every job; another need not name holders,
    they keep what they have."""

    order: Ints
    preemptive: bool = False
    blocking: bool = False  # nobody passes the first that does not fit
    tier: Ints | None = None  # by row: the queue it stands in, for those who ask why
    allowed: Bools | None = None  # by row and option: which shapes it may have now; None: all that it accepts
    promoted: Ints = _NO_ROWS  # their attained service is counted anew from here
    stands_until: float = inf


class Shares(NamedTuple):
    """By row and option: the fraction of time it should run there. A mechanism turns fractions into rounds."""

    fraction: Floats
    stands_until: float = inf


class Grant(NamedTuple):
    """An app has won GPUs for the length of a lease; its jobs share them."""

    app: int
    gpus: int
    lease_seconds: float


class Grants(NamedTuple):
    """What was won, in order, and who comes after that."""

    grants: tuple[Grant, ...]
    rest: Ranking

    @property
    def stands_until(self) -> float:
        return self.rest.stands_until


Decision: TypeAlias = Ranking | Shares | Grants
