"""Max-min fairness over GPU types (Gavel, OSDI'20): maximise the least normalised speed of any job.

A job's level is its GPUs over its weight times its speed under the shares, over its speed with the same part of every
type. After the least level is maximal, the others are raised as far as possible, and what is left is given to the jobs
that gain most: that alone moves mean completion time by some 5%.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from horae.model.decisions import Shares
from horae.model.view import View
from horae.solvers.classes import collapse
from horae.solvers.levels.objectives import max_min, water_filling
from horae.solvers.solution import evidence_of
from horae.solvers.space_sharing.objectives import share_max_min
from horae.solvers.type_blind import spread_evenly


@dataclass(frozen=True)
class MaxMin:
    name: ClassVar[str] = "max-min"
    aware: bool = True  # uses the speed of each model by GPU type; if not, all are assumed equally fast
    fill: bool = True  # raise the other levels, too, once the least one is maximal
    sharing: bool = False  # let two jobs share GPUs where both gain by it

    def decide(self, view: View) -> Shares:
        jobs = view.jobs
        speed = jobs.speed if self.aware else (jobs.speed > 0).astype(np.float64)
        if self.sharing:
            return share_max_min(view, self.fill, speed)
        classes = collapse(view, speed)
        share = classes.weight * classes.equal_speed
        # Without weight a job is not in the objective: its rates are zero, and it gets only of what is left over.
        scale = np.where(share > 0, classes.gang / np.where(share > 0, share, 1.0), 0.0)
        solve = water_filling if self.fill else max_min
        answer = solve(classes, classes.speed * scale[:, None])
        if not self.aware:
            answer = answer._replace(fraction=spread_evenly(classes, answer.fraction))
        evidence = evidence_of("the least level of any job, of its equal share", answer, classes)
        return Shares(classes.by_job(answer.fraction), evidence=evidence)
