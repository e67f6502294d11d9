"""Successive halving in progress: which rung has ended, which trials continue, and with which jobs.

Without reports the losses are those of the trials' curves, and a rung waits until all of its jobs have finished. With
reports the last loss that each job has reported counts; an invalid last report counts as the worst. Real jobs may also
fail for good or be cancelled: the rung does not wait for these, and they do not continue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from horae.engines.search.cohort import Cohort
from horae.engines.search.early_stopping import Reports
from horae.engines.search.loss_forecast import is_loss
from horae.model.events import Ending, JobCancelled, JobEnded
from horae.model.jobs import Arrival, Truth
from horae.model.searches import Bracket, Trial


class Halving:
    """The state of one bracket, whose trials run as one job per rung."""

    def __init__(self, bracket: Bracket, prefix: str, reports: Reports | None = None) -> None:
        self._bracket, self._prefix, self._reports = bracket, prefix, reports
        self._trials = {trial.arrival.job.id: trial for trial in bracket.trials}
        self._cohort = Cohort(bracket.layout, list(self._trials))
        self._failed: dict[str, set[int]] = {}  # by job: the leases under which it has failed

    @property
    def job_ids(self) -> list[str]:
        """The jobs of the present rung."""
        return list(self._by_job())

    def heard(self, event: JobEnded | JobCancelled, at: float) -> list[Arrival]:
        """The jobs of the next rung, if this event ended the last job of the present one."""
        trial = self._by_job().get(event.job_id)
        if trial is None or not self._cohort.awaits(trial):
            return []
        if isinstance(event, JobEnded) and event.ending is Ending.FINISHED:
            self._cohort.reached(trial, inf if self._reports is None else _last_loss(self._reports, event))
        elif self._reports is None or not self._is_lost(event, trial):
            return []
        else:
            self._cohort.lost(trial)
        return self._promoted(at) if self._cohort.is_complete else []

    def _by_job(self) -> dict[str, str]:
        """By job of the present rung: its trial."""
        return {rung_id(self._trials[name], self._prefix, self._cohort.rung): name for name in self._cohort.trials}

    def _is_lost(self, event: JobEnded | JobCancelled, trial: str) -> bool:
        """Whether the job will not be retried. The same failure may be reported twice."""
        if isinstance(event, JobCancelled):
            return True
        if event.ending is not Ending.FAILED:
            return False
        failed = self._failed.setdefault(event.job_id, set())
        failed.add(event.epoch)
        return len(failed) > self._trials[trial].arrival.job.retries_max

    def _promoted(self, at: float) -> list[Arrival]:
        cohort = self._cohort
        if cohort.is_last:
            return []
        if self._reports is None:
            part = self._bracket.part_until(cohort.rung)
            cohort.losses = {name: self._trials[name].loss(part) for name in cohort.trials}
        cohort.promote()
        trials = [self._trials[name] for name in cohort.trials]
        return rung_jobs(self._bracket, trials, cohort.rung, at, self._prefix) if trials else []


def _last_loss(reports: Reports, ended: JobEnded) -> float:
    """The last reported loss; a trial whose last loss is not a number has diverged, whatever it reported before."""
    last = inf
    for report in reports.until(ended.job_id, ended.steps):
        last = report.loss if is_loss(report.loss) else inf
    return last


def rung_id(trial: Trial, prefix: str, rung: int) -> str:
    """The job id of a trial in a rung; the first run keeps the trial's name."""
    return f"{trial.arrival.job.id}.{prefix}{rung}" if rung else trial.arrival.job.id


def rung_jobs(bracket: Bracket, trials: Sequence[Trial], rung: int, at: float, prefix: str = "") -> list[Arrival]:
    """The jobs of one rung: the required part of each trial, and the estimated work after it."""
    part = bracket.part_until(rung) - (bracket.part_until(rung - 1) if rung else 0.0)
    later_gpu_seconds, later_seconds = bracket.later(rung, trials)
    jobs = []
    for trial in trials:
        job, truth = trial.arrival.job, trial.arrival.truth
        believed = None if job.steps_total is None else job.steps_total * part
        said = 1.0 if job.steps_total is None else job.steps_total / truth.steps_total  # submitted steps over true ones
        made = replace(
            job, id=rung_id(trial, prefix, rung), submitted_at=at, steps_total=believed, curve=trial.curve,
            later_gpu_seconds=later_gpu_seconds * said, later_seconds=later_seconds * said,
            continues=rung_id(trial, prefix, rung - 1) if rung else "",
        )  # fmt: skip
        jobs.append(Arrival(made, Truth(truth.steps_total * part, truth.options)))
    return jobs
