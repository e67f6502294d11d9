"""The kinds of decisions a policy may return: a closed set of three, each carried out by its own mechanism.

Rows are positions in the view's columns. `stands_until` is when the decision may change although no event occurs;
before that time, and without events, the policy need not be called again. It must hold whatever the plan makes of the
decision: count every job that might start as started, and every job that might be preempted as waiting. A value that is
too early costs a needless call; one that is too late is wrong.
"""

from __future__ import annotations

from enum import IntEnum
from math import inf
from typing import NamedTuple, TypeAlias

import numpy as np

from horae.model.arrays import Bools, Floats, Ints

_NO_ROWS: Ints = np.empty(0, dtype=np.int64)


class Ranking(NamedTuple):
    """A priority order, best first.

    A preemptive ranking names every job; a non-preemptive one may omit running jobs, which keep their GPUs.
    """

    order: Ints  # rows, best first
    preemptive: bool = False  # jobs of lower rank are stopped where a better one needs their GPUs
    blocking: bool = False  # no job may overtake the first one that does not fit
    tier: Ints | None = None  # by row: the queue the job is in, for explanations
    allowed: Bools | None = None  # by row and option: the shapes it may have now; None: all that it accepts
    promoted: Ints = _NO_ROWS  # rows whose attained service restarts from zero here
    stands_until: float = inf  # when it may change although no event occurs
    memory: object = None  # plain data, returned to the policy as `view.memory`


class Limit(IntEnum):
    """What keeps a job from a larger share."""

    NOWHERE = 0  # no GPU type on which it runs has any GPUs
    TIME = 1  # it runs all the time
    SCARCE = 2  # the GPUs it could use are fully allocated
    DROPPED = 3  # its target, a deadline, cannot be met together with those of other jobs


class Evidence(NamedTuple):
    """Why the shares are as they are, and how far from optimal they can be at most."""

    objective: str  # in words, with its unit
    value: float
    bound: float  # no shares have a better value
    prices: Floats  # by accelerator: what one more GPU would add to the value
    is_full: Bools  # by accelerator: all of its GPUs are allocated
    limit: Ints  # by row: a `Limit`


class Pairs(NamedTuple):
    """Pairs of jobs on the same GPUs: both run in shapes of one accelerator and one number of GPUs."""

    first: Ints  # rows
    second: Ints
    first_option: Ints
    second_option: Ints
    fraction: Floats  # of time


class Shares(NamedTuple):
    """By row and option: the fraction of time it should run there. A mechanism turns fractions into rounds."""

    fraction: Floats  # by row and option: of its time, alone on its GPUs
    stands_until: float = inf  # when they may change although no event occurs
    pairs: Pairs | None = None  # with a partner on the same GPUs
    evidence: Evidence | None = None  # value, bound and prices, for explanations
    isolated_speed: Floats | None = None  # by row: steps/s on an isolated share, accumulated as isolated seconds
    memory: object = None  # plain data, returned to the policy as `view.memory`


class Notice(NamedTuple):
    """A message of a policy: input that it did not trust, or a fact that explanations should mention."""

    app: int
    text: str


class Grants(NamedTuple):
    """Gangs that won, best first, each for the length of a lease, followed by the order of all other jobs.

    A row may be named several times in turn: it gets the first of its shapes that can be placed. A running job leaves
    its GPUs for a shape that is named before its present one, or if the present one is not named at all. A grant may be
    for two jobs on the same GPUs, in shapes of one accelerator and one number of GPUs; jobs in the rest never share.
    """

    row: Ints  # by grant: the job
    option: Ints  # by grant: the option of that job, which names the shape
    lease_seconds: Floats  # by grant: the length of its lease
    rest: Ranking  # the order of all other jobs
    rest_lease_seconds: float = 0.0  # for jobs of the rest that run after this
    closed_apps: Ints = _NO_ROWS  # apps that may win no more GPUs
    closed_until: float = -inf  # until when they are closed
    notices: tuple[Notice, ...] = ()  # what explanations should mention
    resizes: bool = False  # running jobs may be given other shapes although no job waits
    partner: Ints | None = None  # by grant: the row that shares the GPUs, -1 for none; None: no grant is shared
    partner_option: Ints | None = None  # by grant: the option of the partner
    memory: object = None  # plain data, returned to the policy as `view.memory`

    @property
    def leases(self) -> bool:
        """Whether any job gets GPUs for a limited time."""
        return self.rest_lease_seconds > 0 or bool((self.lease_seconds > 0).any())

    @property
    def stands_until(self) -> float:
        """When the grants may change although no event occurs."""
        return self.rest.stands_until


Decision: TypeAlias = Ranking | Shares | Grants
