"""Total throughput (Gavel, OSDI'20, section 4.2): maximise the steps per second of all jobs together.

Steps of different models are not comparable, so jobs with many small steps get nearly all GPUs; `normalised` counts
each job's speed in units of its own speed on an equal share. Weights are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from horae.model.arrays import Floats
from horae.model.decisions import Shares
from horae.model.view import View
from horae.solvers.classes import Classes, collapse
from horae.solvers.solution import Unsolved, evidence_of
from horae.solvers.space_sharing.objectives import share_throughput
from horae.solvers.total_value import largest_total


@dataclass(frozen=True)
class TotalThroughput:
    name: ClassVar[str] = "total-throughput"
    normalised: bool = False  # measure each job's speed in units of its speed on an equal share
    sharing: bool = False  # let two jobs share GPUs where that increases the total

    def decide(self, view: View) -> Shares:
        classes = collapse(view, view.jobs.speed)
        objective = "speeds of all jobs, of their equal shares" if self.normalised else "steps per second of all jobs"
        if self.sharing:
            return share_throughput(view, self.value(classes)[classes.member], objective)
        answer = largest_total("total throughput", classes, self.value(classes))
        if answer is None:
            raise Unsolved("total throughput", "no shares at all are feasible")
        return Shares(classes.by_job(answer.fraction), evidence=evidence_of(objective, answer, classes))

    def value(self, classes: Classes) -> Floats:
        """By class and option: what one job adds to the total when it runs there all the time."""
        if not self.normalised:
            return classes.speed
        return classes.speed / np.maximum(classes.equal_speed, np.finfo(float).tiny)[:, None]
