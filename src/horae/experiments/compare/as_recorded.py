"""The run that a trace records, with the same log, and therefore the same metrics, as a simulated one.

Each job holds its GPUs from its recorded start for its recorded run time. Which GPUs is not recorded: any that are
free, of the type on which it ran where that is known, otherwise of a type that it accepts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from math import inf, nextafter
from typing import NamedTuple

import numpy as np

from horae.model.cluster import CLUSTER, Gpu
from horae.model.commands import Start
from horae.model.errors import InputError
from horae.model.events import Ending, JobEnded, JobSubmitted
from horae.model.jobs import Arrival
from horae.model.plans import Reaction
from horae.model.setup import Setup
from horae.model.shapes import Shape
from horae.reports.recorder import Recorder
from horae.reports.run_log import RunLog

LABEL = "as recorded"
_END, _SUBMIT, _START = range(3)  # at one moment, GPUs are released first


class RecordedStart(NamedTuple):
    at: float  # in the seconds of the submission times
    types: tuple[str, ...] = ()  # GPU types of the cluster on one of which it ran; none: not known


def recorded_log(setup: Setup, arrivals: Sequence[Arrival], recorded: Mapping[str, RecordedStart]) -> RunLog:
    """The log of what was recorded, by job; an error where the jobs of one moment do not fit the cluster."""
    recorder = Recorder(setup)
    free = _free_gpus(setup)
    runs = _with_types(arrivals, recorded, {kind: len(gpus) for kind, gpus in free.items()})
    moments: list[tuple[float, int, int]] = []
    for index, arrival in enumerate(recorder.expecting(arrivals)):
        run = runs[index]
        moments += [(arrival.job.submitted_at, _SUBMIT, index), (run.start, _START, index), (run.end, _END, index)]
    starts: dict[int, Start] = {}
    for at, kind, index in sorted(moments):
        job, truth = arrivals[index].job, arrivals[index].truth
        if kind == _SUBMIT:
            recorder.reacted(JobSubmitted(at, job), Reaction((), ()))
        elif kind == _START:
            start = starts[index] = _start(index, job.id, runs[index], free)
            recorder.reacted(JobSubmitted(at, job), Reaction((start,), ()))
        else:
            start = starts.pop(index)
            free[start.shape.accelerator].extend(start.gpus)
            ended = JobEnded(at, job.id, start.epoch, Ending.FINISHED, truth.steps_total)
            recorder.reacted(ended, Reaction((), ()))
    return recorder.log()


class _Run(NamedTuple):
    kind: str
    gpus: int
    start: float
    end: float


def _with_types(
    arrivals: Sequence[Arrival], recorded: Mapping[str, RecordedStart], room: Mapping[str, int]
) -> list[_Run]:
    """The runs with their GPU types. Where a type is not recorded, it is one with room for the whole run."""
    possible = [_runs(arrival, recorded[arrival.job.id]) for arrival in arrivals]
    usage = _Usage(room, [run for runs in possible for run in runs])
    for runs in possible:
        if len(runs) == 1:
            usage.add(runs[0])
    chosen = []
    for arrival, runs in zip(arrivals, possible, strict=True):
        run = max(runs, key=usage.free)  # the first of equals
        if len(runs) > 1:
            if usage.free(run) < run.gpus:
                raise _too_many(arrival.job.id, run.start)
            usage.add(run)
        chosen.append(run)
    return chosen


def _runs(arrival: Arrival, recorded: RecordedStart) -> list[_Run]:
    """The ways in which a job may have run, by GPU type."""
    runs: list[_Run] = []
    for option in arrival.truth.options:
        kind, gpus = option.shape.accelerator, option.shape.gpus
        seconds = arrival.truth.steps_total / option.steps_per_second
        if all(kind != run.kind for run in runs):
            ends_at = max(
                recorded.at + seconds, nextafter(recorded.at, inf)
            )  # late in a trace, a second may round to 0
            runs.append(_Run(kind, gpus, recorded.at, ends_at))
    return [run for run in runs if run.kind in recorded.types] or runs


class _Usage:
    """GPUs in use over time, by type."""

    def __init__(self, room: Mapping[str, int], runs: Sequence[_Run]) -> None:
        self._times = np.unique([moment for run in runs for moment in (run.start, run.end)])
        self._free = {kind: np.full(len(self._times), count) for kind, count in room.items()}

    def free(self, run: _Run) -> int:
        """GPUs of its type that are free all the time of the run."""
        return int(self._free[run.kind][self._during(run)].min(initial=np.iinfo(np.int64).max))

    def add(self, run: _Run) -> None:
        self._free[run.kind][self._during(run)] -= run.gpus

    def _during(self, run: _Run) -> slice:
        first, last = np.searchsorted(self._times, (run.start, run.end))
        return slice(int(first), int(last))


def _free_gpus(setup: Setup) -> dict[str, deque[Gpu]]:
    free: dict[str, deque[Gpu]] = {}
    for node in setup.cluster.nodes:
        free.setdefault(node.accelerator, deque()).extend(Gpu(node.name, number) for number in range(node.gpus))
    return free


def _start(epoch: int, job_id: str, run: _Run, free: Mapping[str, deque[Gpu]]) -> Start:
    if len(free[run.kind]) < run.gpus:
        raise _too_many(job_id, run.start)
    taken = tuple(free[run.kind].popleft() for _ in range(run.gpus))
    return Start(epoch, (job_id,), taken, Shape(run.kind, run.gpus, CLUSTER), (0.0,), (False,))


def _too_many(job_id: str, at: float) -> InputError:
    return InputError(
        f"job {job_id!r} started {at:,.0f} s after the first submission, when the cluster would have been full",
        field="--nodes",
        remedy="describe the cluster that the trace is from",
    )
