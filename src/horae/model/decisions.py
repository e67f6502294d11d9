"""What a policy may answer. The three kinds are closed: a mechanism knows how to carry out each of them.

Rows are positions in the view's columns. `stands_until` is when the answer may change although nothing happens; until
then, and as long as nothing does happen, nobody needs to ask again. It must hold whatever the plan makes of the answer:
count who might start as started, and who might be displaced as waiting. Too early costs a look, too late is wrong.
"""

from __future__ import annotations

from enum import IntEnum
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
    memory: object = None  # plain data that comes back as `view.memory`


class Limit(IntEnum):
    """What keeps a job from a larger share."""

    NOWHERE = 0  # no GPU type on which it runs has any GPUs
    TIME = 1  # it runs all the time
    SCARCE = 2  # the GPUs it wants are given out
    DROPPED = 3  # its wish, a deadline, cannot be met with those of the others


class Evidence(NamedTuple):
    """Why shares are what they are, and how far from the best they can be at most."""

    objective: str  # in words, with its unit
    value: float
    bound: float  # no shares have a better value
    prices: Floats  # by accelerator: what one more GPU would add to the value
    is_full: Bools  # by accelerator: all of its GPUs are given out
    limit: Ints  # by row: a `Limit`


class Pairs(NamedTuple):
    """Two jobs on the same GPUs, by pair: both run in shapes of one accelerator and one number of GPUs."""

    first: Ints  # rows
    second: Ints
    first_option: Ints
    second_option: Ints
    fraction: Floats  # of time


class Shares(NamedTuple):
    """By row and option: the fraction of time it should run there. A mechanism turns fractions into rounds."""

    fraction: Floats  # alone
    stands_until: float = inf
    pairs: Pairs | None = None  # and in company
    evidence: Evidence | None = None
    isolated_speed: Floats | None = None  # by row: steps/s on a share of its own, to be counted up as isolated seconds
    memory: object = None  # plain data that comes back as `view.memory`


class Notice(NamedTuple):
    """Something that a policy met and did not believe, or that those who ask should know."""

    app: int
    text: str


class Grants(NamedTuple):
    """Gangs that were won, best first, each for the length of a lease; and who comes after that.

    A row may be named several times in turn: it gets the first of the shapes that can be had. One that runs leaves what
    it has for a shape that is named before it, or if that is not named at all. A grant may be for two jobs on the same
    GPUs, in shapes of one accelerator and one number of GPUs; of the rest, everybody is alone.
    """

    row: Ints
    option: Ints
    lease_seconds: Floats
    rest: Ranking
    rest_lease_seconds: float = 0.0  # for whoever of the rest runs after this
    closed_apps: Ints = _NO_ROWS  # apps that may win nothing more
    closed_until: float = -inf  # until then
    notices: tuple[Notice, ...] = ()
    resizes: bool = False  # those who run may be given other shapes although nobody waits
    partner: Ints | None = None  # by grant: the row that shares the GPUs, -1 for those alone; None: all are alone
    partner_option: Ints | None = None
    memory: object = None  # plain data that comes back as `view.memory`

    @property
    def leases(self) -> bool:
        return self.rest_lease_seconds > 0 or bool((self.lease_seconds > 0).any())

    @property
    def stands_until(self) -> float:
        return self.rest.stands_until


Decision: TypeAlias = Ranking | Shares | Grants
