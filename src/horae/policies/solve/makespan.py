"""The makespan (Gavel, section 4.2): the time until the last job ends, if shares stayed as they are, is least.

    minimise T   subject to   speed(x) >= left / T   for every job

In 1 / T that is a linear level problem.
"""

from __future__ import annotations

import numpy as np

from horae.model.arrays import Floats
from horae.policies.solve.answers import Answer
from horae.policies.solve.classes import Classes
from horae.policies.solve.levels import reach_level
from horae.policies.solve.wishes import Wish, has_work


def makespan(classes: Classes, steps_left: Floats) -> Answer:
    """Value and bound in seconds; prices: how many seconds one more GPU would save.

    Where nobody knows what is left (nan), or where next to nothing is, a job gets of what is left over only; that goes
    to whoever gains most of its speed with the same part of every type.
    """
    rising = classes.served & has_work(classes, steps_left)
    slope = np.where(rising, steps_left, 1.0)
    equal = classes.equal_speed
    gain = classes.speed / np.where(equal > 0, equal, 1.0)[:, None]
    answer = reach_level("the makespan", classes, Wish(rising, slope, np.zeros(len(slope))), gain=gain)
    if not rising.any():
        return answer
    return answer._replace(value=1 / answer.value, bound=1 / answer.bound, prices=answer.prices / answer.value**2)
