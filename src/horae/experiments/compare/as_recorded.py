"""The run that a trace records, with the same log, and therefore the same metrics, as a simulated one.

Each job holds its GPUs from its recorded start for its recorded run time. Which GPUs is not recorded: any that are free
and that it accepts.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence

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


def recorded_log(setup: Setup, arrivals: Sequence[Arrival], started_at: Mapping[str, float]) -> RunLog:
    """The log of what was recorded; an error where the jobs of one moment do not fit the cluster.

    `started_at`: by job, in the seconds of its submission time.
    """
    recorder = Recorder(setup)
    free = _free_gpus(setup)
    moments: list[tuple[float, int, int]] = []
    for index, arrival in enumerate(recorder.expecting(arrivals)):
        job = arrival.job
        moments += [(job.submitted_at, _SUBMIT, index), (started_at[job.id], _START, index)]
    heapq.heapify(moments)
    starts: dict[int, Start] = {}
    while moments:
        at, kind, index = heapq.heappop(moments)
        job, truth = arrivals[index].job, arrivals[index].truth
        if kind == _SUBMIT:
            recorder.reacted(JobSubmitted(at, job), Reaction((), ()))
        elif kind == _START:
            start = starts[index] = _start(index, arrivals[index], free, at)
            recorder.reacted(JobSubmitted(at, job), Reaction((start,), ()))
            option = next(each for each in truth.options if each.shape.accelerator == start.shape.accelerator)
            heapq.heappush(moments, (at + truth.steps_total / option.steps_per_second, _END, index))
        else:
            start = starts.pop(index)
            free[start.shape.accelerator].extend(start.gpus)
            ended = JobEnded(at, job.id, start.epoch, Ending.FINISHED, truth.steps_total)
            recorder.reacted(ended, Reaction((), ()))
    return recorder.log()


def _free_gpus(setup: Setup) -> dict[str, deque[Gpu]]:
    free: dict[str, deque[Gpu]] = {}
    for node in setup.cluster.nodes:
        free.setdefault(node.accelerator, deque()).extend(Gpu(node.name, number) for number in range(node.gpus))
    return free


def _start(epoch: int, arrival: Arrival, free: Mapping[str, deque[Gpu]], at: float) -> Start:
    for option in arrival.job.options:
        gpus, kind = option.shape.gpus, option.shape.accelerator
        if len(free[kind]) >= gpus:
            taken = tuple(free[kind].popleft() for _ in range(gpus))
            return Start(epoch, (arrival.job.id,), taken, Shape(kind, gpus, CLUSTER), (0.0,), (False,))
    raise InputError(
        f"job {arrival.job.id!r} started {at:,.0f} s after the first submission, when the cluster would have been full",
        field="--nodes",
        remedy="describe the cluster that the trace is from",
    )
