"""A fork with the true lengths and arrivals continues exactly as the run from which it was taken."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from math import inf
from pathlib import Path
from random import Random

import pytest

from horae.driver import run
from horae.engines.simulated import SimulatedEngine
from horae.forks.beliefs import Beliefs, PastJob
from horae.forks.eta import Eta, draw, eta
from horae.forks.forward import Watch, run_forward
from horae.forks.plan import Plan, future, summarise
from horae.forks.processes import run_all
from horae.model.cluster import Cluster, Node
from horae.model.events import Event, JobSubmitted, Surveyed, Tick
from horae.model.jobs import Arrival, Job, Truth
from horae.model.plans import Reaction
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.model.shapes import Option, Shape
from horae.scheduler import Scheduler
from horae.traces.generators import Poisson

CLUSTER = Cluster("test", tuple(Node(f"n{index}", "gpu", 8) for index in range(4)))
POLICIES = ("fifo", "tiresias", "max-min", "themis", "srtf", "slurm")


def _workload(seed: int, load: float = 1.2) -> list[Arrival]:
    return list(Poisson(jobs=80, cluster_gpus=32, load=load, median_seconds=3000.0, sigma=1.0).arrivals(seed=seed))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("at", [4_000.0, 17_321.5])
def test_a_fork_continues_the_run(policy: str, at: float) -> None:
    arrivals = _workload(3)
    cadence = Cadence.EVENTS if policy in ("fifo", "srtf", "slurm") else Cadence.ROUNDS
    setup = Setup(CLUSTER, (PoolSpec("all", policy, {}, cadence),))
    whole = Watch()
    run(Scheduler(setup), SimulatedEngine(CLUSTER, arrivals), [whole])

    scheduler, engine = Scheduler(setup), SimulatedEngine(CLUSTER, arrivals)
    before = Watch()
    run(scheduler, engine, [before], enough=lambda: engine.now >= at)
    copy = Scheduler.restore(json.loads(json.dumps(scheduler.dump())))
    later = [each for each in arrivals if not copy.jobs.is_known(each.job.id)]
    assert later and copy.jobs.live, "the fork is taken in the middle of the run"
    truths = {each.job.id: each.truth for each in arrivals}
    after = Watch()
    run_forward(copy, truths, later, [after])

    ended = {**before.ended, **after.ended}
    assert set(ended) == set(whole.ended)
    for job_id, moment in whole.ended.items():
        assert ended[job_id] == pytest.approx(moment, abs=1e-3), job_id
    started = {**after.started, **before.started}
    assert {job_id: round(moment, 3) for job_id, moment in started.items()} == {
        job_id: round(moment, 3) for job_id, moment in whole.started.items()
    }


def _middle(policy: str, at: float, *, lengths_known: bool) -> tuple[Scheduler, list[Arrival], Watch]:
    """A run that was left at some time, and how it went on when it was run to its end."""
    arrivals = _workload(3, load=3.0)
    if not lengths_known:
        arrivals = [replace(each, job=replace(each.job, steps_total=None)) for each in arrivals]
    setup = Setup(CLUSTER, (PoolSpec("all", policy, {}, Cadence.EVENTS),))
    whole, engine, scheduler = Watch(), SimulatedEngine(CLUSTER, arrivals), Scheduler(setup)
    run(Scheduler(setup), SimulatedEngine(CLUSTER, arrivals), [whole])
    run(scheduler, engine, enough=lambda: engine.now >= at)
    return scheduler, arrivals, whole


def test_with_known_lengths_and_no_later_jobs_one_draw_tells_the_truth() -> None:
    scheduler, arrivals, _ = _middle("fifo", 10_000.0, lengths_known=True)
    dump = scheduler.dump()
    waiting = [job_id for job_id in scheduler.jobs.live if scheduler.jobs.on_gpus(job_id) is None][-1]
    truth = Watch()
    run_forward(Scheduler.restore(dump), {each.job.id: each.truth for each in arrivals}, (), [truth])
    found = eta(lambda: Scheduler.restore(dump), waiting, Beliefs())
    assert found is not None
    assert (found.draws, found.cut_off, found.estimated) == (1, 0, 0)
    assert found.starts is not None
    assert found.starts.median == truth.started[waiting]
    assert found.ends.low == found.ends.median == found.ends.high == truth.ended[waiting]


def test_unknown_lengths_give_an_interval_around_what_happens() -> None:
    scheduler, arrivals, whole = _middle("fifo", 10_000.0, lengths_known=False)
    dump = scheduler.dump()
    past = [
        PastJob(each.job, each.truth.steps_total / each.truth.options[0].steps_per_second)
        for each in arrivals
        if whole.ended[each.job.id] <= 10_000.0
    ]
    assert len(past) > 20
    waiting = [job_id for job_id in scheduler.jobs.live if scheduler.jobs.on_gpus(job_id) is None]
    found = [eta(lambda: Scheduler.restore(dump), each, Beliefs(past), draws=10) for each in waiting[:5]]
    again = [eta(lambda: Scheduler.restore(dump), each, Beliefs(past), draws=10) for each in waiting[:5]]
    assert found == again, "the same seed gives the same answer"
    starts = {each.job_id: each.starts for each in found if each is not None and each.starts is not None}
    assert len(starts) == 5
    assert all(each.low <= each.median <= each.high for each in starts.values())
    assert any(each.low < each.high for each in starts.values())
    assert any(each.low <= whole.started[job_id] <= each.high for job_id, each in starts.items())


def test_a_job_is_believed_to_run_longer_than_it_has_and_not_beyond_its_limit() -> None:
    job = replace(_workload(0)[0].job, steps_total=None, limit_seconds=7200.0)
    speed = job.options[0].steps_per_second
    past = [PastJob(job, float(60 * (1 + number))) for number in range(30)]
    for beliefs in (Beliefs(past), Beliefs()):
        drawn = [beliefs.truth(job, 900.0, Random(seed)).steps_total / speed for seed in range(200)]
        assert min(drawn) > 900.0 - 1e-6
        assert max(drawn) <= 7200.0 + 1e-6
    assert len({beliefs.truth(job, 900.0, Random(seed)).steps_total for seed in range(50)}) > 10


def test_later_jobs_come_at_the_time_of_day_of_the_past() -> None:
    job = _workload(0)[0].job
    noon = [PastJob(replace(job, id=str(day), submitted_at=86_400.0 * day + 43_200.0), 60.0) for day in range(5)]
    later = list(Beliefs(noon).arrivals(5 * 86_400.0, 7 * 86_400.0, Random(0)))
    assert [each.job.submitted_at for each in later] == [5.5 * 86_400.0, 6.5 * 86_400.0]
    assert len({each.job.id for each in later} | {each.job.id for each in noon}) == 7


def test_the_time_budget_is_kept_and_said() -> None:
    scheduler, _, _ = _middle("fifo", 10_000.0, lengths_known=False)
    dump = scheduler.dump()
    waiting = [job_id for job_id in scheduler.jobs.live if scheduler.jobs.on_gpus(job_id) is None][-1]

    def ask(steps: float) -> Eta | None:
        asked = iter(range(10_000))
        return eta(lambda: Scheduler.restore(dump), waiting, Beliefs(), draws=5, is_over=lambda: next(asked) >= steps)

    assert ask(3) is None, "before the job starts, a future tells nothing"
    whole = ask(inf)
    assert whole is not None and (whole.draws, whole.cut_off) == (5, 0)
    part = next(found for steps in range(10_000) if (found := ask(steps)) is not None and found.draws == 3)
    assert (part.draws, part.cut_off, part.estimated) == (3, 1, 0), "what was found before counts"
    assert part.starts is not None and part.starts.high < inf


@pytest.mark.parametrize("policy", ["fifo", "max-min"])
def test_a_draw_that_is_late_is_left_when_the_job_starts_and_its_end_is_estimated(policy: str) -> None:
    scheduler, _, _ = _middle(policy, 10_000.0, lengths_known=False)
    dump = scheduler.dump()
    waiting = [job_id for job_id in scheduler.jobs.live if scheduler.jobs.on_gpus(job_id) is None]
    for job_id in waiting[::5]:
        whole = draw(Scheduler.restore(dump), job_id, Beliefs(), 0)
        left = draw(Scheduler.restore(dump), job_id, Beliefs(), 0, is_late=lambda: True)
        assert (left.starts_at, left.is_cut_off, left.is_estimated) == (whole.starts_at, False, True)
        if policy == "fifo":  # where no job is preempted, that is its end
            assert left.ends_at == pytest.approx(whole.ends_at)
        else:
            assert left.starts_at < left.ends_at < inf
    running = next(job_id for job_id in scheduler.jobs.live if scheduler.jobs.on_gpus(job_id) is not None)
    left = draw(Scheduler.restore(dump), running, Beliefs(), 0, is_over=lambda: True)
    assert (left.starts_at, left.is_cut_off, left.is_estimated) == (scheduler.now, False, True)


def test_the_estimated_end_of_a_job_that_takes_turns_is_that_of_its_share() -> None:
    """Four jobs of an hour on one GPU: each gets a quarter of the time."""
    cluster = Cluster("test", (Node("n0", "gpu", 1),))
    pool = PoolSpec("all", "max-min", {}, Cadence.ROUNDS, 60.0)
    scheduler, shape = Scheduler(Setup(cluster, (pool,))), Shape("gpu", 1, "node")
    for number in range(4):
        job = Job(id=str(number), submitted_at=0.0, options=(Option(shape, 1.0),), steps_total=3600.0)
        scheduler.handle(JobSubmitted(0.0, job))
    scheduler.handle(Tick(0.0))
    waiting = next(job_id for job_id in scheduler.jobs.live if scheduler.jobs.on_gpus(job_id) is None)
    dump = scheduler.dump()
    left = draw(Scheduler.restore(dump), waiting, Beliefs(), 0, is_late=lambda: True)
    assert left.ends_at - left.starts_at == pytest.approx(4 * 3600.0)


def test_a_fork_does_not_survey_its_engine() -> None:
    arrivals = _workload(0)[:20]
    pool = PoolSpec("all", "fifo", {}, Cadence.EVENTS)
    scheduler, engine = Scheduler(Setup(CLUSTER, (pool,), survey_seconds=60.0)), SimulatedEngine(CLUSTER, arrivals)
    run(scheduler, engine, enough=lambda: engine.now >= 1000.0)
    assert scheduler.jobs.live
    dump = scheduler.dump()
    truths = {each.job.id: each.truth for each in arrivals}
    seen = _Surveys()
    run(Scheduler(Setup(CLUSTER, (pool,), survey_seconds=60.0)), SimulatedEngine(CLUSTER, arrivals), [seen])
    assert seen.count > 0, "a run does"
    seen = _Surveys()
    run_forward(Scheduler.restore(dump), truths, (), [seen])
    assert seen.count == 0


class _Surveys:
    count = 0

    def reacted(self, event: Event, reaction: Reaction) -> None:
        self.count += isinstance(event, Surveyed)


def _plan(dump: object, new: Job) -> Plan:
    without = future(Scheduler.restore(dump), None, Beliefs(), 0)
    copy = Scheduler.restore(dump)
    asked_at = copy.now
    beside = future(copy, replace(new, submitted_at=asked_at), Beliefs(), 0)
    return summarise(new.id, asked_at, [(without, beside)])


def test_a_plan_tells_what_a_job_would_delay() -> None:
    """Under FIFO a new job delays none of those before it; under shortest-first a short one delays the longer ones."""
    scheduler, arrivals, _ = _middle("fifo", 10_000.0, lengths_known=True)
    dump = scheduler.dump()
    new = replace(arrivals[0].job, id="new", steps_total=600.0 * arrivals[0].job.options[0].steps_per_second)
    found = _plan(dump, new)
    assert found.delays == ()
    assert found.ends.median >= found.starts.median + 600.0 - 1e-6

    scheduler, _, _ = _middle("srtf", 10_000.0, lengths_known=True)
    dump = scheduler.dump()
    found = _plan(dump, new)
    assert found.delays and found.delays[0].seconds > 60.0
    truth = Watch()
    copy = Scheduler.restore(dump)
    truths = {each.job.id: each.truth for each in arrivals}
    before = Watch()
    run_forward(Scheduler.restore(dump), truths, (), [before])
    run_forward(copy, truths, [Arrival(replace(new, submitted_at=copy.now), _truth(new))], [truth])
    for each in found.delays:
        assert truth.ended[each.job_id] - before.ended[each.job_id] == pytest.approx(each.seconds)


def _truth(job: Job) -> Truth:
    assert job.steps_total is not None
    return Truth(job.steps_total, job.options)


def test_tasks_run_in_copies_and_leave_no_trace() -> None:
    counted = [0]

    def count(number: int) -> int:
        counted[0] += 1
        assert number != 2, "this one fails"
        return counted[0] * 10 + number

    tasks = [lambda number=number: count(number) for number in range(5)]
    assert run_all(tasks, 2, time.monotonic() + 60) == [10, 11, None, 13, 14]
    assert counted == [0]


def test_when_the_time_to_begin_is_over_the_first_tasks_run_and_no_others() -> None:
    now = time.monotonic()
    assert run_all([lambda: 1] * 5, 2, now + 3600, begins_until=now) == [1, 1, None, None, None]
    assert run_all([lambda: 1] * 5, 1, now + 3600, begins_until=now) == [1, None, None, None, None]
    assert run_all([lambda: 1] * 5, 2, now + 60, begins_until=now + 60) == [1] * 5
    assert run_all([lambda: 1], 2, now + 60, begins_until=now) == [1]


def test_tasks_that_are_not_done_in_time_are_ended(tmp_path: Path) -> None:
    def sleep() -> None:
        (tmp_path / str(os.getpid())).touch()
        time.sleep(3600)

    assert run_all([sleep] * 3, 2, time.monotonic() + 1.0) == [None] * 3
    assert not [path.name for path in tmp_path.iterdir() if Path(f"/proc/{path.name}").exists()]


def test_jobs_that_run_count_with_how_long_they_have_run_so_far() -> None:
    """Without them the long ones would be missing: here nine of ten jobs run longer than any that has ended."""
    job = replace(_workload(0)[0].job, steps_total=None)
    speed = job.options[0].steps_per_second
    ended = [PastJob(replace(job, submitted_at=float(number)), 60.0 + number) for number in range(10)]
    running = [PastJob(replace(job, submitted_at=float(number)), 7200.0) for number in range(90)]

    def longer(beliefs: Beliefs) -> float:
        drawn = [beliefs.truth(job, 0.0, Random(seed)).steps_total / speed for seed in range(400)]
        assert all(each >= 60.0 - 1e-6 for each in drawn)
        return sum(each > 7200.0 - 1e-6 for each in drawn) / len(drawn)

    assert longer(Beliefs(ended)) == 0.0
    assert longer(Beliefs(ended, running)) == pytest.approx(0.9, abs=0.06)


def test_the_curve_of_lengths_is_that_of_kaplan_and_meier() -> None:
    """Of six, four ended after 6, 6.5, 10 and 12 h; two run, for 7 h and 11 h so far."""
    job = replace(_workload(0)[0].job, steps_total=None)
    speed, hour = job.options[0].steps_per_second, 3600.0
    ended = [PastJob(replace(job, submitted_at=float(n)), hours * hour) for n, hours in enumerate((6, 6.5, 10, 12))]
    running = [PastJob(replace(job, submitted_at=10.0 + n), hours * hour) for n, hours in enumerate((7, 11))]
    beliefs = Beliefs(ended * 10, running * 10)

    def part(hours: float) -> float:
        drawn = [beliefs.truth(job, 0.0, Random(seed)).steps_total / speed / hour for seed in range(3000)]
        return sum(each > hours + 1e-6 for each in drawn) / len(drawn)

    assert part(6) == pytest.approx(5 / 6, abs=0.03)
    assert part(6.5) == pytest.approx(4 / 6, abs=0.03)
    assert part(10) == pytest.approx(4 / 6 * 2 / 3, abs=0.03)
    assert part(12) == 0.0


def test_later_jobs_include_those_that_have_not_ended() -> None:
    job = replace(_workload(0)[0].job, steps_total=None)
    past = [PastJob(replace(job, id="first", submitted_at=0.0), 60.0)]
    live = replace(job, id="long", submitted_at=43_200.0)
    truth = Truth(1e6, job.options)
    later = list(Beliefs(past).arrivals(86_400.0, 2 * 86_400.0, Random(0), [Arrival(live, truth)]))
    assert [(each.job.submitted_at, each.truth) for each in later] == [(86_400.0 + 43_200.0, truth)]
