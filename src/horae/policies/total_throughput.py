"""Total throughput (Gavel, OSDI'20, section 4.2): all jobs together do as many steps a second as they can.

Steps of one model are not steps of another, so whoever takes many small ones gets nearly everything; `normalised`
counts each job's speed in units of its own speed on an equal share. Weights play no part.
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
    normalised: bool = False  # count each job's speed by its speed on an equal share
    sharing: bool = False  # let two jobs share GPUs where that is worth more

    def decide(self, view: View) -> Shares:
        classes = collapse(view, view.jobs.speed)
        objective = "speeds of all jobs, of their equal shares" if self.normalised else "steps a second of all jobs"
        if self.sharing:
            return share_throughput(view, self.value(classes)[classes.member], objective)
        answer = largest_total("total throughput", classes, self.value(classes))
        if answer is None:
            raise Unsolved("total throughput", "no shares at all are feasible")
        return Shares(classes.by_job(answer.fraction), evidence=evidence_of(objective, answer, classes))

    def value(self, classes: Classes) -> Floats:
        """By class and option: what one job adds to the total where it runs there all the time."""
        if not self.normalised:
            return classes.speed
        return classes.speed / np.maximum(classes.equal_speed, np.finfo(float).tiny)[:, None]
