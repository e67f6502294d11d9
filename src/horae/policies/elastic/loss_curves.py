"""Estimates of how far the training losses of jobs have fallen, and how far they will fall.

A loss is normalised: 1 before the first step, 0 at the floor of its curve. With the curve of Optimus (EuroSys'18),
loss(k) = 1 / (rate x k + start) + floor, that is start / (rate x k + start) after k steps. Where the curve is not
known, the loss is assumed to be 1 / (1 + k / total), with the total that the job declares; a job of unknown length is
assumed to run for as long as it has so far plus the look-ahead time.
"""

from __future__ import annotations

import numpy as np

from horae.model.arrays import Bools, Floats
from horae.model.job_table import JobColumns


def has_curve(jobs: JobColumns) -> Bools:
    return np.isfinite(jobs.curve_rate) & np.isfinite(jobs.curve_start)


def steps_believed(jobs: JobColumns, ahead_seconds: float) -> Floats:
    """By job: the estimated total number of steps it will make."""
    endless = 2 * jobs.steps_done + np.maximum(jobs.reference_speed * ahead_seconds, 1.0)
    return np.where(np.isfinite(jobs.steps_total), jobs.steps_total, endless)


def steps_to_convergence(jobs: JobColumns, loss: float, ahead_seconds: float) -> Floats:
    """By job: the steps until its normalised loss reaches this value; without a curve, until it ends."""
    falls = has_curve(jobs) & (jobs.curve_rate > 0)
    steps = jobs.curve_start * (1 / loss - 1) / np.where(falls, jobs.curve_rate, 1.0)
    return np.maximum(np.where(falls, steps, steps_believed(jobs, ahead_seconds)) - jobs.steps_done, 0.0)


def loss_drop(jobs: JobColumns, speed: Floats, seconds: float) -> Floats:
    """By job and column of speeds: by how much its normalised loss falls within so many seconds."""
    total = steps_believed(jobs, seconds)[:, None]
    done = np.minimum(jobs.steps_done[:, None], total)
    after = np.minimum(done + speed * seconds, total)
    curve = has_curve(jobs)[:, None]
    rate = np.where(curve, jobs.curve_rate[:, None], 1 / total)
    start = np.where(curve, jobs.curve_start[:, None], 1.0)
    return start / (rate * done + start) - start / (rate * after + start)
