"""Minimum makespan over GPU types (Gavel, OSDI'20, section 4.2): all present jobs finish as early as possible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from horae.model.decisions import Shares
from horae.model.view import View
from horae.solvers.classes import collapse
from horae.solvers.levels.objectives import makespan
from horae.solvers.solution import evidence_of
from horae.solvers.space_sharing.objectives import share_makespan
from horae.solvers.type_blind import speeds_of, spread_evenly


@dataclass(frozen=True)
class Makespan:
    name: ClassVar[str] = "makespan"
    uses_lengths: ClassVar[bool] = True
    aware: bool = True  # uses the speed of each model by GPU type
    reference: str = ""  # if not aware: the type whose speeds stand for all; empty: that of a job's first option
    sharing: bool = False  # let two jobs share GPUs where both gain by it

    def decide(self, view: View) -> Shares:
        jobs = view.jobs
        steps_left, speed = jobs.steps_left, speeds_of(view, aware=self.aware, reference=self.reference)
        if self.sharing:
            return share_makespan(view, speed)
        classes = collapse(view, speed, steps_left[:, None])
        answer = makespan(classes, steps_left[classes.first])
        if not self.aware:
            answer = answer._replace(fraction=spread_evenly(classes, answer.fraction))
        evidence = evidence_of("seconds until the last job ends", answer, classes)
        return Shares(classes.by_job(answer.fraction), evidence=evidence)
