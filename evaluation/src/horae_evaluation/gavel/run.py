"""One run, and the result kept of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from time import process_time

import numpy as np

from horae.driver import run
from horae.engines.engine import Engine
from horae.engines.simulated import SimulatedEngine
from horae.experiments.learning import LearningEngine
from horae.experiments.progress import Counter
from horae.model.errors import PolicyError
from horae.model.events import Ending, Event, JobEnded
from horae.model.jobs import Arrival
from horae.model.plans import Reaction
from horae.model.setup import Setup
from horae.reports.recorder import Recorder
from horae.reports.run_log import RunLog
from horae.scheduler import Scheduler
from horae_evaluation.gavel.setup import GavelCase, Tables, arrivals_of, setup_of
from horae_evaluation.noisy_engine import NoisyEngine

PART_MAX = 0.95  # the largest fraction reported before a run has ended
Tell = Callable[[float], None]  # reports the finished fraction of a run


def _silence(part: float) -> None: ...


@dataclass(frozen=True)
class GavelResult:
    """Results over the measured jobs, except for the last two fields."""

    completion_mean_seconds: float
    last_end_seconds: float  # of the run: where all jobs are submitted at the beginning, their makespan
    restarts_per_job: float  # starts beyond the first
    restart_share: float  # of the GPU time of all jobs: lost to resuming
    is_loaded: bool  # jobs were submitted until the end
    processor_seconds: float  # processor time of the run


class MeasuredWindow:
    """An observer that detects when the measured jobs have ended."""

    def __init__(self, measured: Sequence[Arrival]) -> None:
        self._waited_for = {arrival.job.id: arrival.job.submitted_at for arrival in measured}
        self.completion_seconds: dict[str, float] = {}

    def reacted(self, event: Event, reaction: Reaction) -> None:
        if isinstance(event, JobEnded) and event.ending is Ending.FINISHED and event.job_id in self._waited_for:
            self.completion_seconds[event.job_id] = event.at - self._waited_for.pop(event.job_id)

    def is_over(self) -> bool:
        return not self._waited_for


def run_case(case: GavelCase, tables: Tables, tell: Tell = _silence) -> GavelResult:
    """Runs a case until all measured jobs have ended."""
    began = process_time()
    setup = setup_of(case, tables)
    feed = arrivals_of(case, tables, setup.cluster)
    head = list(islice(feed, case.last))
    window = MeasuredWindow(head[case.first :])
    # Some of the measured jobs end long after others that were submitted later.
    counter = Counter(lambda ended: tell(min(ended / case.last, PART_MAX)))
    recorder = Recorder(setup)
    engine = SimulatedEngine(setup.cluster, recorder.expecting(chain(head, feed)), sharing=setup.sharing)
    run(Scheduler(setup), _around(engine, case, setup), [recorder, window, counter], enough=window.is_over)
    if not window.is_over():
        problem = f"{case}: {case.last - case.first - len(window.completion_seconds)} of the measured jobs never end"
        remedy = "name a policy that serves gangs of every size, or --workload single"
        raise PolicyError(problem, field="--policy", remedy=remedy)
    log = recorder.log()
    restarts_per_job, share = restarts(log, window.completion_seconds)
    return GavelResult(
        completion_mean_seconds=float(np.mean([window.completion_seconds[each.job.id] for each in head[case.first :]])),
        last_end_seconds=log.until,
        restarts_per_job=restarts_per_job,
        restart_share=share,
        is_loaded=next(feed, None) is not None,
        processor_seconds=process_time() - began,
    )


def _around(engine: Engine, case: GavelCase, setup: Setup) -> Engine:
    """Wraps the engine according to how the scheduler learns speeds."""
    if case.learning is not None:
        return LearningEngine(engine, setup.cluster.levels, replace(case.learning, seed=case.seed))
    return NoisyEngine(engine, case.speed_noise, case.seed) if case.speed_noise else engine


def restarts(log: RunLog, measured: Iterable[str]) -> tuple[float, float]:
    """Starts beyond the first, by measured job; and the fraction of all GPU time that is lost to resuming."""
    chosen = set(measured)
    rows = np.array([name in chosen for name in log.jobs.id])
    lost, held = float(log.leases.restart_gpu_seconds.sum()), float(log.leases.gpu_seconds.sum())
    return float(np.maximum(log.starts[rows] - 1, 0).mean()), lost / held if held else 0.0
