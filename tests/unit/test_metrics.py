"""Each metric on a schedule of four jobs, worked out by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from math import inf, isnan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import gpus, job, with_truth

from horae.model.cluster import Cluster, Node
from horae.model.commands import Start
from horae.model.errors import InputError
from horae.model.events import Ending, Event, JobEnded, JobSubmitted, Tick
from horae.model.jobs import Arrival, Truth
from horae.model.plans import Reaction
from horae.model.setup import PoolSpec, Setup
from horae.model.shapes import Option, Shape
from horae.reports.metrics import Metrics, measure
from horae.reports.recorder import Recorder
from horae.reports.rho import apps
from horae.reports.run_log import RunLog
from horae.reports.usage import fragmentation

# Two nodes: `a` with two A100 at 2 dollars an hour each (GPUs 0 and 1), `v` with two V100 at 1 dollar (2 and 3).
#
#            0        100      200  250  300      400 seconds
#   a   0    1111111111222222222222222221111111111
#       1    1111111111         3333333331111111111
#   v   2                       4444444444444444444
#       3
#
# one    2 GPUs, 190 s of work; submitted at 0, runs 0-100, is stopped with 100 s done, resumes at 300 with a restart of
#        10 s and ends at 400. A deadline at 350: missed. Tenant nlp, user ann.
# two    1 GPU, 200 s, submitted at 50, runs 100-300 on an A100. A deadline at 300: met. Tenant nlp, user bob.
# three  1 GPU, 100 s, submitted at 100, runs 200-300 on an A100. App sweep of tenant vision, user ann.
# four   1 GPU, on an A100 100 s and on a V100 200 s; submitted at 100, runs 200-400 on a V100. App sweep too.
SETUP = Setup(
    Cluster("lab", (Node("a", "A100", 2, price_per_hour=2.0), Node("v", "V100", 2, price_per_hour=1.0))),
    (PoolSpec("all"),),
)
ONE = with_truth(
    job("one", 0, 2, 190, accelerator="A100", restart_seconds=10.0, deadline_at=350.0, tenant="nlp", user="ann"), 190
)
TWO = with_truth(job("two", 50, 1, 200, accelerator="A100", deadline_at=300.0, tenant="nlp", user="bob"), 200)
THREE = with_truth(job("three", 100, 1, 100, accelerator="A100", app="sweep", tenant="vision", user="ann"), 100)
BOTH_TYPES = (Option(Shape("A100", 1, "node"), 2.0), Option(Shape("V100", 1, "node"), 1.0))
FOUR = Arrival(
    replace(job("four", 100, app="sweep", tenant="vision"), options=BOTH_TYPES, steps_total=777.0),
    Truth(200.0, BOTH_TYPES),  # what was believed does not count
)


def start(epoch: int, job_id: str, node: str, *numbers: int, resumes: bool = False) -> Start:
    shape = Shape({"a": "A100", "v": "V100"}[node], len(numbers), "node")
    return Start(epoch, (job_id,), gpus(node, *numbers), shape, (0.0,), (resumes,))


STORY: list[tuple[Event, tuple[Start, ...]]] = [
    (JobSubmitted(0.0, ONE.job), (start(0, "one", "a", 0, 1),)),
    (JobSubmitted(50.0, TWO.job), ()),
    (JobSubmitted(100.0, THREE.job), ()),
    (JobSubmitted(100.0, FOUR.job), ()),
    (JobEnded(100.0, "one", 0, Ending.STOPPED, 100.0), (start(1, "two", "a", 0),)),
    (Tick(200.0), (start(2, "three", "a", 1), start(3, "four", "v", 0))),
    (JobEnded(300.0, "two", 1, Ending.FINISHED, 200.0), ()),
    (JobEnded(300.0, "three", 2, Ending.FINISHED, 100.0), (start(4, "one", "a", 0, 1, resumes=True),)),
    (JobEnded(400.0, "one", 4, Ending.FINISHED, 190.0), ()),
    (JobEnded(400.0, "four", 3, Ending.FINISHED, 200.0), ()),
]


def recorded(until: float = inf) -> Recorder:
    recorder = Recorder(SETUP)
    assert len(list(recorder.expecting([ONE, TWO, THREE, FOUR]))) == 4
    for event, commands in STORY:
        if event.at <= until:
            recorder.reacted(event, Reaction(commands, ()))
    return recorder


@pytest.fixture(scope="module")
def log() -> RunLog:
    return recorded().log()


@pytest.fixture(scope="module")
def metrics(log: RunLog) -> Metrics:
    return measure(log)


WANT: dict[str, float] = {
    "jobs": 4,
    "finished": 4,
    "unfinished": 0,
    # Ends less submissions: 400, 250, 200, 300.
    "completion_mean_seconds": 1150 / 4,
    "completion_median_seconds": 275,
    "completion_p90_seconds": 370,  # 2.7 of 3 steps along 200, 250, 300, 400: 300 + 0.7 x 100
    "completion_p99_seconds": 397,
    # First starts less submissions: 0, 50, 100, 100.
    "queueing_mean_seconds": 62.5,
    "queueing_p99_seconds": 100,
    # Time on GPUs: 200, 200, 100, 200; so waiting: 200, 50, 100, 100.
    "waiting_mean_seconds": 112.5,
    "makespan_seconds": 400,
    # GPU-seconds: one 2 x 200, two 200, three 100, four 200: 900 of 4 x 400.
    "utilisation": 900 / 1600,
    "gpu_hours": 900 / 3600,
    # Idle: 700. Node a is in use all the time and holds 700 of its 800; node v is in use for 200 s and holds 200 of
    # those 400. So 100 + 200 GPU-seconds are idle in nodes partly in use.
    "fragmentation": 300 / 700,
    "preemptions": 1,
    "restarts": 1,
    "restart_gpu_hours": 2 * 10 / 3600,
    "deadlines": 2,
    "deadlines_missed": 1,
    "deadlines_missed_share": 0.5,
    "cost": (700 * 2 + 200 * 1) / 3600,
    "apps_left_out": 0,
}


@pytest.mark.parametrize("name", WANT)
def test_a_metric_is_what_one_computes_by_hand(metrics: Metrics, name: str) -> None:
    assert getattr(metrics, name) == pytest.approx(WANT[name], rel=1e-12)


def test_utilisation_by_type(metrics: Metrics) -> None:
    assert metrics.utilisation_by_accelerator == pytest.approx({"A100": 700 / 800, "V100": 200 / 800})


# Three apps: one (0-400), two (50-300), sweep (100-400). Alive: 1 until 50, 2 until 100, 3 until 300, 2 until 400.
# Averages over their lives: one (50 + 100 + 600 + 200) / 400, two (100 + 600) / 250, sweep (600 + 200) / 300.
# Work in reference shapes: one 190 x 2 GPU-seconds with gangs of 2; two 200 x 1; sweep 100 + 100 with gangs of 1 + 1,
# for the reference shape of four is the A100. The pool has 4 GPUs and 4 jobs, so the static contention is 1.
RHO: dict[str, dict[str, float]] = {
    "rho_paper": {
        "one": 400 / (380 / 2 * 2.375),
        "two": 250 / (200 / 1 * 2.8),
        "sweep": 300 / (200 / 2 * 800 / 300),
    },
    "rho_private": {  # 4 / 2.375 = 1.68 GPUs; 4 / 2.8 = 1.43, of which it can use 1; 4 / 2.67 = 1.5
        "one": 400 / (380 / (4 / 2.375)),
        "two": 250 / (200 / 1),
        "sweep": 300 / (200 / 1.5),
    },
    "rho_static": {"one": 400 / 190, "two": 250 / 200, "sweep": 300 / 100},
}


@pytest.mark.parametrize("name", RHO)
def test_rho_of_each_app(log: RunLog, name: str) -> None:
    columns = apps(log)
    names = [log.apps[app] if (app := log.jobs.app[row]) >= 0 else log.jobs.id[row] for row in columns.first_job]
    assert dict(zip(names, getattr(columns, name), strict=True)) == pytest.approx(RHO[name], rel=1e-12)


@pytest.mark.parametrize("name", RHO)
def test_fairness_over_all_apps(metrics: Metrics, name: str) -> None:
    values = sorted(RHO[name].values())
    found = getattr(metrics, name)
    assert found.apps == 3
    assert found.unfair_share == pytest.approx(sum(rho > 1 for rho in values) / 3)
    assert found.max == pytest.approx(values[2])
    assert found.mean == pytest.approx(sum(values) / 3)
    assert found.p99 == pytest.approx(values[1] + 0.98 * (values[2] - values[1]))
    assert found.jain == pytest.approx(sum(values) ** 2 / (3 * sum(rho**2 for rho in values)))


def test_groups_are_tenants_and_users_with_a_name(metrics: Metrics) -> None:
    assert (list(metrics.tenants), list(metrics.users)) == (["nlp", "vision"], ["bob", "ann"])
    assert metrics.tenants["nlp"].completion_mean_seconds == pytest.approx((400 + 250) / 2)
    assert metrics.users["ann"].completion_median_seconds == pytest.approx((400 + 200) / 2)
    assert metrics.users["bob"].completion_p99_seconds == 250
    assert (metrics.users["ann"].jobs, metrics.users["bob"].jobs) == (2, 1)
    assert metrics.tenants["vision"].cost == pytest.approx((100 * 2 + 200) / 3600)
    assert (metrics.users["ann"].preemptions, metrics.tenants["vision"].preemptions) == (1, 0)
    assert metrics.tenants["vision"].rho_paper.max == pytest.approx(RHO["rho_paper"]["sweep"])
    assert isnan(metrics.tenants["vision"].deadlines_missed_share)


def test_a_log_can_be_taken_on_the_way() -> None:
    # At 300, one is back on GPUs and four still runs: both count as they are.
    metrics = measure(recorded(until=300.0).log())
    assert (metrics.finished, metrics.unfinished, metrics.makespan_seconds) == (2, 2, 300.0)
    assert metrics.utilisation == pytest.approx((200 + 200 + 100 + 100) / (4 * 300))
    assert metrics.deadlines_missed == 1  # whoever has not finished has missed it
    assert (metrics.apps_left_out, metrics.rho_paper.apps) == (2, 1)


def test_what_was_refused_is_counted_and_nothing_else() -> None:
    metrics = measure(recorded(until=100.0).log(refused={"three", "four"}))
    assert (metrics.jobs, metrics.refused, metrics.unfinished) == (4, 2, 2)
    assert metrics.apps_left_out == 2


def test_plain_numbers_are_json_with_null_for_the_mean_of_nothing() -> None:
    plain = measure(Recorder(SETUP).log()).plain()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert (plain["jobs"], plain["completion_mean_seconds"], plain["rho_paper"]["max"]) == (0, None, None)


def test_one_app_alone_is_exactly_fair() -> None:
    recorder = Recorder(SETUP)
    story: list[tuple[Event, Any]] = [STORY[0], (JobEnded(190.0, "one", 0, Ending.FINISHED, 190.0), ())]
    for event, commands in story:
        recorder.reacted(event, Reaction(commands, ()))
    metrics = measure(recorder.log())
    assert (metrics.rho_paper.max, metrics.rho_private.max, metrics.rho_paper.unfair_share) == (1.0, 1.0, 0.0)
    assert metrics.rho_paper.jain == 1.0
    assert metrics.fragmentation == 0.0


def test_each_pool_has_its_own_contention() -> None:
    pools = (PoolSpec("nlp", tenants=("nlp",), nodes=("a",)), PoolSpec("rest"))
    recorder = Recorder(replace(SETUP, pools=pools))
    v_job = job("w", 0, 1, 100, accelerator="V100")
    story: list[tuple[Event, Any]] = [
        (JobSubmitted(0.0, ONE.job), (start(0, "one", "a", 0, 1),)),
        (JobSubmitted(0.0, v_job), (start(1, "w", "v", 0),)),
        (JobEnded(100.0, "w", 1, Ending.FINISHED, 100.0), ()),
        (JobEnded(190.0, "one", 0, Ending.FINISHED, 190.0), ()),
    ]
    for event, commands in story:
        recorder.reacted(event, Reaction(commands, ()))
    columns = apps(recorder.log())
    assert columns.apps_average.tolist() == [1.0, 1.0]
    assert columns.pool_gpus.tolist() == [2, 2]
    assert columns.rho_paper.tolist() == [1.0, 1.0]


def test_fragmentation_counts_a_node_once_however_many_leases_it_has() -> None:
    # Two jobs on one node, 0-100 and 50-150: it is in use for 150 s and holds 200 of 300 GPU-seconds.
    cluster = Cluster("lab", (Node("a", "A100", 2), Node("b", "A100", 2)))
    recorder = Recorder(Setup(cluster, (PoolSpec("all"),)))
    story: list[tuple[Event, Any]] = [
        (JobSubmitted(0.0, job("x", 0, accelerator="A100")), (start(0, "x", "a", 0),)),
        (JobSubmitted(50.0, job("y", 50, accelerator="A100")), (start(1, "y", "a", 1),)),
        (JobEnded(100.0, "x", 0, Ending.FINISHED, 100.0), ()),
        (JobEnded(150.0, "y", 1, Ending.FINISHED, 100.0), ()),
    ]
    for event, commands in story:
        recorder.reacted(event, Reaction(commands, ()))
    assert fragmentation(recorder.log()) == pytest.approx(100 / (600 - 200))


# The log itself


def test_the_truth_counts_for_the_work_of_a_job(log: RunLog) -> None:
    work = dict(zip(log.jobs.id, zip(log.jobs.ideal_seconds, log.jobs.fastest_seconds, strict=True), strict=True))
    assert work == {"one": (190, 190), "two": (200, 200), "three": (100, 100), "four": (100, 100)}
    least = dict(zip(log.jobs.id, log.jobs.least_gpu_seconds.tolist(), strict=True))
    assert least == {"one": [380, inf], "two": [200, inf], "three": [100, inf], "four": [100, 200]}


def test_a_saved_log_comes_back_the_same_and_makes_the_same_bytes(log: RunLog, tmp_path: Path) -> None:
    log.save(tmp_path / "one.npz")
    again = RunLog.load(tmp_path / "one.npz")
    again.save(tmp_path / "two.npz")
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.npz", "two.npz"]
    assert (again.jobs.id, again.users, again.apps, again.until) == (log.jobs.id, log.users, log.apps, 400.0)
    np.testing.assert_array_equal(again.leases.gpu, log.leases.gpu)
    assert measure(again).plain() == measure(log).plain()


def test_an_empty_log_with_strange_names_comes_back(tmp_path: Path) -> None:
    recorder = Recorder(SETUP)
    recorder.reacted(JobSubmitted(0.0, job("zoë\n\x00", tenant="", user="ß")), Reaction((), ()))
    recorder.log().save(tmp_path / "log.npz")
    again = RunLog.load(tmp_path / "log.npz")
    assert (again.jobs.id, again.tenants, again.users, len(again.leases)) == (("zoë\n\x00",), ("",), ("ß",), 0)


@pytest.mark.parametrize("content", [None, b"", b"no archive", b"PK\x05\x06" + bytes(18)], ids=str)
def test_what_is_no_log_is_one_line_with_a_remedy(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "log.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"log\.npz: .*; "):
        RunLog.load(path)


def test_a_log_that_was_cut_short_is_no_log(log: RunLog, tmp_path: Path) -> None:
    path = tmp_path / "log.npz"
    log.save(path)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(InputError, match="is not the log of a run"):
        RunLog.load(path)


def test_a_log_cannot_be_saved_where_there_is_no_folder(log: RunLog, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        log.save(tmp_path / "nowhere" / "log.npz")
