"""Finish-time fairness over GPU types (Gavel, OSDI'20, section 4.2, after Themis): minimise the worst ratio.

The ratio of a job is its time in the pool, from submission to end, over what that would be on 1/N of every GPU type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from horae.model.decisions import Shares
from horae.model.view import View
from horae.solvers.classes import collapse
from horae.solvers.levels.objectives import ClassProgress, finish_time_fairness, isolated_speed
from horae.solvers.solution import evidence_of
from horae.solvers.space_sharing.objectives import share_finish_time
from horae.solvers.type_blind import speeds_of, spread_evenly


@dataclass(frozen=True)
class FinishTimeFairness:
    name: ClassVar[str] = "finish-time-fairness"
    uses_lengths: ClassVar[bool] = True
    aware: bool = True  # uses the speed of each model by GPU type
    reference: str = ""  # if not aware: the type whose speeds stand for all; empty: that of a job's first option
    sharing: bool = False  # let two jobs share GPUs where both gain by it

    def decide(self, view: View) -> Shares:
        jobs = view.jobs
        speed = speeds_of(view, aware=self.aware, reference=self.reference)
        if self.sharing:
            return share_finish_time(view, speed)
        state = np.column_stack([view.now - jobs.submitted_at, jobs.steps_left, jobs.isolated_seconds])
        classes = collapse(view, speed, state)
        alone = isolated_speed(classes)
        progress = ClassProgress(*state[classes.first].T)
        # Where all types seem equally fast, all jobs gain the same from a GPU that is left over: without `fill`, a few
        # of them, by their position in the table, would get all such GPUs.
        answer = finish_time_fairness(classes, progress, alone, fill=not self.aware)
        if not self.aware:
            answer = answer._replace(fraction=spread_evenly(classes, answer.fraction))
        evidence = evidence_of("the worst ratio of finish times, shared to alone", answer, classes)
        return Shares(classes.by_job(answer.fraction), evidence=evidence, isolated_speed=classes.by_job(alone))
