"""The trials of one bracket of successive halving, rung by rung; simulated and live searches share it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from horae.model.searches import Rungs


class Cohort:
    """The trials that are in the present rung, and the losses with which they have reached its end.

    A rung is complete when every trial in it has reached its end or is lost: has failed for good or was cancelled.
    """

    def __init__(
        self, rungs: Rungs, trials: Sequence[str], rung: int = 0, losses: Mapping[str, float] | None = None
    ) -> None:
        self._rungs = rungs
        self.rung = rung
        self.trials = list(trials)
        self.losses = dict(losses or {})

    @property
    def is_complete(self) -> bool:
        return len(self.losses) == len(self.trials)

    @property
    def is_last(self) -> bool:
        return self.rung + 1 == self._rungs.number

    def awaits(self, trial: str) -> bool:
        return trial in self.trials and trial not in self.losses

    def reached(self, trial: str, loss: float) -> None:
        """The trial has reached the end of the present rung."""
        self.losses[trial] = loss

    def lost(self, trial: str) -> None:
        """The rung does not wait for this trial, and it is not promoted."""
        self.trials.remove(trial)
        self.losses.pop(trial, None)

    def promote(self) -> list[str]:
        """Moves the best trials of a complete rung into the next one; returns the others, the best of them first."""
        losses = [self.losses[trial] for trial in self.trials]
        promoted = [self.trials[place] for place in self._rungs.best(self.rung, losses)]
        dropped = sorted((trial for trial in self.trials if trial not in promoted), key=lambda each: self.losses[each])
        self.trials, self.losses, self.rung = promoted, {}, self.rung + 1
        return dropped
