"""Max-min fairness (Gavel, section 4.1): the least normalised speed of any job is as large as can be.

    maximise t   subject to   level(c) = sum over options of rate[c, o] x[c, o] >= t   for every class c

Then, if wanted, lexicographically: whoever cannot rise any more is frozen, and the rest rises on; a positive price on
its level says that a class cannot. A class whose rates are all zero is not in the objective.
"""

from __future__ import annotations

import numpy as np

from horae.model.arrays import Floats
from horae.policies.solve.answers import Answer
from horae.policies.solve.classes import Classes
from horae.policies.solve.levels import reach_level
from horae.policies.solve.wishes import Wish

_PROBLEM = "max-min fairness"


def max_min(classes: Classes, rate: Floats) -> Answer:
    """The best least level, with prices and a bound that proves it; what is left over is nobody's."""
    return reach_level(_PROBLEM, *_levels(classes, rate))


def water_filling(classes: Classes, rate: Floats) -> Answer:
    """The lexicographically best levels; the value and its bound are those of the least one.

    Then nobody can have more without taking it from somebody else, but for those who are not in the objective: what is
    left goes to whichever of them gains most.
    """
    levels, wish = _levels(classes, rate)
    others = classes.served & ~wish.rising
    if not others.any():
        return reach_level(_PROBLEM, levels, wish, fill=True)
    best = np.where(others, classes.speed.max(axis=1, initial=0.0), 1.0)
    gain = np.where(others[:, None], classes.speed / best[:, None], 0.0)
    return reach_level(_PROBLEM, levels, wish, fill=True, gain=gain)


def _levels(classes: Classes, rate: Floats) -> tuple[Classes, Wish]:
    """Rates in the place of speeds: then everybody must have the same."""
    rising = classes.served & (rate.max(axis=1, initial=0.0) > 0)
    levels = classes._replace(speed=np.where(rising[:, None] & classes.choice, rate, classes.speed))
    return levels, Wish(rising, np.ones(len(rising)), np.zeros(len(rising)))
