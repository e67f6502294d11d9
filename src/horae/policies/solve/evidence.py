"""What a solve can tell those who ask why: prices, what is scarce, and what keeps each job from more."""

from __future__ import annotations

import numpy as np

from horae.model.arrays import Floats
from horae.model.decisions import Evidence, Limit
from horae.policies.solve.answers import Answer
from horae.policies.solve.classes import Classes

_HAIR = 1e-6


def evidence_of(objective: str, answer: Answer, classes: Classes, time: Floats | None = None) -> Evidence:
    """`time`: by class, where jobs also run in company; otherwise it is what the answer's fractions come to."""
    used = np.where(classes.choice, answer.fraction * classes.gpus * classes.jobs[:, None], 0.0)
    given = np.bincount(classes.accelerator.ravel(), used.ravel(), minlength=len(classes.capacity))
    busy = (answer.fraction.sum(axis=1) if time is None else time) >= 1 - _HAIR
    limit = np.where(busy, int(Limit.TIME), int(Limit.SCARCE))
    limit = np.where(classes.served, limit, int(Limit.NOWHERE))
    is_full = (answer.prices > 0) | (given >= classes.capacity * (1 - _HAIR))
    return Evidence(objective, answer.value, answer.bound, answer.prices, is_full, limit[classes.member])
