"""Schedulers that do not know the true speeds: what they are told, what they learn, and what it costs."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pytest
from builders import gpus
from faulty_engine import Faults, FaultyEngine

from horae.driver import run
from horae.engines.engine import Engine, Moment
from horae.engines.simulated import SimulatedEngine
from horae.experiments.learning import Learning, LearningEngine
from horae.experiments.replay import replay_text
from horae.journal import JournalWriter
from horae.model.cluster import CLUSTER, Cluster, Node
from horae.model.commands import Command, Start
from horae.model.errors import InputError
from horae.model.events import Ending, Event, JobCancelled, JobEnded, JobSubmitted, SpeedRevised, Surveyed
from horae.model.jobs import Arrival, Job, Truth
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.model.shapes import Option, Shape
from horae.reports.recorder import Recorder
from horae.scheduler import Reaction, Scheduler
from horae.speed.estimator import Estimator
from horae.speed.table import SpeedBook
from horae.traces.generators.gavel import GavelWorkload, reference_speeds
from horae.traces.jobs import arrivals
from horae.traces.speed_tables import read_gavel_csv

TYPES = ("v100", "p100", "k80")
FACTORS = ((4.0, 2.0, 1.0), (2.0, 2.0, 1.0), (1.0, 2.0, 1.5), (8.0, 4.0, 1.0), (3.0, 1.0, 1.0))
Wrap = Callable[[Engine], Engine]


def cluster(nodes: int = 1, gpus: int = 4) -> Cluster:
    return Cluster("test", tuple(Node(f"{name}-{index}", name, gpus) for name in TYPES for index in range(nodes)))


def options(speeds: Sequence[float], gpus: int = 1) -> tuple[Option, ...]:
    made = [Option(Shape(name, gpus, CLUSTER), speed) for name, speed in zip(TYPES, speeds, strict=True)]
    return tuple(sorted(made, key=lambda option: -option.steps_per_second))


def arrival(name: str, at: float, model: str, speeds: Sequence[float], hours: float = 1.0, **fields: object) -> Arrival:
    """A job whose trace knows its speeds; `hours` are those on the first type."""
    job = Job(name, at, options(speeds), model=model, steps_total=3600.0 * hours * speeds[0], **fields)  # type: ignore[arg-type]
    return Arrival(job, Truth(3600.0 * hours * speeds[0], job.options))


def workload(jobs: int, seed: int = 0) -> list[Arrival]:
    """Models of a few kinds, each in a few versions that differ by a factor."""
    random = np.random.default_rng(seed)
    at = np.cumsum(random.exponential(900.0, jobs)).tolist()
    hours = np.exp(random.normal(0.5, 1.0, jobs)).tolist()
    kinds, versions = random.integers(len(FACTORS), size=jobs).tolist(), random.integers(4, size=jobs).tolist()
    made = []
    for index, (kind, version) in enumerate(zip(kinds, versions, strict=True)):
        model = f"net {kind} (batch size {2**version})"
        speeds = [3.0 * factor / 2.0**version for factor in FACTORS[kind]]
        made.append(arrival(str(index), at[index], model, speeds, hours[index], restart_seconds=30.0))
    return made


class Heard:
    """Keeps what the scheduler was told."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def reacted(self, event: Event, reaction: Reaction) -> None:
        self.events.append(event)

    def of(self, kind: type) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


def learning(site: Cluster, **fields: object) -> tuple[Wrap, list[LearningEngine]]:
    """A wrapper, and where to find the engine that it made."""
    made: list[LearningEngine] = []

    def wrap(engine: Engine) -> Engine:
        made.append(LearningEngine(engine, site.levels, Learning(**fields)))  # type: ignore[arg-type]
        return made[-1]

    return wrap, made


def simulate(
    site: Cluster,
    made: Sequence[Arrival],
    wrap: Wrap = lambda engine: engine,
    policy: str = "max-min",
    outside: Sequence[Event] = (),
) -> tuple[Recorder, Heard]:
    setup = Setup(site, (PoolSpec("all", policy, {}, Cadence.ROUNDS),))
    recorder, heard = Recorder(setup), Heard()
    engine = wrap(SimulatedEngine(site, recorder.expecting(made), outside))
    run(Scheduler(setup), engine, (recorder, heard), strict=True)
    return recorder, heard


def completion_hours(recorder: Recorder) -> float:
    assert not recorder.live
    return float(np.mean([record.ended_at - record.submitted_at for record in recorder.records()])) / 3600.0


# What the scheduler is told


def test_the_scheduler_is_told_estimates_and_never_what_the_trace_says() -> None:
    site = cluster()
    wrap, _ = learning(site, profile_share=0.0)
    _, heard = simulate(site, [arrival("a", 0.0, "net", (4.0, 2.0, 1.0))], wrap)
    (submitted,) = heard.of(JobSubmitted)
    assert isinstance(submitted, JobSubmitted)
    speeds = [option.steps_per_second for option in submitted.job.options]
    assert max(speeds) == pytest.approx(min(speeds))  # nothing was measured, so all types are alike


def test_a_job_whose_model_has_no_name_keeps_what_the_trace_says() -> None:
    site = cluster()
    wrap, _ = learning(site)
    made = arrival("a", 0.0, "", (4.0, 2.0, 1.0))
    _, heard = simulate(site, [made], wrap)
    assert [event.job for event in heard.events if isinstance(event, JobSubmitted)] == [made.job]


def test_types_about_which_a_job_says_nothing_are_ranked_by_belief_and_a_preference_stays() -> None:
    site = cluster()
    fastest_first = arrival("a", 0.0, "net", (1.0, 2.0, 4.0))
    preferring = arrival("b", 1.0, "net", (1.0, 2.0, 4.0))
    preferring = replace(preferring, job=replace(preferring.job, options=preferring.job.options[::-1]))
    references = Estimator().knowing(option.shape for option in fastest_first.job.options)
    for name, speed in zip(TYPES, (4.0, 2.0, 1.0), strict=True):
        references = references.profiled("net", Shape(name, 1, CLUSTER), speed, 0.01)
    engine = LearningEngine(
        SimulatedEngine(site, [fastest_first, preferring]), site.levels, Learning(profile_share=0.0), references
    )
    told = []
    while (moment := engine.wait(inf)) is not None:
        told += [
            [o.shape.accelerator for o in event.job.options]
            for event in moment.events
            if isinstance(event, JobSubmitted)
        ]
    assert told == [["v100", "p100", "k80"], ["v100", "p100", "k80"]]


# Profiling


def test_the_first_job_of_a_class_waits_for_its_profile_and_the_others_do_not() -> None:
    site = cluster()
    wrap, engines = learning(site, profile_share=1.0, profile_seconds=100.0, profile_noise=0.0)
    made = [arrival(name, at, "net", (4.0, 2.0, 1.0)) for name, at in (("a", 0.0), ("b", 50.0), ("c", 400.0))]
    _, heard = simulate(site, made, wrap)
    at = {event.job.id: event.at for event in heard.events if isinstance(event, JobSubmitted)}
    assert at == {"a": 300.0, "b": 50.0, "c": 400.0}
    assert engines[0].profiled_share == 1.0


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.2, 0.4, 1.0])
def test_no_more_cells_are_profiled_than_the_share(share: float, is_whole: bool) -> None:
    site = cluster()
    wrap, engines = learning(site, profile_share=share, profile_whole=is_whole)
    simulate(site, workload(40), wrap, policy="fifo")
    assert engines[0].profiled_share <= share + 1e-9
    assert engines[0].profiled_share >= share - 0.15


def test_a_job_that_is_cancelled_while_it_is_profiled_is_cancelled() -> None:
    site = cluster()
    wrap, _ = learning(site, profile_share=1.0, profile_seconds=1000.0)
    made = [arrival("a", 0.0, "net", (4.0, 2.0, 1.0)), arrival("b", 10.0, "net", (4.0, 2.0, 1.0))]
    recorder, _ = simulate(site, made, wrap, outside=[JobCancelled(500.0, "a")])
    assert {record.job_id: record.outcome for record in recorder.records()} == {"a": "cancelled", "b": "finished"}


def test_a_job_that_is_told_twice_while_it_is_profiled_is_submitted_once_and_with_estimates() -> None:
    job = arrival("a", 0.0, "net", (4.0, 2.0, 1.0)).job
    twice = [Moment(at, [JobSubmitted(0.0, job)]) for at in (0.0, 10.0)]
    learns = Learning(profile_share=1.0, profile_seconds=100.0, profile_noise=0.3)
    engine = LearningEngine(Script(*twice, Moment(300.0, [])), cluster().levels, learns)
    told = [event for _ in range(3) if (moment := engine.wait(inf)) is not None for event in moment.events]
    submitted = [event for event in told if isinstance(event, JobSubmitted)]
    assert [event.at for event in submitted] == [300.0]
    assert submitted[0].job.options != job.options


def test_what_is_drawn_depends_on_the_seed_and_on_nothing_else() -> None:
    site = cluster()
    cells = []
    for seed, order in ((1, 1), (1, -1), (2, 1)):
        kinds = [("a", (4.0, 2.0, 1.0)), ("b", (2.0, 2.0, 1.0))][::order]
        made = [arrival(str(i), 10.0 * i, model, speeds) for i, (model, speeds) in enumerate(kinds)]
        wrap, engines = learning(site, seed=seed, profile_share=1.0, profile_noise=0.3, is_online=False)
        simulate(site, made, wrap)
        cells.append(dict(engines[0].estimator.cells))
    assert cells[0] == cells[1] != cells[2]


# Learning while jobs run


def test_speeds_are_measured_exactly_although_jobs_restart() -> None:
    site = cluster(gpus=1)
    made = workload(40)
    wrap, engines = learning(site, profile_share=0.0)
    recorder, _ = simulate(site, made, wrap)
    assert sum(record.starts for record in recorder.records()) > 60  # many were preempted, and resumed
    truth = {(each.job.model, o.shape.accelerator): o.steps_per_second for each in made for o in each.job.options}
    cells = engines[0].estimator.cells
    assert len(cells) > 10
    for key, cell in cells.items():
        assert np.exp(cell.log_speed) == pytest.approx(truth[key.model, key.column.accelerator], rel=1e-6)


def test_a_job_that_runs_long_is_measured_before_it_ends_and_nobody_is_woken_for_it() -> None:
    site = cluster(gpus=1)
    long = arrival("long", 0.0, "net", (4.0, 2.0, 1.0), hours=100.0)
    others = [arrival(str(i), 3600.0 * i, "other", (1.0, 1.0, 1.0), hours=0.1) for i in range(1, 6)]
    moments = []
    for report_seconds in (1800.0, inf):
        wrap, _ = learning(site, profile_share=0.0, report_seconds=report_seconds)
        recorder, heard = simulate(site, [long, *others], wrap, policy="fifo")
        ended_at = next(record.ended_at for record in recorder.records() if record.job_id == "long")
        revised = [event for event in heard.events if isinstance(event, SpeedRevised) and event.model == "net"]
        assert bool(revised) == (report_seconds < inf)
        assert all(event.at < ended_at for event in revised)
        assert not heard.of(Surveyed)
        moments.append(sorted({event.at for event in heard.events}))
    assert moments[0] == moments[1]


def test_beliefs_come_close_to_the_truth() -> None:
    site = cluster(gpus=2)
    made = workload(70)
    wrap, _ = learning(site)
    _, heard = simulate(site, made, wrap)
    last = [event.job for event in heard.events if isinstance(event, JobSubmitted)][-20:]
    truth = {each.job.id: {o.shape: o.steps_per_second for o in each.job.options} for each in made}
    off = [abs(np.log(o.steps_per_second / truth[job.id][o.shape])) for job in last for o in job.options]
    assert np.median(off) < 0.05


class Script:
    """An engine that says what it was told to say."""

    def __init__(self, *moments: Moment) -> None:
        self.moments = list(moments)

    def wait(self, until: float) -> Moment | None:
        return self.moments.pop(0) if self.moments else None

    def execute(self, commands: Sequence[Command]) -> Sequence[Event]:
        return ()


@pytest.mark.parametrize(
    ("ending", "epoch", "partner", "want"),
    [
        (Ending.FINISHED, 7, (), 1),
        (Ending.STOPPED, 7, (), 1),
        (Ending.LOST, 7, (), 0),
        (Ending.FAILED, 7, (), 0),
        (Ending.FINISHED, 6, (), 0),
        (Ending.FINISHED, 7, ("b",), 0),
    ],
)
def test_only_work_that_was_saved_by_a_job_alone_on_its_gpus_is_a_measurement(
    ending: Ending, epoch: int, partner: tuple[str, ...], want: int
) -> None:
    jobs = [arrival(name, 0.0, "net", (4.0, 2.0, 1.0)).job for name in ("a", "b")]
    submitted = Moment(0.0, [JobSubmitted(0.0, job) for job in jobs])
    ended = Moment(100.0, [JobEnded(100.0, "a", epoch, ending, 300.0)])
    engine = LearningEngine(Script(submitted, ended), cluster().levels, Learning(profile_share=0.0))
    engine.wait(inf)
    ids = ("a", *partner)
    shape, nothing = Shape("v100", 1, "gpu"), tuple(0.0 for _ in ids)
    engine.execute([Start(7, ids, gpus(cluster().nodes[0].name, 0), shape, nothing, tuple(False for _ in ids))])
    engine.wait(inf)
    assert len(engine.estimator.cells) == want


def test_with_caution_beliefs_lie_below_the_estimates() -> None:
    site = cluster()
    told = []
    for caution in (0.0, 1.0):
        engine = LearningEngine(
            SimulatedEngine(site, [arrival("a", 0.0, "net", (4.0, 2.0, 1.0))]),
            site.levels,
            Learning(profile_share=0.0, caution=caution),
        )
        moment = engine.wait(inf)
        assert moment is not None
        (event,) = moment.events
        assert isinstance(event, JobSubmitted)
        told.append(event.job.options[0].steps_per_second)
    assert told[1] < told[0]


# Runs


def test_the_same_seed_gives_the_same_run() -> None:
    site = cluster(gpus=2)
    runs = []
    for _ in range(2):
        wrap, _ = learning(site, seed=3)
        recorder, heard = simulate(site, workload(30), wrap)
        runs.append((list(recorder.records()), heard.events))
    assert runs[0] == runs[1]


def test_a_run_that_learns_replays_from_its_journal() -> None:
    site = cluster(gpus=2)
    wrap, _ = learning(site)
    setup = Setup(site, (PoolSpec("all", "max-min", {}, Cadence.ROUNDS),))
    page = io.StringIO()
    writer = JournalWriter(page)
    writer.open(setup)
    run(Scheduler(setup), wrap(SimulatedEngine(site, workload(30))), [], writer, strict=True)
    assert "SpeedRevised" in page.getvalue()
    assert replay_text(page.getvalue()).difference == ""


@pytest.mark.parametrize("seed", range(3))
def test_lost_late_doubled_and_invented_messages_do_little_harm(seed: int) -> None:
    site = cluster(gpus=2)
    made = workload(40)
    faults = Faults(drop_command=0.05, drop_event=0.05, double=0.2, delay=0.1, lie=0.1)
    wrap, engines = learning(site)
    recorder, _ = simulate(site, made, lambda engine: wrap(FaultyEngine(engine, faults, seed)))
    assert not recorder.live
    truth = {(each.job.model, o.shape.accelerator): o.steps_per_second for each in made for o in each.job.options}
    cells = engines[0].estimator.cells
    off = [abs(cell.log_speed - np.log(truth[key.model, key.column.accelerator])) for key, cell in cells.items()]
    assert np.median(off) < 0.05


@pytest.mark.parametrize(
    ("share", "is_online", "factor_max"),
    [(0.2, True, 1.05), (0.0, True, 1.05), (0.4, False, 1.05)],
    ids=["a fifth, and learning", "nothing, and learning", "a class of every family, and no learning"],
)
def test_completion_times_are_almost_those_of_an_oracle(share: float, is_online: bool, factor_max: float) -> None:
    site = cluster(gpus=3)
    made = workload(120)
    oracle = completion_hours(simulate(site, made)[0])
    wrap, engines = learning(site, profile_share=share, is_online=is_online)
    learned = completion_hours(simulate(site, made, wrap)[0])
    assert engines[0].profiled_share <= share
    assert learned <= oracle * factor_max


def test_to_know_nothing_and_learn_nothing_is_expensive() -> None:
    site = cluster(gpus=3)
    made = workload(60)
    oracle = completion_hours(simulate(site, made)[0])
    wrap, _ = learning(site, profile_share=0.0, is_online=False)
    assert completion_hours(simulate(site, made, wrap)[0]) > oracle * 1.1


def test_on_gavel_s_workload_a_fifth_of_the_cells_is_within_five_percent_of_the_oracle(data: Path) -> None:
    measured = read_gavel_csv(data)
    site = cluster(nodes=2)
    trace = GavelWorkload(reference_speeds(measured, "v100"), jobs=200, jobs_per_hour=1.0).trace(0)
    made, faults = arrivals(trace, site, SpeedBook(measured))
    assert not faults
    oracle = completion_hours(simulate(site, made)[0])
    wrap, engines = learning(site)
    assert completion_hours(simulate(site, made, wrap)[0]) <= oracle * 1.05
    assert 0.1 <= engines[0].profiled_share <= 0.2


@pytest.mark.parametrize(
    "fields",
    [
        {"profile_share": 1.5},
        {"profile_seconds": -1.0},
        {"profile_noise": inf},
        {"report_seconds": 0.0},
        {"caution": inf},
    ],
)
def test_options_that_mean_nothing_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(InputError):
        Learning(**fields)  # type: ignore[arg-type]
